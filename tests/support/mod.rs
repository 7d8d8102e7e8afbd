//! What the tests of the real binary share: starting and stopping it, a client, a live peer to
//! compare with, and a small random generator.
//!
//! `LAVIK_BIN` replaces the binary under test; `tests/support/redis-as-lavik` as its value runs
//! the tests against the reference server, which proves the tests themselves.

// Every test crate compiles its own copy and uses a part of it.
#![allow(dead_code)]

pub mod client;
pub mod corpus;
pub mod dir;
pub mod nvmf;
pub mod peer;
pub mod rng;
pub mod server;
pub mod words;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Damages one byte of a file; a second time, mends it.
pub fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[!byte[0]], offset).expect("write");
}

/// Polls `ready` until it holds; panics with `what` after `limit`.
pub fn wait_until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number from the environment, for the sizes of long tests.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
