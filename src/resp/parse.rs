//! Parser of requests, in place and resumable.
//!
//! A request is an array of bulk strings (`*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`), or a line of words
//! as a human types it (`ECHO "hi"`). Arguments are not copied: they are spans of the receive
//! buffer (of a scratch buffer for lines, whose quotes and escapes change the bytes).
//!
//! A request that is not complete yet is begun again from its start when more bytes have come,
//! which keeps an idle connection's [`ParseState`] empty. Three things keep the total cost
//! proportional to the bytes: nothing is done before the bytes that are known to be missing are
//! there; a line is not searched for its end twice; and a request of more than a few arguments
//! leaves its spans in the state.

use std::fmt;

use super::args::{Args, Span};
use super::words;

/// A request that breaks off with fewer arguments than this is parsed again from the start.
const RESUME_ARGS_MIN: usize = 32;

/// Spans that a parser keeps room for; what a larger request needed is given back.
const SPANS_KEPT: usize = 4096;

/// Spans are 32 bits wide, so no request may be longer, in bytes.
const REQUEST_LEN_MAX: usize = u32::MAX as usize;

/// What a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of one request.
    pub args_max: usize,
    /// Length of one argument in bytes.
    pub bulk_len_max: usize,
    /// Length in bytes of a line without its end.
    pub line_len_max: usize,
    /// Set until the client has authenticated: the narrower limits until then.
    pub before_auth: Option<BeforeAuth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeAuth {
    pub args_max: usize,
    pub bulk_len_max: usize,
}

/// What a parse of the front of a buffer found.
#[derive(Debug)]
pub enum Parsed<'p> {
    /// A request of at least one argument, which took `consumed` bytes.
    Command { args: Args<'p>, consumed: usize },
    /// The request ends beyond the buffer. No progress is possible before the buffer has `want`
    /// bytes; that may be more than the caller is willing to hold.
    Incomplete { want: usize },
    /// An empty line or an array without elements: skip it, there is no reply.
    Nothing { consumed: usize },
}

/// Why the stream cannot be understood any further. `Display` gives the error reply without the
/// leading `-`; the connection is closed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    InvalidMultibulkLength,
    UnauthenticatedMultibulkLength,
    MultibulkCountTooLong,
    InvalidBulkLength,
    UnauthenticatedBulkLength,
    BulkCountTooLong,
    ExpectedDollar { got: u8 },
    UnbalancedQuotes,
    InlineTooLong,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        f.write_str(match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::MultibulkCountTooLong => "too big mbulk count string",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::BulkCountTooLong => "too big bulk count string",
            ProtocolError::ExpectedDollar { got } => {
                return write!(f, "expected '$', got '{}'", char::from(*got));
            }
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::InlineTooLong => "too big inline request",
        })
    }
}

/// Where a connection stands in a request that has not arrived as a whole. Empty otherwise.
#[derive(Debug, Default)]
pub struct ParseState {
    /// Nothing can come of a buffer shorter than this.
    need: usize,
    /// The line that starts at `line` does not end before `scanned`.
    line: usize,
    scanned: usize,
    partial: Option<Box<Partial>>,
}

impl ParseState {
    /// Nothing can come of a buffer shorter than this.
    pub fn need(&self) -> usize {
        self.need
    }

    /// Where the search for the end of the line at `pos` has to start.
    fn search_from(&self, pos: usize) -> usize {
        if self.line == pos { self.scanned.max(pos) } else { pos }
    }

    /// DRAM held beyond the state itself, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>() + partial.spans.capacity() * size_of::<Span>()
        })
    }
}

#[derive(Debug)]
struct Partial {
    /// Start of the first argument whose span is missing (of its header).
    pos: usize,
    /// Arguments still to come.
    left: usize,
    spans: Vec<Span>,
}

/// The working memory of parsing; one per core serves all its connections.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The words of a line without their quotes and escapes.
    scratch: Vec<u8>,
}

impl Parser {
    pub fn new() -> Parser {
        Parser { spans: Vec::with_capacity(SPANS_KEPT), scratch: Vec::new() }
    }

    /// Parses the request at the start of `buf`. `state` belongs to the connection; between
    /// calls `buf` may move and grow but must keep its bytes until they are consumed. After an
    /// error the connection is of no use.
    #[inline]
    pub fn parse<'p>(
        &'p mut self,
        buf: &'p [u8],
        state: &mut ParseState,
        limits: &Limits,
    ) -> Result<Parsed<'p>, ProtocolError> {
        if buf.len() < state.need {
            return Ok(Parsed::Incomplete { want: state.need });
        }
        if state.need == 0
            && let Some(consumed) = self.whole(buf, limits)
        {
            return Ok(Parsed::Command { args: Args::new(buf, &self.spans), consumed });
        }
        let buf = &buf[..buf.len().min(REQUEST_LEN_MAX)];
        match buf.first() {
            None => Ok(Parsed::Incomplete { want: 1 }),
            Some(b'*') => self.multibulk(buf, state, limits),
            Some(_) => self.inline(buf, state, limits),
        }
    }

    /// The straight path: an array that is all there, with short and well-formed headers. For
    /// anything else, errors too, it gives up.
    #[inline]
    fn whole(&mut self, buf: &[u8], limits: &Limits) -> Option<usize> {
        let (args_max, bulk_len_max) = match &limits.before_auth {
            None => (limits.args_max, limits.bulk_len_max),
            Some(before) => (before.args_max, before.bulk_len_max),
        };
        if buf.len() > REQUEST_LEN_MAX {
            return None;
        }
        let (count, mut pos) = short_header(buf, 0, b'*')?;
        if count == 0 || count > args_max {
            return None;
        }
        self.recycle();
        for _ in 0..count {
            let (len, start) = short_header(buf, pos, b'$')?;
            pos = start + len + 2;
            if len > bulk_len_max || pos > buf.len() {
                return None;
            }
            self.spans.push((start as u32, (start + len) as u32));
        }
        Some(pos)
    }

    fn multibulk<'p>(
        &'p mut self,
        buf: &'p [u8],
        state: &mut ParseState,
        limits: &Limits,
    ) -> Result<Parsed<'p>, ProtocolError> {
        let (mut pos, mut left) = match &mut state.partial {
            Some(partial) => {
                std::mem::swap(&mut self.spans, &mut partial.spans);
                (partial.pos, partial.left)
            }
            None => {
                self.recycle();
                match count_header(buf, state.search_from(0), limits)? {
                    Header::Is { value: 0, next } => {
                        *state = ParseState::default();
                        return Ok(Parsed::Nothing { consumed: next });
                    }
                    Header::Is { value, next } => (next, value),
                    Header::Cut { scanned } => {
                        return self.suspend(state, buf.len() + 1, scanned, 0, 0);
                    }
                }
            }
        };
        while left > 0 {
            let (len, start) = match bulk_header(buf, pos, state.search_from(pos), limits)? {
                Header::Is { value, next } => (value, next),
                Header::Cut { scanned } => {
                    return self.suspend(state, buf.len() + 1, scanned, pos, left);
                }
            };
            let end = start + len;
            // The two bytes after an argument are skipped unseen, as Redis does.
            if buf.len() < end + 2 {
                return self.suspend(state, end + 2, pos, pos, left);
            }
            self.spans.push((start as u32, end as u32));
            pos = end + 2;
            left -= 1;
        }
        if state.need > 0 {
            *state = ParseState::default();
        }
        Ok(Parsed::Command { args: Args::new(buf, &self.spans), consumed: pos })
    }

    /// Empties the spans, and gives back the memory that an unusually large request left.
    fn recycle(&mut self) {
        if self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::with_capacity(SPANS_KEPT);
        }
        self.spans.clear();
    }

    /// Leaves a half-received array: `left` arguments are missing from `pos` on.
    #[cold]
    fn suspend<'p>(
        &mut self,
        state: &mut ParseState,
        need: usize,
        scanned: usize,
        pos: usize,
        left: usize,
    ) -> Result<Parsed<'p>, ProtocolError> {
        if need > REQUEST_LEN_MAX {
            return Err(ProtocolError::InvalidBulkLength);
        }
        (state.need, state.line, state.scanned) = (need, pos, scanned);
        match &mut state.partial {
            Some(partial) => {
                std::mem::swap(&mut self.spans, &mut partial.spans);
                (partial.pos, partial.left) = (pos, left);
            }
            None if self.spans.len() >= RESUME_ARGS_MIN => {
                let spans = self.spans.clone();
                state.partial = Some(Box::new(Partial { pos, left, spans }));
            }
            None => {}
        }
        Ok(Parsed::Incomplete { want: need })
    }

    fn inline<'p>(
        &'p mut self,
        buf: &'p [u8],
        state: &mut ParseState,
        limits: &Limits,
    ) -> Result<Parsed<'p>, ProtocolError> {
        let Some(end) = find(buf, state.scanned, b'\n') else {
            if buf.len() > limits.line_len_max {
                return Err(ProtocolError::InlineTooLong);
            }
            (state.need, state.scanned) = (buf.len() + 1, buf.len());
            return Ok(Parsed::Incomplete { want: state.need });
        };
        if end > limits.line_len_max {
            return Err(ProtocolError::InlineTooLong);
        }
        *state = ParseState::default();
        let line = &buf[..end];
        self.recycle();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        words::split(line, &mut self.scratch, &mut self.spans)?;
        if self.spans.is_empty() {
            return Ok(Parsed::Nothing { consumed: end + 1 });
        }
        Ok(Parsed::Command { args: Args::new(&self.scratch, &self.spans), consumed: end + 1 })
    }
}

/// A header line: its number and where the next line starts, or that its end has not come.
enum Header {
    Is {
        value: usize,
        next: usize,
    },
    /// There is no need to look for the end before `scanned` again.
    Cut {
        scanned: usize,
    },
}

/// The number of the header line at `pos` and where the next line starts, when it is well formed
/// and has at most eight digits.
#[inline(always)]
fn short_header(buf: &[u8], pos: usize, mark: u8) -> Option<(usize, usize)> {
    let line = buf.get(pos..)?;
    let head: &[u8; 4] = line.first_chunk()?;
    let mut value = usize::from(head[1].wrapping_sub(b'0'));
    if head[0] != mark || value > 9 {
        return None;
    }
    if head[2] == b'\r' {
        return Some((value, pos + 4));
    }
    // Two digits announce at least ten bytes: the line has more than ten, or is not whole.
    let line: &[u8; 10] = line.first_chunk()?;
    for (at, &byte) in line[2..].iter().enumerate() {
        let digit = usize::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            let well_formed = byte == b'\r' && head[1] != b'0';
            return well_formed.then_some((value, pos + at + 4));
        }
        value = value * 10 + digit;
    }
    None
}

/// The `*` line at the start of `buf`. A count below zero is as good as zero.
fn count_header(buf: &[u8], scanned: usize, limits: &Limits) -> Result<Header, ProtocolError> {
    let end = match line_end(buf, 0, scanned, limits.line_len_max) {
        Line::Whole { end } => end,
        Line::Cut { scanned } => return Ok(Header::Cut { scanned }),
        Line::TooLong => return Err(ProtocolError::MultibulkCountTooLong),
    };
    let value = decimal(&buf[1..end]).ok_or(ProtocolError::InvalidMultibulkLength)?;
    let value = usize::try_from(value).unwrap_or(0);
    if value > limits.args_max {
        return Err(ProtocolError::InvalidMultibulkLength);
    }
    if limits.before_auth.is_some_and(|before| value > before.args_max) {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    Ok(Header::Is { value, next: end + 2 })
}

/// The `$` line at `pos`.
fn bulk_header(
    buf: &[u8],
    pos: usize,
    scanned: usize,
    limits: &Limits,
) -> Result<Header, ProtocolError> {
    let end = match line_end(buf, pos, scanned, limits.line_len_max) {
        Line::Whole { end } => end,
        Line::Cut { scanned } => return Ok(Header::Cut { scanned }),
        Line::TooLong => return Err(ProtocolError::BulkCountTooLong),
    };
    if buf[pos] != b'$' {
        return Err(ProtocolError::ExpectedDollar { got: buf[pos] });
    }
    let value = decimal(&buf[pos + 1..end]).and_then(|value| usize::try_from(value).ok());
    let value = value.ok_or(ProtocolError::InvalidBulkLength)?;
    if value > limits.bulk_len_max {
        return Err(ProtocolError::InvalidBulkLength);
    }
    if limits.before_auth.is_some_and(|before| value > before.bulk_len_max) {
        return Err(ProtocolError::UnauthenticatedBulkLength);
    }
    Ok(Header::Is { value, next: end + 2 })
}

enum Line {
    /// The carriage return is at `end`, and the byte after it is there.
    Whole {
        end: usize,
    },
    Cut {
        scanned: usize,
    },
    TooLong,
}

/// The end of the line at `pos`, which is not before `scanned`.
fn line_end(buf: &[u8], pos: usize, scanned: usize, line_len_max: usize) -> Line {
    let end = find(buf, scanned, b'\r').unwrap_or(buf.len());
    if end - pos > line_len_max {
        Line::TooLong
    } else if end + 1 < buf.len() {
        Line::Whole { end }
    } else {
        Line::Cut { scanned: end }
    }
}

/// A decimal number in its only form: no sign but `-`, no leading zeros, no blanks.
fn decimal(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn find(buf: &[u8], from: usize, byte: u8) -> Option<usize> {
    buf[from..].iter().position(|&b| b == byte).map(|at| from + at)
}

#[cfg(test)]
mod tests;
