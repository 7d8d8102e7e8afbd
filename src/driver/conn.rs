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
    out: VecDeque<Tx>,
    out_bytes: usize,
    /// Bytes of replies that are made and wait for an earlier one.
    ready_bytes: usize,
    /// Bytes of replies that device reads under way will bring.
    pub expected_bytes: usize,
    /// Guess at the next reply of another core, from those that came.
    remote_bytes: usize,
    pub sending: bool,
    /// Close when everything owed has been sent; no further command is executed.
    pub closing: bool,
    /// The last command works on several cores: the next one starts when it is done, so that it
    /// cannot overtake.
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
            out_bytes: 0,
            ready_bytes: 0,
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
        self.rx.capacity() + self.out_bytes
    }

    pub fn out_count(&self) -> usize {
        self.out.len()
    }

    /// Bytes of replies held, whether they may leave yet or not.
    pub fn reply_bytes(&self) -> usize {
        self.out_bytes + self.ready_bytes
    }

    pub fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Replies still to be made or sent are too many to go on, or the next command has to wait
    /// for the last one.
    pub fn is_congested(&self) -> bool {
        self.out_bytes + self.ready_bytes + self.expected_bytes > OUT_BYTES_MAX
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
        self.owed.is_empty() && self.out.is_empty() && !self.sending
    }

    /// Keeps a place for a reply that comes later.
    pub fn reserve(&mut self, muted: bool) -> Seq {
        let seq = self.first.wrapping_add(self.owed.len() as u32);
        self.owed.push_back(if muted { Owed::Muted } else { Owed::Waiting });
        Seq(seq)
    }

    /// Fills a reserved place; everything that is complete up to the first gap may leave. The
    /// buffer is handed back when nobody wants it.
    pub fn fill(&mut self, seq: Seq, tx: Tx, mut spare: impl FnMut() -> Vec<u8>) -> Option<Tx> {
        let place = seq.0.wrapping_sub(self.first) as usize;
        let owed = self.owed.get_mut(place)?;
        let unwanted = match owed {
            Owed::Waiting => {
                self.ready_bytes += tx.len();
                *owed = Owed::Ready(tx);
                None
            }
            Owed::Muted => {
                *owed = Owed::Ready(Tx::Bytes(Vec::new()));
                Some(tx)
            }
            Owed::Ready(_) => panic!("one reply given twice"),
        };
        self.release(&mut spare);
        unwanted
    }

    /// Lets the replies leave that are complete up to the first gap.
    fn release(&mut self, spare: &mut impl FnMut() -> Vec<u8>) {
        while let Some(Owed::Ready(_)) = self.owed.front() {
            let Some(Owed::Ready(tx)) = self.owed.pop_front() else { break };
            self.first = self.first.wrapping_add(1);
            self.ready_bytes -= tx.len();
            self.push_out(tx, spare);
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
    pub fn feed(&mut self, tx: Tx) {
        self.push_out(tx, &mut Vec::new);
    }

    /// The last piece of the stream that is first in line.
    pub fn end_stream(&mut self, tx: Tx) {
        self.feed(tx);
        let first = self.first;
        self.streams.retain(|stream| stream.seq.0 != first);
        self.owed.pop_front();
        self.first = self.first.wrapping_add(1);
        self.release(&mut Vec::new);
    }

    /// The buffer that an immediate reply is appended to: the tail of what leaves when nothing
    /// is owed before it, else an empty one from `spare`.
    pub fn begin(&mut self, spare: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        if self.owed.is_empty()
            && let Some(Tx::Bytes(tail)) = self.out.back_mut()
            && tail.len() < TAIL_BYTES_MAX
        {
            let tail = std::mem::take(tail);
            self.out.pop_back();
            self.out_bytes -= tail.len();
            return tail;
        }
        spare()
    }

    /// Ends [`Conn::begin`].
    pub fn finish(&mut self, bytes: Vec<u8>) {
        if self.owed.is_empty() {
            self.out_bytes += bytes.len();
            self.out.push_back(Tx::Bytes(bytes));
        } else {
            self.ready_bytes += bytes.len();
            self.owed.push_back(Owed::Ready(Tx::Bytes(bytes)));
        }
    }

    fn push_out(&mut self, tx: Tx, spare: &mut impl FnMut() -> Vec<u8>) {
        self.out_bytes += tx.len();
        let alone = self.out.is_empty() && !self.sending && self.owed.is_empty();
        let gather = tx.len() < GATHER_BYTES_MAX && !(alone && matches!(tx, Tx::Value { .. }));
        if !gather {
            return self.out.push_back(tx);
        }
        match self.out.back_mut() {
            Some(Tx::Bytes(tail)) if tail.len() < TAIL_BYTES_MAX => {
                tail.extend_from_slice(tx.as_slice());
            }
            _ => match tx {
                Tx::Bytes(bytes) => self.out.push_back(Tx::Bytes(bytes)),
                Tx::Value { .. } => {
                    let mut tail = spare();
                    tail.extend_from_slice(tx.as_slice());
                    self.out.push_back(Tx::Bytes(tail));
                }
            },
        }
    }

    /// The next piece to send; the connection counts as sending until [`Conn::sent`].
    pub fn next_out(&mut self) -> Option<Tx> {
        if self.sending {
            return None;
        }
        loop {
            let tx = self.out.pop_front()?;
            if !tx.is_empty() {
                self.sending = true;
                return Some(tx);
            }
        }
    }

    pub fn sent(&mut self, bytes: usize) {
        self.sending = false;
        self.out_bytes -= bytes;
    }
}
