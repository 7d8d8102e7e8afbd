//! A keyspace in a map for tests of commands, and the replay of recorded transcripts on it.
//!
//! [`Keyspace::run`] runs a keyed command as the driver does: first with no value in memory,
//! loading what each fault asks for, then once more from the same state with every value in
//! memory. Both must give the same reply and the same writes, and a run that stopped early must
//! have written nothing.

use std::collections::BTreeMap;

use super::global::{Global, ScanKind};
use super::{Command, Context, Handler, flag, key, table};
use crate::resp::{Args, Proto, Reply};
use crate::shard::view::{Fault, KeyState, Kind, Meta, Resident, Stop, View, Write};

/// One stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub value: Vec<u8>,
    pub expire_at_ms: Option<u64>,
}

/// The keys of all databases, and what a session would know.
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub entries: BTreeMap<(u8, Vec<u8>), Entry>,
    pub now_ms: u64,
    pub db: u8,
    pub proto: Proto,
    /// Seed of the next command's random numbers.
    pub random: u64,
    /// Whether the index knows the length of every value.
    pub lengths_indexed: bool,
    /// Faults that the last command took before it finished.
    pub faults: usize,
}

type Key = (u8, Vec<u8>);

/// Outcome of one run: the distinct keys as the view left them, the reply, and the command's
/// own result.
struct Run {
    writes: Vec<(Key, Option<Entry>)>,
    reply: Vec<u8>,
    result: Result<(), Stop>,
}

impl Default for Keyspace {
    fn default() -> Keyspace {
        let now_ms = 1_700_000_000_000;
        Keyspace {
            entries: BTreeMap::new(),
            now_ms,
            db: 0,
            proto: Proto::Resp2,
            random: 1,
            lengths_indexed: true,
            faults: 0,
        }
    }
}

impl Keyspace {
    /// Runs a command line (see [`split_words`]) and returns the reply as it goes on the wire.
    pub fn run(&mut self, line: &str) -> Vec<u8> {
        self.run_words(&split_words(line))
    }

    pub fn run_words(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut spans = Vec::new();
        for word in words {
            let start = buf.len() as u32;
            buf.extend_from_slice(word);
            spans.push((start, buf.len() as u32));
        }
        let args = Args::new(&buf, &spans);
        let row = table::find(args.at(0)).unwrap_or_else(|| panic!("no command {words:?}"));
        self.faults = 0;
        self.drop_expired();
        if !row.takes(args.len()) {
            return error(&format!("ERR wrong number of arguments for '{}' command", row.name));
        }
        match row.handler {
            Handler::Keyed(_) => self.run_keyed(row, args),
            Handler::Global(parse) => match parse(args) {
                Ok(request) => self.run_global(&request),
                Err(Stop::Error(text)) => error(&text),
                Err(Stop::Fault(fault)) => panic!("{fault:?} without keys"),
            },
            Handler::Session(_) => panic!("{} needs a session", row.name),
        }
    }

    /// The value of a key of the current database.
    pub fn entry(&self, name: &[u8]) -> Option<&Entry> {
        self.entries.get(&(self.db, name.to_vec()))
    }

    fn drop_expired(&mut self) {
        let now_ms = self.now_ms;
        self.entries.retain(|_, entry| entry.expire_at_ms.is_none_or(|at| at > now_ms));
    }

    fn run_keyed(&mut self, row: &Command, args: Args<'_>) -> Vec<u8> {
        let positions: Vec<(usize, u8)> = if row.is(flag::OTHER_DB) {
            key::keys_across(args, self.db).to_vec()
        } else {
            row.key_positions(args.len()).map(|at| (at, self.db)).collect()
        };
        let names: Vec<Key> =
            positions.iter().map(|&(at, db)| (db, args.at(at).to_vec())).collect();
        let mut distinct: Vec<Key> = Vec::new();
        let mut places = Vec::new();
        for name in names {
            let place = distinct.iter().position(|seen| *seen == name).unwrap_or(distinct.len());
            places.push(place as u32);
            if place == distinct.len() {
                distinct.push(name);
            }
        }
        let run = self.run_with_faults(row, args, &distinct, &places);
        let warm = self.run_once(row, args, &distinct, &places, &vec![true; distinct.len()]);
        assert_eq!(run.result, warm.result, "{}: cold and warm runs differ", row.name);
        assert_eq!(run.writes, warm.writes, "{}: cold and warm runs differ", row.name);
        self.random = self.random.wrapping_add(1);
        match run.result {
            Ok(()) => {
                assert_eq!(run.reply, warm.reply, "{}: cold and warm runs differ", row.name);
                self.apply(run.writes);
                run.reply
            }
            Err(Stop::Error(text)) => error(&text),
            Err(Stop::Fault(_)) => unreachable!("run_with_faults resolves faults"),
        }
    }

    fn run_with_faults(
        &mut self,
        row: &Command,
        args: Args<'_>,
        distinct: &[Key],
        places: &[u32],
    ) -> Run {
        let mut loaded = vec![false; distinct.len()];
        loop {
            let run = self.run_once(row, args, distinct, places, &loaded);
            match run.result {
                Err(Stop::Fault(Fault::Key(key))) => {
                    let place = places[key] as usize;
                    let exists = self.entries.contains_key(&distinct[place]);
                    assert!(exists && !loaded[place], "{} faults for nothing", row.name);
                    loaded[place] = true;
                }
                Err(Stop::Fault(Fault::All)) => {
                    assert!(loaded.contains(&false), "{} faults for nothing", row.name);
                    loaded.fill(true);
                }
                _ => return run,
            }
            self.faults += 1;
        }
    }

    fn run_once(
        &self,
        row: &Command,
        args: Args<'_>,
        distinct: &[Key],
        places: &[u32],
        loaded: &[bool],
    ) -> Run {
        let Handler::Keyed(function) = row.handler else { panic!("{} is not keyed", row.name) };
        let states = distinct.iter().zip(loaded).map(|(name, &loaded)| self.state(name, loaded));
        let identity = places.iter().enumerate().all(|(key, &place)| key == place as usize);
        let places = if identity { Vec::new() } else { places.to_vec() };
        let view = View::new(self.now_ms, self.random, states.collect(), places);
        let mut reply = Vec::new();
        let mut context = Context { args, view, reply: Reply::new(&mut reply, self.proto) };
        let result = function(&mut context);
        let mut writes = Vec::new();
        for (name, state) in distinct.iter().zip(context.view.into_keys()) {
            let Some(write) = state.write else { continue };
            assert!(result.is_ok(), "{} stopped after it had written", row.name);
            writes.push((name.clone(), stored(write)));
        }
        Run { writes, reply, result }
    }

    fn state<'a>(&'a self, name: &'a Key, loaded: bool) -> KeyState<'a> {
        let entry = self.entries.get(name);
        let meta = entry.map(|entry| Meta {
            kind: entry.kind,
            value_len: self.lengths_indexed.then_some(entry.value.len() as u32),
            expire_at_ms: entry.expire_at_ms,
            in_parts: false,
        });
        let value = match entry {
            Some(entry) if loaded => Resident::Yes(&entry.value),
            _ => Resident::No,
        };
        KeyState { name: &name.1, meta, value, write: None }
    }

    fn apply(&mut self, writes: Vec<(Key, Option<Entry>)>) {
        for (name, entry) in writes {
            match entry {
                Some(entry) => self.entries.insert(name, entry),
                None => self.entries.remove(&name),
            };
        }
    }

    fn run_global(&mut self, request: &Global) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.proto);
        let db = self.db;
        let entries = self.entries.iter().filter(|((of, _), _)| *of == db);
        match request {
            Global::DbSize => reply.int(entries.count() as i64),
            Global::RandomKey => match entries.into_iter().next() {
                Some(((_, name), _)) => reply.bulk(name),
                None => reply.null(),
            },
            Global::Keys { pattern } => {
                let names: Vec<&Vec<u8>> =
                    entries.map(|((_, name), _)| name).filter(|n| matches(pattern, n)).collect();
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name));
            }
            Global::Scan { pattern, kind, .. } => {
                let wanted = |entry: &Entry| match kind {
                    ScanKind::Any => true,
                    ScanKind::Only(kind) => entry.kind == *kind,
                    ScanKind::Nothing => false,
                };
                let names: Vec<&Vec<u8>> = entries
                    .filter(|((_, name), entry)| {
                        wanted(entry) && pattern.as_ref().is_none_or(|p| matches(p, name))
                    })
                    .map(|((_, name), _)| name)
                    .collect();
                reply.array(2);
                reply.bulk(b"0");
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name));
            }
            Global::FlushDb => {
                self.entries.retain(|(of, _), _| *of != db);
                reply.ok();
            }
            Global::FlushAll => {
                self.entries.clear();
                reply.ok();
            }
            Global::SwapDb { a, b } => {
                let swapped = std::mem::take(&mut self.entries).into_iter().map(|(key, entry)| {
                    let db = match key.0 {
                        db if db == *a => *b,
                        db if db == *b => *a,
                        db => db,
                    };
                    ((db, key.1), entry)
                });
                self.entries = swapped.collect();
                reply.ok();
            }
        }
        out
    }
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    super::glob::matches(pattern, name)
}

fn stored(write: Write<'_>) -> Option<Entry> {
    match write {
        Write::Put { kind, value, expire_at_ms } => {
            Some(Entry { kind, value: value.into_owned(), expire_at_ms })
        }
        Write::Delete => None,
        Write::Patch { .. } | Write::Expire { .. } => panic!("no value here is in parts"),
    }
}

fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

/// Splits a command line at spaces. `"..."` keeps spaces and may be empty; `\xNN`, `\n`, `\r`,
/// `\"` and `\\` stand for bytes, inside quotes and outside.
pub fn split_words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b' ' if !quoted => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().push(escaped(&mut bytes)),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    assert!(!quoted, "open quote in {line}");
    words.extend(word);
    words
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next().expect("a character after the backslash") {
        b'n' => b'\n',
        b'r' => b'\r',
        b'x' => {
            let mut digit = || char::from(bytes.next().expect("two digits")).to_digit(16);
            let (high, low) = (digit().expect("hex digit"), digit().expect("hex digit"));
            (high * 16 + low) as u8
        }
        byte => byte,
    }
}

/// The wire form of a reply as a transcript shows it: a line per line, bytes that do not print
/// as `\xNN`, and the marks of the transcript at the start of a line escaped too.
pub fn show_reply(reply: &[u8]) -> String {
    let mut text = String::new();
    for line in reply.strip_suffix(b"\r\n").expect("a whole reply").split_inclusive(|&b| b == b'\n')
    {
        let (line, end) = match line.strip_suffix(b"\r\n") {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        for (at, &byte) in line.iter().enumerate() {
            match byte {
                b'\\' => text.push_str("\\\\"),
                b'>' | b'@' | b'/' if at == 0 => text.push_str(&format!("\\x{byte:02x}")),
                b' '..=b'~' => text.push(char::from(byte)),
                _ => text.push_str(&format!("\\x{byte:02x}")),
            }
        }
        text.push_str(end);
    }
    text
}

/// Replays a transcript and compares every reply.
///
/// A transcript is a list of lines: `> COMMAND`, then the reply's lines as on the wire;
/// `@resp 3`, `@db 5`, `@sleep MS`, `@hash KEY` (makes some hash there, for transcripts that
/// need a key of another type); `// comment`. It starts from an empty keyspace, RESP2, database
/// 0. tests/transcripts/record.py fills in the replies of a Redis server.
pub fn replay(transcript: &str) {
    for lengths_indexed in [true, false] {
        replay_on(Keyspace { lengths_indexed, ..Keyspace::default() }, transcript);
    }
}

fn replay_on(mut space: Keyspace, transcript: &str) {
    let mut lines = transcript.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        if let Some(directive) = line.strip_prefix('@') {
            direct(&mut space, directive);
            continue;
        }
        let command = line.strip_prefix("> ").unwrap_or_else(|| panic!("line {number}: {line}"));
        let mut expected: Vec<&str> = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with(['>', '@', '/'])) {
            expected.push(line);
        }
        let reply = show_reply(&space.run(command));
        assert_eq!(reply, expected.join("\n"), "line {}: {command}", number + 1);
    }
}

fn direct(space: &mut Keyspace, directive: &str) {
    let (word, value) = directive.split_once(' ').expect("@word value");
    let number = || value.parse::<u64>().expect("a number");
    match word {
        "resp" => space.proto = if number() == 3 { Proto::Resp3 } else { Proto::Resp2 },
        "db" => space.db = number() as u8,
        "sleep" => space.now_ms += number(),
        "hash" => {
            let entry = Entry { kind: Kind::Hash, value: b"opaque".to_vec(), expire_at_ms: None };
            space.entries.insert((space.db, value.as_bytes().to_vec()), entry);
        }
        _ => panic!("unknown directive {word}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, Handler, string};
    use super::{Command, Keyspace, show_reply, split_words};
    use crate::resp::Args;
    use crate::shard::view::{Kind, Stop};

    #[test]
    fn words_and_replies_are_readable() {
        let words = split_words(r#"SET "a b" "" \x00\\x"#);
        assert_eq!(words, [b"SET".to_vec(), b"a b".to_vec(), vec![], b"\0\\x".to_vec()]);
        assert_eq!(show_reply(b"$4\r\n>\\\n\x00\r\n"), "$4\n\\x3e\\\\\\x0a\\x00");
        assert_eq!(show_reply(b"*2\r\n$0\r\n\r\n:1\r\n"), "*2\n$0\n\n:1");
    }

    fn writes_before_it_reads(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
        ctx.view.put(0, Kind::String, b"early".as_slice(), None);
        ctx.view.value(1, Kind::String)?;
        Ok(())
    }

    fn forgets_to_read(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
        ctx.reply.int(i64::from(ctx.view.load_all().is_ok()));
        Ok(())
    }

    fn run_wrong(function: fn(&mut Context<'_, '_>) -> Result<(), Stop>) {
        let mut space = Keyspace::default();
        space.run("MSET a 1 b 2");
        let row = &string::COMMANDS[0];
        let keys = super::super::Keys::Range { first: 1, last: 2, step: 1 };
        let wrong = Command { handler: Handler::Keyed(function), keys, ..*row };
        space.run_keyed(&wrong, Args::new(b"xab", &[(0, 1), (1, 2), (2, 3)]));
    }

    #[test]
    #[should_panic(expected = "stopped after it had written")]
    fn a_fault_after_a_write_is_found() {
        run_wrong(writes_before_it_reads);
    }

    #[test]
    #[should_panic(expected = "cold and warm runs differ")]
    fn a_reply_that_depends_on_what_is_in_memory_is_found() {
        run_wrong(forgets_to_read);
    }
}
