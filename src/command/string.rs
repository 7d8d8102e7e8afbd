//! The string family: setting and getting whole strings. A string is stored as its bytes.

use super::flag::{DENYOOM, FAST, READONLY, WRITE};
use super::{Command, Context, Handler, Keys, expire};
use crate::resp::Args;
use crate::shard::view::{Kind, Stop};

const ALL_KEYS: Keys = Keys::Range { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
const ROW: Command = Command {
    name: "",
    arity: 2,
    flags: 0,
    keys: Keys::Range { first: 1, last: 1, step: 1 },
    handler: Handler::Keyed(get),
    summary: "",
    group: "string",
    since: "1.0.0",
    complexity: "O(1)",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        flags: READONLY | FAST,
        handler: Handler::Keyed(get),
        summary: "Returns the value of a key.",
        ..ROW
    },
    Command {
        name: "set",
        arity: -3,
        flags: WRITE | DENYOOM,
        handler: Handler::Keyed(set),
        summary: "Sets a key to a string, with conditions and an expiry if wanted.",
        ..ROW
    },
    Command {
        name: "setnx",
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        handler: Handler::Keyed(setnx),
        summary: "Sets a key to a string unless it exists.",
        ..ROW
    },
    Command {
        name: "setex",
        arity: 4,
        flags: WRITE | DENYOOM,
        handler: Handler::Keyed(setex),
        summary: "Sets a key to a string that expires after some seconds.",
        since: "2.0.0",
        ..ROW
    },
    Command {
        name: "psetex",
        arity: 4,
        flags: WRITE | DENYOOM,
        handler: Handler::Keyed(psetex),
        summary: "Sets a key to a string that expires after some milliseconds.",
        since: "2.6.0",
        ..ROW
    },
    Command {
        name: "getset",
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        handler: Handler::Keyed(getset),
        summary: "Sets a key to a string and returns what it was.",
        ..ROW
    },
    Command {
        name: "getdel",
        flags: WRITE | FAST,
        handler: Handler::Keyed(getdel),
        summary: "Returns the value of a key and deletes the key.",
        since: "6.2.0",
        ..ROW
    },
    Command {
        name: "getex",
        arity: -2,
        flags: WRITE | FAST,
        handler: Handler::Keyed(getex),
        summary: "Returns the value of a key and changes when it expires.",
        since: "6.2.0",
        ..ROW
    },
    Command {
        name: "mget",
        arity: -2,
        flags: READONLY | FAST,
        keys: ALL_KEYS,
        handler: Handler::Keyed(mget),
        summary: "Returns the values of several keys.",
        complexity: "O(N) in the number of keys",
        ..ROW
    },
    Command {
        name: "mset",
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: PAIRS,
        handler: Handler::Keyed(mset),
        summary: "Sets several keys to strings at once.",
        since: "1.0.1",
        complexity: "O(N) in the number of keys",
        ..ROW
    },
    Command {
        name: "msetnx",
        arity: -3,
        flags: WRITE | DENYOOM,
        keys: PAIRS,
        handler: Handler::Keyed(msetnx),
        summary: "Sets several keys to strings unless any of them exists.",
        since: "1.0.1",
        complexity: "O(N) in the number of keys",
        ..ROW
    },
];

pub const SYNTAX: Stop = Stop::error("ERR syntax error");

/// When SET writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Always,
    IfAbsent,
    IfPresent,
}

/// What becomes of a key's expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    #[default]
    Clear,
    Keep,
    /// Unix time in milliseconds.
    At(u64),
}

/// What follows the value in SET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetOptions {
    pub condition: Condition,
    /// Reply the old value.
    pub get: bool,
    pub expiry: Expiry,
}

/// The options of a whole SET command.
pub fn parse_set_options(args: Args<'_>, now_ms: u64) -> Result<SetOptions, Stop> {
    if args.len() == 3 {
        return Ok(SetOptions::default());
    }
    let words = parse_words(args.from(3), Verb::Set)?;
    let expiry = match words.time {
        Some((form, time)) => Expiry::At(expire::positive_time(form, time, now_ms, "set")?),
        None if words.keep_ttl => Expiry::Keep,
        None => Expiry::Clear,
    };
    Ok(SetOptions { condition: words.condition, get: words.get, expiry })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Set,
    GetEx,
}

/// Options of SET and GETEX before the time is read.
#[derive(Default)]
struct Words<'a> {
    condition: Condition,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    time: Option<(expire::TimeForm, &'a [u8])>,
}

fn parse_words(args: Args<'_>, verb: Verb) -> Result<Words<'_>, Stop> {
    let mut words = Words::default();
    let set = verb == Verb::Set;
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if set && is("NX") && words.condition != Condition::IfPresent {
            words.condition = Condition::IfAbsent;
        } else if set && is("XX") && words.condition != Condition::IfAbsent {
            words.condition = Condition::IfPresent;
        } else if set && is("GET") {
            words.get = true;
        } else if set && is("KEEPTTL") && words.time.is_none() {
            words.keep_ttl = true;
        } else if !set && is("PERSIST") && words.time.is_none() {
            words.persist = true;
        } else {
            // The same form may be repeated; the last time counts.
            let form = expire::TimeForm::of_option(word).ok_or(SYNTAX)?;
            let other_form = words.time.is_some_and(|(seen, _)| seen != form);
            if words.keep_ttl || words.persist || other_form {
                return Err(SYNTAX);
            }
            words.time = Some((form, rest.next().ok_or(SYNTAX)?));
        }
    }
    Ok(words)
}

/// Replies the string at `key`, or null.
fn reply_value(ctx: &mut Context<'_, '_>, key: usize) -> Result<(), Stop> {
    match ctx.view.value(key, Kind::String)? {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn get(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    reply_value(ctx, 0)
}

fn set(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let options = parse_set_options(ctx.args, ctx.view.now_ms())?;
    if options.get {
        reply_value(ctx, 0)?;
    }
    let stored = match options.condition {
        Condition::Always => true,
        Condition::IfAbsent => !ctx.view.exists(0),
        Condition::IfPresent => ctx.view.exists(0),
    };
    if stored {
        let expire_at_ms = match options.expiry {
            Expiry::Clear => None,
            Expiry::Keep => ctx.view.expire_at_ms(0),
            Expiry::At(at_ms) => Some(at_ms),
        };
        ctx.view.put(0, Kind::String, ctx.args.at(2), expire_at_ms);
    }
    match (options.get, stored) {
        (true, _) => {}
        (false, true) => ctx.reply.ok(),
        (false, false) => ctx.reply.null(),
    }
    Ok(())
}

fn setnx(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let absent = !ctx.view.exists(0);
    if absent {
        ctx.view.put(0, Kind::String, ctx.args.at(2), None);
    }
    ctx.reply.int(i64::from(absent));
    Ok(())
}

fn setex(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    set_for(ctx, expire::TimeForm::Seconds, "setex")
}

fn psetex(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    set_for(ctx, expire::TimeForm::Milliseconds, "psetex")
}

fn set_for(
    ctx: &mut Context<'_, '_>,
    form: expire::TimeForm,
    command: &'static str,
) -> Result<(), Stop> {
    let at_ms = expire::positive_time(form, &ctx.args[2], ctx.view.now_ms(), command)?;
    ctx.view.put(0, Kind::String, ctx.args.at(3), Some(at_ms));
    ctx.reply.ok();
    Ok(())
}

fn getset(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    reply_value(ctx, 0)?;
    ctx.view.put(0, Kind::String, ctx.args.at(2), None);
    Ok(())
}

fn getdel(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    reply_value(ctx, 0)?;
    ctx.view.delete(0);
    Ok(())
}

fn getex(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let words = parse_words(ctx.args.from(2), Verb::GetEx)?;
    // Redis looks at the key first: a bad time is no error for a key that is not there.
    reply_value(ctx, 0)?;
    if !ctx.view.exists(0) {
        return Ok(());
    }
    if let Some((form, time)) = words.time {
        let at_ms = expire::positive_time(form, time, ctx.view.now_ms(), "getex")?;
        ctx.view.set_expiry(0, Some(at_ms))?;
    } else if words.persist && ctx.view.expire_at_ms(0).is_some() {
        ctx.view.set_expiry(0, None)?;
    }
    Ok(())
}

fn mget(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    // Values of other types are answered with null and need no read.
    let other = |kind| kind != Kind::String;
    if !(0..ctx.view.len()).any(|key| ctx.view.kind(key).is_some_and(other)) {
        ctx.view.load_all()?;
    }
    ctx.reply.array(ctx.view.len());
    for key in 0..ctx.view.len() {
        match ctx.view.kind(key) {
            Some(Kind::String) => reply_value(ctx, key)?,
            _ => ctx.reply.null(),
        }
    }
    Ok(())
}

fn mset(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expect_pairs(ctx.args, "mset")?;
    put_pairs(ctx);
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expect_pairs(ctx.args, "msetnx")?;
    let absent = !(0..ctx.view.len()).any(|key| ctx.view.exists(key));
    if absent {
        put_pairs(ctx);
    }
    ctx.reply.int(i64::from(absent));
    Ok(())
}

fn expect_pairs(args: Args<'_>, command: &str) -> Result<(), Stop> {
    if args.len() % 2 == 1 {
        return Ok(());
    }
    Err(Stop::from(format!("ERR wrong number of arguments for '{command}' command")))
}

fn put_pairs(ctx: &mut Context<'_, '_>) {
    for key in 0..ctx.view.len() {
        ctx.view.put(key, Kind::String, ctx.args.at(2 + 2 * key), None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Keyspace, replay};
    use super::{Condition, Expiry, SetOptions, parse_set_options};
    use crate::resp::Args;
    use crate::shard::view::Stop;

    #[test]
    fn agrees_with_redis() {
        replay(include_str!("../../tests/transcripts/string.txt"));
    }

    fn options(words: &[&str]) -> Result<SetOptions, Stop> {
        let mut spans = Vec::new();
        let mut end = 0;
        for word in words {
            spans.push((end, end + word.len() as u32));
            end += word.len() as u32;
        }
        parse_set_options(Args::new(words.concat().as_bytes(), &spans), 1000)
    }

    #[test]
    fn set_options() {
        assert_eq!(options(&["set", "k", "v"]), Ok(SetOptions::default()));
        let all = options(&["set", "k", "v", "get", "PX", "1", "XX", "px", "5"]);
        let condition = Condition::IfPresent;
        assert_eq!(all, Ok(SetOptions { condition, get: true, expiry: Expiry::At(1005) }));
        let kept = options(&["set", "k", "v", "KEEPTTL", "NX"]).map(|o| (o.condition, o.expiry));
        assert_eq!(kept, Ok((Condition::IfAbsent, Expiry::Keep)));
        let seconds = options(&["set", "k", "v", "EX", "9"]).map(|o| o.expiry);
        assert_eq!(seconds, Ok(Expiry::At(10_000)));
        let past = options(&["set", "k", "v", "EXAT", "1"]).map(|o| o.expiry);
        assert_eq!(past, Ok(Expiry::At(1000)));
    }

    /// Runs a command and tells how often it had to read values from the device.
    fn faults(space: &mut Keyspace, line: &str) -> usize {
        space.run(line);
        space.faults
    }

    #[test]
    fn values_are_read_only_where_they_are_needed() {
        let mut space = Keyspace::default();
        space.run("MSET a 1 b 2 c 3 long xxxxxxxxxxxxxxxx");
        for line in [
            "SET a 5",
            "SET a 5 KEEPTTL XX",
            "SET a 5 NX",
            "SETNX a 5",
            "SETEX a 10 5",
            "MSET a 1 b 1",
            "MSETNX a 1 z 2",
            "STRLEN long",
            "SETRANGE long 3 \"\"",
            "SETRANGE long -1 x",
            "GET missing",
            "INCR missing",
            "GETRANGE a x 1",
            "INCRBY a x",
            "SET missing2 v GET",
        ] {
            assert_eq!(faults(&mut space, line), 0, "{line}");
        }
        for line in
            ["GET a", "MGET a b c", "MGET a missing b", "SET a 1 GET", "GETDEL a", "LCS b c"]
        {
            assert_eq!(faults(&mut space, line), 1, "{line}");
        }
    }
}
