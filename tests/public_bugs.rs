//! Inputs that broke other servers in public, with the right answers. Each stands for a kind of
//! fault; the comment names the kind.

use std::time::Duration;

mod support;

use support::client::Value;
use support::server::{Launch, Server};
use support::wait_until;

const CLOSE_LIMIT: Duration = Duration::from_secs(20);

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[track_caller]
fn error(value: &Value, text: &str) {
    assert_eq!(*value, Value::Error(text.as_bytes().to_vec()));
}

/// Inline commands end with LF alone too; length lines do not.
#[test]
fn inline_with_line_feed_only() {
    let server = Server::fresh("bugs-inline");
    let mut client = server.client();
    client.exchange(b"PING\n", b"+PONG\r\n");
    client.exchange(b"SET a 1\nGET a\n", b"+OK\r\n$1\r\n1\r\n");
    client.exchange(b"ECHO 'hello world!'\r\n", b"$12\r\nhello world!\r\n");
    client.exchange(b"SET l 'lorem ipsum'\r\nGET l\r\n", b"+OK\r\n$11\r\nlorem ipsum\r\n");
    client.exchange(b"ECHO \"\\x41\"\r\n", b"$1\r\nA\r\n");
}

/// A broken frame is answered with its reason, and the connection closes.
#[test]
fn broken_frames_are_named_and_closed() {
    let server = Server::fresh("bugs-frames");
    let cases: &[(&[u8], &str)] = &[
        (b"ECHO 'open\r\n", "unbalanced quotes in request"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*3\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n+x\r\n", "expected '$', got '+'"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    ];
    for (bytes, reason) in cases {
        let mut client = server.client();
        client.send(bytes);
        let answer = client.rest(CLOSE_LIMIT).expect("the connection closes");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer, format!("-ERR Protocol error: {reason}\r\n"));
    }
}

/// What `redis-cli --pipe` sends last: an empty line, then ECHO of 20 raw bytes.
#[test]
fn end_of_a_pipe() {
    let server = Server::fresh("bugs-pipe");
    let bytes = b"\xff\x00\r\n\x80abcdefghijklmno";
    let request = [b"\r\n*2\r\n$4\r\nECHO\r\n$20\r\n".as_slice(), bytes, b"\r\n"].concat();
    let reply = [b"$20\r\n".as_slice(), bytes, b"\r\n"].concat();
    server.client().exchange(&request, &reply);
}

/// Hundreds of thousands of arguments are one command, not a protocol error.
#[test]
fn very_many_arguments() {
    let server = Server::fresh("bugs-args");
    let mut client = server.client();
    let mut args = vec!["MSET".to_string()];
    for index in 0..122_501 {
        args.push(format!("key:{index}"));
        args.push(index.to_string());
    }
    assert_eq!(args.len(), 245_003);
    assert_eq!(client.call(&args), ok());
    assert_eq!(client.run("DBSIZE"), Value::Int(122_501));
    let keys: Vec<String> =
        std::iter::once("MGET".to_string()).chain(args[1..].iter().step_by(2).cloned()).collect();
    let values = client.call(&keys).items();
    assert_eq!(values.len(), 122_501);
    assert_eq!(values[77_777], bulk("77777"));
    let keys: Vec<String> =
        std::iter::once("DEL".to_string()).chain(args[1..].iter().step_by(2).cloned()).collect();
    assert_eq!(client.call(&keys), Value::Int(122_501));
}

/// Values far larger than a segment are stored whole; the largest that the protocol allows is
/// 512 MiB.
#[test]
fn very_large_values() {
    let server = Launch::new("bugs-large").data_size("2gb").start();
    let mut client = server.client();
    let large: Vec<u8> = (0..250usize << 20).map(|i| (i >> 12) as u8 ^ i as u8).collect();
    assert_eq!(client.call(&[b"SET", b"k".as_slice(), &large]), ok());
    assert_eq!(client.run("STRLEN k"), Value::Int(250 << 20));
    assert!(client.run("GET k") == Value::Bulk(large.clone()));
    assert_eq!(client.run("SETRANGE empty 268435456 0"), Value::Int((256 << 20) + 1));
    assert_eq!(client.run("GETRANGE empty 268435455 268435456"), Value::Bulk(b"\x000".to_vec()));
    let refused =
        Value::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into());
    assert_eq!(client.run("SETRANGE empty 536870912 0"), refused);
    assert_eq!(client.run("STRLEN empty"), Value::Int((256 << 20) + 1));
    assert_eq!(client.call(&[b"SET", b"k".as_slice(), &large[..7 << 20]]), ok());
    assert!(client.run("GET k") == Value::Bulk(large[..7 << 20].to_vec()));
}

#[test]
fn values_around_every_boundary() {
    let mut server = Launch::new("bugs-sizes").data_size("1gb").start();
    let mut client = server.client();
    let mut sizes = Vec::new();
    for power in [4usize, 8, 9, 12, 15, 16, 17, 19, 20, 22] {
        for delta in [-65i64, -33, -1, 0, 1, 33] {
            sizes.push(((1i64 << power) + delta).max(0) as usize);
        }
    }
    let value = |size: usize| (0..size).map(|i| (i * 31 + size) as u8).collect::<Vec<u8>>();
    for &size in &sizes {
        let key = format!("size:{size}");
        assert_eq!(client.call(&[b"SET", key.as_bytes(), &value(size)]), ok(), "{size} bytes");
    }
    for round in ["in memory", "on the device"] {
        for &size in &sizes {
            let reply = client.run(&format!("GET size:{size}"));
            assert!(reply == Value::Bulk(value(size)), "{size} bytes {round}");
            assert_eq!(client.run(&format!("STRLEN size:{size}")), Value::Int(size as i64));
        }
        server.restart();
        client = server.client();
    }
}

/// Keys of any length and content.
#[test]
fn keys_of_all_lengths() {
    let mut server = Server::fresh("bugs-keys");
    let mut client = server.client();
    let sizes = [0, 1, 15, 16, 255, 256, 2047, 2048, 2049, 4096, 65_535, 65_536, 1 << 20];
    let key = |size: usize| vec![b'k'; size];
    for size in sizes {
        let value = size.to_string();
        assert_eq!(client.call(&[b"SET".as_slice(), &key(size), value.as_bytes()]), ok());
    }
    server.restart();
    client = server.client();
    for size in sizes {
        assert_eq!(client.call(&[b"GET".as_slice(), &key(size)]), bulk(&size.to_string()));
    }
    let count = sizes.len() as i64;
    assert_eq!(client.run("DBSIZE"), Value::Int(count));
    assert_eq!(client.run("KEYS *").items().len(), sizes.len());
}

/// Types of replies that clients depend on.
#[test]
fn reply_types() {
    let server = Server::fresh("bugs-types");
    let mut client = server.client();
    client.exchange(b"TYPE missing\r\n", b"+none\r\n");
    client.exchange(b"SET k v\r\nTYPE k\r\n", b"+OK\r\n+string\r\n");
    client.exchange(b"HGETALL missing\r\n", b"*0\r\n");
    client.exchange(b"HSET h f1 v1 f2 v2\r\n", b":2\r\n");
    let expected = b"*3\r\n$2\r\nv1\r\n$-1\r\n$2\r\nv2\r\n";
    client.exchange(b"HMGET h f1 nofield f2\r\n", expected);
    client.exchange(b"HSCAN missing 1000 COUNT 5\r\n", b"*2\r\n$1\r\n0\r\n*0\r\n");
    let mut client = server.client3();
    client.exchange(b"HGETALL h\r\n", b"%2\r\n$2\r\nf1\r\n$2\r\nv1\r\n$2\r\nf2\r\n$2\r\nv2\r\n");
    client.exchange(b"HKEYS missing\r\n", b"*0\r\n");
    client.exchange(b"HGETALL missing\r\n", b"%0\r\n");
    client.exchange(b"GET missing\r\n", b"_\r\n");
}

/// An empty key name is a key like any other, also in SCAN.
#[test]
fn empty_key_in_scan() {
    let server = Server::fresh("bugs-empty-key");
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "", "v"]), ok());
    let args = [b"SCAN".to_vec()];
    let keys = support::corpus::scan_all(&mut client, &args);
    assert_eq!(keys, Value::Array(vec![bulk("")]));
    assert_eq!(client.run("RANDOMKEY"), bulk(""));
}

#[test]
fn set_with_get_and_conditions() {
    let server = Server::fresh("bugs-set");
    let mut client = server.client();
    assert_eq!(client.run("SET r yes NX GET"), Value::NullBulk);
    assert_eq!(client.run("SET r no NX GET"), bulk("yes"));
    assert_eq!(client.run("GET r"), bulk("yes"));
    assert_eq!(client.run("SET missing v XX GET"), Value::NullBulk);
    assert_eq!(client.run("SET missing2 v GET"), Value::NullBulk);
    assert_eq!(client.run("SET k v KEEPTTL"), ok());
    for wrong in ["EX 10 KEEPTTL", "EX 1 PX 1", "NX XX", "EX", "BOGUS"] {
        error(&client.run(&format!("SET k v {wrong}")), "ERR syntax error");
    }
}

/// Times whose milliseconds do not fit 64 bits are refused, and the key stays.
#[test]
fn expire_times_out_of_range() {
    let server = Server::fresh("bugs-expire-range");
    let mut client = server.client();
    client.run("SET foo bar");
    for time in ["9223370399119966", "-9223372036854776", "9223372036854775807"] {
        let reply = client.run(&format!("EXPIRE foo {time}"));
        error(&reply, "ERR invalid expire time in 'expire' command");
    }
    let reply = client.run("SET foo other EX 9223372036854774807");
    error(&reply, "ERR invalid expire time in 'set' command");
    assert_eq!(client.run("GET foo"), bulk("bar"));
    assert_eq!(client.run("TTL foo"), Value::Int(-1));
    // A horizon of more than 2^28 seconds is kept.
    assert_eq!(client.run("EXPIREAT foo 33177117420"), Value::Int(1));
    assert_eq!(client.run("EXPIRETIME foo"), Value::Int(33_177_117_420));
    assert_eq!(client.run("EXPIRE foo -1"), Value::Int(1));
    assert_eq!(client.run("EXISTS foo"), Value::Int(0));
}

#[test]
fn expire_conditions_on_every_form() {
    let server = Server::fresh("bugs-expire-conditions");
    let mut client = server.client();
    client.run("SET k v");
    assert_eq!(client.run("PEXPIRE k 2000000 NX"), Value::Int(1));
    client.run("PERSIST k");
    assert_eq!(client.run("EXPIREAT k 33177117420 GT"), Value::Int(0));
    assert_eq!(client.run("PEXPIREAT k 33177117420123 LT"), Value::Int(1));
    let nx = "ERR NX and XX, GT or LT options at the same time are not compatible";
    error(&client.run("EXPIRE k 10 NX GT"), nx);
    let gt = "ERR GT and LT options at the same time are not compatible";
    error(&client.run("EXPIRE k 10 GT LT"), gt);
}

/// A key past its time is absent to every command, whether it was removed yet or not, in memory
/// or on the device, and does not come back with a new time.
#[test]
fn expired_is_absent_to_all() {
    let mut server = Server::fresh("bugs-expired");
    let mut client = server.client();
    for cold in [false, true] {
        client.run("SET n 5 PX 40");
        client.run("SET k a PX 40 NX");
        client.run("HSET h f v");
        client.run("PEXPIRE h 40");
        if cold {
            server.restart();
            client = server.client();
        }
        std::thread::sleep(Duration::from_millis(80));
        assert_eq!(client.run("TYPE k"), Value::Simple(b"none".to_vec()));
        assert_eq!(client.run("TTL k"), Value::Int(-2));
        assert_eq!(client.run("PTTL k"), Value::Int(-2));
        assert_eq!(client.run("EXPIRETIME k"), Value::Int(-2));
        assert_eq!(client.run("EXPIRE k 100"), Value::Int(0));
        assert_eq!(client.run("EXISTS k"), Value::Int(0));
        assert_eq!(client.run("PERSIST k"), Value::Int(0));
        assert_eq!(client.run("INCRBY n 1"), Value::Int(1));
        assert_eq!(client.run("TTL n"), Value::Int(-1));
        assert_eq!(client.run("SET k longer EX 100 NX"), ok());
        assert_eq!(client.run("HSET h g w"), Value::Int(1));
        assert_eq!(client.run("HGETALL h").items(), [bulk("g"), bulk("w")]);
        assert_eq!(client.run("TTL h"), Value::Int(-1));
        client.run("DEL n k h");
    }
}

/// Expired keys leave without being asked for, and DBSIZE comes down.
#[test]
fn expired_keys_are_removed_in_the_background() {
    let server = Server::fresh("bugs-expire-background");
    let mut client = server.client();
    client.run("SET stays v");
    let sets: Vec<Vec<String>> = (0..2000)
        .map(|i| format!("SET k{i} v PX 50").split(' ').map(str::to_string).collect())
        .collect();
    assert!(client.pipeline(&sets).iter().all(|reply| *reply == ok()));
    wait_until("expired keys are removed", Duration::from_secs(20), || {
        client.run("DBSIZE") == Value::Int(1)
    });
}

#[test]
fn incr_keeps_the_time_to_live() {
    let server = Server::fresh("bugs-incr-ttl");
    let mut client = server.client();
    client.run("SET n 1 EX 100");
    assert_eq!(client.run("INCR n"), Value::Int(2));
    assert!((99..=100).contains(&client.run("TTL n").int()));
}

#[test]
fn numbers() {
    let server = Server::fresh("bugs-numbers");
    let mut client = server.client();
    client.run("SET x 1.0");
    assert_eq!(client.run("INCRBYFLOAT x 1.0"), bulk("2"));
    assert_eq!(client.run("INCR x"), Value::Int(3));
    client.run("SET f \" 11\"");
    error(&client.run("INCRBYFLOAT f 1"), "ERR value is not a valid float");
    client.run("SET f 1");
    let infinite = "ERR increment would produce NaN or Infinity";
    error(&client.run("INCRBYFLOAT f +inf"), infinite);
    client.run("SET r 0123456789");
    assert_eq!(client.run("GETRANGE r 0 4294967297"), bulk("0123456789"));
    let all = client.run("GETRANGE r -9223372036854775808 9223372036854775807");
    assert_eq!(all, bulk("0123456789"));
}

#[test]
fn scan_does_its_work_in_parts() {
    let server = Server::fresh("bugs-scan-parts");
    let mut client = server.client();
    let sets: Vec<Vec<String>> =
        (0..5000).map(|i| vec!["SET".into(), format!("k{i}"), "v".into()]).collect();
    client.pipeline(&sets);
    let first = client.run("SCAN 0 COUNT 10").items();
    assert_ne!(first[0], bulk("0"), "a part of 5000 keys is not the end");
    assert!(first[1].items().len() < 500, "COUNT 10 gave {} keys", first[1].items().len());
    error(&client.run("SCAN 0 COUNT 0"), "ERR syntax error");
    let args = ["SCAN", "TYPE", "hash"].map(|word| word.as_bytes().to_vec());
    assert_eq!(support::corpus::scan_all(&mut client, &args), Value::Array(vec![]));
}

/// Every key that lives through the whole scan is returned, while others come and go.
#[test]
fn scan_returns_all_survivors() {
    let server = Server::fresh("bugs-scan-survivors");
    let mut client = server.client();
    let sets: Vec<Vec<String>> =
        (0..4000).map(|i| vec!["SET".into(), format!("k{i}"), "v".into()]).collect();
    client.pipeline(&sets);
    let mut seen = std::collections::HashSet::new();
    let mut cursor = "0".to_string();
    let mut calls = 0;
    loop {
        let reply = client.run(&format!("SCAN {cursor} COUNT 20")).items();
        seen.extend(reply[1].items().iter().map(Value::text));
        // Odd keys go, and new ones make the index grow.
        client.run(&format!("DEL k{}", (calls * 2 + 1) % 4000));
        let mut grow = vec!["MSET".to_string()];
        grow.extend((0..50).flat_map(|i| [format!("new:{calls}:{i}"), "v".to_string()]));
        client.call(&grow);
        calls += 1;
        cursor = reply[0].text();
        assert!(calls < 100_000, "SCAN does not end");
        if cursor == "0" {
            break;
        }
    }
    let missed: Vec<usize> =
        (0..4000).step_by(2).filter(|i| !seen.contains(&format!("k{i}"))).collect();
    assert!(missed.is_empty(), "{} keys that lived all the time were missed", missed.len());
}

#[test]
fn handshake() {
    let server = Server::fresh("bugs-handshake");
    let mut client = server.client();
    error(&client.run("HELLO 4"), "NOPROTO unsupported protocol version");
    let plain = client.run("HELLO").items();
    assert_eq!(plain.len(), 14);
    let Value::Map(pairs) = client.run("HELLO 3") else { panic!("HELLO 3 replies no map") };
    let names: Vec<String> = pairs.iter().map(|(name, _)| name.text()).collect();
    assert_eq!(names, ["server", "version", "proto", "id", "mode", "role", "modules"]);
    assert_eq!(pairs[0].1, bulk("redis"));
    assert_eq!(pairs[2].1, Value::Int(3));
    assert_eq!(pairs[4].1, bulk("standalone"));
    assert_eq!(pairs[5].1, bulk("master"));
    // Client libraries choose what they may use by the version.
    let version = pairs[1].1.text();
    let major: u32 = version.split('.').next().expect("a part").parse().expect("a number");
    assert!(major >= 7, "version {version}");
    let info = client.run("INFO server").text();
    assert!(info.contains(&format!("redis_version:{version}\r\n")), "{info}");
    assert!(info.contains("redis_mode:standalone\r\n"), "{info}");
}

/// The fields that redis-py reads out of CLIENT INFO.
#[test]
fn client_info_has_all_fields() {
    let server = Server::fresh("bugs-client-info");
    let mut client = server.client();
    let info = client.run("CLIENT INFO").text();
    let names: Vec<&str> =
        info.split_whitespace().filter_map(|part| Some(part.split_once('=')?.0)).collect();
    for name in [
        "id",
        "addr",
        "laddr",
        "fd",
        "name",
        "age",
        "idle",
        "flags",
        "db",
        "sub",
        "psub",
        "ssub",
        "multi",
        "qbuf",
        "qbuf-free",
        "argv-mem",
        "multi-mem",
        "rbs",
        "rbp",
        "obl",
        "oll",
        "omem",
        "tot-mem",
        "events",
        "cmd",
        "user",
        "redir",
        "resp",
    ] {
        assert!(names.contains(&name), "{name} is missing in {info}");
    }
    assert!(info.contains(" cmd=client|info "), "{info}");
}

/// `CLIENT REPLY OFF` sends nothing at all, `SKIP` drops one reply, errors included.
#[test]
fn client_reply_modes() {
    let server = Server::fresh("bugs-client-reply");
    let mut client = server.client();
    let mut bytes = b"CLIENT REPLY OFF\r\n".to_vec();
    for index in 0..100_000 {
        bytes.extend_from_slice(format!("SET k{} v\r\n", index % 100).as_bytes());
    }
    bytes.extend_from_slice(b"NOSUCH\r\nCLIENT REPLY ON\r\n");
    client.exchange(&bytes, b"+OK\r\n");
    client.exchange(b"DBSIZE\r\n", b":100\r\n");
    client.exchange(b"CLIENT REPLY SKIP\r\nNOSUCH\r\nPING\r\n", b"+PONG\r\n");
}

#[test]
fn reset_forgets_the_connection() {
    let server = Server::fresh("bugs-reset");
    let mut client = server.client3();
    client.run("SELECT 5");
    client.run("SET k v");
    client.run("CLIENT SETNAME me");
    client.exchange(b"RESET\r\n", b"+RESET\r\n");
    client.exchange(b"GET k\r\n", b"$-1\r\n");
    client.exchange(b"CLIENT GETNAME\r\n", b"$-1\r\n");
}

#[test]
fn auth_and_config_texts() {
    let server = Server::fresh("bugs-auth");
    let mut client = server.client();
    let text = "ERR AUTH <password> called without any password configured for the default user. \
                Are you sure your configuration is correct?";
    error(&client.run("AUTH x"), text);
    let databases = [bulk("databases"), bulk("16")];
    assert_eq!(client.run("CONFIG GET databases").items(), databases);
}

#[test]
fn password() {
    let server = Launch::new("bugs-password").password("secret").start();
    let mut client = server.client();
    error(&client.run("GET k"), "NOAUTH Authentication required.");
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    error(&client.run("AUTH wrong"), wrong);
    error(&client.run("AUTH other secret"), wrong);
    // Before AUTH no client may claim much memory.
    let mut big = server.client();
    big.send(b"*11\r\n");
    let answer = big.rest(CLOSE_LIMIT).expect("the connection closes");
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    let mut big = server.client();
    big.send(b"*1\r\n$16385\r\n");
    let answer = big.rest(CLOSE_LIMIT).expect("the connection closes");
    assert_eq!(answer, b"-ERR Protocol error: unauthenticated bulk length\r\n");
    assert_eq!(client.run("AUTH secret"), ok());
    assert_eq!(client.run("SET k v"), ok());
    client.run("RESET");
    error(&client.run("GET k"), "NOAUTH Authentication required.");
    assert_eq!(client.run("AUTH default secret"), ok());
    assert_eq!(client.run("GET k"), bulk("v"));
    let mut client = server.client();
    let reply = client.run("HELLO 3").text();
    assert!(reply.starts_with("NOAUTH HELLO must be called with the client already"), "{reply}");
    let hello = client.run("HELLO 3 AUTH default secret");
    assert!(matches!(hello, Value::Map(_)), "{hello:?}");
    assert_eq!(client.run("GET k"), bulk("v"));
}

/// Deleted, saved, set again, saved, restarted: the newest state counts everywhere.
#[test]
fn delete_and_set_around_saves() {
    let mut server = Server::fresh("bugs-saves");
    let mut client = server.client();
    client.run("SET a 1");
    client.run("DEL a");
    assert_eq!(client.run("SAVE"), ok());
    client.run("SET a 2");
    client.run("SET gone 1");
    assert_eq!(client.run("SAVE"), ok());
    client.run("DEL gone");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("GET a"), bulk("2"));
    assert_eq!(client.run("EXISTS a gone"), Value::Int(1));
    assert_eq!(client.run("KEYS *").items(), [bulk("a")]);
    assert_eq!(client.run("DBSIZE"), Value::Int(1));
}

/// FLUSHALL while writes are on their way to the device: what was flushed never comes back.
#[test]
fn flushall_between_two_populations() {
    let mut server = Server::fresh("bugs-flushall");
    let mut client = server.client();
    let fill = |tag: &str, count: usize| -> Vec<Vec<String>> {
        let value = tag.repeat(200);
        (0..count).map(|i| vec!["SET".into(), format!("{tag}{i}"), value.clone()]).collect()
    };
    client.pipeline(&fill("old", 20_000));
    assert_eq!(client.run("FLUSHALL"), ok());
    client.pipeline(&fill("new", 10_000));
    assert_eq!(client.run("DBSIZE"), Value::Int(10_000));
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("DBSIZE"), Value::Int(10_000));
    assert_eq!(client.run("EXISTS old0 old19999 new0 new9999"), Value::Int(2));
    assert_eq!(client.run("GET new9999"), bulk(&"new".repeat(200)));
    client.run("FLUSHALL");
    server.restart();
    assert_eq!(server.client().run("DBSIZE"), Value::Int(0));
}

/// Fields that a hash must not lose when it is read from the device to be changed.
#[test]
fn large_hashes_on_the_device() {
    let mut server = Server::fresh("bugs-hash");
    let mut client = server.client();
    for index in 0..3000 {
        let field = format!("field:{index}");
        client.call(&["HSET", "h", &field, &index.to_string()]);
    }
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("HLEN h"), Value::Int(3000));
    assert_eq!(client.run("HGET h field:2999"), bulk("2999"));
    assert_eq!(client.run("HINCRBY h field:7 1"), Value::Int(8));
    assert_eq!(client.run("HDEL h field:8 field:9"), Value::Int(2));
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("HGETALL h").items().len(), 2 * 2998);
    assert_eq!(client.run("HGET h field:7"), bulk("8"));
    let args = ["HSCAN", "h", "COUNT", "50"].map(|word| word.as_bytes().to_vec());
    assert_eq!(support::corpus::scan_all(&mut client, &args).items().len(), 2 * 2998);
}
