//! A responder without a store behind it: the ceiling that this client and kernel TCP allow.
//! It answers GET with the value that the key should have, so that the checks hold.

use crate::dataset::Dataset;
use crate::engine::ring::{Done, Kind, Ring};
use crate::os;
use crate::reply::number;
use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

const CONNECTIONS: usize = 1024;
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Serves until ctrl-C.
pub fn serve(listener: &TcpListener, dataset: Dataset) -> io::Result<()> {
    let ring = Ring::new(CONNECTIONS)?;
    let value_header = format!("${}\r\n", dataset.value_bytes).into_bytes();
    // Never dropped: the kernel may write into the ring's buffers until the process has gone.
    let mut null = ManuallyDrop::new(Null { ring, dataset, value_header, clients: HashMap::new() });
    null.ring.arm_accept(listener.as_raw_fd())?;
    while !os::interrupted() {
        null.ring.wait(CHECK_EVERY)?;
        while let Some(done) = null.ring.next_done() {
            match done.kind {
                Kind::Accept => null.accept(listener, done)?,
                Kind::Receive => null.receive(done)?,
                Kind::Send => null.sent(done)?,
            }
        }
    }
    Ok(())
}

struct Null {
    ring: Ring,
    dataset: Dataset,
    value_header: Vec<u8>,
    /// By descriptor, which is also the token.
    clients: HashMap<u32, Client>,
}

struct Client {
    socket: TcpStream,
    /// The begin of a request whose rest has not come.
    input: Vec<u8>,
    replies: Vec<u8>,
    /// Replies that the kernel is sending; not touched until it is done.
    sending: Vec<u8>,
}

impl Null {
    fn accept(&mut self, listener: &TcpListener, done: Done) -> io::Result<()> {
        if !done.more {
            self.ring.arm_accept(listener.as_raw_fd())?;
        }
        if done.result < 0 {
            return Err(io::Error::from_raw_os_error(-done.result));
        }
        let socket = adopt(done.result);
        socket.set_nodelay(true)?;
        let token = done.result as u32;
        self.ring.arm_receive(done.result, token)?;
        let [input, replies, sending] = [Vec::new(), Vec::new(), Vec::new()];
        self.clients.insert(token, Client { socket, input, replies, sending });
        Ok(())
    }

    fn receive(&mut self, done: Done) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&done.token) else { return Ok(()) };
        let mut good = done.result > 0 || done.result == -libc::ENOBUFS;
        if let Some(buffer) = done.buffer {
            let bytes = self.ring.received(buffer, done.result.max(0) as usize);
            good = good && client.answer(bytes, &self.dataset, &self.value_header);
            self.ring.give_back(buffer);
        }
        if !good {
            // Ends the receive if it is still armed; a send in flight keeps its buffer alive.
            let _ = client.socket.shutdown(std::net::Shutdown::Both);
            if !done.more && client.sending.is_empty() {
                self.clients.remove(&done.token);
            }
            return Ok(());
        }
        if !done.more {
            self.ring.arm_receive(client.socket.as_raw_fd(), done.token)?;
        }
        self.flush(done.token)
    }

    fn sent(&mut self, done: Done) -> io::Result<()> {
        if let Some(client) = self.clients.get_mut(&done.token) {
            client.sending.clear();
        }
        if done.result < 0 {
            self.clients.remove(&done.token);
        }
        self.flush(done.token)
    }

    fn flush(&mut self, token: u32) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&token) else { return Ok(()) };
        if client.sending.is_empty() && !client.replies.is_empty() {
            std::mem::swap(&mut client.sending, &mut client.replies);
            self.ring.send(client.socket.as_raw_fd(), &client.sending, token, true)?;
        }
        Ok(())
    }
}

impl Client {
    /// False if the stream is not RESP.
    fn answer(&mut self, bytes: &[u8], dataset: &Dataset, value_header: &[u8]) -> bool {
        if self.input.is_empty() {
            return match answer_all(bytes, dataset, value_header, &mut self.replies) {
                Some(used) => {
                    self.input.extend_from_slice(&bytes[used..]);
                    true
                }
                None => false,
            };
        }
        self.input.extend_from_slice(bytes);
        match answer_all(&self.input, dataset, value_header, &mut self.replies) {
            Some(used) => {
                self.input.drain(..used);
                true
            }
            None => false,
        }
    }
}

/// Answers all whole requests; returns the bytes that they took, `None` if they are not RESP.
fn answer_all(
    bytes: &[u8],
    dataset: &Dataset,
    value_header: &[u8],
    replies: &mut Vec<u8>,
) -> Option<usize> {
    let mut used = 0;
    loop {
        match parse(&bytes[used..]) {
            Parsed::Request { name, key, len } => {
                used += len;
                reply(name, key, dataset, value_header, replies);
            }
            Parsed::Incomplete => return Some(used),
            Parsed::Bad => return None,
        }
    }
}

fn reply(name: &[u8], key: &[u8], dataset: &Dataset, value_header: &[u8], out: &mut Vec<u8>) {
    match name {
        b"GET" => {
            out.extend_from_slice(value_header);
            dataset.append_value(Dataset::key_id(key).unwrap_or(0), out);
            out.extend_from_slice(b"\r\n");
        }
        b"SET" => out.extend_from_slice(b"+OK\r\n"),
        b"PING" => out.extend_from_slice(b"+PONG\r\n"),
        b"CONFIG" => out.extend_from_slice(b"*0\r\n"),
        _ => out.extend_from_slice(b"-ERR a null responder knows GET, SET and PING\r\n"),
    }
}

enum Parsed<'a> {
    Request { name: &'a [u8], key: &'a [u8], len: usize },
    Incomplete,
    Bad,
}

/// The first two arguments of the request at the begin of `bytes`.
fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut at = 0;
    let mut first = [&b""[..]; 2];
    let Some(count) = header(bytes, &mut at, b'*') else { return incomplete_or_bad(bytes, at) };
    for index in 0..count {
        let Some(len) = header(bytes, &mut at, b'$') else { return incomplete_or_bad(bytes, at) };
        let Some(arg) = bytes.get(at..at + len) else { return Parsed::Incomplete };
        if bytes.len() < at + len + 2 {
            return Parsed::Incomplete;
        }
        at += len + 2;
        if let Some(place) = first.get_mut(index) {
            *place = arg;
        }
    }
    Parsed::Request { name: first[0], key: first[1], len: at }
}

/// The number behind `mark`; moves `at` behind its line.
fn header(bytes: &[u8], at: &mut usize, mark: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.iter().take(32).position(|&byte| byte == b'\n')?;
    let digits = rest[..end].strip_suffix(b"\r")?.strip_prefix(&[mark])?;
    let value = usize::try_from(number(digits)?).ok()?;
    *at += end + 1;
    Some(value)
}

fn incomplete_or_bad(bytes: &[u8], at: usize) -> Parsed<'_> {
    let rest = &bytes[at.min(bytes.len())..];
    if rest.len() < 32 && !rest.contains(&b'\n') { Parsed::Incomplete } else { Parsed::Bad }
}

#[allow(unsafe_code)]
fn adopt(fd: i32) -> TcpStream {
    // SAFETY: the descriptor comes from an accept completion and has no other owner.
    unsafe { TcpStream::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests {
    use super::answer_all;
    use crate::dataset::Dataset;

    fn answers(stream: &[u8]) -> Option<(usize, Vec<u8>)> {
        let dataset = Dataset::new(10, 16, 0).unwrap();
        let mut replies = Vec::new();
        answer_all(stream, &dataset, b"$0\r\n", &mut replies).map(|used| (used, replies))
    }

    #[test]
    fn whole_requests_are_answered_and_the_rest_is_left() {
        let set = b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$2\r\nab\r\n";
        let get = b"*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n";
        let stream = [&set[..], &get[..]].concat();
        for end in 0..stream.len() {
            let expected =
                if end < set.len() { (0, vec![]) } else { (set.len(), b"+OK\r\n".into()) };
            assert_eq!(answers(&stream[..end]), Some(expected), "{end}");
        }
        assert_eq!(answers(&stream), Some((stream.len(), b"+OK\r\n$0\r\n\r\n".into())));
    }

    #[test]
    fn other_protocols_are_refused() {
        assert_eq!(answers(b"GET / HTTP/1.1\r\n"), None);
    }
}
