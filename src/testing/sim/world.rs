//! The world around a server: one thread runs the turns of all cores and the acts of all clients
//! in an order that the seed chooses, while time moves as the world says.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::config::Durability;
use crate::testing::clock::SimClock;
use crate::testing::disk::{SimDisk, SimRandom};
use crate::testing::faults::Faults;
use crate::testing::net::SimWires;

use super::ballast::{Ballast, Look};
use super::client::{Client, Owed};
use super::group::{Group, OpId};
use super::machine::{Ground, Machine, Setup};
use super::model::Op;
use super::options::{CORES_MAX, Options};
use super::reply::Reply;
use super::trace::{Sink, Trace};
use super::workload;

/// Commands under way in one group, at most: the orders they allow multiply.
const PENDING_MAX: usize = 3;
/// Simulated time in which everything has to come to rest.
const REST_NS: u64 = 60_000_000_000;
/// A command in so many turns is not answered: something is stuck.
const REST_STEPS: u64 = 3_000_000;
/// Replies between two attempts to forget what is durable.
const FOLD_EVERY: usize = 64;

/// What a simulation went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub commands: u64,
    pub failed: u64,
    pub crashes: u64,
    pub restarts: u64,
    pub checks: u64,
    pub refused: u64,
    /// Times that the checker had to give up on telling orders apart.
    pub overflows: u64,
    /// Records that defrag has moved, tombstones that it has written again, segments freed.
    pub moved: u64,
    pub tombstones: u64,
    pub freed: u64,
}

/// See the module.
pub struct World {
    pub(super) options: Options,
    pub(super) random: SimRandom,
    pub(super) trace: Trace,
    pub(super) clock: SimClock,
    pub(super) ground: Ground,
    pub(super) machine: Option<Machine>,
    pub(super) clients: Vec<Client>,
    pub(super) groups: Vec<Group>,
    pub(super) ballast: Ballast,
    /// When each command was answered with success.
    acked: Vec<Option<u64>>,
    /// Everything answered up to then is durable.
    pub(super) saved_ns: u64,
    /// When writing first failed in this run, and how many failures there were before it.
    pub(super) poisoned_ns: Option<u64>,
    pub(super) write_errors: u32,
    /// Clients send nothing new.
    pub(super) draining: bool,
    pub(super) calls: VecDeque<Reply>,
    sessions: usize,
    pub(super) steps: u64,
    pub(super) counts: Counts,
}

impl World {
    pub fn new(seed: u64, sink: Option<Sink>) -> Result<World, String> {
        let mut random = SimRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d);
        // The first numbers of nearby seeds are alike.
        (0..8).for_each(|_| {
            random.draw();
        });
        let options = Options::draw(&mut random);
        let clock = SimClock::default();
        let disk = SimDisk::new(&options.geometry(), random.draw());
        disk.set_depth(4096);
        let ground = Ground::new(disk, clock.clone(), CORES_MAX).map_err(|e| e.to_string())?;
        let mut groups: Vec<Group> = (0..options.groups).map(|_| Group::new()).collect();
        let Faults { write_error, flush_error, .. } = options.faults;
        let full = options.value_bytes > 60_000 || options.ballast_bytes > 0;
        let partial = write_error + flush_error > 0 || full;
        groups.iter_mut().for_each(|group| group.partial = partial);
        let mut world = World {
            clients: (0..=options.clients).map(|_| Client::default()).collect(),
            trace: Trace::new(sink),
            ballast: Ballast::new(options.ballast_bytes, options.ballast_value_bytes),
            options,
            random,
            clock,
            ground,
            machine: None,
            groups,
            acked: Vec::new(),
            saved_ns: 0,
            poisoned_ns: None,
            write_errors: 0,
            draining: false,
            calls: VecDeque::new(),
            sessions: 0,
            steps: 0,
            counts: Counts::default(),
        };
        world.note(|world| format!("{:?}", world.options));
        Ok(world)
    }

    pub(super) fn note(&mut self, text: impl FnOnce(&World) -> String) {
        if self.trace.is_read() {
            let line = text(self);
            self.trace.line(self.clock.mono_ns(), &line);
        }
    }

    /// The client by which the simulator asks on its own account.
    pub(super) fn auditor(&self) -> usize {
        self.options.clients
    }

    pub(super) fn setup(&self, cores: usize) -> Setup {
        Setup { cores, config: self.options.config(), buffers: self.options.buffers }
    }

    pub(super) fn wires(&self) -> Option<SimWires> {
        self.machine.as_ref().map(|machine| machine.wires.clone())
    }

    /// Runs `steps` steps and checks everything at the end. False when the server has refused
    /// to start on damaged devices, which ends the simulation.
    pub fn run(&mut self, steps: u64) -> Result<bool, String> {
        if !self.start()? {
            return Ok(false);
        }
        while self.steps < steps {
            if !self.incident()? {
                return Ok(false);
            }
            self.step()?;
        }
        self.check()?;
        self.ground.disk.set_faults(Faults::default());
        self.check_ballast(Look::All)?;
        self.count_defrag();
        self.trace.mix(self.ground.disk.draw());
        self.trace.mix(self.clock.mono_ns());
        Ok(true)
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn hash(&self) -> u64 {
        self.trace.hash()
    }

    pub fn counts(&self) -> Counts {
        let overflows = self.groups.iter().map(|group| u64::from(group.overflows)).sum();
        Counts { overflows, ..self.counts }
    }

    /// Adds up what defrag did in this run.
    pub(super) fn count_defrag(&mut self) {
        let Some(machine) = &self.machine else { return };
        let [moved, tombstones, freed] = machine.defragged();
        self.counts.moved += moved;
        self.counts.tombstones += tombstones;
        self.counts.freed += freed;
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// One turn of a core or one act of a client; if nobody has anything to do, time passes.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let now_ns = self.clock.mono_ns();
        let cores = self.machine.as_ref().map_or(0, Machine::cores);
        let mut dues: Vec<(usize, u64)> = Vec::new();
        if let Some(machine) = &mut self.machine {
            let due = |core| Some((core, machine.due_ns(core)?));
            dues.extend((0..cores).filter_map(due));
        }
        let clients = 0..self.clients.len();
        dues.extend(clients.map(|client| (cores + client, self.client_due_ns(client))));
        let next_ns = dues.iter().map(|(_, due_ns)| *due_ns).min().unwrap_or(u64::MAX);
        if next_ns == u64::MAX {
            return Err("nobody has anything to do, ever".into());
        }
        if next_ns > now_ns {
            self.clock.advance_to(next_ns);
            return Ok(());
        }
        dues.retain(|(_, due_ns)| *due_ns <= now_ns);
        let (actor, _) = dues[self.random.below(dues.len())];
        self.trace.mix(actor as u64);
        self.trace.mix(now_ns);
        if actor >= cores {
            self.act(actor - cores)?;
        } else if let Some(machine) = &mut self.machine {
            machine.turn(actor);
            self.note_write_errors();
        }
        self.clock.advance(self.random.below(self.options.turn_ns as usize) as u64);
        Ok(())
    }

    /// When a client has something to do.
    fn client_due_ns(&self, client: usize) -> u64 {
        let state = &self.clients[client];
        let Some(machine) = self.machine.as_ref().filter(|machine| machine.is_ready()) else {
            return u64::MAX;
        };
        let generates = !self.draining && client != self.auditor();
        let Some(wire) = state.wire else {
            return if generates || !state.outbox.is_empty() { state.due_ns } else { u64::MAX };
        };
        let willing = generates && state.owed.len() < self.options.depth;
        if willing || !state.outbox.is_empty() || machine.wires.is_closed(wire) {
            return state.due_ns;
        }
        let lazy_ns = if self.draining { 0 } else { state.lazy_until_ns };
        let takeable = machine.wires.takeable_at(wire);
        takeable.map_or(u64::MAX, |at| at.max(state.due_ns).max(lazy_ns))
    }

    fn note_write_errors(&mut self) {
        let injected = self.ground.disk.injected();
        if injected.write_errors > self.write_errors && self.poisoned_ns.is_none() {
            self.poisoned_ns = Some(self.clock.mono_ns());
            self.note(|_| "a write or flush has failed".into());
        }
    }

    fn act(&mut self, client: usize) -> Result<(), String> {
        let now_ns = self.clock.mono_ns();
        let think = 1 + self.random.below(self.options.think_ns as usize) as u64;
        self.clients[client].due_ns = now_ns + think;
        let Some(wires) = self.wires() else { return Ok(()) };
        let sessions = self.sessions + 1;
        let state = &mut self.clients[client];
        match state.wire {
            None => {
                state.connect(&wires, sessions);
                self.sessions = sessions;
                return Ok(());
            }
            Some(wire) if wires.is_closed(wire) => {
                if !state.owed.is_empty() {
                    self.note(|_| format!("client {client} was disconnected"));
                }
                self.clients[client].disconnect(None);
                return Ok(());
            }
            Some(_) => {}
        }
        if self.draining || state.lazy_until_ns <= now_ns {
            let most = self.options.chunk_bytes;
            for (owed, reply) in self.clients[client].read(&wires, most)? {
                self.answered(client, owed, &reply)?;
            }
        }
        self.generate(client);
        let delay_ns = self.random.below(100_000) as u64;
        self.clients[client].send(&wires, self.options.chunk_bytes, delay_ns);
        Ok(())
    }

    /// Gives a client something to send.
    fn generate(&mut self, client: usize) {
        let ready = self.machine.as_ref().is_some_and(Machine::is_ready);
        let state = &self.clients[client];
        if self.draining || !ready || client == self.auditor() {
            return;
        }
        if state.owed.len() >= self.options.depth || state.outbox.len() > (4 << 20) {
            return;
        }
        if self.random.below(24) == 0 {
            return self.select(client);
        }
        if self.random.below(3) == 0 && self.churn(client) {
            return;
        }
        if self.options.saves > 0 && self.random.below(300) == 0 {
            let now_ns = self.clock.mono_ns();
            let fence = if now_ns.is_multiple_of(2) { "SAVE" } else { "WAITAOF 1 0 0" };
            return self.say(client, Owed::Save(now_ns), &super::audit::words(fence));
        }
        let db = self.clients[client].db;
        let op = workload::draw(&mut self.random, &self.options, db, self.clock.wall_ms());
        let group = self.random.below(self.groups.len());
        let group = (!op.is_global()).then_some(group);
        let mut meant = self.groups.iter().enumerate();
        let full = meant.any(|(at, state)| {
            group.is_none_or(|group| group == at) && state.pending() >= PENDING_MAX
        });
        if !full {
            self.send_op(client, op, group);
        }
    }

    fn select(&mut self, client: usize) {
        let state = &mut self.clients[client];
        state.db = 1 - state.db;
        let db = state.db.to_string().into_bytes();
        self.say(client, Owed::Select, &[b"SELECT".to_vec(), db]);
    }

    pub(super) fn new_op(&mut self) -> OpId {
        self.counts.commands += 1;
        self.acked.push(None);
        self.acked.len() - 1
    }

    /// A command was answered with success now.
    pub(super) fn acknowledge(&mut self, id: OpId) {
        self.acked[id] = Some(self.clock.mono_ns());
    }

    fn send_op(&mut self, client: usize, op: Op, group: Option<usize>) {
        let id = self.new_op();
        let args = workload::arguments(&op, group.unwrap_or(0));
        let session = self.clients[client].session;
        self.note(|_| {
            let group = group.map_or(String::new(), |group| format!(" group {group}"));
            let mut shown = format!("{op:?}");
            if shown.len() > 160 {
                shown = Reply::Bulk(shown.into_bytes()).show();
            }
            format!("client {client}({session}) sends {id}:{group} {shown}")
        });
        let (op, now_ns) = (Rc::new(op), self.clock.mono_ns());
        for (at, state) in self.groups.iter_mut().enumerate() {
            if group.is_none_or(|group| group == at) {
                state.sent(id, session, Rc::clone(&op), now_ns);
            }
        }
        self.say(client, Owed::Op { id, group }, &args);
    }

    pub(super) fn say(&mut self, client: usize, owed: Owed, args: &[Vec<u8>]) {
        let state = &mut self.clients[client];
        state.outbox.extend(workload::encode(args));
        state.owed.push_back(owed);
    }

    fn answered(&mut self, client: usize, owed: Owed, reply: &Reply) -> Result<(), String> {
        self.trace.mix(reply.print());
        self.note(|_| format!("client {client} reads {owed:?}: {}", reply.show()));
        self.excuse(reply)?;
        match owed {
            Owed::Select if *reply == Reply::ok() => Ok(()),
            Owed::Select => Err(format!("SELECT was answered {}", reply.show())),
            Owed::Save(from_ns) => {
                let fenced = Reply::Array(vec![Reply::Int(1), Reply::Int(0)]);
                if *reply == Reply::ok() || *reply == fenced {
                    self.saved_ns = self.saved_ns.max(from_ns);
                }
                Ok(())
            }
            Owed::Call => {
                self.calls.push_back(reply.clone());
                Ok(())
            }
            Owed::Op { id, group } => self.op_answered(id, group, reply),
            Owed::Ballast { id, key, version } => self.ballast_answered(key, version, id, reply),
        }
    }

    /// An error of the device needs a device that has erred.
    fn excuse(&mut self, reply: &Reply) -> Result<(), String> {
        let Reply::Error(text) = reply else { return Ok(()) };
        let injected = self.ground.disk.injected();
        let erred = injected.read_errors + injected.write_errors + injected.lies > 0;
        if text.starts_with("IOERR") && !erred {
            return Err(format!("no device has erred, but: {text}"));
        }
        if text.starts_with("IOERR a write") && self.poisoned_ns.is_none() {
            return Err(format!("no write has failed, but: {text}"));
        }
        self.counts.failed += 1;
        Ok(())
    }

    fn op_answered(&mut self, id: OpId, group: Option<usize>, reply: &Reply) -> Result<(), String> {
        if !matches!(reply, Reply::Error(_)) {
            // A change of the whole keyspace is durable when it is answered.
            self.acked[id] = Some(if group.is_none() { 0 } else { self.clock.mono_ns() });
        }
        let clock = self.clock.clone();
        for (at, state) in self.groups.iter_mut().enumerate() {
            if group.is_none_or(|group| group == at) {
                state
                    .answered(id, reply, &clock)
                    .map_err(|text| format!("group {at}: command {id}: {text}"))?;
            }
        }
        if id.is_multiple_of(FOLD_EVERY) {
            self.fold();
        }
        Ok(())
    }

    fn fold(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        let durable = self.promise(true);
        groups.iter_mut().for_each(|group| group.fold(&durable));
        self.groups = groups;
    }

    /// Which commands have to survive a power cut, or the end of the process, now.
    pub(super) fn promise(&self, power: bool) -> impl Fn(OpId) -> bool + use<> {
        let options = &self.options;
        let cache_ns =
            if power && options.volatile_cache { 1_000_000_000 + options.margin_ns() } else { 0 };
        let age_ns = match options.durability {
            Durability::Synced => 0,
            Durability::Written => cache_ns,
            Durability::Received => {
                options.flush_max_ms * 1_000_000 + options.margin_ns() + cache_ns
            }
        };
        let until_ns = self.poisoned_ns.unwrap_or(u64::MAX).min(self.clock.mono_ns());
        let (acked, saved_ns) = (self.acked.clone(), self.saved_ns);
        move |id| {
            acked[id].is_some_and(|at| at <= saved_ns || age_ns == 0 || at + age_ns <= until_ns)
        }
    }

    /// Steps until everything asked is answered and nothing is under way.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.draining = true;
        let (until_ns, steps_max) = (self.clock.mono_ns() + REST_NS, self.steps + REST_STEPS);
        loop {
            let answered = self.clients.iter().all(|client| client.owed.is_empty());
            let Some(machine) = &mut self.machine else { break };
            if answered && machine.is_ready() && machine.is_idle() && self.nothing_arrives() {
                break;
            }
            if self.clock.mono_ns() > until_ns || self.steps > steps_max {
                let owed: Vec<_> = self.clients.iter().map(|client| &client.owed).collect();
                return Err(format!("not answered within a minute: {owed:?}"));
            }
            self.step()?;
        }
        self.draining = false;
        Ok(())
    }

    fn nothing_arrives(&self) -> bool {
        let Some(wires) = self.wires() else { return true };
        let cores = self.machine.as_ref().map_or(0, Machine::cores);
        (0..cores).all(|core| wires.next_due_ns(core).is_none())
    }

    /// Asks the server on the simulator's account.
    pub(super) fn call(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>, String> {
        let auditor = self.auditor();
        self.calls.clear();
        for args in commands {
            self.say(auditor, Owed::Call, args);
        }
        self.rest()?;
        if self.calls.len() != commands.len() {
            return Err(format!("{} of {} replies came", self.calls.len(), commands.len()));
        }
        Ok(self.calls.drain(..).collect())
    }
}
