//! GET of a value in parts: it leaves part by part, the next one read while the last is sent, and
//! waits for the peer instead of filling memory. The chain is pinned until the last part has been
//! read: the peer gets the value as it was when GET began.
//!
//! The connection's core asks the key's core for one part at a time; they may be the same.

use crate::disk::Disk;
use crate::mem::DmaBuf;
use crate::net::{Net, SocketId, Tx};
use crate::resp::Reply;
use crate::shard::index::{Entry, KeyHash};
use crate::shard::parts::{Chain, PART_BYTES};
use crate::shard::{ReadError, ReadSpan};

use super::Core;
use super::conn::Seq;
use super::execute::DAMAGED;
use super::fast::Purpose;
use super::message::{Message, Origin};

/// Bytes waiting to leave below which the next part is asked for.
const AHEAD_BYTES: usize = PART_BYTES + 1024;

/// A value on its way to a client.
#[derive(Debug)]
pub(crate) struct Stream {
    pub seq: Seq,
    pub chain: Chain,
    /// The core of the key.
    pub home: u16,
    /// The part that goes next.
    pub next: u32,
    /// It has been asked for.
    pub asked: bool,
}

/// A request for a part.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub core: u16,
    pub conn: SocketId,
    pub seq: Seq,
    pub chain: Chain,
    pub number: u32,
}

impl<N: Net, D: Disk> Core<N, D> {
    /// The key's core: answers a GET with a stream. False when the key has another value by now.
    pub(super) fn stream_open(&mut self, origin: Origin, hash: &KeyHash, chain: Chain) -> bool {
        if !self.shard.pin(hash, &chain) {
            return false;
        }
        self.stats.keyspace_hits.add(1);
        if origin.core == self.id {
            self.stream_start(origin, self.id, chain);
        } else {
            let Origin { conn, seq, expected, .. } = origin;
            let message = Message::Stream { conn, seq, expected, home: self.id, chain };
            self.send(origin.core, message);
        }
        true
    }

    /// The connection's core: a reply will come in parts.
    pub(super) fn stream_start(&mut self, origin: Origin, home: u16, chain: Chain) {
        let Some(conn) = self.conns.get_mut(origin.conn) else {
            return self.stream_close(home, chain);
        };
        conn.expected_bytes -= origin.expected as usize;
        if conn.is_muted(origin.seq) {
            self.stream_close(home, chain);
            return self.fill(Origin { expected: 0, ..origin }, Tx::Bytes(Vec::new()));
        }
        let stream = Stream { seq: origin.seq, chain, home, next: 0, asked: false };
        conn.streams.push_back(stream);
        self.wants_send(origin.conn);
    }

    /// Nobody asks for parts of the chain on behalf of this stream any more.
    pub(super) fn stream_close(&mut self, home: u16, chain: Chain) {
        if home == self.id {
            self.shard.unpin(&chain.id);
        } else {
            self.send(home, Message::Unpin { chain });
        }
    }

    /// Asks for the next part, if it is this stream's turn and the peer keeps up.
    pub(super) fn stream_pump(&mut self, socket: SocketId) {
        let core = self.id;
        let Some(conn) = self.conns.get_mut(socket) else { return };
        if conn.leaving_bytes() > AHEAD_BYTES {
            return;
        }
        let Some(stream) = conn.stream_in_front().filter(|stream| !stream.asked) else { return };
        stream.asked = true;
        let Stream { seq, chain, home, next, .. } = *stream;
        let ask = Ask { core, conn: socket, seq, chain, number: next };
        if home == self.id { self.part_ask(ask) } else { self.send(home, Message::ReadPart(ask)) }
    }

    /// The key's core: gets a part for a stream.
    pub(super) fn part_ask(&mut self, ask: Ask) {
        let Some(entry) = self.shard.part(&ask.chain.id, ask.number) else {
            return self.part_answer(ask, Err(self.why_no_part(&ask.chain.id).into()));
        };
        if let Some(record) = self.shard.resident(&entry, &ask.chain.id.part_name(ask.number)) {
            let bytes = record.value.to_vec();
            return self.part_answer(ask, Ok(Tx::Bytes(bytes)));
        }
        match self.read_buffer(&entry) {
            Some(buf) => self.read(entry, buf, Purpose::Stream(ask)),
            None => self.asks.push_back(ask),
        }
    }

    /// Asks again for parts that found no buffer, each once.
    pub(super) fn retry_asks(&mut self) {
        for _ in 0..self.asks.len() {
            let Some(ask) = self.asks.pop_front() else { return };
            self.part_ask(ask);
        }
    }

    pub(super) fn part_read(&mut self, ask: Ask, entry: &Entry, span: &ReadSpan, buf: DmaBuf) {
        let name = ask.chain.id.part_name(ask.number);
        let place = match self.shard.decode(entry, span, &buf, &name) {
            Ok(record) => (record.value_offset as u32, record.value.len() as u32),
            Err(ReadError::Stale) => return self.part_ask(ask),
            Err(ReadError::Corrupt | ReadError::OtherKey) => {
                log::error!("{}", self.describe(span));
                return self.part_answer(ask, Err(DAMAGED.into()));
            }
        };
        let (start, len) = place;
        self.part_answer(ask, Ok(Tx::Value { buf, start, len }));
    }

    pub(super) fn part_answer(&mut self, ask: Ask, part: Result<Tx, String>) {
        if ask.core == self.id {
            return self.stream_feed(ask.conn, ask.seq, part);
        }
        // Device buffers stay on their core.
        let part = part.map(|tx| match tx {
            Tx::Bytes(bytes) => bytes,
            tx => tx.as_slice().to_vec(),
        });
        self.send(ask.core, Message::Part { conn: ask.conn, seq: ask.seq, part });
    }

    /// The connection's core: the part that was asked for has come.
    pub(super) fn stream_feed(&mut self, socket: SocketId, seq: Seq, part: Result<Tx, String>) {
        let part = part.map(|tx| self.spare_device_buffers(tx));
        let Some(conn) = self.conns.get_mut(socket) else { return };
        let Some(stream) = conn.stream_in_front().filter(|stream| stream.seq == seq) else {
            return;
        };
        stream.asked = false;
        let (home, chain, number) = (stream.home, stream.chain, stream.next);
        stream.next += 1;
        let last = stream.next == chain.parts();
        let before = conn.reply_bytes();
        let spares = &mut self.spares;
        let over = match part {
            Ok(part) => {
                if number == 0 {
                    conn.feed(Tx::Bytes(format!("${}\r\n", chain.len).into_bytes()), spares);
                }
                conn.feed(part, spares);
                if last {
                    conn.end_stream(Tx::Bytes(b"\r\n".to_vec()), spares);
                }
                last
            }
            Err(text) if number == 0 => {
                let mut bytes = Vec::new();
                Reply::new(&mut bytes, Default::default()).error(&text);
                conn.end_stream(Tx::Bytes(bytes), spares);
                true
            }
            Err(text) => {
                // Some of it has left; only the end of the connection tells that the rest is lost.
                log::warn!("closing client {}: {text}", conn.session.id);
                return self.close(socket);
            }
        };
        self.reply_bytes = self.reply_bytes + conn.reply_bytes() - before;
        if over {
            self.stream_close(home, chain);
        }
        self.wants_send(socket);
    }
}
