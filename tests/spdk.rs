//! The real binary over SPDK, against an NVMe/TCP target of the same SPDK build on loopback.
//!
//! One test function: the machine's hugepages serve one target and one server at a time. Needs
//! root, for the hugepages.
#![cfg(feature = "spdk")]

use std::process::Output;
use std::time::{Duration, Instant};

mod support;

use support::nvmf::Target;
use support::server::{FLUSH_MAX_MS, Launch, Server};
use support::wait_until;

const KEYS: usize = 2_000;

fn launch(name: &str, devices: &[String]) -> Launch {
    Launch::new(name).spdk(devices)
}

/// A value whose length and bytes follow from the key: small ones and some of many sectors.
fn value(index: usize, generation: usize) -> Vec<u8> {
    let len = if index.is_multiple_of(50) { 100_000 } else { 10 + index % 3_000 };
    (0..len).map(|at| (at * 31 + index * 7 + generation) as u8).collect()
}

fn write(server: &Server, generation: usize) {
    let mut client = server.client();
    for index in 0..KEYS {
        let key = format!("key:{index}").into_bytes();
        let reply = client.call(&[b"SET".to_vec(), key, value(index, generation)]);
        assert_eq!(reply.text(), "OK");
    }
}

fn check(server: &Server, generation: usize) {
    let mut client = server.client();
    assert_eq!(client.run("DBSIZE").int(), KEYS as i64 + 1);
    for index in 0..KEYS {
        let reply = client.call(&["GET", &format!("key:{index}")]);
        assert!(reply.bytes() == value(index, generation), "key:{index} has another value");
    }
    assert_eq!(client.run("HGET user:42 name").text(), "Ada");
}

fn recipe(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.run("PING").text(), "PONG");
    assert_eq!(client.run("HSET user:42 name Ada").int(), 1);
    assert_eq!(client.run("HGET user:42 name").text(), "Ada");
}

#[test]
fn everything_over_nvme_tcp() {
    let mut target = Target::start("spdk-target");
    one_namespace(&target, 1);
    one_namespace(&target, 2);
    two_namespaces(&target);
    wrong_arguments(&target);
    target.restart();
    target_dies(&mut target);
}

/// Recipe, clean restart, `kill -9`, other thread counts.
fn one_namespace(target: &Target, nsid: u32) {
    let mut server = launch("spdk-one", &[target.device(nsid)]).threads(1).start();
    recipe(&server);
    write(&server, 1);
    server.restart();
    check(&server, 1);
    write(&server, 2);
    std::thread::sleep(Duration::from_millis(3 * FLUSH_MAX_MS));
    server.kill();
    server.set_threads(2);
    server.start();
    check(&server, 2);
    let info = server.client().run("INFO stats").text();
    assert!(info.contains(&format!("device0:name={},working=1", target.device(nsid))), "{info}");
    server.stop();
}

/// Another life of the first namespace's data is refused until it is wiped: a new set wants blank
/// devices.
fn two_namespaces(target: &Target) {
    let devices = [target.device(1), target.device(2)];
    let output = launch("spdk-two", &devices).output_of_start();
    assert_refused(&output, "two devices of different sets", "");
}

#[track_caller]
fn assert_refused(output: &Output, what: &str, expected: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{what}: {stderr}");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("lavik: ")).collect();
    assert_eq!(lines.len(), 1, "{what}: {stderr}");
    assert!(lines[0].contains(expected), "{what}: {}", lines[0]);
}

fn wrong_arguments(target: &Target) {
    let good = target.device(2);
    let other = |from: &str, to: &str| good.replace(from, to);
    let cases = [
        ("no such PCI device", "spdk://00ff:00:1f.7/1".to_string(), "no such PCI device"),
        ("no such namespace", target.device(9), "there is no namespace 9"),
        ("no such subsystem", other(":disks", ":none"), "no controller there lets us in"),
        ("nobody listens", "spdk://tcp:127.0.0.1:1/nqn.x/1".to_string(), "refused"),
        ("a name for an address", other("127.0.0.1", "localhost"), "is not of the form"),
    ];
    for (what, device, expected) in cases {
        let begun = Instant::now();
        let output = launch("spdk-wrong", &[device]).output_of_start();
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: {:?}", begun.elapsed());
        assert_refused(&output, what, expected);
    }
    let hungry = launch("spdk-hungry", &[good]).flag("--dpdk-memory-mb").flag("1000000");
    assert_refused(&hungry.output_of_start(), "too few hugepages", "MiB of hugepages");
}

/// A controller that vanishes under load: the server lives and says what it cannot do.
fn target_dies(target: &mut Target) {
    let server = launch("spdk-dies", &[target.device(1)]).threads(2);
    let mut server = server.flag("--durability").flag("written").start();
    recipe(&server);
    write(&server, 1);
    target.kill();
    let mut client = server.client();
    wait_until("writes are refused", Duration::from_secs(30), || {
        client.run("SET key:1 x").is_error() && client.run("SET key:2 x").is_error()
    });
    assert_eq!(client.run("PING").text(), "PONG");
    wait_until("INFO tells", Duration::from_secs(60), || {
        client.run("INFO stats").text().contains("working=0")
    });
    server.assert_running();
    server.kill();
}
