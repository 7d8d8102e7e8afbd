//! A plain blocking client for PING, INFO and the like, outside measured runs.

use crate::reply::{Event, ReplyReader};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Long enough for a server under valgrind.
const REPLY_WAIT: Duration = Duration::from_secs(60);

/// A whole reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Null,
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
}

/// A connection for one command at a time.
#[derive(Debug)]
pub struct Control {
    socket: TcpStream,
    reader: ReplyReader,
    input: Vec<u8>,
}

impl Control {
    pub fn connect(addr: SocketAddr) -> Result<Control, String> {
        let socket = TcpStream::connect_timeout(&addr, CONNECT_WAIT)
            .map_err(|e| format!("cannot connect to {addr}: {e}"))?;
        let set = socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(REPLY_WAIT)));
        set.map_err(|e| format!("cannot set up a connection to {addr}: {e}"))?;
        Ok(Control { socket, reader: ReplyReader::default(), input: Vec::new() })
    }

    /// The socket, with no bytes of the last reply left behind.
    pub fn into_socket(self) -> Result<TcpStream, String> {
        if self.input.is_empty() { Ok(self.socket) } else { Err("unexpected bytes".into()) }
    }

    pub fn call(&mut self, args: &[&str]) -> Result<Reply, String> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request += &format!("${}\r\n{arg}\r\n", arg.len());
        }
        self.socket.write_all(request.as_bytes()).map_err(|e| format!("{}: {e}", args[0]))?;
        self.read_reply().map_err(|e| format!("{}: {e}", args[0]))
    }

    pub fn ping(&mut self) -> Result<(), String> {
        match self.call(&["PING"])? {
            Reply::Status(text) if text == "PONG" => Ok(()),
            other => Err(format!("PING: {other:?}")),
        }
    }

    pub fn integer(&mut self, args: &[&str]) -> Result<i64, String> {
        match self.call(args)? {
            Reply::Integer(value) => Ok(value),
            other => Err(format!("{}: {other:?}", args[0])),
        }
    }

    /// `INFO section` as text.
    pub fn info(&mut self, section: &str) -> Result<Info, String> {
        match self.call(&["INFO", section])? {
            Reply::Bulk(text) => Ok(Info(String::from_utf8_lossy(&text).into_owned())),
            other => Err(format!("INFO {section}: {other:?}")),
        }
    }

    fn read_reply(&mut self) -> Result<Reply, String> {
        let mut body: Option<Vec<u8>> = None;
        loop {
            let mut input = self.input.as_slice();
            let event = self.reader.next(&mut input).map_err(|bad| bad.0)?;
            let mut elements = None;
            let mut reply = None;
            match event {
                None => {}
                Some(Event::Bulk(_)) => body = Some(Vec::new()),
                Some(Event::Part(part)) => body.get_or_insert_default().extend_from_slice(part),
                Some(Event::End) => reply = Some(Reply::Bulk(body.take().unwrap_or_default())),
                Some(Event::Status(text)) => reply = Some(Reply::Status(lossy(text))),
                Some(Event::Error(text)) => reply = Some(Reply::Error(lossy(text))),
                Some(Event::Integer(value)) => reply = Some(Reply::Integer(value)),
                Some(Event::Null) => reply = Some(Reply::Null),
                Some(Event::Array(len)) => elements = Some(len),
            }
            let used = self.input.len() - input.len();
            self.input.drain(..used);
            if let Some(len) = elements {
                let array = (0..len).map(|_| self.read_reply()).collect::<Result<_, _>>()?;
                return Ok(Reply::Array(array));
            }
            match reply {
                Some(reply) => return Ok(reply),
                None if self.input.is_empty() => self.read_more()?,
                None => {}
            }
        }
    }

    fn read_more(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(len) => {
                self.input.extend_from_slice(&buffer[..len]);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The `name:value` lines of an INFO reply.
#[derive(Clone, Debug)]
pub struct Info(pub String);

impl Info {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, Info, Reply};
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn info_fields_are_found_by_their_whole_name() {
        let info = Info("# Stats\r\ndevice_reads_x:1\r\ndevice_reads:42\r\nname:a:b\r\n".into());
        assert_eq!(info.number("device_reads"), Some(42));
        assert_eq!(info.text("name"), Some("a:b"));
        assert_eq!(info.number("reads"), None);
    }

    #[test]
    fn replies_are_read_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut control = Control::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"*3\r\n:1\r\n$2\r\nhi\r\n*1\r\n$-1\r\n-ERR no\r\n").unwrap();
        let nested = Reply::Array(vec![Reply::Null]);
        assert_eq!(
            control.call(&["X"]).unwrap(),
            Reply::Array(vec![Reply::Integer(1), Reply::Bulk(b"hi".to_vec()), nested])
        );
        assert_eq!(control.call(&["X"]).unwrap(), Reply::Error("ERR no".into()));
        assert!(control.into_socket().is_ok());
    }
}
