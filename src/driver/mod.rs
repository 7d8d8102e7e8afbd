//! The life of a request on its core: from received bytes to the reply in its place.
//!
//! [`Core`] is everything that one core owns. The files of this folder are its verbs:
//!
//! * `input`: received bytes -> commands; back-pressure
//! * `fast`: GET and SET, the straight path
//! * `execute`: any command on keys of this core, run at once
//! * `task`: a command that has to wait: for the device, for a key, for room in the log
//! * `multi`: a command on keys of several cores
//! * `large`, `parts`, `stream`: strings in parts are written, loaded, sent
//! * `walk`, `global`, `gather`: the whole keyspace, all connections
//! * `output`: replies in order, buffers to the network

mod admin;
mod conn;
mod execute;
mod fast;
mod fence;
mod gather;
mod global;
mod input;
mod intent;
mod large;
mod lifecycle;
mod message;
mod multi;
mod output;
mod parts;
mod slice;
mod stream;
mod task;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::Now;
use crate::command::session::Server;
use crate::config::Settings;
use crate::disk::{Disk, Done};
use crate::mem::{BufPool, Slots, Ticket};
use crate::mesh::Mesh;
use crate::net::{Event, Net, SocketId};
use crate::resp::{Args, Parser};
use crate::shard::recover::Recovery;
use crate::shard::{OWN_TAG, Shard};
use crate::stats::CoreStats;

use conn::{Conn, Spares};
use fast::ReadOp;
use intent::Intents;
use lifecycle::Stopping;
use task::Task;

pub use lifecycle::Shared;
pub use message::Message;

/// Operations of one core that wait for something. Commands that arrive from other cores need a
/// place too; their senders wait for answers and so are bounded themselves.
const TASKS_MAX: usize = 4096;
/// Commands that may be under way to other cores.
const REMOTE_MAX: usize = 4096;
/// Device reads of one core under way for clients.
const READS_MAX: usize = 2048;
/// Packets kept for reuse, and the size up to which one is worth keeping.
const PACKETS_MAX: usize = 512;
const PACKET_BYTES_MAX: usize = 64 * 1024;

/// What a core is made from.
pub struct Parts<N, D> {
    pub shard: Shard,
    pub recovery: Recovery,
    pub disk: D,
    pub net: N,
    pub pool: BufPool,
    pub mesh: Mesh<Message>,
    pub server: Arc<Server>,
    pub stats: Arc<CoreStats>,
    pub seed: u64,
    pub shared: Arc<Shared>,
}

/// Everything that one core owns. See the module.
pub struct Core<N: Net, D> {
    id: u16,
    cores: u32,
    shard: Shard,
    /// Until this core has its keys.
    recovery: Option<Recovery>,
    disk: D,
    net: N,
    pool: BufPool,
    mesh: Mesh<Message>,
    /// Messages to this core itself, so that operations over cores have one form.
    loopback: VecDeque<Message>,
    server: Arc<Server>,
    stats: Arc<CoreStats>,
    settings: Settings,
    shares: Shares,
    now: Now,
    parser: Parser,
    conns: Conns,
    reads: Slots<ReadOp>,
    tasks: Slots<Option<Box<Task>>>,
    intents: Intents,
    /// Replies that wait for their LSN to be durable, in LSN order.
    waiting: VecDeque<output::Waiting>,
    /// Tasks to be run again once there is room in the log or in the buffer pool.
    retry: VecDeque<Ticket>,
    /// Requests for parts that found no buffer.
    asks: VecDeque<stream::Ask>,
    /// Connections whose next command found no room.
    stalled: VecDeque<SocketId>,
    /// Connections with something to send.
    unsent: Vec<SocketId>,
    remote_in_flight: usize,
    client_bytes: usize,
    /// Of values in parts that tasks have in memory, in bytes.
    loaded_bytes: usize,
    /// The buffer that the command under execution came in, when it is large: what the command
    /// keeps of it is not copied.
    lent: Option<Arc<Vec<u8>>>,
    /// A task has got further and could go on at once.
    progress: bool,
    /// Of replies that are made and not sent, in bytes.
    reply_bytes: usize,
    /// Of the index, as of the last publication.
    index_bytes: usize,
    frozen: global::Frozen,
    fences: fence::Fences,
    spares: Spares,
    packets: Vec<message::Packet>,
    keys: Vec<execute::KeyRef>,
    events: Vec<Event<N::Rx>>,
    done: Vec<Done>,
    granted: Vec<Ticket>,
    seed: u64,
    next_core: usize,
    shared: Arc<Shared>,
    stopping: Stopping,
    failed: Option<String>,
    next_report_ns: u64,
    next_expiry_ns: u64,
    next_second_ns: u64,
    /// Refused writes of all cores that this one has made room for.
    refused_seen: u64,
    poison_logged: bool,
    /// No commands on keys yet.
    loading: bool,
    /// Of `settings`.
    generation: u64,
    warrant: slice::Warrant,
}

/// What one core may take of the limits that are set for all.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// Of `maxmemory`.
    memory_bytes: u64,
    /// Of `maxmemory-clients`.
    clients_bytes: usize,
}

impl Shares {
    fn new(settings: &Settings, cores: u32) -> Shares {
        let clients_bytes = match settings.maxmemory_clients_bytes as usize / cores as usize {
            0 => usize::MAX,
            share => share,
        };
        Shares { memory_bytes: settings.maxmemory_bytes / u64::from(cores), clients_bytes }
    }
}

/// The connections of a core, by the index of their socket.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    table: Vec<Option<(SocketId, Box<Conn>)>>,
}

impl Conns {
    fn insert(&mut self, socket: SocketId, conn: Conn) {
        if self.table.len() <= socket.index() {
            self.table.resize_with(socket.index() + 1, || None);
        }
        self.table[socket.index()] = Some((socket, Box::new(conn)));
    }

    fn get(&self, socket: SocketId) -> Option<&Conn> {
        match self.table.get(socket.index()) {
            Some(Some((id, conn))) if *id == socket => Some(conn),
            _ => None,
        }
    }

    fn get_mut(&mut self, socket: SocketId) -> Option<&mut Conn> {
        match self.table.get_mut(socket.index()) {
            Some(Some((id, conn))) if *id == socket => Some(conn),
            _ => None,
        }
    }

    /// Takes a connection out: for good, or until [`Conns::put`].
    fn take(&mut self, socket: SocketId) -> Option<Box<Conn>> {
        let slot = self.table.get_mut(socket.index())?;
        slot.take_if(|(id, _)| *id == socket).map(|(_, conn)| conn)
    }

    /// Puts back what [`Conns::take`] has lent.
    fn put(&mut self, socket: SocketId, conn: Box<Conn>) {
        self.table[socket.index()] = Some((socket, conn));
    }

    fn iter(&self) -> impl Iterator<Item = (SocketId, &Conn)> {
        self.table.iter().flatten().map(|(id, conn)| (*id, &**conn))
    }

    fn is_empty(&self) -> bool {
        self.table.iter().all(Option::is_none)
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    pub fn new(parts: Parts<N, D>) -> Core<N, D> {
        let cores = parts.mesh.cores();
        let generation = parts.server.config.generation();
        let settings = parts.server.config.snapshot();
        let mut shard = parts.shard;
        shard.enable_defrag(parts.pool.clone());
        shard.set_defrag(lifecycle::defrag_options(&settings));
        let mut net = parts.net;
        net.set_keepalive(settings.tcp_keepalive_s);
        Core {
            id: parts.mesh.core() as u16,
            cores: cores as u32,
            shard,
            recovery: Some(parts.recovery),
            disk: parts.disk,
            net,
            pool: parts.pool,
            mesh: parts.mesh,
            loopback: VecDeque::new(),
            server: parts.server,
            stats: parts.stats,
            shares: Shares::new(&settings, cores as u32),
            settings,
            now: Now::default(),
            parser: Parser::new(),
            conns: Conns::default(),
            reads: Slots::new(READS_MAX),
            tasks: Slots::new(TASKS_MAX + (REMOTE_MAX + TASKS_MAX) * cores),
            intents: Intents::default(),
            waiting: VecDeque::new(),
            retry: VecDeque::new(),
            asks: VecDeque::new(),
            stalled: VecDeque::new(),
            unsent: Vec::new(),
            remote_in_flight: 0,
            client_bytes: 0,
            loaded_bytes: 0,
            lent: None,
            progress: false,
            reply_bytes: 0,
            index_bytes: 0,
            frozen: global::Frozen::default(),
            fences: fence::Fences::default(),
            spares: Spares::default(),
            packets: Vec::new(),
            keys: Vec::new(),
            events: Vec::new(),
            done: Vec::new(),
            granted: Vec::new(),
            seed: parts.seed,
            next_core: 0,
            shared: parts.shared,
            stopping: Stopping::No,
            failed: None,
            next_report_ns: 0,
            next_expiry_ns: 0,
            next_second_ns: 0,
            refused_seen: 0,
            poison_logged: false,
            loading: true,
            generation,
            warrant: slice::Warrant::default(),
        }
    }

    pub fn set_now(&mut self, now: Now) {
        self.now = now;
    }

    /// Phase 2: device completions go to the log or to the operation that asked.
    pub fn poll_disk(&mut self) -> usize {
        let mut done = std::mem::take(&mut self.done);
        self.disk.poll(&mut done);
        let count = done.len();
        if self.recovery.is_some() {
            self.recover_step(&mut done);
            self.done = done;
            return count;
        }
        for done in done.drain(..) {
            if done.tag & OWN_TAG != 0 {
                self.shard.complete(done);
            } else {
                self.read_done(done);
            }
        }
        self.done = done;
        count
    }

    /// Phase 3: messages of other cores.
    pub fn poll_mesh(&mut self, budget: usize) -> usize {
        let mut count = 0;
        for from in 0..self.cores as usize {
            let mut left = budget;
            while left > 0
                && let Some(message) = self.mesh.receive(from)
            {
                self.handle(message);
                left -= 1;
            }
            count += budget - left;
        }
        while let Some(message) = self.loopback.pop_front() {
            self.handle(message);
            count += 1;
        }
        count
    }

    /// Phase 4: network events, then commands that had to wait for room.
    pub fn poll_net(&mut self) -> usize {
        let mut events = std::mem::take(&mut self.events);
        self.net.poll(&mut events);
        let count = events.len();
        for event in events.drain(..) {
            self.net_event(event);
        }
        self.events = events;
        self.retry_tasks();
        self.retry_asks();
        self.retry_stalled();
        count
    }

    /// Phase 5: the log's own work, then replies that it has made durable. `busy`: the turn has
    /// had other work, so what can wait gets no more than it is owed.
    pub fn maintain(&mut self, busy: bool) {
        self.shard.maintain(&mut self.disk, self.now);
        let budget = self.warrant.budget(&self.settings, self.now.mono_ns, busy);
        let spent_ns = self.shard.defrag(&mut self.disk, self.now, budget);
        self.warrant.spend(spent_ns);
        self.release_durable();
        self.maintain_changes();
        self.maintain_fences();
        self.maintain_self();
    }

    /// Phases 6 and 7: replies to the network, messages to their cores. Returns whether work is
    /// left that no completion will announce.
    pub fn flush(&mut self) -> bool {
        self.flush_output();
        let waiting = self.mesh.flush();
        let progress = std::mem::take(&mut self.progress);
        waiting || progress || !self.loopback.is_empty() || !self.unsent.is_empty()
    }

    /// Whether a message has arrived since the last look.
    pub fn has_messages(&self) -> bool {
        self.mesh.has_messages() || !self.loopback.is_empty()
    }

    pub fn mesh(&self) -> &Mesh<Message> {
        &self.mesh
    }

    /// Whether the devices have to be looked at, as nothing will wake the core for them.
    pub fn disk_wants_polling(&self) -> bool {
        self.disk.wants_polling()
    }

    pub fn disk_in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn send(&mut self, to: u16, message: Message) {
        if to == self.id {
            self.loopback.push_back(message);
        } else {
            self.mesh.send(usize::from(to), message);
        }
    }

    /// A fresh seed for one command's random choices (a Weyl sequence; the view mixes it).
    fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0xd134_2543_de82_ef95);
        self.seed
    }

    fn spare(&mut self) -> Vec<u8> {
        self.spares.take()
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        self.spares.give(bytes);
    }

    fn packet(&mut self) -> message::Packet {
        self.packets.pop().unwrap_or_default()
    }

    /// A packet with the arguments of a command. A large one keeps the buffer that it came in,
    /// if it is most of that.
    fn pack(&mut self, args: Args<'_>) -> message::Packet {
        let mut packet = self.packet();
        match self.lent.take_if(|lent| args.len_bytes() >= lent.len() / 2) {
            Some(lent) => {
                packet.share(args, &lent);
                self.client_bytes += packet.shared_bytes();
            }
            None => packet.fill(args),
        }
        packet
    }

    fn recycle_packet(&mut self, mut packet: message::Packet) {
        self.client_bytes -= packet.shared_bytes();
        packet.shared = None;
        let small = packet.bytes.capacity() <= PACKET_BYTES_MAX && packet.spans.capacity() <= 4096;
        if small && self.packets.len() < PACKETS_MAX {
            self.packets.push(packet);
        }
    }
}
