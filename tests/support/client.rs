//! A blocking client of both protocol versions that keeps the exact bytes of each reply.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply. Each wire form has its own variant, so equal values are equal bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// The text of a `,` reply.
    Double(Vec<u8>),
    Bool(bool),
    BigNumber(Vec<u8>),
    /// Format and text.
    Verbatim(Vec<u8>),
}

/// Like the protocol, on one line, with bytes that can be read.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Simple(b) => write!(f, "+{}", b.escape_ascii()),
            Value::Error(b) => write!(f, "-{}", b.escape_ascii()),
            Value::Bulk(b) => write!(f, "\"{}\"", b.escape_ascii()),
            Value::Verbatim(b) => write!(f, "=\"{}\"", b.escape_ascii()),
            Value::Double(b) => write!(f, ",{}", b.escape_ascii()),
            Value::BigNumber(b) => write!(f, "({}", b.escape_ascii()),
            Value::Int(n) => write!(f, ":{n}"),
            Value::Bool(b) => write!(f, "#{b}"),
            Value::NullBulk => f.write_str("$-1"),
            Value::NullArray => f.write_str("*-1"),
            Value::Null => f.write_str("_"),
            Value::Array(items) => f.debug_list().entries(items).finish(),
            Value::Set(items) => f.debug_set().entries(items).finish(),
            Value::Push(items) => f.debug_tuple("push").field(items).finish(),
            Value::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::NullBulk | Value::NullArray | Value::Null)
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// The bytes of a string or error reply.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Simple(b) | Value::Error(b) | Value::Bulk(b) | Value::Verbatim(b) => b,
            other => panic!("no string: {other:?}"),
        }
    }

    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(n) => *n,
            other => panic!("no integer: {other:?}"),
        }
    }

    /// The elements of an array, set or push; keys and values in turn of a map.
    #[track_caller]
    pub fn items(&self) -> Vec<Value> {
        match self {
            Value::Array(v) | Value::Set(v) | Value::Push(v) => v.clone(),
            Value::Map(v) => v.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect(),
            other => panic!("no array: {other:?}"),
        }
    }
}

/// Incremental reader of replies.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes without which another try cannot succeed.
    need: usize,
}

/// The reply is not complete yet.
struct Incomplete;

impl Parser<'_> {
    fn line(&mut self) -> Result<Vec<u8>, Incomplete> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Incomplete)?;
        self.at += end + 2;
        Ok(rest[..end].to_vec())
    }

    fn number(&mut self) -> Result<i64, Incomplete> {
        let line = self.line()?;
        let text = String::from_utf8_lossy(&line).into_owned();
        Ok(text.parse().unwrap_or_else(|_| panic!("server sent a bad number: {text:?}")))
    }

    fn blob(&mut self, len: i64) -> Result<Vec<u8>, Incomplete> {
        let end = self.at + len as usize;
        self.need = end + 2;
        let bytes = self.bytes.get(self.at..end + 2).ok_or(Incomplete)?;
        assert!(bytes.ends_with(b"\r\n"), "bulk of {len} bytes does not end with CRLF");
        self.at = end + 2;
        Ok(bytes[..len as usize].to_vec())
    }

    fn many(&mut self, count: i64) -> Result<Vec<Value>, Incomplete> {
        (0..count).map(|_| self.value()).collect()
    }

    fn value(&mut self) -> Result<Value, Incomplete> {
        let mark = *self.bytes.get(self.at).ok_or(Incomplete)?;
        self.at += 1;
        Ok(match mark {
            b'+' => Value::Simple(self.line()?),
            b'-' => Value::Error(self.line()?),
            b':' => Value::Int(self.number()?),
            b',' => Value::Double(self.line()?),
            b'(' => Value::BigNumber(self.line()?),
            b'#' => Value::Bool(self.line()? == b"t"),
            b'_' => {
                self.line()?;
                Value::Null
            }
            b'$' | b'=' | b'*' | b'%' | b'~' | b'>' => self.sized(mark)?,
            other => panic!("server sent {:?} where a reply begins", char::from(other)),
        })
    }

    fn sized(&mut self, mark: u8) -> Result<Value, Incomplete> {
        let len = self.number()?;
        Ok(match (mark, len) {
            (b'$', -1) => Value::NullBulk,
            (b'*', -1) => Value::NullArray,
            (b'$', _) => Value::Bulk(self.blob(len)?),
            (b'=', _) => Value::Verbatim(self.blob(len)?),
            (b'*', _) => Value::Array(self.many(len)?),
            (b'~', _) => Value::Set(self.many(len)?),
            (b'>', _) => Value::Push(self.many(len)?),
            _ => {
                let pairs = (0..len).map(|_| Ok((self.value()?, self.value()?)));
                Value::Map(pairs.collect::<Result<_, Incomplete>>()?)
            }
        })
    }
}

/// Bytes of a command as the protocol wants them.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

pub struct Client {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// Bytes of the inbox that were handed out.
    read: usize,
    last: Vec<u8>,
}

/// No reply in all tests takes longer; it only turns a hang into a failure.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

impl Client {
    pub fn connect(port: u16) -> std::io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        stream.set_write_timeout(Some(REPLY_LIMIT))?;
        Ok(Client { stream, inbox: Vec::new(), read: 0, last: Vec::new() })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("send to the server");
    }

    /// The next reply, or the error of the connection (`UnexpectedEof` when it was closed).
    pub fn try_receive(&mut self) -> std::io::Result<Value> {
        loop {
            let mut parser = Parser { bytes: &self.inbox[self.read..], at: 0, need: 0 };
            if let Ok(value) = parser.value() {
                let end = self.read + parser.at;
                self.last = self.inbox[self.read..end].to_vec();
                self.read = end;
                self.forget_read();
                return Ok(value);
            }
            let need = self.read + parser.need.max(parser.bytes.len() + 1);
            while self.inbox.len() < need {
                self.fill()?;
            }
        }
    }

    fn fill(&mut self) -> std::io::Result<()> {
        let mut chunk = [0; 64 * 1024];
        let count = self.stream.read(&mut chunk)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.inbox.extend_from_slice(&chunk[..count]);
        Ok(())
    }

    fn forget_read(&mut self) {
        if self.read == self.inbox.len() || self.read > 1 << 20 {
            self.inbox.drain(..self.read);
            self.read = 0;
        }
    }

    #[track_caller]
    pub fn receive(&mut self) -> Value {
        self.try_receive().expect("a reply of the server")
    }

    /// The bytes of the last reply.
    pub fn last_bytes(&self) -> &[u8] {
        &self.last
    }

    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> std::io::Result<Value> {
        self.try_send(&encode(args))?;
        self.try_receive()
    }

    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.try_call(args).expect("a reply of the server")
    }

    /// A command as one would type it: words, quotes, `\x00` escapes.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Value {
        self.call(&super::words::split(line))
    }

    /// Sends all commands, then reads all replies.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Value> {
        let bytes: Vec<u8> = commands.iter().flat_map(|args| encode(args)).collect();
        self.send(&bytes);
        commands.iter().map(|_| self.receive()).collect()
    }

    /// Everything that the server sends until it closes the connection; the error when it does
    /// not within `limit`.
    pub fn rest(&mut self, limit: Duration) -> std::io::Result<Vec<u8>> {
        let mut bytes = self.inbox.split_off(self.read);
        self.stream.set_read_timeout(Some(limit))?;
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Sends raw bytes and compares the raw answer.
    #[track_caller]
    pub fn exchange(&mut self, bytes: &[u8], expected: &[u8]) {
        self.send(bytes);
        let mut got = self.inbox.split_off(self.read);
        while got.len() < expected.len() {
            let mut chunk = vec![0; expected.len() - got.len()];
            let count = self.stream.read(&mut chunk).expect("read the answer");
            if count == 0 {
                break;
            }
            got.extend_from_slice(&chunk[..count]);
        }
        assert_eq!(
            got.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "answer to {:?}",
            bytes.escape_ascii().to_string()
        );
    }
}
