//! Real HTTP requests over loopback, and the metrics against docs/OPERATIONS.md.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Device, Sources, bind, serve};
use crate::command::session::Server;
use crate::config::Live;

/// Two cores with some figures, one device.
fn sources(ready: bool) -> Sources {
    let server = Server::new(Arc::new(Live::default()), "0".repeat(40), 1_800_000_000_999, 2);
    let [first, second] = &server.stats[..] else { unreachable!("two cores") };
    first.commands.add(40);
    second.commands.add(2);
    first.clients.add(3);
    second.clients.add(-1);
    first.device_reads.add(7);
    second.device_read_bytes.add(7 * 4096);
    second.keys[3].add(9);
    first.reset();
    Sources {
        server: Arc::new(server),
        ready: Arc::new(AtomicBool::new(ready)),
        devices: vec![Arc::new(Device {
            path: "/dev/nvme1n1".into(),
            capacity_bytes: 1 << 40,
            available_bytes: AtomicU64::new(3 << 23),
        })],
    }
}

fn start(sources: &Arc<Sources>) -> SocketAddr {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listeners = bind(&[(any_port, false)]).expect("loopback can be bound");
    let address = listeners[0].local_addr().expect("its address");
    serve(listeners, sources).expect("a thread");
    address
}

/// Sends `request` as it is and returns the whole answer.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.write_all(request.as_bytes()).expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("receive");
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

#[test]
fn metrics_over_http() {
    let sources = Arc::new(sources(true));
    let answer = get(start(&sources), "/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
    let samples: Vec<&str> = body.lines().collect();
    for sample in [
        "lavik_server_ready 1",
        "lavik_start_time_seconds 1800000000",
        "lavik_commands_total 42",
        "lavik_connected_clients 2",
        "lavik_keys{db=\"3\"} 9",
        "lavik_keys{db=\"0\"} 0",
        "lavik_storage_io_operations_total{operation=\"read\"} 7",
        "lavik_storage_io_bytes_total{operation=\"read\"} 28672",
        "lavik_storage_available_bytes{device=\"0\",path=\"/dev/nvme1n1\"} 25165824",
        "lavik_core_commands_total{core=\"1\"} 2",
        "lavik_memory_max_bytes 858993440",
    ] {
        assert!(samples.contains(&sample), "{sample} is missing in\n{body}");
    }
}

#[test]
fn readiness_follows_the_flag() {
    let sources = Arc::new(sources(false));
    let address = start(&sources);
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    assert!(get(address, "/healthz").ends_with("\r\n\r\nok\n"));
    let loading = get(address, "/metrics");
    let body = loading.split_once("\r\n\r\n").map(|parts| parts.1);
    let samples = body.unwrap_or_default().lines().filter(|line| !line.starts_with('#'));
    assert_eq!(samples.collect::<Vec<_>>(), ["lavik_server_ready 0"]);
    sources.ready.store(true, Ordering::Release);
    assert!(get(address, "/readyz").ends_with("\r\n\r\nready\n"));
}

#[test]
fn bad_requests_are_refused() {
    let address = start(&Arc::new(sources(true)));
    let status = |request: &str| {
        let answer = ask(address, request);
        answer.split("\r\n").next().unwrap_or_default().to_string()
    };
    assert_eq!(status("GET /nothing HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(status("GET /metrics\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status("*1\r\n$4\r\nPING\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
    let endless = "x".repeat(8 << 10);
    assert_eq!(status(&endless), "HTTP/1.1 431 Request Header Fields Too Large");
    let head = ask(address, "HEAD /healthz HTTP/1.1\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"));
}

#[test]
fn an_address_that_cannot_be_had_is_named() {
    let sources = Arc::new(sources(true));
    let taken = start(&sources);
    let error = bind(&[(taken, false)]).expect_err("the port is taken");
    assert!(error.starts_with(&format!("metrics-port: {taken}: ")), "{error}");
    assert!(bind(&[(taken, true)]).is_ok_and(|listeners| listeners.is_empty()));
}

#[test]
fn every_metric_is_documented_and_nothing_else() {
    let exposition = sources(true).exposition();
    let names = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut wanted: Vec<&str> = names.filter_map(|rest| rest.split(' ').next()).collect();
    let documented = include_str!("../../docs/OPERATIONS.md").lines();
    let mut found: Vec<&str> = documented
        .filter_map(|line| line.strip_prefix("| `lavik_").map(|_| &line[3..]))
        .filter_map(|rest| rest.split('`').next())
        .collect();
    wanted.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, wanted);
}
