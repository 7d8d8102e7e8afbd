//! Commands on the keyspace of every core. Here only their arguments are parsed; the reactors
//! carry them out.

use super::flag::{FAST, READONLY, WRITE};
use super::number::{integer, integer_32};
use super::string::SYNTAX;
use super::{Command, Handler, Keys};
use crate::limits::DATABASES;
use crate::resp::Args;
use crate::shard::view::{Kind, Stop};

/// A request to all cores (SCAN: to one core at a time).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Global {
    DbSize,
    Keys { pattern: Vec<u8> },
    RandomKey,
    Scan { cursor: u64, count: usize, pattern: Option<Vec<u8>>, kind: ScanKind },
    FlushDb,
    FlushAll,
    SwapDb { a: u8, b: u8 },
}

/// The TYPE filter of SCAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    Any,
    Only(Kind),
    /// A type name that no key can have.
    Nothing,
}

const ROW: Command = Command {
    name: "",
    arity: 1,
    flags: 0,
    keys: Keys::None,
    handler: Handler::Global(dbsize),
    summary: "",
    group: "generic",
    since: "1.0.0",
    complexity: "O(1)",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "scan",
        arity: -2,
        flags: READONLY,
        handler: Handler::Global(scan),
        summary: "Returns some keys of the database and a cursor for the next ones.",
        since: "2.8.0",
        complexity: "O(1) for each call, O(N) for all keys of the database",
        ..ROW
    },
    Command {
        name: "keys",
        arity: 2,
        flags: READONLY,
        handler: Handler::Global(keys),
        summary: "Returns all keys of the database that match a pattern.",
        complexity: "O(N) in the number of keys of the database",
        ..ROW
    },
    Command {
        name: "randomkey",
        flags: READONLY,
        handler: Handler::Global(randomkey),
        summary: "Returns some key of the database.",
        ..ROW
    },
    Command {
        name: "dbsize",
        flags: READONLY | FAST,
        handler: Handler::Global(dbsize),
        summary: "Returns the number of keys of the database.",
        group: "server",
        ..ROW
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: WRITE,
        handler: Handler::Global(flushdb),
        summary: "Deletes all keys of the database.",
        group: "server",
        complexity: "O(N) in the number of keys of the database",
        ..ROW
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: WRITE,
        handler: Handler::Global(flushall),
        summary: "Deletes all keys of all databases.",
        group: "server",
        complexity: "O(N) in the number of keys",
        ..ROW
    },
    Command {
        name: "swapdb",
        arity: 3,
        flags: WRITE | FAST,
        handler: Handler::Global(swapdb),
        summary: "Exchanges two databases.",
        group: "server",
        since: "4.0.0",
        complexity: "O(N) in the number of keys of both databases",
        ..ROW
    },
];

/// Keys that SCAN looks at unless COUNT says otherwise.
const SCAN_COUNT_DEFAULT: usize = 10;

fn scan(args: Args<'_>) -> Result<Global, Stop> {
    let cursor = parse_cursor(&args[1]).ok_or(Stop::error("ERR invalid cursor"))?;
    let mut count = SCAN_COUNT_DEFAULT;
    let mut pattern = None;
    let mut kind = ScanKind::Any;
    let mut rest = args.from(2).iter();
    while let Some(word) = rest.next() {
        let value = rest.next().ok_or(SYNTAX)?;
        if word.eq_ignore_ascii_case(b"COUNT") {
            let number = integer(value)?;
            count = usize::try_from(number).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
        } else if word.eq_ignore_ascii_case(b"MATCH") {
            pattern = (value != b"*").then(|| value.to_vec());
        } else if word.eq_ignore_ascii_case(b"TYPE") {
            kind = parse_kind(value);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(Global::Scan { cursor, count, pattern, kind })
}

/// A cursor as C's `strtoul` reads it, which clients have come to rely on: a sign is accepted,
/// a negative number wraps around, nothing at all is 0.
pub fn parse_cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let cursor = digits.iter().try_fold(0u64, |cursor, &digit| {
        let digit = char::from(digit).to_digit(10)?;
        cursor.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

fn parse_kind(name: &[u8]) -> ScanKind {
    let kinds = [Kind::String, Kind::List, Kind::Set, Kind::ZSet, Kind::Hash, Kind::Stream];
    let found = kinds.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()));
    found.map_or(ScanKind::Nothing, ScanKind::Only)
}

fn keys(args: Args<'_>) -> Result<Global, Stop> {
    Ok(Global::Keys { pattern: args[1].to_vec() })
}

fn randomkey(_: Args<'_>) -> Result<Global, Stop> {
    Ok(Global::RandomKey)
}

fn dbsize(_: Args<'_>) -> Result<Global, Stop> {
    Ok(Global::DbSize)
}

fn flushdb(args: Args<'_>) -> Result<Global, Stop> {
    check_flush_mode(args)?;
    Ok(Global::FlushDb)
}

fn flushall(args: Args<'_>) -> Result<Global, Stop> {
    check_flush_mode(args)?;
    Ok(Global::FlushAll)
}

/// ASYNC and SYNC are accepted and make no difference: no flush frees values in the foreground.
fn check_flush_mode(args: Args<'_>) -> Result<(), Stop> {
    let known =
        |mode: &[u8]| mode.eq_ignore_ascii_case(b"ASYNC") || mode.eq_ignore_ascii_case(b"SYNC");
    let valid = args.len() == 1 || (args.len() == 2 && known(&args[1]));
    if valid { Ok(()) } else { Err(SYNTAX) }
}

fn swapdb(args: Args<'_>) -> Result<Global, Stop> {
    let first = integer_32(&args[1]).map_err(|_| Stop::error("ERR invalid first DB index"))?;
    let second = integer_32(&args[2]).map_err(|_| Stop::error("ERR invalid second DB index"))?;
    let in_range = |db: i32| u8::try_from(db).ok().filter(|&db| usize::from(db) < DATABASES);
    match (in_range(first), in_range(second)) {
        (Some(a), Some(b)) => Ok(Global::SwapDb { a, b }),
        _ => Err(Stop::error("ERR DB index is out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Global, Kind, ScanKind, parse_cursor, scan};
    use crate::resp::Args;

    #[test]
    fn cursors() {
        let max = u64::MAX.to_string();
        for (text, cursor) in [("0", 0), ("", 0), ("+7", 7), ("007", 7), (max.as_str(), u64::MAX)] {
            assert_eq!(parse_cursor(text.as_bytes()), Some(cursor), "{text}");
        }
        assert_eq!(parse_cursor(b"-1"), Some(u64::MAX));
        for text in ["-", "+", " 1", "1 ", "0x1", "18446744073709551616", "--1"] {
            assert_eq!(parse_cursor(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn scan_options() {
        let buf = b"scan17countTYPEHashmatcha*5*";
        let scanned = |spans: &[(u32, u32)]| scan(Args::new(buf, spans));
        let plain = Global::Scan { cursor: 17, count: 10, pattern: None, kind: ScanKind::Any };
        assert_eq!(scanned(&[(0, 4), (4, 6)]), Ok(plain.clone()));
        let count_5_type_hash_match =
            [(0, 4), (4, 6), (6, 11), (26, 27), (11, 15), (15, 19), (19, 24), (24, 26)];
        let kind = ScanKind::Only(Kind::Hash);
        let full = Global::Scan { cursor: 17, count: 5, pattern: Some(b"a*".to_vec()), kind };
        assert_eq!(scanned(&count_5_type_hash_match), Ok(full));
        assert_eq!(
            scanned(&[(0, 4), (4, 6), (19, 24), (27, 28)]),
            Ok(plain),
            "MATCH * is no filter"
        );
    }
}
