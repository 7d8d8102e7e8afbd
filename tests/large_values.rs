//! Strings in parts, with the real binary: sizes around every boundary, kills, other numbers of
//! cores, clients that do not read, a device that fills up.

use std::time::{Duration, Instant};

mod support;

use support::client::{Client, Value, encode};
use support::server::Launch;
use support::wait_until;

const MIB: usize = 1 << 20;
/// Bytes of a part; docs/FORMAT.md.
const PART: usize = 1_036_288;

/// Bytes that differ by place and by `mark`.
fn value(len: usize, mark: u8) -> Vec<u8> {
    let block: Vec<u8> = (0..65_521).map(|i| (i % 251) as u8 ^ (i / 251) as u8 ^ mark).collect();
    block.iter().copied().cycle().take(len).collect()
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn set(client: &mut Client, key: &str, value: &[u8]) -> Value {
    client.call(&[b"SET".as_slice(), key.as_bytes(), value])
}

#[track_caller]
fn assert_value(client: &mut Client, key: &str, expected: &[u8]) {
    assert_eq!(client.call(&["STRLEN", key]), Value::Int(expected.len() as i64), "{key}");
    let found = client.call(&["GET", key]);
    assert!(found.bytes() == expected, "{key} is not what was set");
}

#[test]
fn sizes_around_every_boundary() {
    let mut server = Launch::new("large-sizes").threads(2).data_size("4gb").start();
    let mut client = server.client();
    let mut model: Vec<(String, Vec<u8>)> = Vec::new();
    for len in [1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 8 * MIB, 64 * MIB] {
        let (key, mut value) = (format!("k{len}"), value(len, len as u8));
        assert_eq!(set(&mut client, &key, &value), ok());
        assert_value(&mut client, &key, &value);
        value.extend_from_slice(b"tail");
        let appended = client.call(&["APPEND", &key, "tail"]);
        assert_eq!(appended, Value::Int(value.len() as i64), "{key}");
        let at = value.len() / 2;
        value.splice(at..at + 2, *b"xy");
        client.call(&["SETRANGE", &key, &at.to_string(), "xy"]);
        let end = value.len() + PART + 3;
        value.resize(end, 0);
        value.push(b'z');
        client.call(&["SETRANGE", &key, &end.to_string(), "z"]);
        assert_value(&mut client, &key, &value);
        let (from, to) = (at.saturating_sub(10), (at + 10).min(value.len() - 1));
        let range = client.call(&["GETRANGE", &key, &from.to_string(), &to.to_string()]);
        assert!(range.bytes() == &value[from..=to], "{key} {from}..={to}");
        model.push((key, value));
    }
    assert_eq!(client.run("DBSIZE"), Value::Int(model.len() as i64));
    // Expiry, another name, and the old value.
    let (key, long) = &model[6];
    assert_eq!(client.call(&["EXPIRE", key, "1000"]), Value::Int(1));
    assert_eq!(client.call(&["PERSIST", key]), Value::Int(1));
    assert_eq!(client.call(&["COPY", key, "copy"]), Value::Int(1));
    assert_value(&mut client, "copy", long);
    assert_eq!(client.call(&["RENAME", "copy", "renamed"]), ok());
    assert!(client.call(&["GETSET", "renamed", "short"]).bytes() == long);
    assert!(client.call(&["GETDEL", "renamed"]).bytes() == b"short");
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for (key, _) in &model {
        commands.extend([vec!["GET", key], vec!["PING"]]);
    }
    let replies = client.pipeline(&commands);
    for (index, (key, value)) in model.iter().enumerate() {
        assert!(replies[2 * index].bytes() == value, "{key} in a pipeline");
        assert_eq!(replies[2 * index + 1].text(), "PONG");
    }
    for threads in [3, 1] {
        server.stop();
        server.set_threads(threads);
        server.start();
        let mut client = server.client();
        for (key, value) in &model {
            assert_value(&mut client, key, value);
        }
        assert_eq!(client.run("DBSIZE"), Value::Int(model.len() as i64));
    }
}

#[test]
fn the_longest_string_and_no_longer() {
    let server = Launch::new("large-longest").threads(1).data_size("2gb").start();
    let mut client = server.client();
    let longest = value(512 * MIB, 7);
    let mut other = server.client();
    client.send(&encode(&[b"SET".as_slice(), b"k", &longest]));
    // Others are served while it is written.
    let start = Instant::now();
    for index in 0..50 {
        assert_eq!(set(&mut other, "other", index.to_string().as_bytes()), ok());
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(client.receive(), ok());
    assert_value(&mut client, "k", &longest);
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(client.run("APPEND k x").text(), too_long);
    assert_eq!(client.run("SETRANGE k 536870912 x").text(), too_long);
    assert_eq!(client.run("SETRANGE k 536870911 x"), Value::Int(512 << 20));
    assert_eq!(client.run("GETRANGE k -1 -1").text(), "x");
    assert_eq!(client.run("DEL k"), Value::Int(1));
}

#[test]
fn kills_leave_the_old_or_the_new_value() {
    let launch = Launch::new("large-kill").threads(2).data_size("4gb");
    let mut server = launch.flag("--durability").flag("written").start();
    let mut current = value(64 * MIB, 0);
    assert_eq!(set(&mut server.client(), "k", &current), ok());
    for round in 1..8_u8 {
        let mut client = server.client();
        let next = value(64 * MIB + usize::from(round) * 100_000, round);
        client.send(&encode(&[b"SET".as_slice(), b"k", &next]));
        std::thread::sleep(Duration::from_millis(20 * u64::from(round)));
        server.kill();
        server.assert_media_whole();
        server.set_threads(1 + usize::from(round) % 3);
        server.start();
        let mut client = server.client();
        let found = client.run("GET k").bytes().to_vec();
        assert!(found == current || found == next, "round {round}: {} bytes", found.len());
        current = found;
        assert_eq!(client.run("DBSIZE"), Value::Int(1));
    }
}

/// A reply that nobody takes costs two parts of memory, and stays what it was when it began.
#[test]
fn a_client_that_does_not_read() {
    let server = Launch::new("large-slow").threads(2).data_size("4gb").start();
    let mut client = server.client();
    let long = value(128 * MIB, 3);
    assert_eq!(set(&mut client, "k", &long), ok());
    assert_value(&mut client, "k", &long);
    let before = server.rss_bytes();
    let mut slow: Vec<Client> = (0..4).map(|_| server.client()).collect();
    slow.iter_mut().for_each(|client| client.send(&encode(&["GET", "k"])));
    std::thread::sleep(Duration::from_millis(300));
    let grown = server.rss_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB as u64, "grew by {} MiB", grown >> 20);
    assert_eq!(set(&mut client, "k", b"other"), ok());
    assert_eq!(client.run("FLUSHALL"), ok());
    for client in &mut slow {
        assert!(client.receive().bytes() == long, "the value when GET began");
    }
    assert!(client.run("GET k").is_null());
}

/// Each keeps another old value, until the device is full: then they are let go of.
#[test]
fn slow_readers_do_not_fill_the_device() {
    let server = Launch::new("large-pins").threads(2).data_size("512mb").start();
    let mut client = server.client();
    let mut slow: Vec<Client> = Vec::new();
    for round in 0..12_u8 {
        let next = value(64 * MIB, round);
        wait_until("room", Duration::from_secs(60), || set(&mut client, "k", &next) == ok());
        let mut reader = server.client();
        reader.send(&encode(&["GET", "k"]));
        slow.push(reader);
    }
    assert_value(&mut client, "k", &value(64 * MIB, 11));
    assert_eq!(set(&mut client, "small", b"one"), ok());
}

#[test]
fn a_full_device_keeps_the_old_value_and_takes_others_again() {
    let server = Launch::new("large-full").threads(1).data_size("256mb").start();
    let mut client = server.client();
    let old = value(16 * MIB, 1);
    assert_eq!(set(&mut client, "k", &old), ok());
    let refused = set(&mut client, "k", &value(400 * MIB, 2));
    assert!(refused.text().starts_with("NOSPACE "), "{}", refused.text());
    assert_value(&mut client, "k", &old);
    let next = value(48 * MIB, 3);
    wait_until("room again", Duration::from_secs(60), || set(&mut client, "next", &next) == ok());
    assert_value(&mut client, "next", &next);
    assert_value(&mut client, "k", &old);
    for _ in 0..6 {
        // More than the device in all: the space of deleted values comes back. Not for ever: what
        // a tombstone may hide stays in a segment with live parts until that is defragmented.
        assert_eq!(client.run("DEL next"), Value::Int(1));
        wait_until("room", Duration::from_secs(60), || set(&mut client, "next", &next) == ok());
    }
    assert_value(&mut client, "k", &old);
}
