//! One client thread: its ring, its connections, and the loop that keeps them busy.

use crate::engine::conn::Conn;
use crate::engine::outcome::Outcome;
use crate::engine::plan::{Plan, Stop, Templates, Tickets};
use crate::engine::ring::{Done, Kind, Ring};
use crate::os::{interrupted, now_ns};
use crate::prng::Prng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting worker looks for ctrl-C and for a server that has gone silent.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Timers of the kernel fire this late at worst; a rate-limited worker spins for the rest.
const TIMER_SLACK_NS: u64 = 60_000;

const HANG_UP_WAIT: Duration = Duration::from_secs(2);

/// A worker's part of a run.
#[derive(Clone, Debug)]
pub struct Share {
    pub plan: Plan,
    pub tickets: Tickets,
    /// Place of this worker's first connection among all, and how many there are.
    pub first_conn: usize,
    pub conns_total: usize,
    /// A run fails when no reply comes for so long.
    pub silence_max: Duration,
}

/// The connections of one thread. Made and used on that thread.
pub struct Worker {
    ring: Ring,
    conns: Vec<Conn>,
    templates: Arc<Templates>,
    prng: Prng,
}

/// The state of one run.
struct Run {
    share: Share,
    outcome: Outcome,
    busy: usize,
    deadline_ns: u64,
    last_reply_ns: u64,
    /// Nanoseconds between two batches of a connection in a rate-limited run.
    interval_ns: Option<u64>,
    /// When each connection's next batch is due.
    due_ns: Vec<u64>,
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Worker {
    /// Takes over connected sockets; each may have `pipeline` requests in flight.
    pub fn new(
        sockets: Vec<TcpStream>,
        templates: Arc<Templates>,
        pipeline: usize,
        seed: u64,
    ) -> Result<Worker, String> {
        let mut ring =
            Ring::new(sockets.len()).map_err(|e| format!("cannot set up io_uring: {e}"))?;
        let conns: Vec<Conn> =
            sockets.into_iter().map(|socket| Conn::new(socket, &templates, pipeline)).collect();
        for (token, conn) in conns.iter().enumerate() {
            ring.arm_receive(conn.socket.as_raw_fd(), token as u32).map_err(ring_failed)?;
        }
        Ok(Worker { ring, conns, templates, prng: Prng::new(seed) })
    }

    /// Sends and checks until the plan is done and everything sent is answered.
    pub fn run(&mut self, share: Share) -> Result<Outcome, String> {
        let mut run = Run::new(share, self.conns.len());
        let start_ns = run.outcome.start_ns;
        for token in 0..self.conns.len() as u32 {
            self.next_batch(&mut run, token, start_ns)?;
        }
        while run.busy > 0 || !run.waiting.is_empty() {
            self.ring.wait(run.wait_time(now_ns())).map_err(ring_failed)?;
            while let Some(done) = self.ring.next_done() {
                self.complete(&mut run, done)?;
            }
            self.send_due(&mut run)?;
            run.check_silence()?;
        }
        run.outcome.end_ns = run.last_reply_ns;
        Ok(run.outcome)
    }

    fn complete(&mut self, run: &mut Run, done: Done) -> Result<(), String> {
        let conn = &mut self.conns[done.token as usize];
        if done.kind == Kind::Receive && !done.more && done.result != 0 {
            self.ring.arm_receive(conn.socket.as_raw_fd(), done.token).map_err(ring_failed)?;
        }
        match (done.kind, done.buffer) {
            (Kind::Receive, Some(buffer)) if done.result > 0 => {
                let now_ns = now_ns();
                let bytes = self.ring.received(buffer, done.result as usize);
                let dataset = self.templates.dataset();
                let received = conn.receive(bytes, now_ns, dataset, &mut run.outcome);
                self.ring.give_back(buffer);
                received.map_err(|bad| format!("not a RESP server: {}", bad.0))?;
                run.last_reply_ns = now_ns;
                if conn.is_idle() {
                    run.busy -= 1;
                    self.next_batch(run, done.token, now_ns)?;
                }
                Ok(())
            }
            (Kind::Receive, _) if done.result == -libc::ENOBUFS => Ok(()),
            (Kind::Receive, _) if done.result == 0 => Err("the server closed a connection".into()),
            _ => Err(format!(
                "connection failed: {}",
                std::io::Error::from_raw_os_error(-done.result)
            )),
        }
    }

    /// Sends the connection's next batch, or puts it into the queue until it is due.
    fn next_batch(&mut self, run: &mut Run, token: u32, now_ns: u64) -> Result<(), String> {
        if now_ns >= run.deadline_ns || interrupted() {
            return Ok(());
        }
        if run.interval_ns.is_none() {
            return self.send(run, token, now_ns);
        }
        let due_ns = run.due_ns[token as usize];
        if due_ns <= now_ns {
            self.send(run, token, due_ns)
        } else {
            if due_ns < run.deadline_ns {
                run.waiting.push(Reverse((due_ns, token)));
            }
            Ok(())
        }
    }

    fn send_due(&mut self, run: &mut Run) -> Result<(), String> {
        if run.interval_ns.is_none() {
            return Ok(());
        }
        if interrupted() {
            run.waiting.clear();
        }
        while let Some(&Reverse((due_ns, token))) = run.waiting.peek() {
            if due_ns > now_ns() {
                break;
            }
            run.waiting.pop();
            self.send(run, token, due_ns)?;
        }
        Ok(())
    }

    fn send(&mut self, run: &mut Run, token: u32, start_ns: u64) -> Result<(), String> {
        let plan = &run.share.plan;
        let numbers = run.share.tickets.take(plan.pipeline as u64);
        if numbers.is_empty() {
            return Ok(());
        }
        let conn = &mut self.conns[token as usize];
        conn.prepare(numbers, plan, &self.templates, &mut self.prng, start_ns);
        run.due_ns[token as usize] += run.interval_ns.unwrap_or(0);
        run.busy += 1;
        self.ring.send(conn.socket.as_raw_fd(), &conn.out, token, false).map_err(ring_failed)
    }

    /// Ends all receives before the ring's buffers are freed.
    fn hang_up(&mut self) {
        for conn in &self.conns {
            // Fails only if the peer has gone already, which ends the receive as well.
            let _ = conn.socket.shutdown(Shutdown::Both);
        }
        let mut armed = self.conns.len();
        let end_ns = now_ns() + HANG_UP_WAIT.as_nanos() as u64;
        while armed > 0 && now_ns() < end_ns && self.ring.wait(CHECK_EVERY).is_ok() {
            while let Some(done) = self.ring.next_done() {
                if let Some(buffer) = done.buffer {
                    self.ring.give_back(buffer);
                }
                armed -= usize::from(done.kind == Kind::Receive && !done.more);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.hang_up();
    }
}

impl Run {
    fn new(share: Share, conns: usize) -> Run {
        let start_ns = now_ns();
        let interval_ns = share.plan.rate.map(|rate| {
            (share.plan.pipeline as f64 * share.conns_total as f64 / rate * 1e9) as u64
        });
        let step_ns = interval_ns.unwrap_or(0) / share.conns_total as u64;
        let due_ns = (0..conns).map(|n| start_ns + step_ns * (share.first_conn + n) as u64);
        Run {
            outcome: Outcome { start_ns, ..Outcome::default() },
            busy: 0,
            deadline_ns: match share.plan.stop {
                Stop::After(duration) => start_ns + duration.as_nanos() as u64,
                Stop::Operations(_) => u64::MAX,
            },
            last_reply_ns: start_ns,
            interval_ns,
            due_ns: due_ns.collect(),
            waiting: BinaryHeap::new(),
            share,
        }
    }

    fn wait_time(&self, now_ns: u64) -> Duration {
        let Some(&Reverse((due_ns, _))) = self.waiting.peek() else { return CHECK_EVERY };
        let spin_from_ns = due_ns.saturating_sub(TIMER_SLACK_NS);
        Duration::from_nanos(spin_from_ns.saturating_sub(now_ns)).min(CHECK_EVERY)
    }

    fn check_silence(&self) -> Result<(), String> {
        let silent_ns = now_ns().saturating_sub(self.last_reply_ns);
        if self.busy > 0 && silent_ns > self.share.silence_max.as_nanos() as u64 {
            return Err(format!("no reply for {:?}", self.share.silence_max));
        }
        Ok(())
    }
}

fn ring_failed(error: std::io::Error) -> String {
    format!("io_uring failed: {error}")
}
