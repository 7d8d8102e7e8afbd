//! A device that fills up: writes get a clear error, reads go on, deleting makes room, and the
//! data is there after a restart.

use std::time::Duration;

mod support;

use support::client::{Client, Value};
use support::server::{Launch, Server};
use support::wait_until;

const VALUE_BYTES: usize = 64 * 1024;

fn value(key: usize) -> Vec<u8> {
    (0..VALUE_BYTES).map(|i| (i + key) as u8).collect()
}

fn set(client: &mut Client, key: usize) -> Value {
    client.call(&[b"SET".as_slice(), format!("key:{key}").as_bytes(), &value(key)])
}

#[track_caller]
fn assert_full(reply: &Value) {
    let text = reply.text();
    assert!(reply.is_error(), "an error is expected, not {text:?}");
    assert!(text.starts_with("NOSPACE "), "the error says why: {text:?}");
}

/// Writes until the first error; returns the number of keys that are there.
fn fill(client: &mut Client) -> usize {
    for key in 0..20_000 {
        let reply = set(client, key);
        if reply.is_error() {
            assert_full(&reply);
            return key;
        }
    }
    panic!("a device of 128 MiB took more than 1 GiB");
}

#[track_caller]
fn check_all(client: &mut Client, keys: impl Iterator<Item = usize>) {
    for key in keys {
        let reply = client.call(&["GET", &format!("key:{key}")]);
        assert!(reply == Value::Bulk(value(key)), "key:{key} is not what was acknowledged");
    }
}

fn started(name: &str) -> Server {
    Launch::new(name).threads(1).data_size("128mb").start()
}

#[test]
fn full_then_reads_then_room_again() {
    let mut server = started("full");
    let mut client = server.client();
    let count = fill(&mut client);
    // Live data may fill most of the device before the reserve of reclamation is touched.
    let filled_mib = (count * VALUE_BYTES) >> 20;
    assert!(filled_mib >= 64, "full after {filled_mib} MiB of 128");

    check_all(&mut client, 0..count);
    assert_full(&set(&mut client, count));
    assert_eq!(client.run("DBSIZE"), Value::Int(count as i64));
    assert_eq!(client.run("PING").text(), "PONG");

    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("DBSIZE"), Value::Int(count as i64));
    check_all(&mut client, 0..count);

    for key in 0..count / 2 {
        assert_eq!(client.call(&["DEL", &format!("key:{key}")]), Value::Int(1), "DEL when full");
    }
    let mut next = 0;
    wait_until("room after DEL", Duration::from_secs(60), || {
        while next < count / 4 && !set(&mut client, next).is_error() {
            next += 1;
        }
        next == count / 4
    });
    check_all(&mut client, (0..count / 4).chain(count / 2..count));
    server.kill();
    server.start();
    let mut client = server.client();
    // What was deleted stays deleted; the last writes may be lost by the kill.
    check_all(&mut client, count / 2..count);
    for key in count / 4..count / 2 {
        assert_eq!(client.call(&["EXISTS", &format!("key:{key}")]), Value::Int(0), "key:{key}");
    }
}

/// Overwriting the same keys needs room only for a while: it goes on for ever.
#[test]
fn endless_overwrite() {
    let server = started("full-overwrite");
    let mut client = server.client();
    let keys = (48 << 20) / VALUE_BYTES;
    let mut refused = 0;
    // 16 times the live data: five times the device.
    for step in 0..keys * 16 {
        if set(&mut client, step % keys).is_error() {
            refused += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(refused < keys, "{refused} of {} overwrites were refused", keys * 16);
    check_all(&mut client, 0..keys);
}

/// FLUSHALL of a full device frees it.
#[test]
fn flushall_when_full() {
    let server = started("full-flushall");
    let mut client = server.client();
    let count = fill(&mut client);
    assert_eq!(client.run("FLUSHALL").text(), "OK");
    assert_eq!(client.run("DBSIZE"), Value::Int(0));
    let mut next = 0;
    wait_until("room after FLUSHALL", Duration::from_secs(60), || {
        while next < count / 2 && !set(&mut client, next).is_error() {
            next += 1;
        }
        next == count / 2
    });
    check_all(&mut client, 0..count / 2);
}
