//! Received bytes become commands. What finds no room waits here, in the connection's backlog,
//! and no further bytes are taken from a peer once the backlogs are at their limit.

use std::sync::Arc;

use crate::command::session::ReplyMode;
use crate::command::table;
use crate::command::{Command, Handler, errors, flag};
use crate::disk::Disk;
use crate::net::{Event, Net, SocketId};
use crate::resp::{Args, Parsed, Parser, Proto, ProtocolError, Reply};
use crate::shard::Lsn;

use super::Core;
use super::conn::Conn;
use super::execute::{Flow, Run};
use super::message::{Message, Origin};
use super::output::Then;

/// What came of the front of a connection's bytes.
enum Step<'p> {
    /// A plain GET or SET has run.
    Ran { consumed: usize },
    /// Another command is to be run.
    Other { args: Args<'p>, consumed: usize },
    /// Nothing that wants a reply.
    Skip { consumed: usize },
    /// There is no room for a command.
    Stall,
    /// There is no whole command.
    Wait,
    /// The bytes make no sense.
    Broken(ProtocolError),
}

/// A backlog under this size is always taken; above it only while the core's total is in bounds.
const BACKLOG_FREE_BYTES: usize = 64 * 1024;
/// Capacity of a drained backlog that is worth keeping for the next partial command.
const BACKLOG_KEPT_BYTES: usize = 16 * 1024;
/// Room made at once for a large argument; more as its bytes come.
const GROW_BYTES_MAX: usize = 8 << 20;
/// A backlog above this may be kept by the command in it instead of being copied.
const LENT_BYTES_MIN: usize = 512 * 1024;

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn net_event(&mut self, event: Event<N::Rx>) {
        match event {
            Event::Incoming(fd) => self.place(fd),
            Event::Received { socket, rx } => self.received(socket, rx),
            Event::Sent { socket, tx } => self.sent(socket, tx),
            Event::Closed { socket } => self.close(socket),
        }
    }

    fn received(&mut self, socket: SocketId, rx: N::Rx) {
        self.stats.net_in_bytes.add(rx.len() as u64);
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if conn.closing {
            return;
        }
        conn.session.last_active_ms = self.now.unix_ms;
        if conn.backlog() == 0 && !conn.stalled {
            let used = self.consume(socket, &rx);
            if used == rx.len() {
                return;
            }
            self.keep(socket, &rx[used..]);
        } else {
            self.keep(socket, &rx);
            self.consume_backlog(socket);
        }
        self.check_backlog(socket);
    }

    /// Adds bytes to a connection's backlog.
    fn keep(&mut self, socket: SocketId, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if bytes.is_empty() || conn.closing {
            return;
        }
        let before = conn.rx.capacity();
        if conn.rx_start > 0 && conn.rx.len() + bytes.len() > conn.rx.capacity() {
            conn.rx.drain(..conn.rx_start);
            conn.rx_start = 0;
        }
        let missing = conn.parse.need().saturating_sub(conn.backlog() + bytes.len());
        conn.rx.reserve(bytes.len() + missing.min(GROW_BYTES_MAX));
        conn.rx.extend_from_slice(bytes);
        self.client_bytes = self.client_bytes + conn.rx.capacity() - before;
    }

    /// Executes what is complete in a connection's backlog.
    pub(super) fn consume_backlog(&mut self, socket: SocketId) {
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if conn.stalled || conn.closing || conn.backlog() < conn.parse.need().max(1) {
            return;
        }
        let rx = std::mem::take(&mut conn.rx);
        let start = std::mem::take(&mut conn.rx_start);
        if rx.len() > LENT_BYTES_MIN {
            return self.consume_large(socket, rx, start);
        }
        let used = self.consume(socket, &rx[start..]);
        self.put_back(socket, rx, start + used);
    }

    /// [`Core::consume`] of a backlog that holds a large command: it may keep the buffer.
    fn consume_large(&mut self, socket: SocketId, rx: Vec<u8>, start: usize) {
        let capacity = rx.capacity();
        let rx = Arc::new(rx);
        self.lent = Some(Arc::clone(&rx));
        let used = start + self.consume(socket, &rx[start..]);
        self.lent = None;
        match Arc::try_unwrap(rx) {
            Ok(rx) => self.put_back(socket, rx, used),
            Err(kept) => {
                let rest = kept[used..].to_vec();
                self.client_bytes = self.client_bytes + rest.capacity() - capacity;
                self.put_back(socket, rest, 0);
            }
        }
    }

    /// Gives a connection its backlog back, of which `used` bytes are executed.
    fn put_back(&mut self, socket: SocketId, rx: Vec<u8>, used: usize) {
        let Some(conn) = self.conns.get_mut(socket) else {
            self.client_bytes -= rx.capacity();
            return;
        };
        conn.rx = rx;
        conn.rx_start = used;
        if conn.backlog() == 0 {
            let before = conn.rx.capacity();
            conn.rx_start = 0;
            conn.rx.clear();
            if before > BACKLOG_KEPT_BYTES {
                conn.rx = Vec::new();
            }
            self.client_bytes = self.client_bytes + conn.rx.capacity() - before;
        }
    }

    /// Parses and executes commands until the bytes end or there is no room. Returns how many
    /// bytes were used. The connection is out of its table while plain GETs and SETs follow one
    /// another: one look-up serves all of them.
    fn consume(&mut self, socket: SocketId, bytes: &[u8]) -> usize {
        let mut parser = std::mem::take(&mut self.parser);
        let mut lent = None;
        let (mut used, mut ran) = (0, 0);
        while used < bytes.len() {
            let Some(mut conn) = lent.take().or_else(|| self.conns.take(socket)) else { break };
            let step = self.step(&mut parser, &mut conn, socket, &bytes[used..]);
            if let Step::Ran { consumed } = step {
                used += consumed;
                ran += 1;
                lent = Some(conn);
                continue;
            }
            self.conns.put(socket, conn);
            match self.other_step(socket, step) {
                Some(consumed) => used += consumed,
                None => break,
            }
        }
        if let Some(conn) = lent {
            self.conns.put(socket, conn);
        }
        self.stats.commands.add(ran);
        self.parser = parser;
        used
    }

    /// Parses one command and runs it if it is a plain GET or SET.
    fn step<'p>(
        &mut self,
        parser: &'p mut Parser,
        conn: &mut Conn,
        socket: SocketId,
        bytes: &'p [u8],
    ) -> Step<'p> {
        if conn.closing {
            return Step::Wait;
        }
        // Over the limit, whoever has replies to take takes them first.
        let over = self.is_over_client_share() && conn.reply_bytes() > 0;
        if conn.is_congested() || self.tasks_are_full() || over {
            return Step::Stall;
        }
        conn.barrier = false;
        let limits = conn.session.limits(self.settings.password_required);
        match parser.parse(bytes, &mut conn.parse, limits) {
            Ok(Parsed::Command { args, consumed }) => match self.straight(conn, socket, args) {
                Some(Flow::Stall) => Step::Stall,
                Some(_) => Step::Ran { consumed },
                None => Step::Other { args, consumed },
            },
            Ok(Parsed::Nothing { consumed }) => Step::Skip { consumed },
            Ok(Parsed::Incomplete { .. }) => Step::Wait,
            Err(error) => Step::Broken(error),
        }
    }

    /// What follows from a step that was no plain GET or SET; how many bytes it took, or that no
    /// further one is taken now.
    fn other_step(&mut self, socket: SocketId, step: Step<'_>) -> Option<usize> {
        match step {
            Step::Ran { consumed } | Step::Skip { consumed } => Some(consumed),
            Step::Other { args, consumed } => match self.dispatch(socket, args) {
                Flow::Continue | Flow::Close => Some(consumed),
                Flow::Stall => self.stall(socket),
            },
            Step::Stall => self.stall(socket),
            Step::Wait => None,
            Step::Broken(error) => {
                self.immediate_error(socket, &error.to_string());
                self.close_when_drained(socket);
                None
            }
        }
    }

    fn stall(&mut self, socket: SocketId) -> Option<usize> {
        let conn = self.conns.get_mut(socket)?;
        conn.stalled = true;
        // A congested connection goes on when its replies have left; others every turn.
        if !conn.is_congested() {
            self.stalled.push_back(socket);
        }
        None
    }

    /// Tries stalled connections again, each once.
    pub(super) fn retry_stalled(&mut self) {
        for _ in 0..self.stalled.len() {
            let Some(socket) = self.stalled.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(socket) else { continue };
            conn.stalled = false;
            self.consume_backlog(socket);
            self.check_backlog(socket);
        }
    }

    /// Back-pressure: a peer whose backlog is over its share is not read from until it shrinks.
    fn check_backlog(&mut self, socket: SocketId) {
        let over = self.is_over_client_share();
        let limit = self.settings.client_query_buffer_limit_bytes as usize;
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if conn.backlog() > limit {
            log::warn!(
                "closing client {} ({}): its query buffer exceeds {limit} bytes",
                conn.session.id,
                conn.session.addr
            );
            return self.close(socket);
        }
        let pause = over && conn.backlog() > BACKLOG_FREE_BYTES && conn.stalled;
        if pause != conn.paused {
            conn.paused = pause;
            self.net.pause(socket, pause);
        }
    }

    /// `--maxmemory-clients`: this core's share is used up by query and reply buffers.
    fn is_over_client_share(&self) -> bool {
        self.client_bytes + self.reply_bytes > self.shares.clients_bytes
    }

    /// One command of a connection, whatever it is.
    fn dispatch(&mut self, socket: SocketId, args: Args<'_>) -> Flow {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.session.begin_command();
        }
        let Some(command) = table::find(args.at(0)) else {
            if errors::is_http(args.at(0)) {
                self.close(socket);
                return Flow::Close;
            }
            return self.refused(socket, &errors::unknown_command(args));
        };
        if !command.takes(args.len()) {
            let text = errors::wrong_arity(command.name);
            return self.refused(socket, text.as_bytes());
        }
        let Some(conn) = self.conns.get_mut(socket) else { return Flow::Close };
        let stranger = conn.session.must_authenticate(self.settings.password_required);
        if stranger && !command.is(flag::NO_AUTH) {
            return self.refused(socket, errors::NO_AUTH.as_bytes());
        }
        let flow = self.dispatch_known(socket, command, args);
        if flow != Flow::Stall {
            self.stats.commands.add(1);
            self.end_command(socket);
        }
        flow
    }

    fn dispatch_known(
        &mut self,
        socket: SocketId,
        command: &'static Command,
        args: Args<'_>,
    ) -> Flow {
        if self.loading && !command.is(flag::LOADING) {
            return self.immediate_error(socket, errors::LOADING);
        }
        if self.holds_back() {
            return Flow::Stall;
        }
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.session.last_command = command.name;
        }
        match command.handler {
            Handler::Keyed(_) => self.keyed(socket, command, args),
            Handler::Session(_) if self.must_wait(socket, command) => Flow::Stall,
            Handler::Session(function) => self.session(socket, function, args),
            Handler::Global(function) => self.global(socket, function, args),
        }
    }

    /// SAVE and fences cover what earlier commands of the connection write, on other cores too.
    fn must_wait(&self, socket: SocketId, command: &Command) -> bool {
        let waits = matches!(command.name, "save" | "bgsave" | "shutdown" | "wait" | "waitaof");
        waits && self.conns.get(socket).is_some_and(|conn| !conn.owes_nothing())
    }

    fn refused(&mut self, socket: SocketId, text: &[u8]) -> Flow {
        self.stats.errors.add(1);
        let flow = self.immediate(socket, |reply| reply.error_bytes(text));
        self.end_command(socket);
        flow
    }

    fn end_command(&mut self, socket: SocketId) {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.session.end_command();
        }
    }

    /// Sends a command to the core that owns its keys.
    pub(super) fn ship(&mut self, socket: SocketId, home: u16, db: u8, run: &Run<'_>) -> Flow {
        if self.remote_in_flight >= super::REMOTE_MAX {
            return Flow::Stall;
        }
        // A large argument counts until its reply is there: the next one waits.
        let large = run.args.len_bytes() as u32;
        let expected = self.conns.get(socket).map_or(0, Conn::remote_expected).max(large);
        let origin = self.reserve_expecting(socket, expected);
        let packet = self.pack(run.args);
        self.client_bytes -= packet.shared_bytes();
        self.remote_in_flight += 1;
        self.stats.remote_commands.add(1);
        let (command, proto) = (run.command, run.proto);
        self.mesh.send(usize::from(home), Message::Command { origin, command, db, proto, packet });
        Flow::Continue
    }

    // Replies of commands that are executed at once.

    fn is_muted(conn: &Conn) -> bool {
        matches!(conn.session.reply_mode, ReplyMode::Off | ReplyMode::SkipThis)
    }

    /// A place for a reply that comes later and brings about `expected` bytes.
    pub(super) fn reserve_expecting(&mut self, socket: SocketId, expected: u32) -> Origin {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.expected_bytes += expected as usize;
        }
        Origin { expected, ..self.reserve(socket) }
    }

    /// A place for a reply that comes later.
    pub(super) fn reserve(&mut self, socket: SocketId) -> Origin {
        let Some(conn) = self.conns.get_mut(socket) else {
            panic!("a command of a connection that is not there");
        };
        let muted = Self::is_muted(conn);
        let seq = conn.reserve(muted);
        self.origin(socket, seq)
    }

    /// The buffer to append an immediate reply to; [`Core::finish`] takes it back.
    pub(super) fn begin(&mut self, socket: SocketId) -> Vec<u8> {
        let conn = self.conns.get_mut(socket);
        conn.map_or_else(Vec::new, |conn| conn.lend_buffer(&mut self.spares))
    }

    /// Ends an immediate reply that begins at `start` of `out`. With an LSN it leaves when that
    /// is durable.
    pub(super) fn finish(
        &mut self,
        socket: SocketId,
        mut out: Vec<u8>,
        start: usize,
        lsn: Option<Lsn>,
    ) {
        let held = lsn.filter(|&lsn| !self.is_durable(lsn));
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if Self::is_muted(conn) {
            out.truncate(start);
        }
        let held = held.filter(|_| out.len() > start).map(|lsn| (lsn, out.split_off(start)));
        let made = out.len() - start;
        conn.return_buffer(out, &mut self.spares);
        conn.made(made);
        self.reply_bytes += made;
        if let Some((lsn, bytes)) = held {
            let origin = self.reserve(socket);
            self.wait_durable(lsn, Then::Reply { origin, bytes });
        }
        self.wants_send(socket);
    }

    pub(super) fn immediate(
        &mut self,
        socket: SocketId,
        write: impl FnOnce(&mut Reply<'_>),
    ) -> Flow {
        let proto = self.conns.get(socket).map_or(Proto::Resp2, |conn| conn.session.proto);
        let mut out = self.begin(socket);
        let start = out.len();
        write(&mut Reply::new(&mut out, proto));
        self.finish(socket, out, start, None);
        Flow::Continue
    }

    pub(super) fn immediate_error(&mut self, socket: SocketId, text: &str) -> Flow {
        self.stats.errors.add(1);
        self.immediate(socket, |reply| reply.error(text))
    }

    pub(super) fn close_when_drained(&mut self, socket: SocketId) {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.closing = true;
            self.wants_send(socket);
        }
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        let Some(conn) = self.conns.take(socket) else { return };
        for stream in &conn.streams {
            self.stream_close(stream.home, stream.chain);
        }
        self.client_bytes -= conn.rx.capacity();
        self.reply_bytes -= conn.reply_bytes();
        self.stats.clients.add(-1);
        self.net.close(socket);
    }
}
