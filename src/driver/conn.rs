//! One connection: what it sent and we have not parsed, the replies that are owed in order, and
//! the bytes that are ready to leave.

use std::collections::VecDeque;

use super::stream::Stream;
use crate::command::session::Session;
use crate::net::Tx;
use crate::resp::ParseState;

/// Replies under this size are gathered into one buffer; larger values leave from the buffer
/// they were read into.
const GATHER_BYTES_MAX: usize = 16 * 1024;
/// A gathered buffer is not grown beyond this.
const TAIL_BYTES_MAX: usize = 64 * 1024;
/// Replies waiting to leave above which the connection's commands wait.
const OUT_BYTES_MAX: usize = 1 << 20;
/// What a reply of another core is taken for until one has come: only the home core knows how long
/// its values are.
const REMOTE_BYTES_START: usize = 64 * 1024;
/// Replies not yet made above which the connection's commands wait.
const OWED_MAX: usize = 4096;

/// The place of a reply that is not there yet.
#[derive(Debug)]
enum Owed {
    Waiting,
    /// The client wants no reply to this one.
    Muted,
    Ready(Tx),
}

/// Names a place in the reply order of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seq(pub u32);

/// Reply buffers kept for reuse, and the capacities that are worth keeping: room for a pipelined
/// batch of small values, so that gathering does not grow a buffer step by step.
const SPARES_MAX: usize = 512;
const SPARE_BYTES_MIN: usize = 32 * 1024;
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// Empty buffers for replies.
#[derive(Debug, Default)]
pub struct Spares(Vec<Vec<u8>>);

impl Spares {
    pub fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(SPARE_BYTES_MIN))
    }

    pub fn give(&mut self, mut bytes: Vec<u8>) {
        let fits = (SPARE_BYTES_MIN..=SPARE_BYTES_MAX).contains(&bytes.capacity());
        if fits && self.0.len() < SPARES_MAX {
            bytes.clear();
            self.0.push(bytes);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Conn {
    pub session: Session,
    /// Received bytes that have not been executed, from `rx_start` on.
    pub rx: Vec<u8>,
    pub rx_start: usize,
    pub parse: ParseState,
    owed: VecDeque<Owed>,
    /// Sequence number of `owed[0]`.
    first: u32,
    /// Replies that come in parts.
    pub streams: VecDeque<Stream>,
    /// Pieces that leave as they are.
    out: VecDeque<Tx>,
    /// Small replies that leave together, behind `out`.
    tail: Vec<u8>,
    /// Bytes of replies that are made and not sent, whether they may leave yet or not.
    reply_bytes: usize,
    /// Bytes of replies that device reads under way will bring.
    pub expected_bytes: usize,
    /// Guess at the next reply of another core, from those that came.
    remote_bytes: usize,
    pub sending: bool,
    /// Close when everything owed has been sent; no further command is executed.
    pub closing: bool,
    /// The last command works on several cores, or on all keys: the next one starts when it is
    /// done, so that it cannot overtake.
    pub barrier: bool,
    /// Commands wait for room or for earlier ones.
    pub stalled: bool,
    /// Receiving is stopped.
    pub paused: bool,
    /// Stands in the core's list of connections with something to send.
    pub listed: bool,
}

impl Conn {
    pub fn new(session: Session) -> Conn {
        Conn {
            session,
            rx: Vec::new(),
            rx_start: 0,
            parse: ParseState::default(),
            owed: VecDeque::new(),
            first: 0,
            streams: VecDeque::new(),
            out: VecDeque::new(),
            tail: Vec::new(),
            reply_bytes: 0,
            expected_bytes: 0,
            remote_bytes: REMOTE_BYTES_START,
            sending: false,
            closing: false,
            barrier: false,
            stalled: false,
            paused: false,
            listed: false,
        }
    }

    /// Bytes received and not executed.
    pub fn backlog(&self) -> usize {
        self.rx.len() - self.rx_start
    }

    /// Memory held for this connection's data, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.rx.capacity() + self.reply_bytes
    }

    /// Pieces that may leave.
    pub fn out_count(&self) -> usize {
        self.out.len() + usize::from(!self.tail.is_empty())
    }

    pub fn reply_bytes(&self) -> usize {
        self.reply_bytes
    }

    /// Replies still to be made or sent are too many to go on, or the next command has to wait
    /// for the last one.
    pub fn is_congested(&self) -> bool {
        self.reply_bytes + self.expected_bytes > OUT_BYTES_MAX
            || self.owed.len() > OWED_MAX
            || !self.streams.is_empty()
            || (self.barrier && !self.owed.is_empty())
    }

    /// What to count for a command that is sent to another core.
    pub fn remote_expected(&self) -> u32 {
        self.remote_bytes as u32
    }

    /// A reply of another core has come: a large one is believed at once, small ones slowly.
    pub fn note_remote(&mut self, bytes: usize) {
        self.remote_bytes = bytes.max(self.remote_bytes / 8 * 7);
    }

    /// Every command so far has its reply.
    pub fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    pub fn is_drained(&self) -> bool {
        self.owed.is_empty() && !self.has_output() && !self.sending
    }

    /// Keeps a place for a reply that comes later.
    pub fn reserve(&mut self, muted: bool) -> Seq {
        let seq = self.first.wrapping_add(self.owed.len() as u32);
        self.owed.push_back(if muted { Owed::Muted } else { Owed::Waiting });
        Seq(seq)
    }

    /// Fills a reserved place; everything that is complete up to the first gap may leave.
    pub fn fill(&mut self, seq: Seq, tx: Tx, spares: &mut Spares) {
        let place = seq.0.wrapping_sub(self.first) as usize;
        let Some(owed) = self.owed.get_mut(place) else { return };
        let tx = match owed {
            Owed::Waiting => tx,
            Owed::Muted => Tx::Bytes(Vec::new()),
            Owed::Ready(_) => panic!("one reply given twice"),
        };
        self.reply_bytes += tx.len();
        if place > 0 {
            *owed = Owed::Ready(tx);
            return;
        }
        self.owed.pop_front();
        self.first = self.first.wrapping_add(1);
        self.push_out(tx, spares);
        self.release(spares);
    }

    /// Lets the replies leave that are complete up to the first gap.
    fn release(&mut self, spares: &mut Spares) {
        while let Some(Owed::Ready(_)) = self.owed.front() {
            let Some(Owed::Ready(tx)) = self.owed.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            self.push_out(tx, spares);
        }
    }

    /// Whether the client wants no reply at this place.
    pub fn is_muted(&self, seq: Seq) -> bool {
        let place = seq.0.wrapping_sub(self.first) as usize;
        matches!(self.owed.get(place), Some(Owed::Muted))
    }

    /// The stream whose turn it is: nothing is owed before it.
    pub fn stream_in_front(&mut self) -> Option<&mut Stream> {
        let first = self.first;
        self.streams.iter_mut().find(|stream| stream.seq.0 == first)
    }

    /// A piece of the reply that is first in line.
    pub fn feed(&mut self, tx: Tx, spares: &mut Spares) {
        self.reply_bytes += tx.len();
        self.push_out(tx, spares);
    }

    /// The last piece of the stream that is first in line.
    pub fn end_stream(&mut self, tx: Tx, spares: &mut Spares) {
        self.feed(tx, spares);
        let first = self.first;
        self.streams.retain(|stream| stream.seq.0 != first);
        self.owed.pop_front();
        self.first = self.first.wrapping_add(1);
        self.release(spares);
    }

    /// The buffer that an immediate reply is appended to: what leaves next when nothing is owed
    /// before it, else one behind what is owed. [`Conn::made`] follows.
    pub fn buffer(&mut self, spares: &mut Spares) -> &mut Vec<u8> {
        if self.owed.is_empty() {
            return self.tail(spares);
        }
        let has_room = |owed: &Owed| match owed {
            Owed::Ready(Tx::Bytes(bytes)) => bytes.len() < TAIL_BYTES_MAX,
            _ => false,
        };
        if !self.owed.back().is_some_and(has_room) {
            self.owed.push_back(Owed::Ready(Tx::Bytes(spares.take())));
        }
        match self.owed.back_mut() {
            Some(Owed::Ready(Tx::Bytes(bytes))) => bytes,
            _ => panic!("the last place was made ready"),
        }
    }

    /// So many bytes have been appended to [`Conn::buffer`].
    pub fn made(&mut self, bytes: usize) {
        self.reply_bytes += bytes;
    }

    /// [`Conn::buffer`], taken out until [`Conn::return_buffer`].
    pub fn lend_buffer(&mut self, spares: &mut Spares) -> Vec<u8> {
        std::mem::take(self.buffer(spares))
    }

    pub fn return_buffer(&mut self, bytes: Vec<u8>, spares: &mut Spares) {
        match self.owed.back_mut() {
            _ if bytes.is_empty() => spares.give(bytes),
            None => self.tail = bytes,
            Some(Owed::Ready(Tx::Bytes(place))) => *place = bytes,
            Some(_) => panic!("a reply was reserved while another one was written"),
        }
    }

    /// The buffer in which small replies are gathered.
    #[inline(always)]
    fn tail(&mut self, spares: &mut Spares) -> &mut Vec<u8> {
        if self.tail.len() >= TAIL_BYTES_MAX {
            self.end_tail();
        }
        if self.tail.capacity() == 0 {
            self.tail = spares.take();
        }
        &mut self.tail
    }

    /// What comes next does not go into the same buffer.
    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.out.push_back(Tx::Bytes(std::mem::take(&mut self.tail)));
        }
    }

    #[inline]
    fn push_out(&mut self, tx: Tx, spares: &mut Spares) {
        let alone = !self.has_output() && !self.sending && self.owed.is_empty();
        if tx.len() >= GATHER_BYTES_MAX || (alone && matches!(tx, Tx::Value { .. })) {
            self.end_tail();
            return self.out.push_back(tx);
        }
        match tx {
            Tx::Bytes(bytes) if self.tail.capacity() == 0 => self.tail = bytes,
            Tx::Bytes(bytes) => {
                self.tail(spares).extend_from_slice(&bytes);
                spares.give(bytes);
            }
            Tx::Value { .. } => self.tail(spares).extend_from_slice(tx.as_slice()),
        }
    }

    /// Whether anything may leave.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() || !self.tail.is_empty()
    }

    /// The next piece to send; the connection counts as sending until [`Conn::sent`].
    pub fn next_out(&mut self) -> Option<Tx> {
        if self.sending || !self.has_output() {
            return None;
        }
        self.sending = true;
        let whole = self.out.pop_front();
        Some(whole.unwrap_or_else(|| Tx::Bytes(std::mem::take(&mut self.tail))))
    }

    pub fn sent(&mut self, bytes: usize) {
        self.sending = false;
        self.reply_bytes -= bytes;
    }
}
