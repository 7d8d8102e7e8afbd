//! Clients that misbehave: the server's memory stays bounded and others are served meanwhile.
//!
//! `LAVIK_IDLE_CONNECTIONS` sets the number of idle connections.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

mod support;

use support::client::{Client, Value, encode};
use support::server::{Launch, Server};
use support::{number_from_env, wait_until};

const MIB: u64 = 1 << 20;

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// Another client is served, in a time that only a blocked server exceeds.
#[track_caller]
fn assert_serves(server: &Server) {
    let start = Instant::now();
    let mut client = server.client();
    for index in 0..20 {
        assert_eq!(client.call(&["SET", "served", &index.to_string()]), ok());
        assert_eq!(client.run("GET served").text(), index.to_string());
    }
    assert!(start.elapsed() < Duration::from_secs(10), "served only after {:?}", start.elapsed());
}

/// Writes until the socket takes no more for a while; returns the bytes written.
fn write_until_blocked(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("set a timeout");
    let mut written = 0;
    while written < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            // The server may close such a client.
            Err(_) => break,
        }
    }
    written
}

/// A client that asks for 2 GiB of replies and reads none of them.
#[test]
fn client_that_never_reads() {
    let server = Server::fresh("limits-never-reads");
    let mut client = server.client();
    let value = vec![b'v'; MIB as usize];
    assert_eq!(client.call(&[b"SET".as_slice(), b"big", &value]), ok());
    assert!(client.run("GET big") == Value::Bulk(value));
    let before = server.rss_bytes();
    let mut deaf = server.client();
    let request = encode(&["GET", "big"]).repeat(2000);
    deaf.stream().set_nonblocking(false).expect("a blocking socket");
    let mut stream = deaf.stream().try_clone().expect("a second handle");
    write_until_blocked(&mut stream, &request);
    assert_serves(&server);
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 192 * MIB, "grew by {} MiB for one client", grown / MIB);
    // What it reads in the end is right.
    for _ in 0..50 {
        let Ok(reply) = deaf.try_receive() else { return };
        assert!(reply.bytes().len() == MIB as usize && reply.bytes().iter().all(|&b| b == b'v'));
    }
}

/// 100,000 commands are sent before the first reply is read. All are answered, in order.
#[test]
fn deep_pipeline() {
    let server = Server::fresh("limits-pipeline");
    let mut client = server.client();
    let mut bytes = Vec::new();
    for index in 0..50_000 {
        let key = format!("key:{}", index % 1000);
        bytes.extend(encode(&["SET", &key, &index.to_string()]));
        bytes.extend(encode(&["GET", &key]));
    }
    let before = server.rss_bytes();
    let mut sender = client.stream().try_clone().expect("a second handle");
    std::thread::scope(|scope| {
        // A server that stops reading until replies are taken is right too: then this waits.
        scope.spawn(move || sender.write_all(&bytes).expect("send all commands"));
        std::thread::sleep(Duration::from_millis(500));
        assert_serves(&server);
        for index in 0..50_000 {
            assert_eq!(client.receive(), ok());
            assert_eq!(client.receive().text(), index.to_string());
        }
    });
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 192 * MIB, "grew by {} MiB", grown / MIB);
}

/// Connections that only exist cost little, and do not slow others.
#[test]
fn idle_connections() {
    let count = number_from_env("LAVIK_IDLE_CONNECTIONS", 2000) as usize;
    raise_open_file_limit(count);
    let server = Server::fresh("limits-idle");
    let before = server.rss_bytes();
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..count {
        let mut client = server.client();
        assert_eq!(client.run("PING").text(), "PONG");
        idle.push(client);
    }
    assert_serves(&server);
    let per_connection = server.rss_bytes().saturating_sub(before) / count as u64;
    assert!(per_connection < 48 * 1024, "{per_connection} bytes of memory per idle connection");
    let mut client = server.client();
    let info = client.run("INFO clients").text();
    assert!(info.contains(&format!("connected_clients:{}\r\n", count + 1)), "{info}");
    // All still work, and all are gone when they close.
    for client in idle.iter_mut().step_by(97) {
        assert_eq!(client.run("PING").text(), "PONG");
    }
    drop(idle);
    wait_until("closed connections are forgotten", Duration::from_secs(20), || {
        client.run("INFO clients").text().contains("connected_clients:1\r\n")
    });
}

/// The limit is inherited by the server; a shell that allows fewer files fails here by name.
fn raise_open_file_limit(count: usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("files");
    let soft: usize =
        line.split_whitespace().nth(3).expect("a limit").parse().unwrap_or(usize::MAX);
    assert!(soft > count + 100, "open files are limited to {soft}: run ulimit -n {}", count + 200);
}

/// The one connection too many is told so, and the others stay.
#[test]
fn maxclients() {
    let server = Launch::new("limits-maxclients").flag("--maxclients").flag("10").start();
    let mut clients: Vec<Client> = Vec::new();
    // The harness's own connection may still be closing.
    wait_until("ten connections are taken", Duration::from_secs(20), || {
        let mut client = server.client();
        match client.try_call(&["PING"]) {
            Ok(reply) if !reply.is_error() => clients.push(client),
            _ => {}
        }
        clients.len() == 10
    });
    let mut one_too_many = server.client();
    let answer = one_too_many.rest(Duration::from_secs(20)).expect("the connection closes");
    assert_eq!(answer, b"-ERR max number of clients reached\r\n");
    for client in &mut clients {
        assert_eq!(client.run("PING").text(), "PONG");
    }
}

/// A value of 7 MiB that arrives in pieces of odd sizes.
#[test]
fn large_value_in_small_pieces() {
    let server = Server::fresh("limits-pieces");
    let mut client = server.client();
    let value: Vec<u8> = (0..7 * MIB).map(|i| ((i * 7) >> 3) as u8).collect();
    let bytes = encode(&[b"SET".as_slice(), b"k", &value]);
    let mut rest = bytes.as_slice();
    let mut size = 1;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(size.min(rest.len()));
        client.send(piece);
        rest = later;
        size = (size * 7 + 13) % 9001 + 1;
    }
    assert_eq!(client.receive(), ok());
    assert!(client.run("GET k") == Value::Bulk(value));
}

/// Every way to cut a pipeline of commands in two gives the same replies.
#[test]
fn commands_cut_at_every_byte() {
    let server = Server::fresh("limits-cut");
    let mut client = server.client();
    let mut bytes = b"PING\r\n".to_vec();
    bytes.extend(encode(&["SET", "k", "a\r\nb"]));
    bytes.extend_from_slice(b"\r\n*0\r\nGET k\r\n");
    bytes.extend(encode(&["ECHO", ""]));
    for cut in 0..=bytes.len() {
        client.send(&bytes[..cut]);
        // Lets the first part arrive alone most of the time; the replies do not depend on it.
        std::thread::yield_now();
        client.send(&bytes[cut..]);
        let replies: Vec<Value> = (0..4).map(|_| client.receive()).collect();
        let texts: Vec<String> = replies.iter().map(Value::text).collect();
        assert_eq!(texts, ["PONG", "OK", "a\r\nb", ""], "cut at {cut}");
    }
}

/// Bytes that are no protocol: an error and the end of the connection, never the end of the
/// server.
#[test]
fn garbage() {
    let mut server = Server::fresh("limits-garbage");
    let mut rng = support::rng::Rng::new(7);
    for round in 0..300 {
        let mut bytes: Vec<u8> = (0..1 + rng.below(400)).map(|_| rng.next() as u8).collect();
        if round % 3 == 0 {
            bytes.splice(..0, *b"*3\r\n$3\r\nSET\r\n$");
        }
        let mut client = server.client();
        // The server may close while we send.
        let _ = client.try_send(&bytes);
    }
    server.assert_running();
    assert_serves(&server);
}

/// A line without end is refused after 64 KiB.
#[test]
fn endless_line() {
    let server = Server::fresh("limits-line");
    let mut client = server.client();
    client.send(&vec![b'a'; 64 * 1024 + 1]);
    let answer = client.rest(Duration::from_secs(20)).expect("the connection closes");
    assert_eq!(answer, b"-ERR Protocol error: too big inline request\r\n");
    let mut client = server.client();
    client.send(&[b"*".as_slice(), &vec![b'1'; 64 * 1024 + 1]].concat());
    let answer = client.rest(Duration::from_secs(20)).expect("the connection closes");
    assert_eq!(answer, b"-ERR Protocol error: too big mbulk count string\r\n");
    let mut client = server.client();
    client.send(&[b"*1\r\n$".as_slice(), &vec![b'1'; 64 * 1024 + 1]].concat());
    let answer = client.rest(Duration::from_secs(20)).expect("the connection closes");
    assert_eq!(answer, b"-ERR Protocol error: too big bulk count string\r\n");
}

/// A hundred clients that announce 400 MiB each and send a byte now and then: what is announced
/// is not what is allocated.
#[test]
fn slow_clients_with_large_announcements() {
    let server = Server::fresh("limits-slow");
    let before = server.rss_bytes();
    let mut slow: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$419430400\r\n");
    }
    for _ in 0..20 {
        for client in &mut slow {
            client.send(b"x");
        }
    }
    assert_serves(&server);
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "grew by {} MiB for 2,000 bytes", grown / MIB);
}

/// A client that goes away in the middle of a command or of its replies leaves nothing behind.
#[test]
fn clients_that_go_away() {
    let mut server = Server::fresh("limits-away");
    let mut client = server.client();
    assert_eq!(client.call(&[b"SET".as_slice(), b"big", &vec![b'v'; MIB as usize]]), ok());
    for round in 0..200 {
        let mut leaving = server.client();
        leaving.send(&encode(&["GET", "big"]).repeat(round % 5));
        leaving.send(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$10\r\nabc");
    }
    wait_until("their connections are forgotten", Duration::from_secs(20), || {
        client.run("INFO clients").text().contains("connected_clients:1\r\n")
    });
    assert_eq!(client.run("EXISTS half"), Value::Int(0));
    server.assert_running();
}

/// 200 MiB of values in a server whose buffers are far smaller: values are on the device, not in
/// memory.
#[test]
fn memory_does_not_grow_with_the_values() {
    let server = Launch::new("limits-values").data_size("512mb").start();
    let mut client = server.client();
    let value = "v".repeat(16 * 1024);
    let set = |index: usize| vec!["SET".to_string(), format!("key:{index}"), value.clone()];
    let fill = |client: &mut Client, range: std::ops::Range<usize>| {
        for start in range.step_by(64) {
            let commands: Vec<_> = (start..start + 64).map(set).collect();
            assert!(client.pipeline(&commands).iter().all(|reply| *reply == ok()));
        }
    };
    // Buffers are touched first.
    fill(&mut client, 0..6400);
    let before = server.rss_bytes();
    fill(&mut client, 6400..19_200);
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "grew by {} MiB for 200 MiB of values", grown / MIB);
    assert_eq!(client.run("GET key:19199").bytes().len(), value.len());
}

/// Seconds until the kernel probes the peer of the server's end of a connection; `None` when no
/// such timer runs. From `/proc/net/tcp`: the timer's kind (2 = keepalive) and hundredths of
/// seconds.
fn probe_due_s(server: &Server, peer_port: u16) -> Option<u64> {
    let (ours, theirs) = (format!(":{:04X}", server.port()), format!(":{peer_port:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table of sockets");
    let line = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = line.skip(1).find(|line| line[1].ends_with(&ours) && line[2].ends_with(&theirs));
    let timer = line.expect("the server's end of the connection")[5];
    let due = timer.strip_prefix("02:")?;
    Some(u64::from_str_radix(due, 16).expect("a hexadecimal number") / 100)
}

/// Who is gone without a word is found out; the setting holds for new connections.
#[test]
fn silent_peers_are_probed() {
    let server = Server::fresh("limits-keepalive");
    let mut client = server.client();
    for (setting, range) in [
        ("300", Some(200..=300)),
        ("60", Some(30..=60)),
        ("0", None),
        ("2147483647", Some(32_000..=32_767)),
    ] {
        if setting != "300" {
            assert_eq!(client.call(&["CONFIG", "SET", "tcp-keepalive", setting]), ok());
        }
        // Each core follows in its own next turn, and a reply that is not acknowledged yet has
        // another timer.
        wait_until("new connections are probed as set", Duration::from_secs(10), || {
            (0..4).all(|_| {
                let mut new = server.client();
                assert_eq!(new.run("PING"), Value::Simple(b"PONG".to_vec()));
                let port = new.stream().local_addr().expect("an address").port();
                match (probe_due_s(&server, port), &range) {
                    (Some(due_s), Some(range)) => range.contains(&due_s),
                    (due_s, range) => due_s.is_none() && range.is_none(),
                }
            })
        });
    }
}
