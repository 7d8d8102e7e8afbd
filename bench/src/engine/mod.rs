//! The load engine: one thread per client core, each with its own io_uring and its share of the
//! connections. Connections stay open from one run to the next.

pub mod conn;
pub mod outcome;
pub mod plan;
pub mod ring;
pub mod worker;

use crate::control::Control;
use crate::dataset::Dataset;
use crate::os;
use outcome::Outcome;
use plan::{Plan, Templates, Tickets};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::{Share, Worker};

/// Where and with what to connect.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub addr: SocketAddr,
    pub connections: usize,
    /// One thread for each, pinned to it.
    pub cpus: Vec<usize>,
    /// The longest pipeline that a plan will ask for.
    pub pipeline_max: usize,
    pub seed: u64,
    pub silence_max: Duration,
}

/// The client threads and their connections to one server.
pub struct Fleet {
    crew: Vec<Member>,
    options: FleetOptions,
}

struct Member {
    first_conn: usize,
    orders: Sender<Share>,
    outcomes: Receiver<Result<Outcome, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Opens all connections and waits until the server has answered on each.
    pub fn connect(options: FleetOptions, dataset: &Dataset) -> Result<Fleet, String> {
        let templates = Arc::new(Templates::new(dataset.clone()));
        let threads = options.cpus.len().min(options.connections).max(1);
        let mut crew = Vec::with_capacity(threads);
        let mut first_conn = 0;
        for index in 0..threads {
            let end = options.connections * (index + 1) / threads;
            let sockets =
                (first_conn..end).map(|_| connect(options.addr)).collect::<Result<_, _>>()?;
            crew.push(Member::start(index, first_conn, sockets, &options, templates.clone()));
            first_conn = end;
        }
        Ok(Fleet { crew, options })
    }

    /// One run of all workers, merged.
    pub fn run(&self, plan: &Plan) -> Result<Outcome, String> {
        assert!(plan.pipeline <= self.options.pipeline_max, "send buffers must not grow");
        let tickets = Tickets::of(&plan.stop);
        for member in &self.crew {
            let share = Share {
                plan: plan.clone(),
                tickets: tickets.clone(),
                first_conn: member.first_conn,
                conns_total: self.options.connections,
                silence_max: self.options.silence_max,
            };
            // A worker that has gone says why in its outcome.
            let _ = member.orders.send(share);
        }
        let mut total = Outcome::default();
        for member in &self.crew {
            total.merge(member.outcomes.recv().map_err(|_| "a client thread ended".to_string())??);
        }
        if os::interrupted() { Err("interrupted".into()) } else { Ok(total) }
    }
}

impl Member {
    fn start(
        index: usize,
        first_conn: usize,
        sockets: Vec<TcpStream>,
        options: &FleetOptions,
        templates: Arc<Templates>,
    ) -> Member {
        let (orders, inbox) = channel::<Share>();
        let (outbox, outcomes) = channel();
        let cpu = options.cpus.get(index).copied();
        let (pipeline, seed) = (options.pipeline_max, options.seed + index as u64);
        let thread = std::thread::spawn(move || {
            let made = os::pin_thread(cpu.as_slice())
                .map_err(|e| format!("cannot run on CPU {cpu:?}: {e}"))
                .and_then(|()| Worker::new(sockets, templates, pipeline, seed));
            let result = made.map(|mut worker| {
                // Ends when the fleet is dropped, which closes the other end.
                while let Ok(share) = inbox.recv() {
                    let _ = outbox.send(worker.run(share));
                }
            });
            if let Err(error) = result {
                let _ = outbox.send(Err(error));
            }
        });
        Member { first_conn, orders, outcomes, thread: Some(thread) }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.orders = channel().0;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its missing outcome.
            let _ = thread.join();
        }
    }
}

/// A socket on which the server has answered: accepting is not part of a measured run.
fn connect(addr: SocketAddr) -> Result<TcpStream, String> {
    let mut control = Control::connect(addr)?;
    control.ping()?;
    control.into_socket()
}
