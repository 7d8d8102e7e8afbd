//! Live records move while clients overwrite a nearly full device: no write is refused, and all
//! values are right, also after a kill.

use std::time::Duration;

mod support;

use support::client::{Client, Value};
use support::rng::Rng;
use support::server::Launch;
use support::{number_from_env, wait_until};

/// 1 KiB or so, and a record of 1072 bytes with a footer entry of 17.
const VALUE_BYTES: usize = 1034;
const RECORD_BYTES: usize = 1072 + 17;
const BATCH: usize = 64;

/// The value of a key when it has been written `version` times.
fn value(key: usize, version: u32) -> Vec<u8> {
    let mut bytes = vec![(key % 251) as u8; VALUE_BYTES];
    bytes[..4].copy_from_slice(&version.to_le_bytes());
    bytes[VALUE_BYTES - 8..].copy_from_slice(&(key as u64).to_le_bytes());
    bytes
}

fn name(key: usize) -> Vec<u8> {
    format!("key:{key:08}").into_bytes()
}

#[track_caller]
fn write(client: &mut Client, keys: &[usize], versions: &mut [u32]) {
    let command = |&key: &usize| {
        versions[key] += 1;
        vec![b"SET".to_vec(), name(key), value(key, versions[key])]
    };
    let commands: Vec<Vec<Vec<u8>>> = keys.iter().map(command).collect();
    for reply in client.pipeline(&commands) {
        assert_eq!(reply.text(), "OK");
    }
}

#[track_caller]
fn check(client: &mut Client, versions: &[u32]) {
    let keys: Vec<usize> = (0..versions.len()).collect();
    for keys in keys.chunks(BATCH) {
        let command = |&key: &usize| vec![b"GET".to_vec(), name(key)];
        let commands: Vec<Vec<Vec<u8>>> = keys.iter().map(command).collect();
        for (&key, reply) in keys.iter().zip(client.pipeline(&commands)) {
            assert!(reply == Value::Bulk(value(key, versions[key])), "key {key}");
        }
    }
}

fn info(client: &mut Client, field: &str) -> f64 {
    let text = client.run("INFO storage").text();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(name, _)| *name == field).expect("the field").1;
    found.trim().parse().expect("a number")
}

/// `live` of a device of 512 MiB is data; that much is overwritten `LAVIK_DEFRAG_FULLS` times.
fn overwrite(test: &str, threads: usize, live: f64) {
    let fulls = number_from_env("LAVIK_DEFRAG_FULLS", 1) as usize;
    let launch = Launch::new(test).threads(threads).data_size("512mb");
    let mut server = launch.start();
    let mut client = server.client();
    let count = (63.0 * 8_376_320.0 * live) as usize / RECORD_BYTES;
    let mut versions = vec![0; count];
    let all: Vec<usize> = (0..count).collect();
    all.chunks(BATCH).for_each(|keys| write(&mut client, keys, &mut versions));
    let mut rng = Rng::new(1);
    for _ in 0..fulls * count / BATCH {
        let mut keys: Vec<usize> = (0..BATCH).map(|_| rng.below(count)).collect();
        keys.sort_unstable();
        keys.dedup();
        write(&mut client, &keys, &mut versions);
    }
    check(&mut client, &versions);
    let amplification = info(&mut client, "write_amplification");
    assert!(amplification > 1.5, "records have moved: {amplification}");
    assert_eq!(info(&mut client, "defrag_damaged"), 0.0);
    assert_eq!(client.run("SAVE").text(), "OK");
    server.kill();
    server.assert_media_whole();
    server.set_threads(threads % 2 + 1);
    server.start();
    let mut client = server.client();
    check(&mut client, &versions);
    // What another number of cores has filled is emptied as well.
    for _ in 0..count / 8 / BATCH {
        let mut keys: Vec<usize> = (0..BATCH).map(|_| rng.below(count)).collect();
        keys.sort_unstable();
        keys.dedup();
        write(&mut client, &keys, &mut versions);
    }
    check(&mut client, &versions);
}

#[test]
fn one_core_overwrites_85_percent_live_data() {
    overwrite("defrag-one", 1, 0.85);
}

#[test]
fn two_cores_overwrite_75_percent_live_data() {
    overwrite("defrag-two", 2, 0.75);
}

#[test]
fn paused_means_full_and_resumed_means_room() {
    let server = Launch::new("defrag-paused").threads(1).data_size("128mb").start();
    let mut client = server.client();
    let count = 80 << 10;
    let mut versions = vec![0; count];
    let all: Vec<usize> = (0..count).collect();
    all.chunks(BATCH).for_each(|keys| write(&mut client, keys, &mut versions));
    assert_eq!(client.run("DEFRAG PAUSE").text(), "OK");
    let mut rng = Rng::new(2);
    let mut set = |client: &mut Client| {
        let key = rng.below(count);
        client.call(&[b"SET".to_vec(), name(key), value(key, 7)])
    };
    let refused = (0..count).map(|_| set(&mut client)).find(Value::is_error);
    let text = refused.expect("nothing makes room").text();
    assert!(text.starts_with("NOSPACE "), "{text}");
    assert!(client.run("DEFRAG STATUS").items().contains(&Value::Bulk(b"paused".to_vec())));
    assert_eq!(client.run("DEFRAG RESUME").text(), "OK");
    wait_until("room again", Duration::from_secs(30), || !set(&mut client).is_error());
    for _ in 0..count / 2 {
        assert_eq!(set(&mut client).text(), "OK");
    }
}
