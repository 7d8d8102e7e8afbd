//! Incremental reader of RESP replies. It keeps no copy of a value: the pieces are handed out as
//! they lie in the receive buffer, and the caller checks them there.

/// Longest line that a server may send, in bytes; longer ones are a broken stream.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// One step of a reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    Status(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Null,
    /// An array of this many replies, which follow.
    Array(usize),
    /// A bulk string of this many bytes: its [`Event::Part`]s and one [`Event::End`] follow.
    Bulk(usize),
    Part(&'a [u8]),
    End,
}

/// The stream is not RESP; the connection is of no more use.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

#[derive(Debug)]
enum State {
    Line,
    Body {
        left: usize,
    },
    /// Bytes of the CRLF behind a bulk string that are still to come.
    Trailer {
        left: usize,
    },
}

/// Where a connection stands in its stream of replies.
#[derive(Debug)]
pub struct ReplyReader {
    state: State,
    /// A line whose begin came in an earlier piece.
    line: Vec<u8>,
    line_is_done: bool,
}

impl Default for ReplyReader {
    fn default() -> ReplyReader {
        ReplyReader { state: State::Line, line: Vec::new(), line_is_done: false }
    }
}

impl ReplyReader {
    /// Takes the next event off the front of `input`; `None` when it needs more bytes.
    pub fn next<'e, 'i: 'e>(
        &'e mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'e>>, Malformed> {
        match self.state {
            State::Line => self.next_line(input),
            State::Body { left } => Ok(self.next_part(left, input)),
            State::Trailer { left } => self.next_trailer(left, input),
        }
    }

    fn next_part<'a>(&mut self, left: usize, input: &mut &'a [u8]) -> Option<Event<'a>> {
        if input.is_empty() {
            return None;
        }
        let (part, rest) = input.split_at(left.min(input.len()));
        *input = rest;
        let left = left - part.len();
        self.state = if left == 0 { State::Trailer { left: 2 } } else { State::Body { left } };
        Some(Event::Part(part))
    }

    fn next_trailer<'a>(
        &mut self,
        left: usize,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, Malformed> {
        let taken = left.min(input.len());
        let (bytes, rest) = input.split_at(taken);
        if bytes != &b"\r\n"[2 - left..][..taken] {
            return Err(Malformed(format!("no CRLF behind a bulk string but {}", show(bytes))));
        }
        *input = rest;
        if taken < left {
            self.state = State::Trailer { left: left - taken };
            return Ok(None);
        }
        self.state = State::Line;
        Ok(Some(Event::End))
    }

    fn next_line<'e, 'i: 'e>(
        &'e mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Event<'e>>, Malformed> {
        if self.line_is_done {
            self.line.clear();
            self.line_is_done = false;
        }
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            return self.keep_begin(input).map(|()| None);
        };
        let (piece, rest) = input.split_at(end + 1);
        *input = rest;
        let line = if self.line.is_empty() {
            piece
        } else {
            self.line.extend_from_slice(piece);
            self.line_is_done = true;
            &self.line
        };
        let event = event_of_line(line)?;
        if let Event::Bulk(len) = event {
            self.state =
                if len == 0 { State::Trailer { left: 2 } } else { State::Body { left: len } };
        }
        Ok(Some(event))
    }

    fn keep_begin(&mut self, input: &mut &[u8]) -> Result<(), Malformed> {
        self.line.extend_from_slice(input);
        *input = &[];
        if self.line.len() > LINE_BYTES_MAX {
            return Err(Malformed(format!("a line of over {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

fn event_of_line(line: &[u8]) -> Result<Event<'_>, Malformed> {
    let bad = || Malformed(format!("unexpected line {}", show(line)));
    let text = line.strip_suffix(b"\r\n").ok_or_else(bad)?;
    let (kind, rest) = text.split_first().ok_or_else(bad)?;
    match kind {
        b'+' => Ok(Event::Status(rest)),
        b'-' => Ok(Event::Error(rest)),
        b'_' if rest.is_empty() => Ok(Event::Null),
        b':' => number(rest).map(Event::Integer).ok_or_else(bad),
        b'$' | b'*' => match number(rest) {
            Some(-1) => Ok(Event::Null),
            Some(len) if len >= 0 && *kind == b'$' => Ok(Event::Bulk(len as usize)),
            Some(len) if len >= 0 => Ok(Event::Array(len as usize)),
            _ => Err(bad()),
        },
        _ => Err(bad()),
    }
}

/// A decimal number of up to 18 digits: replies of a load are short numbers, parsed often.
pub fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -value } else { value })
}

/// Bytes for an error message: escaped, at most 80 of them.
pub fn show(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes[..bytes.len().min(80)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::{Event, Malformed, ReplyReader, number};

    /// The events of `stream` as text, fed in pieces of `piece_bytes`; parts are joined.
    fn events(stream: &[u8], piece_bytes: usize) -> Result<Vec<String>, Malformed> {
        let mut reader = ReplyReader::default();
        let mut seen = Vec::new();
        let mut body = String::new();
        for mut piece in stream.chunks(piece_bytes) {
            while let Some(event) = reader.next(&mut piece)? {
                match event {
                    Event::Part(part) => body += &part.escape_ascii().to_string(),
                    Event::End => seen.push(format!("End({})", std::mem::take(&mut body))),
                    Event::Status(text) => seen.push(format!("Status({})", text.escape_ascii())),
                    Event::Error(text) => seen.push(format!("Error({})", text.escape_ascii())),
                    other => seen.push(format!("{other:?}")),
                }
            }
            assert!(piece.is_empty());
        }
        Ok(seen)
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let stream =
            b"+OK\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n_\r\n:-42\r\n*2\r\n:1\r\n:0\r\n-ERR no\r\n";
        let expected = [
            "Status(OK)",
            "Bulk(5)",
            "End(a\\r\\nbc)",
            "Bulk(0)",
            "End()",
            "Null",
            "Null",
            "Integer(-42)",
            "Array(2)",
            "Integer(1)",
            "Integer(0)",
            "Error(ERR no)",
        ];
        for piece_bytes in 1..=stream.len() {
            assert_eq!(events(stream, piece_bytes).unwrap(), expected, "{piece_bytes}");
        }
    }

    #[test]
    fn broken_streams_are_refused() {
        for stream in [
            &b"+OK\n"[..],
            b"\r\n",
            b"hello\r\n",
            b"$x\r\n",
            b"$-2\r\n",
            b":\r\n",
            b"$1\r\nabc",
            b"$1\r\na\rb",
            b"_x\r\n",
        ] {
            assert!(events(stream, stream.len()).is_err(), "{}", stream.escape_ascii());
            assert!(events(stream, 1).is_err(), "{}", stream.escape_ascii());
        }
    }

    #[test]
    fn endless_lines_are_refused() {
        assert!(events(&vec![b'+'; 70_000], 4096).is_err());
    }

    #[test]
    fn incomplete_replies_give_no_event() {
        assert_eq!(events(b"+O", 2).unwrap(), Vec::<String>::new());
        assert_eq!(events(b"$3\r\nab", 6).unwrap(), ["Bulk(3)"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(number(b"1024"), Some(1024));
        assert_eq!(number(b"-7"), Some(-7));
        assert_eq!(number(b"-"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"12a"), None);
        assert_eq!(number(b"9999999999999999999"), None);
    }
}
