//! Scripts of commands in `tests/corpus`, and how the replies of two servers are compared.
//!
//! ```text
//! # a comment
//! == name of a case [since=7.2]    starts with FLUSHALL on new connections
//! SET key "bytes \x00"             replies must be equal byte for byte
//! EXPIREAT k {now_s+100}           {now_s} and {now_ms}: the time, plus or minus a number
//! @sort KEYS *                     an array in any order
//! @pairs HGETALL h                 pairs in any order
//! @near 2000 PTTL k                integers may differ by that much
//! @shape TIME                      same types and lengths, deeply; the content is free
//! @type CLIENT ID                  same type of reply, no more
//! @ignore HELLO                    not compared
//! @soon DBSIZE                     equal within seconds: work in the background
//! @scan SCAN MATCH a*              the whole iteration, as a set of elements
//! @scan HSCAN h COUNT 3            as pairs
//! @raw "PING\r\n"                  raw bytes that cause one reply
//! @closed "*1\r\n+x\r\n"           raw bytes; everything until the server closes
//! @sleep 60                        milliseconds
//! @cold                            in a cold run: restart our server here
//! ```

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::client::{Client, Value};
use super::words;

#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// Version of the reference server that can answer it.
    pub since: (u32, u32),
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub line_number: usize,
    pub line: String,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    Call { compare: Compare, command: String },
    Soon(Vec<Vec<u8>>),
    Scan(Vec<Vec<u8>>),
    Raw(Vec<u8>),
    Closed(Vec<u8>),
    Sleep(u64),
    Cold,
}

#[derive(Clone, Copy, Debug)]
pub enum Compare {
    Bytes,
    AnyOrder,
    AnyOrderOfPairs,
    Near(i64),
    Shape,
    Type,
    Nothing,
}

/// The cases of `tests/corpus/NAME.txt`.
pub fn read(name: &str) -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let path = dir.join(name).with_extension("txt");
    let text = std::fs::read_to_string(&path).expect("a corpus file");
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(case(title));
            continue;
        }
        let step = Step { line_number: index + 1, line: line.to_string(), action: action(line) };
        cases.last_mut().expect("a case before the first command").steps.push(step);
    }
    assert!(!cases.is_empty(), "{} has no case", path.display());
    cases
}

fn case(title: &str) -> Case {
    let (name, since) = match title.split_once(" since=") {
        None => (title, (0, 0)),
        Some((name, version)) => {
            let (major, minor) = version.split_once('.').expect("since=MAJOR.MINOR");
            (name, (major.parse().expect("major"), minor.parse().expect("minor")))
        }
    };
    Case { name: name.to_string(), since, steps: Vec::new() }
}

fn action(line: &str) -> Action {
    let Some(rest) = line.strip_prefix('@') else {
        return Action::Call { compare: Compare::Bytes, command: line.to_string() };
    };
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let call = |compare| Action::Call { compare, command: rest.to_string() };
    match word {
        "sort" => call(Compare::AnyOrder),
        "pairs" => call(Compare::AnyOrderOfPairs),
        "shape" => call(Compare::Shape),
        "type" => call(Compare::Type),
        "ignore" => call(Compare::Nothing),
        "near" => {
            let (by, command) = rest.split_once(' ').expect("@near NUMBER COMMAND");
            let compare = Compare::Near(by.parse().expect("a number after @near"));
            Action::Call { compare, command: command.to_string() }
        }
        "soon" => Action::Soon(words::split(rest)),
        "scan" => Action::Scan(words::split(rest)),
        "raw" => Action::Raw(words::split(rest).concat()),
        "closed" => Action::Closed(words::split(rest).concat()),
        "sleep" => Action::Sleep(rest.parse().expect("milliseconds after @sleep")),
        "cold" => Action::Cold,
        other => panic!("unknown directive @{other}"),
    }
}

/// The arguments of a command line, with the time filled in.
pub fn arguments(command: &str) -> Vec<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let seconds = fill(command, "now_s", now.as_secs() as i64);
    words::split(&fill(&seconds, "now_ms", now.as_millis() as i64))
}

fn fill(command: &str, name: &str, now: i64) -> String {
    let mut out = String::new();
    let mut rest = command;
    while let Some(start) = rest.find(&format!("{{{name}")) {
        let end = start + rest[start..].find('}').expect("a closing brace");
        let offset = &rest[start + 1 + name.len()..end];
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().expect("an offset") };
        out.push_str(&rest[..start]);
        out.push_str(&(now + offset).to_string());
        rest = &rest[end + 1..];
    }
    out + rest
}

impl Compare {
    /// Whether two replies count as the same.
    pub fn same(self, ours: &Value, theirs: &Value) -> bool {
        match self {
            Compare::Bytes => ours == theirs,
            Compare::AnyOrder => in_order(ours) == in_order(theirs),
            Compare::AnyOrderOfPairs => pairs_in_order(ours) == pairs_in_order(theirs),
            Compare::Near(by) => match (ours, theirs) {
                (Value::Int(a), Value::Int(b)) => (a - b).abs() <= by,
                _ => ours == theirs,
            },
            Compare::Shape => same_shape(ours, theirs),
            Compare::Type => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
            Compare::Nothing => true,
        }
    }
}

fn in_order(value: &Value) -> Value {
    let mut value = value.clone();
    match &mut value {
        Value::Array(items) | Value::Set(items) => items.sort(),
        Value::Map(pairs) => pairs.sort(),
        _ => {}
    }
    value
}

fn pairs_in_order(value: &Value) -> Value {
    match value {
        Value::Array(items) if items.len().is_multiple_of(2) => {
            let mut pairs: Vec<[Value; 2]> = Vec::new();
            pairs.extend(items.chunks(2).map(|pair| [pair[0].clone(), pair[1].clone()]));
            pairs.sort();
            Value::Array(pairs.concat())
        }
        other => in_order(other),
    }
}

fn same_shape(a: &Value, b: &Value) -> bool {
    if std::mem::discriminant(a) != std::mem::discriminant(b) {
        return false;
    }
    match (a, b) {
        (Value::Array(a), Value::Array(b)) | (Value::Set(a), Value::Set(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.into_iter().all(|(a, b)| same_shape(&a.1, &b.1))
        }
        _ => true,
    }
}

/// Follows a cursor to its end: `SCAN args` or `HSCAN key args`. The elements are sorted, and
/// each is there once.
pub fn scan_all(client: &mut Client, args: &[Vec<u8>]) -> Value {
    let paired = args[0].eq_ignore_ascii_case(b"HSCAN");
    let cursor_at = if args[0].eq_ignore_ascii_case(b"SCAN") { 1 } else { 2 };
    let mut cursor = b"0".to_vec();
    let mut found: Vec<Vec<Value>> = Vec::new();
    for _ in 0..100_000 {
        let mut command = args.to_vec();
        command.insert(cursor_at, cursor);
        let reply = client.call(&command);
        if reply.is_error() {
            return reply;
        }
        let [next, elements] = &reply.items()[..] else { panic!("not cursor and elements") };
        let step = if paired { 2 } else { 1 };
        found.extend(elements.items().chunks(step).map(<[Value]>::to_vec));
        cursor = next.bytes().to_vec();
        if cursor == b"0" {
            found.sort();
            found.dedup();
            return Value::Array(found.concat());
        }
    }
    panic!("{} does not end", words::join(args));
}
