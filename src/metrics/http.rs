//! The smallest HTTP server that monitoring needs: `/metrics`, `/healthz`, `/readyz`.
//!
//! A thread of the control plane serves one connection at a time, one request each, and gives up
//! on it after [`EXCHANGE_NS`]. The others wait in the kernel's queue, so that there is nothing
//! here that a client could make grow.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::Sources;
use crate::clock::monotonic_ns;

/// Time for a request to arrive and its answer to leave.
const EXCHANGE_NS: u64 = 2_000_000_000;

/// Request line and headers.
const REQUEST_MAX_BYTES: usize = 8 << 10;

/// Pause after a failed accept, which is a lack of file descriptors more often than not.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens on these addresses (`true`: may be missing). The error names the address that cannot
/// be had.
pub fn bind(addresses: &[(SocketAddr, bool)]) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for &(address, optional) in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if optional => log::warn!("metrics on {address}: {error}"),
            Err(error) => return Err(format!("metrics-port: {address}: {error}")),
        }
    }
    Ok(listeners)
}

/// Serves the listeners, a thread each, until the process ends.
pub fn serve(listeners: Vec<TcpListener>, sources: &Arc<Sources>) -> Result<(), String> {
    for listener in listeners {
        let sources = Arc::clone(sources);
        let thread = std::thread::Builder::new().name("metrics".into());
        let started = thread.spawn(move || serve_all(&listener, &sources));
        started.map_err(|error| format!("cannot start a thread: {error}"))?;
    }
    Ok(())
}

fn serve_all(listener: &TcpListener, sources: &Sources) {
    loop {
        match listener.accept() {
            // A client that went away or was too slow has no claim to be heard of.
            Ok((stream, _)) => drop(exchange(stream, sources)),
            Err(error) => {
                log::debug!("metrics: accept: {error}");
                std::thread::sleep(ACCEPT_RETRY);
            }
        }
    }
}

fn exchange(mut stream: TcpStream, sources: &Sources) -> io::Result<()> {
    let deadline_ns = monotonic_ns() + EXCHANGE_NS;
    let answer = match read_request(&mut stream, deadline_ns)? {
        Some(request) => answer(&request, sources),
        None => Answer::plain("431 Request Header Fields Too Large", "too large\n"),
    };
    write_all(&mut stream, &answer.bytes(), deadline_ns)
}

/// Request line and headers as they came; `None` when they are too long.
fn read_request(stream: &mut TcpStream, deadline_ns: u64) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = [0; REQUEST_MAX_BYTES];
    let mut filled = 0;
    while !buffer[..filled].windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        if filled == buffer.len() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(time_left(deadline_ns)?))?;
        match stream.read(&mut buffer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(Some(buffer[..filled].to_vec()))
}

fn write_all(stream: &mut TcpStream, bytes: &[u8], deadline_ns: u64) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline_ns)?))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => rest = &rest[count..],
        }
    }
    Ok(())
}

/// Time until the deadline; never zero, which would mean no timeout at all.
fn time_left(deadline_ns: u64) -> io::Result<Duration> {
    match deadline_ns.saturating_sub(monotonic_ns()) {
        0 => Err(io::ErrorKind::TimedOut.into()),
        left_ns => Ok(Duration::from_nanos(left_ns.max(1_000_000))),
    }
}

struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
    /// The request was HEAD: everything but the body.
    head: bool,
}

impl Answer {
    fn plain(status: &'static str, body: &str) -> Answer {
        let kind = "text/plain; charset=utf-8";
        Answer { status, kind, body: body.into(), head: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let Answer { status, kind, body, head } = self;
        let length = body.len();
        let body = if *head { "" } else { body };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

fn answer(request: &[u8], sources: &Sources) -> Answer {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return Answer::plain("400 Bad Request", "bad request\n");
    };
    if !version.starts_with(b"HTTP/1.") {
        return Answer::plain("400 Bad Request", "bad request\n");
    }
    if method != b"GET" && method != b"HEAD" {
        return Answer::plain("405 Method Not Allowed", "only GET and HEAD\n");
    }
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    Answer { head: method == b"HEAD", ..page(path, sources) }
}

fn page(path: &[u8], sources: &Sources) -> Answer {
    match path {
        b"/metrics" => Answer {
            kind: "text/plain; version=0.0.4; charset=utf-8",
            ..Answer::plain("200 OK", &sources.exposition())
        },
        b"/healthz" => Answer::plain("200 OK", "ok\n"),
        b"/readyz" if sources.is_ready() => Answer::plain("200 OK", "ready\n"),
        b"/readyz" => Answer::plain("503 Service Unavailable", "loading\n"),
        _ => Answer::plain("404 Not Found", "see /metrics, /healthz, /readyz\n"),
    }
}
