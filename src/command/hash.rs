//! The hash family. [`hash_value`](super::hash_value) is the stored form;
//! [`hash_scan`](super::hash_scan) has HSCAN and [`hash_random`](super::hash_random) HRANDFIELD.

use super::distinct::Distinct;
use super::float::LongDouble;
use super::hash_value::{Edit, HashValue, Pair};
use super::{Command, Context, Handler, Keys, errors, flag, float, hash_random, hash_scan, number};
use crate::limits::BULK_LEN_MAX;
use crate::resp::{Args, Reply};
use crate::shard::view::{Kind, Stop, View};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "hdel",
        arity: -3,
        flags: flag::WRITE | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hdel),
        summary: "Removes fields from a hash, and the hash with its last field.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of bytes of the hash.",
    },
    Command {
        name: "hexists",
        arity: 3,
        flags: flag::READONLY | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hexists),
        summary: "Tells whether a hash has a field.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "hget",
        arity: 3,
        flags: flag::READONLY | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hget),
        summary: "Returns the value of one field.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "hgetall",
        arity: 2,
        flags: flag::READONLY,
        keys: FIRST,
        handler: Handler::Keyed(hgetall),
        summary: "Returns all fields with their values.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "hincrby",
        arity: 4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hincrby),
        summary: "Adds an integer to the value of a field; a missing field counts as 0.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of bytes of the hash.",
    },
    Command {
        name: "hincrbyfloat",
        arity: 4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hincrbyfloat),
        summary: "Adds a decimal number to the value of a field; a missing field counts as 0.",
        group: "hash",
        since: "2.6.0",
        complexity: "O(N) where N is the number of bytes of the hash.",
    },
    Command {
        name: "hkeys",
        arity: 2,
        flags: flag::READONLY,
        keys: FIRST,
        handler: Handler::Keyed(hkeys),
        summary: "Returns all fields without their values.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "hlen",
        arity: 2,
        flags: flag::READONLY | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hlen),
        summary: "Returns how many fields a hash has.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(1)",
    },
    Command {
        name: "hmget",
        arity: -3,
        flags: flag::READONLY | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hmget),
        summary: "Returns the values of the named fields, null for those that are missing.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash and of the command.",
    },
    Command {
        name: "hmset",
        arity: -4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hmset),
        summary: "Sets fields; the older form of HSET.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of bytes of the hash and of the command.",
    },
    Command {
        name: "hrandfield",
        arity: -2,
        flags: flag::READONLY,
        keys: FIRST,
        handler: Handler::Keyed(hash_random::hrandfield),
        summary: "Returns random fields, distinct ones unless the count is negative.",
        group: "hash",
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields of the hash and of the reply.",
    },
    Command {
        name: "hscan",
        arity: -3,
        flags: flag::READONLY,
        keys: FIRST,
        handler: Handler::Keyed(hash_scan::hscan),
        summary: "Returns a hash in pieces; a field that stays through all of them is in one.",
        group: "hash",
        since: "2.8.0",
        complexity: "O(N) for every call where N is the number of fields of the hash.",
    },
    Command {
        name: "hset",
        arity: -4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hset),
        summary: "Sets fields and returns how many of them are new.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of bytes of the hash and of the command.",
    },
    Command {
        name: "hsetnx",
        arity: 4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hsetnx),
        summary: "Sets a field only if it is missing.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of bytes of the hash.",
    },
    Command {
        name: "hstrlen",
        arity: 3,
        flags: flag::READONLY | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hstrlen),
        summary: "Returns the length of the value of a field, 0 when it is missing.",
        group: "hash",
        since: "3.2.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "hvals",
        arity: 2,
        flags: flag::READONLY,
        keys: FIRST,
        handler: Handler::Keyed(hvals),
        summary: "Returns the values of all fields.",
        group: "hash",
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
    },
    Command {
        name: "lavik.hreplace",
        arity: -4,
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        keys: FIRST,
        handler: Handler::Keyed(hreplace),
        summary: "Sets fields only if the hash exists, and keeps its expiry.",
        group: "hash",
        since: "1.0.0",
        complexity: "O(N) where N is the number of bytes of the hash and of the command.",
    },
];

const FIRST: Keys = Keys::Range { first: 1, last: 1, step: 1 };

const VALUE_NOT_AN_INTEGER: Stop = Stop::error("ERR hash value is not an integer");
const OVERFLOW: Stop = Stop::error("ERR increment or decrement would overflow");
const NOT_A_FLOAT: Stop = Stop::error("ERR value is not a valid float");
const NOT_FINITE: Stop = Stop::error("ERR value is NaN or Infinity");
const VALUE_NOT_A_FLOAT: Stop = Stop::error("ERR hash value is not a float");
const SUM_NOT_FINITE: Stop = Stop::error("ERR increment would produce NaN or Infinity");
const TOO_LONG: Stop = Stop::error("ERR hash exceeds maximum allowed size (proto-max-bulk-len)");

/// The hash of the command's key, empty when the key does not exist.
pub fn load<'v>(view: &'v View<'_>) -> Result<HashValue<'v>, Stop> {
    match view.value(0, Kind::Hash)? {
        Some(bytes) => Ok(HashValue::parse(bytes)?),
        None => Ok(HashValue::EMPTY),
    }
}

/// Writes the hash back; the expiry stays.
fn store(view: &mut View<'_>, value: Vec<u8>) -> Result<(), Stop> {
    if value.len() > BULK_LEN_MAX {
        return Err(TOO_LONG);
    }
    let expire_at_ms = view.expire_at_ms(0);
    view.put(0, Kind::Hash, value, expire_at_ms);
    Ok(())
}

fn hget(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let value = load(&ctx.view)?.get(ctx.args.at(2))?;
    reply_value(&mut ctx.reply, value);
    Ok(())
}

fn reply_value(reply: &mut Reply<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}

fn hexists(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let value = load(&ctx.view)?.get(ctx.args.at(2))?;
    ctx.reply.int(i64::from(value.is_some()));
    Ok(())
}

fn hstrlen(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let value = load(&ctx.view)?.get(ctx.args.at(2))?;
    ctx.reply.int(value.map_or(0, <[u8]>::len) as i64);
    Ok(())
}

fn hlen(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let len = load(&ctx.view)?.len();
    ctx.reply.int(len as i64);
    Ok(())
}

fn hmget(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    let fields = ctx.args.from(2);
    let wanted = Distinct::collect(fields.iter());
    let mut values = vec![None; wanted.len()];
    for entry in hash.entries() {
        let entry = entry?;
        if let Some(number) = wanted.find(entry.field) {
            values[number] = Some(entry.value);
        }
    }
    ctx.reply.array(fields.len());
    for field in fields.iter() {
        reply_value(&mut ctx.reply, wanted.find(field).and_then(|number| values[number]));
    }
    Ok(())
}

fn hgetall(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    ctx.reply.map(hash.len());
    for entry in hash.entries() {
        let entry = entry?;
        ctx.reply.bulk(entry.field);
        ctx.reply.bulk(entry.value);
    }
    Ok(())
}

fn hkeys(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    ctx.reply.array(hash.len());
    for entry in hash.entries() {
        ctx.reply.bulk(entry?.field);
    }
    Ok(())
}

fn hvals(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    ctx.reply.array(hash.len());
    for entry in hash.entries() {
        ctx.reply.bulk(entry?.value);
    }
    Ok(())
}

fn hset(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let added = set_pairs(ctx, "hset")?;
    ctx.reply.int(added as i64);
    Ok(())
}

fn hmset(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    set_pairs(ctx, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

/// Takes the place of HMSET in load generators whose updates must not create keys, so it replies
/// like HMSET.
fn hreplace(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    check_pairs(ctx.args, "lavik.hreplace")?;
    ctx.view.expect(0, Kind::Hash)?;
    if !ctx.view.exists(0) {
        ctx.reply.null();
        return Ok(());
    }
    set_pairs(ctx, "lavik.hreplace")?;
    ctx.reply.ok();
    Ok(())
}

/// Every field has a value: the arguments behind the key come in pairs.
fn check_pairs(args: Args<'_>, name: &str) -> Result<(), Stop> {
    if args.len().is_multiple_of(2) {
        return Ok(());
    }
    Err(Stop::from(errors::wrong_arity(name)))
}

/// Sets the fields that the arguments name; returns how many are new.
fn set_pairs(ctx: &mut Context<'_, '_>, name: &str) -> Result<usize, Stop> {
    check_pairs(ctx.args, name)?;
    let pairs = ctx.args.from(2);
    let count = pairs.len() / 2;
    set(&mut ctx.view, (0..count).map(|at| (pairs.at(2 * at), pairs.at(2 * at + 1))))
}

/// Sets fields; the last value of a field that comes twice wins. Returns how many are new.
fn set<'p>(
    view: &mut View<'_>,
    pairs: impl ExactSizeIterator<Item = Pair<'p>>,
) -> Result<usize, Stop> {
    let mut fields = Distinct::with_capacity(pairs.len());
    let mut values = Vec::with_capacity(pairs.len());
    for (field, value) in pairs {
        let number = fields.number(field);
        match values.get_mut(number) {
            Some(place) => *place = value,
            None => values.push(value),
        }
    }
    let edit = merge(load(view)?, &fields, &values)?;
    let (added, value) = (edit.added_count(), edit.encode());
    store(view, value)?;
    Ok(added)
}

/// Replaces the fields that the hash has and adds the others.
fn merge<'e>(
    old: HashValue<'e>,
    fields: &Distinct<'e>,
    values: &[&'e [u8]],
) -> Result<Edit<'e>, Stop> {
    let mut edit = Edit::new(old);
    let mut found = vec![false; fields.len()];
    for entry in old.entries() {
        let entry = entry?;
        if let Some(number) = fields.find(entry.field) {
            edit.replace(&entry, values[number]);
            found[number] = true;
        }
    }
    for (number, &field) in fields.names().iter().enumerate().filter(|(number, _)| !found[*number])
    {
        edit.add(field, values[number]);
    }
    Ok(edit)
}

fn hsetnx(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let (field, value) = (ctx.args.at(2), ctx.args.at(3));
    if load(&ctx.view)?.get(field)?.is_some() {
        ctx.reply.int(0);
        return Ok(());
    }
    set(&mut ctx.view, [(field, value)].into_iter())?;
    ctx.reply.int(1);
    Ok(())
}

fn hdel(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    let fields = Distinct::collect(ctx.args.from(2).iter());
    let mut edit = Edit::new(hash);
    for entry in hash.entries() {
        let entry = entry?;
        if fields.find(entry.field).is_some() {
            edit.remove(&entry);
        }
    }
    let removed = edit.removed_count();
    let value = (removed > 0 && edit.count() > 0).then(|| edit.encode());
    let emptied = removed > 0 && value.is_none();
    if let Some(value) = value {
        store(&mut ctx.view, value)?;
    } else if emptied {
        ctx.view.delete(0);
    }
    ctx.reply.int(removed as i64);
    Ok(())
}

fn hincrby(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let (field, by) = (ctx.args.at(2), number::integer(ctx.args.at(3))?);
    let old = match load(&ctx.view)?.get(field)? {
        Some(value) => number::parse_i64(value).ok_or(VALUE_NOT_AN_INTEGER)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(OVERFLOW)?;
    set(&mut ctx.view, [(field, new.to_string().as_bytes())].into_iter())?;
    ctx.reply.int(new);
    Ok(())
}

fn hincrbyfloat(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let (field, by) = (ctx.args.at(2), parse_increment(ctx.args.at(3))?);
    let old = match load(&ctx.view)?.get(field)? {
        Some(value) => float::parse_long_double(value).ok_or(VALUE_NOT_A_FLOAT)?,
        None => LongDouble::ZERO,
    };
    let new = float::add(old, by).filter(|sum| sum.is_finite()).ok_or(SUM_NOT_FINITE)?;
    let text = float::format(new);
    set(&mut ctx.view, [(field, text.as_bytes())].into_iter())?;
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

fn parse_increment(text: &[u8]) -> Result<LongDouble, Stop> {
    let by = float::parse_long_double(text).ok_or(NOT_A_FLOAT)?;
    if by.is_finite() { Ok(by) } else { Err(NOT_FINITE) }
}

#[cfg(test)]
mod tests {
    use crate::command::testing::{Entry, Keyspace, replay};
    use crate::shard::view::Kind;

    /// Replies recorded from a Redis server.
    #[test]
    fn replies_are_those_of_redis() {
        replay(include_str!("../../tests/transcripts/hash.txt"));
    }

    #[test]
    fn hreplace_needs_the_hash_and_keeps_its_expiry() {
        let mut space = Keyspace::default();
        let wrong_count = "-ERR wrong number of arguments for 'lavik.hreplace' command\r\n";
        assert_eq!(space.run("LAVIK.HREPLACE h a 1"), b"$-1\r\n");
        assert_eq!(space.entry(b"h"), None);
        let cases = [
            ("HSET h a 0 b 0", ":2\r\n"),
            ("LAVIK.HREPLACE h a 1 c 2", "+OK\r\n"),
            ("HMGET h a b c", "*3\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n2\r\n"),
            ("LAVIK.HREPLACE h a 1 c", wrong_count),
            ("LAVIK.HREPLACE h a", wrong_count),
            ("LAVIK.HREPLACE missing a 1 c", wrong_count),
        ];
        for (line, expected) in cases {
            assert_eq!(String::from_utf8(space.run(line)).unwrap(), expected, "{line}");
        }
        let at = space.now_ms + 5000;
        space.entries.get_mut(&(0, b"h".to_vec())).unwrap().expire_at_ms = Some(at);
        assert_eq!(space.run("LAVIK.HREPLACE h a 2"), b"+OK\r\n");
        assert_eq!(space.entry(b"h").unwrap().expire_at_ms, Some(at));
        space.now_ms = at;
        assert_eq!(space.run("LAVIK.HREPLACE h a 2"), b"$-1\r\n");
    }

    #[test]
    fn hreplace_of_another_type_is_refused() {
        let mut space = Keyspace::default();
        let entry = Entry { kind: Kind::String, value: b"x".to_vec(), expire_at_ms: None };
        space.entries.insert((0, b"s".to_vec()), entry);
        let wrong_type: &[u8] =
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
        assert_eq!(space.run("LAVIK.HREPLACE s a 1"), wrong_type);
    }

    fn words(name: &str, range: std::ops::Range<usize>, step: usize) -> Vec<Vec<u8>> {
        let mut words = vec![name.as_bytes().to_vec(), b"h".to_vec()];
        for n in range.step_by(step) {
            words.push(format!("field:{n}").into_bytes());
            if name == "HSET" {
                words.push(n.to_string().into_bytes());
            }
        }
        words
    }

    /// Comparing each named field with each stored one would take 2 * 10^10 steps.
    #[test]
    fn large_hashes_take_one_pass() {
        let mut space = Keyspace::default();
        assert_eq!(space.run_words(&words("HSET", 0..200_000, 1)), b":200000\r\n");
        assert_eq!(space.run_words(&words("HSET", 100_000..300_000, 1)), b":100000\r\n");
        assert_eq!(space.run("HLEN h"), b":300000\r\n");
        assert_eq!(space.run("HGET h field:299999"), b"$6\r\n299999\r\n");
        let replies = space.run_words(&words("HMGET", 0..400_000, 2));
        assert!(replies.starts_with(b"*200000\r\n$1\r\n0\r\n$1\r\n2\r\n"));
        assert!(replies.ends_with(b"$-1\r\n"));
        assert_eq!(space.run_words(&words("HDEL", 0..400_000, 2)), b":150000\r\n");
        assert_eq!(space.run_words(&words("HDEL", 1..400_000, 2)), b":150000\r\n");
        assert_eq!(space.entry(b"h"), None);
    }

    #[test]
    fn a_damaged_hash_is_an_error_and_stays_as_it_is() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2");
        let entry = space.entries.get_mut(&(0, b"h".to_vec())).unwrap();
        entry.value.pop();
        let damaged = entry.value.clone();
        for line in [
            "HGET h b",
            "HGETALL h",
            "HKEYS h",
            "HVALS h",
            "HMGET h a",
            "HSET h c 3",
            "HDEL h a",
            "HSETNX h c 1",
            "HINCRBY h c 1",
            "HINCRBYFLOAT h c 1",
            "HSTRLEN h c",
            "HEXISTS h c",
            "HSCAN h 0",
            "HRANDFIELD h 1",
            "LAVIK.HREPLACE h a 1",
        ] {
            assert_eq!(space.run(line), b"-ERR the stored hash is damaged\r\n", "{line}");
        }
        assert_eq!(space.entry(b"h").unwrap().value, damaged);
    }

    #[test]
    fn only_writes_write() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1");
        let before = space.entries.clone();
        for line in ["HDEL h x", "HSETNX h a 2", "HGETALL h", "HSCAN h 0", "HINCRBY h a x"] {
            space.run(line);
            assert_eq!(space.entries, before, "{line}");
        }
    }
}
