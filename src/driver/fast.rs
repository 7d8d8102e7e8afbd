//! GET and SET on keys of this core: the straight path, without allocation for keys of usual
//! length. A SET copies its value once, into the log buffer; a GET of a fresh value copies it out.
//! A GET of a value on the device is answered from the buffer that the device filled, unless it is
//! small and one of a batch, which is gathered. All device reads end here.

use crate::command::errors;
use crate::disk::{Disk, Done, Io, Op};
use crate::mem::{DmaBuf, Ticket};
use crate::net::{Net, SocketId, Tx};
use crate::resp::{Args, Proto, Reply};
use crate::shard::index::{Entry, KeyHash};
use crate::shard::parts::PART_BYTES;
use crate::shard::view::{Kind, Stop, WRONG_TYPE};
use crate::shard::{AppendError, ReadError, ReadSpan};

use super::Core;
use super::execute::{DAMAGED, Flow, append_error, key_id};
use super::intent::Mode;
use super::message::Origin;
use super::stream::Ask;

/// Keys up to this length are kept in the read's own slot.
const KEY_INLINE_MAX: usize = 48;

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

#[derive(Debug)]
pub(crate) struct Get {
    origin: Origin,
    db: u8,
    proto: Proto,
    hash: KeyHash,
    key: KeyCopy,
}

/// The name of a key, kept until the device has answered.
#[derive(Debug)]
enum KeyCopy {
    Inline { len: u8, bytes: [u8; KEY_INLINE_MAX] },
    Heap(Box<[u8]>),
}

impl KeyCopy {
    fn new(key: &[u8]) -> KeyCopy {
        if key.len() > KEY_INLINE_MAX {
            return KeyCopy::Heap(key.into());
        }
        let mut bytes = [0; KEY_INLINE_MAX];
        bytes[..key.len()].copy_from_slice(key);
        KeyCopy::Inline { len: key.len() as u8, bytes }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            KeyCopy::Inline { len, bytes } => &bytes[..usize::from(*len)],
            KeyCopy::Heap(bytes) => bytes,
        }
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    /// `GET key` of a connection of this core.
    pub(super) fn get(&mut self, socket: SocketId, key: &[u8]) -> Option<Flow> {
        let hash = self.shard.hash(key);
        if self.home(&hash) != self.id {
            return None;
        }
        let session = &self.conns.get(socket)?.session;
        let (proto, db) = (session.proto, session.db);
        if self.intents.blocks(key_id(db, &hash), Mode::Shared) {
            return None;
        }
        let Some(found) = self.shard.lookup(db, &hash, self.now.unix_ms) else {
            self.stats.keyspace_misses.add(1);
            return Some(self.immediate(socket, |reply| reply.null()));
        };
        if found.entry.kind != Kind::String {
            if found.entry.kind == Kind::Chain {
                return None;
            }
            let Stop::Error(text) = WRONG_TYPE else { return None };
            return Some(self.immediate_error(socket, &text));
        }
        if self.reply_resident(socket, &found.entry, key) {
            self.stats.keyspace_hits.add(1);
            return Some(Flow::Continue);
        }
        let Some(buf) = self.read_buffer(&found.entry) else { return Some(Flow::Stall) };
        self.stats.keyspace_hits.add(1);
        let origin = self.reserve_expecting(socket, buf.0.len() as u32);
        let get = Get { origin, db, proto, hash, key: KeyCopy::new(key) };
        self.read(found.entry, buf, Purpose::Get(get));
        Some(Flow::Continue)
    }

    /// Answers from the log buffer, if the record is still in one.
    fn reply_resident(&mut self, socket: SocketId, entry: &Entry, key: &[u8]) -> bool {
        let Some(conn) = self.conns.get_mut(socket) else { return false };
        let Some(record) = self.shard.resident(entry, key) else { return false };
        let proto = conn.session.proto;
        let spares = &mut self.spares;
        let mut out = conn.begin(|| super::take_spare(spares));
        let start = out.len();
        Reply::new(&mut out, proto).bulk(record.value);
        self.finish(socket, out, start, None);
        true
    }

    /// `SET key value` without options, of a connection of this core.
    pub(super) fn set(&mut self, socket: SocketId, key: &[u8], value: &[u8]) -> Option<Flow> {
        let hash = self.shard.hash(key);
        if self.home(&hash) != self.id {
            return None;
        }
        let db = self.conns.get(socket)?.session.db;
        if self.intents.blocks(key_id(db, &hash), Mode::Exclusive) {
            return None;
        }
        if value.len() > PART_BYTES {
            return None;
        }
        if self.is_out_of_memory() {
            return Some(self.immediate_error(socket, errors::OUT_OF_MEMORY));
        }
        match self.shard.put(db, &hash, key, Kind::String, value, None) {
            Ok(lsn) => {
                self.count_keys(db);
                let mut out = self.begin(socket);
                let start = out.len();
                out.extend_from_slice(b"+OK\r\n");
                self.finish(socket, out, start, Some(lsn));
                Some(Flow::Continue)
            }
            Err(AppendError::Busy) => Some(Flow::Stall),
            Err(error) => Some(self.immediate_error(socket, append_error(error))),
        }
    }

    /// The straight path for a plain GET or SET; `None` for everything else.
    pub(super) fn fast(&mut self, socket: SocketId, args: Args<'_>) -> Option<Flow> {
        let name = args.at(0);
        match (args.len(), name.len()) {
            (2, 3) if name.eq_ignore_ascii_case(b"get") => self.get(socket, args.at(1)),
            (3, 3) if name.eq_ignore_ascii_case(b"set") => self.set(socket, args.at(1), args.at(2)),
            _ => None,
        }
    }

    /// A buffer for reading a record and where to read, unless buffers or places for reads are used
    /// up.
    pub(super) fn read_buffer(&self, entry: &Entry) -> Option<(DmaBuf, ReadSpan)> {
        if self.reads.is_full() || self.disk.is_busy() {
            return None;
        }
        let span = self.shard.read_request(entry);
        self.pool.get(span.len as usize).map(|buf| (buf, span))
    }

    /// Starts a read of the record of `entry` into `buf` (of [`Core::read_buffer`]).
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
        let record = self.shard.decode(entry, span, &buf, get.key.as_slice());
        let value = match record {
            Ok(record) => record.value_offset..record.value_offset + record.value.len(),
            Err(ReadError::Stale) => return self.get_again(get),
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
    fn get_again(&mut self, get: Get) {
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
        if let Some(record) = self.shard.resident(&found.entry, get.key.as_slice()) {
            let mut bytes = super::take_spare(&mut self.spares);
            Reply::new(&mut bytes, get.proto).bulk(record.value);
            return self.reply(get.origin, bytes);
        }
        match self.read_buffer(&found.entry) {
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
            let mut bytes = super::take_spare(&mut self.spares);
            Reply::new(&mut bytes, proto).bulk(record.value);
            self.stats.keyspace_hits.add(1);
            self.reply(origin, bytes);
            return true;
        }
        let Some(buf) = self.read_buffer(&found.entry) else { return false };
        self.stats.keyspace_hits.add(1);
        let get = Get { origin, db, proto, hash, key: KeyCopy::new(key) };
        self.read(found.entry, buf, Purpose::Get(get));
        true
    }
}

/// Turns the value at `start` into a bulk string where it is: the length goes before it, over
/// the record's header and key, the line end behind it, over the checksum. Both have been
/// checked. Returns start and length of the reply.
fn frame_bulk(buf: &mut [u8], start: usize, len: usize) -> (u32, u32) {
    let mut digits = [0u8; 12];
    let mut at = digits.len();
    let mut rest = len;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    digits[at] = b'$';
    let prefix = digits.len() - at + 2;
    let begin = start - prefix;
    buf[begin..start - 2].copy_from_slice(&digits[at..]);
    buf[start - 2..start].copy_from_slice(b"\r\n");
    buf[start + len..start + len + 2].copy_from_slice(b"\r\n");
    (begin as u32, (prefix + len + 2) as u32)
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
