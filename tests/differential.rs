//! Random commands with small arguments over few keys, run here and on a live reference server:
//! every reply must be the same. A failure prints the shortest history found that repeats it.
//!
//! `LAVIK_FUZZ_SEED` and `LAVIK_FUZZ_STEPS` choose another run, also a longer one.

mod support;

use support::client::{Client, Value};
use support::corpus::{Compare, scan_all};
use support::peer::Peer;
use support::rng::Rng;
use support::server::Server;
use support::{number_from_env, words};

type Command = Vec<Vec<u8>>;

/// Commands between two FLUSHALLs; a failing history is at most this long.
const EPISODE_STEPS: usize = 150;

/// Few keys of every type, so that types clash.
const KEYS: &[&str] = &["a", "b", "c", "d", "", "key:5"];
const FIELDS: &[&str] = &["f", "g", "h", "", "field:5"];
const VALUES: &[&str] = &["", "x", "10", "-3", "1.5", "hello world", "\x01\r\n", "007"];
const INTEGERS: &[&str] =
    &["0", "1", "-1", "2", "7", "-100", "9223372036854775807", "-9223372036854775808", "x", "1.5"];
const FLOATS: &[&str] = &["0", "1.5", "-2.25", "1e3", "100", "0.5", "x", "inf"];
/// Far ahead, past, or no number; nothing expires while the test looks.
const SECONDS: &[&str] = &["100000", "200000", "-1", "0", "x"];
const MILLISECONDS: &[&str] = &["100000000", "200000000", "-1", "0", "x"];
const UNIX_SECONDS: &[&str] = &["33177117420", "33177117421", "1", "0", "x"];
const UNIX_MILLISECONDS: &[&str] = &["33177117420000", "33177117420123", "1", "x"];
const OFFSETS: &[&str] = &["0", "1", "3", "-1", "-3", "20", "-20", "x"];
const DATABASES: &[&str] = &["0", "1", "15", "16", "x"];
const PATTERNS: &[&str] = &["*", "a", "?", "[ab]", "k*", "[^a]", "\\a", ""];

/// One command: words as they are; `<...>` stands for a random one of a list, `[...]` is left
/// away half of the time, `{...}` comes one to three times.
const GRAMMAR: &[&str] = &[
    "SET <key> <value>",
    "SET <key> <value> [NX] [XX] [GET] [EX <s>] [KEEPTTL]",
    "SET <key> <value> [PX <ms>] [GET]",
    "SET <key> <value> [EXAT <at_s>] [PXAT <at_ms>] [XX]",
    "GET <key>",
    "SETNX <key> <value>",
    "SETEX <key> <s> <value>",
    "PSETEX <key> <ms> <value>",
    "GETSET <key> <value>",
    "GETDEL <key>",
    "GETEX <key> [EX <s>] [PERSIST]",
    "GETEX <key> [PX <ms>]",
    "GETEX <key> [EXAT <at_s>] [PXAT <at_ms>]",
    "MGET {<key>}",
    "MSET {<key> <value>}",
    "MSETNX {<key> <value>}",
    "STRLEN <key>",
    "APPEND <key> <value>",
    "GETRANGE <key> <offset> <offset>",
    "SUBSTR <key> <offset> <offset>",
    "SETRANGE <key> <offset> <value>",
    "INCR <key>",
    "DECR <key>",
    "INCRBY <key> <int>",
    "DECRBY <key> <int>",
    "INCRBYFLOAT <key> <float>",
    "LCS <key> <key> [LEN] [IDX] [WITHMATCHLEN] [MINMATCHLEN 2]",
    "DEL {<key>}",
    "UNLINK {<key>}",
    "EXISTS {<key>}",
    "TYPE <key>",
    "TOUCH {<key>}",
    "EXPIRE <key> <s> [NX] [XX]",
    "PEXPIRE <key> <ms> [NX] [XX]",
    "EXPIRE <key> <rare_s> [NX] [XX] [GT]",
    "PEXPIRE <key> <rare_ms> [LT] [XX]",
    "EXPIREAT <key> <at_s> [GT]",
    "PEXPIREAT <key> <at_ms> [LT] [NX]",
    "TTL <key>",
    "PTTL <key>",
    "EXPIRETIME <key>",
    "PEXPIRETIME <key>",
    "PERSIST <key>",
    "RENAME <key> <key>",
    "RENAMENX <key> <key>",
    "COPY <key> <key> [DB <db>] [REPLACE]",
    "MOVE <key> <db>",
    "SWAPDB <db> <db>",
    "SELECT <db>",
    "RANDOMKEY",
    "KEYS <pattern>",
    "SCAN [MATCH <pattern>] [COUNT 3] [TYPE hash]",
    "DBSIZE",
    "HSET <key> {<field> <value>}",
    "HSET <key> {<field> <value>}",
    "HMSET <key> {<field> <value>}",
    "HSETNX <key> <field> <value>",
    "HGET <key> <field>",
    "HMGET <key> {<field>}",
    "HGETALL <key>",
    "HDEL <key> {<field>}",
    "HLEN <key>",
    "HEXISTS <key> <field>",
    "HKEYS <key>",
    "HVALS <key>",
    "HSTRLEN <key> <field>",
    "HINCRBY <key> <field> <int>",
    "HINCRBYFLOAT <key> <field> <float>",
    "HRANDFIELD <key> [<offset>] [WITHVALUES]",
    "HSCAN <key> [MATCH <pattern>] [COUNT 2]",
];

fn list(name: &str) -> &'static [&'static str] {
    match name {
        "<key>" => KEYS,
        "<field>" => FIELDS,
        "<value>" => VALUES,
        "<int>" => INTEGERS,
        "<float>" => FLOATS,
        "<s>" => SECONDS,
        "<ms>" => MILLISECONDS,
        "<at_s>" => UNIX_SECONDS,
        "<at_ms>" => UNIX_MILLISECONDS,
        "<offset>" => OFFSETS,
        "<db>" => DATABASES,
        "<pattern>" => PATTERNS,
        other => panic!("no list {other}"),
    }
}

/// Fills a line of the grammar.
fn expand(line: &str, rng: &mut Rng) -> Command {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(['[', '{']) {
        plain(&rest[..start], rng, &mut words);
        let close = if rest[start..].starts_with('[') { ']' } else { '}' };
        let end = start + rest[start..].find(close).expect("a closing bracket");
        // An option is rarer than its absence, so that most combinations are legal.
        let times = if close == ']' { usize::from(rng.one_in(4)) } else { 1 + rng.below(3) };
        for _ in 0..times {
            plain(&rest[start + 1..end], rng, &mut words);
        }
        rest = &rest[end + 1..];
    }
    plain(rest, rng, &mut words);
    words
}

/// A time that no other command is likely to have given: GT and LT on a time equal to the one in
/// place answer by the millisecond in which each server saw it. Steps of 1,000 s, for the clock
/// goes on between two commands.
fn rare_seconds(rng: &mut Rng) -> usize {
    1_000_000 + 1000 * rng.below(1_000_000)
}

fn plain(text: &str, rng: &mut Rng, words: &mut Command) {
    for word in text.split_whitespace() {
        let word = match word {
            "<rare_s>" => rare_seconds(rng).to_string(),
            "<rare_ms>" => (rare_seconds(rng) * 1000 + 500_000).to_string(),
            list_name if list_name.starts_with('<') => rng.pick(list(list_name)).to_string(),
            word => word.to_string(),
        };
        words.push(word.into_bytes());
    }
}

fn random_command(rng: &mut Rng) -> Command {
    let line = *rng.pick(GRAMMAR);
    let mut command = expand(line, rng);
    // Now and then the wrong number of arguments.
    if rng.one_in(60) && command.len() > 1 {
        command.pop();
    } else if rng.one_in(60) {
        command.push(rng.pick(VALUES).as_bytes().to_vec());
    }
    command
}

/// How the replies of a command are compared: what is random or without order is not compared
/// byte for byte.
fn compare(command: &Command) -> Compare {
    match command.first().map(Vec::as_slice) {
        Some(b"KEYS") => Compare::AnyOrder,
        Some(b"RANDOMKEY") => Compare::Type,
        Some(b"HRANDFIELD") => Compare::Shape,
        Some(b"TTL") => Compare::Near(2),
        Some(b"PTTL") => Compare::Near(2000),
        Some(b"EXPIRETIME") => Compare::Near(2),
        Some(b"PEXPIRETIME") => Compare::Near(2000),
        _ => Compare::Bytes,
    }
}

struct Pair {
    ours: Client,
    theirs: Client,
}

impl Pair {
    fn connect(server: &Server, peer: &Peer, proto: &str) -> Pair {
        let mut pair = Pair { ours: server.client(), theirs: peer.client() };
        pair.ours.call(&["HELLO", proto]);
        pair.theirs.call(&["HELLO", proto]);
        pair
    }

    fn clear(&mut self) {
        for client in [&mut self.ours, &mut self.theirs] {
            client.call(&["SELECT", "0"]);
            assert_eq!(client.call(&["FLUSHALL"]), Value::Simple(b"OK".to_vec()));
        }
    }

    /// Runs a command on both; the replies when they differ.
    fn step(&mut self, command: &Command) -> Option<(Value, Value)> {
        if command.first().is_some_and(|name| name == b"DBSIZE") {
            // The reference server counts expired keys until something has looked at them.
            self.theirs.call(&["SCAN", "0", "COUNT", "100000"]);
        }
        let scans = matches!(command.first().map(Vec::as_slice), Some(b"SCAN" | b"HSCAN"));
        let cursor_place = if command.first().is_some_and(|name| name == b"SCAN") { 1 } else { 2 };
        let (ours, theirs) = if scans && command.len() >= cursor_place {
            (scan_all(&mut self.ours, command), scan_all(&mut self.theirs, command))
        } else {
            (self.ours.call(command), self.theirs.call(command))
        };
        (!compare(command).same(&ours, &theirs)).then_some((ours, theirs))
    }

    fn repeats(&mut self, history: &[Command]) -> bool {
        self.clear();
        history.iter().any(|command| self.step(command).is_some())
    }
}

/// Leaves away what is not needed for the failure, in ever smaller pieces.
fn shorten(pair: &mut Pair, mut history: Vec<Command>) -> Vec<Command> {
    let mut piece = history.len() / 2;
    while piece > 0 {
        let mut start = 0;
        while start < history.len() {
            let mut shorter = history.clone();
            shorter.drain(start..(start + piece).min(history.len()));
            if pair.repeats(&shorter) {
                history = shorter;
            } else {
                start += piece;
            }
        }
        piece /= 2;
    }
    history
}

fn report(pair: &mut Pair, history: &[Command]) -> String {
    pair.clear();
    let mut text = String::new();
    for command in history {
        let difference = pair.step(command);
        text.push_str(&format!("{}\n", words::join(command)));
        if let Some((ours, theirs)) = difference {
            text.push_str(&format!("  ours    {ours:?}\n  theirs  {theirs:?}\n"));
        }
    }
    text
}

/// Runs episodes; with `restarts`, our server restarts in the middle of each.
fn run(name: &str, proto: &str, steps: usize, restarts: bool) {
    let seed = number_from_env("LAVIK_FUZZ_SEED", 1);
    let mut rng = Rng::new(seed);
    let mut server = Server::fresh(name);
    let peer = Peer::start(name);
    let mut pair = Pair::connect(&server, &peer, proto);
    for episode in 0..steps.div_ceil(EPISODE_STEPS) {
        pair.clear();
        let mut history = Vec::new();
        for step in 0..EPISODE_STEPS {
            if restarts && step == EPISODE_STEPS / 2 {
                server.restart();
                pair = Pair::connect(&server, &peer, proto);
            }
            let command = random_command(&mut rng);
            history.push(command.clone());
            if let Some((ours, theirs)) = pair.step(&command) {
                let first = format!(
                    "seed {seed}, episode {episode}, step {step}{}: {}\n  ours    {ours:?}\n  \
                     theirs  {theirs:?}",
                    if restarts { ", restarted in the middle" } else { "" },
                    words::join(&command)
                );
                let history = shorten(&mut pair, history);
                panic!("{first}\nshortest history found:\n{}", report(&mut pair, &history));
            }
        }
    }
}

#[test]
fn values_in_memory_resp2() {
    run("fuzz-2", "2", number_from_env("LAVIK_FUZZ_STEPS", 30_000) as usize, false);
}

#[test]
fn values_in_memory_resp3() {
    run("fuzz-3", "3", number_from_env("LAVIK_FUZZ_STEPS", 30_000) as usize, false);
}

/// A restart for every 150 commands: half of the values that they meet are on the device only.
#[test]
fn values_on_the_device() {
    run("fuzz-cold", "3", number_from_env("LAVIK_FUZZ_STEPS", 30_000) as usize / 5, true);
}

/// The tests above find a difference when there is one, and shorten its history.
#[test]
fn a_difference_is_found_and_shortened() {
    let peer = Peer::start("fuzz-canary-a");
    let other = Peer::start("fuzz-canary-b");
    let mut pair = Pair { ours: peer.client(), theirs: other.client() };
    let words = |line: &str| words::split(line);
    let history: Vec<Command> =
        vec![words("SET a 1"), words("INCR a"), words("GET b"), words("CONFIG GET port")];
    assert!(pair.repeats(&history));
    assert_eq!(shorten(&mut pair, history), vec![words("CONFIG GET port")]);
}
