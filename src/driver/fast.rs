//! GET and SET on keys of this core: the straight path, without allocation. A SET copies its
//! value once, into the log buffer; a GET of a fresh value copies it out.
//! A GET of a value on the device is answered from the buffer that the device filled, unless it is
//! small and one of a batch, which is gathered. All device reads end here.

use crate::command::session::ReplyMode;
use crate::disk::{Disk, Done, Io, Op};
use crate::mem::{DmaBuf, Ticket};
use crate::net::{Net, SocketId, Tx};
use crate::resp::{Args, Proto, Reply};
use crate::shard::index::{Entry, KeyHash};
use crate::shard::parts::PART_BYTES;
use crate::shard::view::Kind;
use crate::shard::{AppendError, ReadError, ReadSpan};

use super::Core;
use super::conn::Conn;
use super::execute::{DAMAGED, Flow, key_id};
use super::intent::Mode;
use super::message::Origin;
use super::output::Then;
use super::stream::Ask;

const OK: &[u8] = b"+OK\r\n";
/// Bytes that a record has before its value: room for `$` and the length of any value.
const FRAME_BYTES_MAX: usize = 16;

/// A device read under way.
#[derive(Debug)]
pub(crate) struct ReadOp {
    pub entry: Entry,
    /// What is read, and in which life of its segment.
    pub span: ReadSpan,
    pub purpose: Purpose,
}

#[derive(Debug)]
pub(crate) enum Purpose {
    Get(Get),
    /// The value of a task's key.
    Load {
        task: Ticket,
        place: u32,
    },
    /// The name of a key that a walk visits.
    Walk {
        task: Ticket,
        place: u32,
    },
    /// A part of the value of a task's key; one that a write changes; one that a client waits for.
    Part {
        task: Ticket,
        place: u32,
        number: u32,
    },
    Patch {
        task: Ticket,
        number: u32,
    },
    Stream(Ask),
}

/// A GET that waits for the device. Its key stands in the read's buffer, behind what is read.
#[derive(Debug)]
pub(crate) struct Get {
    origin: Origin,
    db: u8,
    proto: Proto,
    key_len: u32,
    hash: KeyHash,
}

impl Get {
    fn key<'b>(&self, span: &ReadSpan, buf: &'b DmaBuf) -> &'b [u8] {
        &buf[span.len as usize..][..self.key_len as usize]
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    /// Runs a plain GET or SET of a connection that has been taken out of its table; `None` for
    /// everything else.
    #[inline]
    pub(super) fn straight(
        &mut self,
        conn: &mut Conn,
        socket: SocketId,
        args: Args<'_>,
    ) -> Option<Flow> {
        let name: &[u8; 3] = args.at(0).try_into().ok()?;
        let session = &conn.session;
        if session.reply_mode != ReplyMode::On
            || session.must_authenticate(self.settings.password_required)
            || self.holds_back()
            || self.loading
        {
            return None;
        }
        match (&name.map(|letter| letter | 0x20), args.len()) {
            (b"get", 2) => self.get(conn, socket, args.at(1)),
            (b"set", 3) => self.set(conn, socket, args.at(1), args.at(2)),
            _ => None,
        }
    }

    /// `GET key` of a connection of this core. Null and wrong type need no read: the index knows.
    fn get(&mut self, conn: &mut Conn, socket: SocketId, key: &[u8]) -> Option<Flow> {
        let (proto, db) = (conn.session.proto, conn.session.db);
        let hash = self.shard.hash(key);
        if !self.is_free_here(db, &hash, Mode::Shared) {
            return None;
        }
        let found = self.shard.lookup(db, &hash, self.now.unix_ms);
        let resident = match &found {
            Some(found) if found.entry.kind != Kind::String => return None,
            Some(found) => self.shard.resident(&found.entry, key),
            None => None,
        };
        if let (Some(found), None) = (&found, &resident) {
            let Some(read) = self.key_buffer(&found.entry, key) else { return Some(Flow::Stall) };
            self.stats.keyspace_hits.add(1);
            let expected = read.1.len;
            conn.expected_bytes += expected as usize;
            let origin = Origin { expected, ..self.origin(socket, conn.reserve(false)) };
            let get = Get { origin, db, proto, key_len: key.len() as u32, hash };
            self.read(found.entry, read, Purpose::Get(get));
            return Some(Flow::Continue);
        }
        let out = conn.buffer(&mut self.spares);
        let start = out.len();
        match resident {
            Some(record) => Reply::new(out, proto).bulk(record.value),
            None => Reply::new(out, proto).null(),
        }
        let made = out.len() - start;
        let count =
            if found.is_some() { &self.stats.keyspace_hits } else { &self.stats.keyspace_misses };
        count.add(1);
        self.made(conn, socket, made);
        Some(Flow::Continue)
    }

    /// `SET key value` without options, of a connection of this core. What goes wrong is told by
    /// the general path.
    fn set(&mut self, conn: &mut Conn, socket: SocketId, key: &[u8], value: &[u8]) -> Option<Flow> {
        let db = conn.session.db;
        let hash = self.shard.hash(key);
        if !self.is_free_here(db, &hash, Mode::Exclusive)
            || self.is_out_of_memory()
            || value.len() > PART_BYTES
        {
            return None;
        }
        let lsn = match self.shard.put(db, &hash, key, Kind::String, value, None) {
            Ok(lsn) => lsn,
            Err(AppendError::Busy) => return Some(Flow::Stall),
            Err(_) => return None,
        };
        self.count_keys(db);
        if !self.is_durable(lsn) {
            let origin = self.origin(socket, conn.reserve(false));
            let mut bytes = self.spare();
            bytes.extend_from_slice(OK);
            self.wait_durable(lsn, Then::Reply { origin, bytes });
            return Some(Flow::Continue);
        }
        conn.buffer(&mut self.spares).extend_from_slice(OK);
        self.made(conn, socket, OK.len());
        Some(Flow::Continue)
    }

    /// Whether the key is of this core and nobody is in the way.
    fn is_free_here(&self, db: u8, hash: &KeyHash, mode: Mode) -> bool {
        self.home(hash) == self.id
            && (self.intents.is_empty() || !self.intents.blocks(key_id(db, hash), mode))
    }

    /// A buffer for reading a record and where to read, unless buffers or places for reads are used
    /// up.
    pub(super) fn read_buffer(&self, entry: &Entry) -> Option<(DmaBuf, ReadSpan)> {
        self.key_buffer(entry, b"")
    }

    /// [`Core::read_buffer`] with a copy of the key behind what will be read.
    #[inline]
    fn key_buffer(&self, entry: &Entry, key: &[u8]) -> Option<(DmaBuf, ReadSpan)> {
        if self.reads.is_full() || self.disk.is_busy() {
            return None;
        }
        let span = self.shard.read_request(entry);
        let mut buf = self.pool.get(span.len as usize + key.len())?;
        buf[span.len as usize..][..key.len()].copy_from_slice(key);
        Some((buf, span))
    }

    /// Starts a read of the record of `entry` into `buf` (of [`Core::read_buffer`]).
    #[inline]
    pub(super) fn read(&mut self, entry: Entry, (buf, span): (DmaBuf, ReadSpan), purpose: Purpose) {
        let op = ReadOp { entry, span, purpose };
        let Ok(ticket) = self.reads.insert(op) else {
            panic!("read_buffer has seen a free place");
        };
        let op = Op::Read { offset: span.offset, len: span.len, buf };
        let io = Io { device: span.device, tag: ticket.to_bits(), op };
        if self.disk.submit(io).is_err() {
            panic!("the device queue holds more requests than reads are allowed");
        }
    }

    /// A device read has ended.
    pub(super) fn read_done(&mut self, done: Done) {
        let Some(read) = self.reads.remove(Ticket::from_bits(done.tag)) else { return };
        let Some(buf) = done.buf else { return };
        if let Err(errno) = done.result {
            let name = &self.disk.geometry()[usize::from(done.device)].name;
            log::error!("read of {name} failed: {errno}");
            return self.read_failed(read, format!("IOERR read of a data device failed: {errno}"));
        }
        match read.purpose {
            Purpose::Get(get) => self.get_done(&read.entry, &read.span, get, buf),
            Purpose::Load { task, place } => {
                self.task_loaded(task, place, &read.entry, &read.span, buf);
            }
            Purpose::Walk { task, place } => {
                self.walk_read(task, place, &read.entry, &read.span, buf);
            }
            Purpose::Part { task, place, number } => {
                self.part_loaded((task, place, number), &read.entry, &read.span, buf);
            }
            Purpose::Patch { task, number } => {
                self.patched_loaded((task, number), &read.entry, &read.span, buf);
            }
            Purpose::Stream(ask) => self.part_read(ask, &read.entry, &read.span, buf),
        }
    }

    fn read_failed(&mut self, read: ReadOp, text: String) {
        match read.purpose {
            Purpose::Get(get) => self.reply_error(get.origin, &text),
            Purpose::Load { task, .. }
            | Purpose::Part { task, .. }
            | Purpose::Patch { task, .. } => {
                self.task_failed(task, text);
            }
            Purpose::Stream(ask) => self.part_answer(ask, Err(text)),
            Purpose::Walk { task, .. } => self.walk_failed(task, text),
        }
    }

    fn get_done(&mut self, entry: &Entry, span: &ReadSpan, get: Get, mut buf: DmaBuf) {
        let key = get.key(span, &buf);
        let value = match self.shard.decode(entry, span, &buf, key) {
            Ok(record) => record.value_offset..record.value_offset + record.value.len(),
            Err(ReadError::Stale) => {
                let key = key.to_vec();
                return self.get_again(get, &key);
            }
            Err(ReadError::OtherKey) => return self.get_reply_null(get),
            Err(ReadError::Corrupt) => {
                log::error!("{}", self.describe(span));
                return self.reply_error(get.origin, DAMAGED);
            }
        };
        if get.origin.core != self.id {
            let mut bytes = self.spare();
            Reply::new(&mut bytes, get.proto).bulk(&buf[value]);
            return self.reply(get.origin, bytes);
        }
        let (start, len) = frame_bulk(&mut buf, value.start, value.len());
        self.fill(get.origin, Tx::Value { buf, start, len });
    }

    /// Names a damaged place for the log.
    pub(super) fn describe(&self, span: &ReadSpan) -> String {
        let name = &self.disk.geometry()[usize::from(span.device)].name;
        let offset = span.offset + u64::from(span.skip);
        format!("{name}: the record at byte {offset} is damaged")
    }

    fn get_reply_null(&mut self, get: Get) {
        let mut bytes = self.spare();
        Reply::new(&mut bytes, get.proto).null();
        self.reply(get.origin, bytes);
    }

    /// The record moved while it was read: look again. The key may be gone by now, which is as
    /// good an answer as its old value, for both were true while the GET was under way.
    fn get_again(&mut self, get: Get, key: &[u8]) {
        let found = self.shard.lookup(get.db, &get.hash, self.now.unix_ms);
        if let Some(chain) = self.shard.chain(get.db, &get.hash)
            && found.as_ref().is_some_and(|found| found.entry.kind == Kind::Chain)
            && self.stream_open(get.origin, &get.hash, chain)
        {
            return;
        }
        let Some(found) = found.filter(|found| found.entry.kind == Kind::String) else {
            return self.get_reply_null(get);
        };
        if let Some(record) = self.shard.resident(&found.entry, key) {
            let mut bytes = self.spares.take();
            Reply::new(&mut bytes, get.proto).bulk(record.value);
            return self.reply(get.origin, bytes);
        }
        match self.key_buffer(&found.entry, key) {
            Some(buf) => self.read(found.entry, buf, Purpose::Get(get)),
            None => self.reply_error(get.origin, "ERR read buffers are exhausted, try again"),
        }
    }

    /// A `GET` that another core has sent here.
    pub(super) fn get_remote(&mut self, origin: Origin, db: u8, proto: Proto, key: &[u8]) -> bool {
        let hash = self.shard.hash(key);
        if self.intents.blocks(key_id(db, &hash), Mode::Shared) {
            return false;
        }
        let Some(found) = self.shard.lookup(db, &hash, self.now.unix_ms) else {
            self.stats.keyspace_misses.add(1);
            let mut bytes = self.spare();
            Reply::new(&mut bytes, proto).null();
            self.reply(origin, bytes);
            return true;
        };
        if found.entry.kind != Kind::String {
            return false;
        }
        if let Some(record) = self.shard.resident(&found.entry, key) {
            let mut bytes = self.spares.take();
            Reply::new(&mut bytes, proto).bulk(record.value);
            self.stats.keyspace_hits.add(1);
            self.reply(origin, bytes);
            return true;
        }
        let Some(buf) = self.key_buffer(&found.entry, key) else { return false };
        self.stats.keyspace_hits.add(1);
        let get = Get { origin, db, proto, key_len: key.len() as u32, hash };
        self.read(found.entry, buf, Purpose::Get(get));
        true
    }
}

/// Turns the value at `start` into a bulk string where it is: the length goes before it, over
/// the record's header and key, the line end behind it, over the checksum. Both have been
/// checked. Returns start and length of the reply.
fn frame_bulk(buf: &mut [u8], start: usize, len: usize) -> (u32, u32) {
    let (before, behind) = buf.split_at_mut(start);
    behind[len..len + 2].copy_from_slice(b"\r\n");
    let Some(before) = before.last_chunk_mut::<FRAME_BYTES_MAX>() else {
        panic!("a record has {FRAME_BYTES_MAX} bytes before its value");
    };
    let mut at = FRAME_BYTES_MAX - 2;
    before[at..].copy_from_slice(b"\r\n");
    let mut rest = len as u32;
    while at > 1 {
        at -= 1;
        before[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    before[at] = b'$';
    let prefix = FRAME_BYTES_MAX - at;
    ((start - prefix) as u32, (prefix + len + 2) as u32)
}

#[cfg(test)]
mod tests {
    use super::frame_bulk;

    #[test]
    fn a_value_is_framed_where_it_is() {
        let mut buf = b"0123456789012345helloCRC.".to_vec();
        let (start, len) = frame_bulk(&mut buf, 16, 5);
        assert_eq!(&buf[start as usize..][..len as usize], b"$5\r\nhello\r\n");
        let mut buf = b"0123456789012345CRC.".to_vec();
        let (start, len) = frame_bulk(&mut buf, 16, 0);
        assert_eq!(&buf[start as usize..][..len as usize], b"$0\r\n\r\n");
        let mut buf = vec![b'x'; 16 + 1_048_576 + 4];
        let (start, len) = frame_bulk(&mut buf, 16, 1_048_576);
        assert_eq!((start, len), (16 - 10, 10 + 1_048_576 + 2));
        assert!(buf[start as usize..].starts_with(b"$1048576\r\n"));
    }
}
