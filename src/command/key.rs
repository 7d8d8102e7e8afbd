//! The key family: what works on a key of any type.

use super::flag::{DENYOOM, FAST, OTHER_DB, READONLY, WRITE};
use super::number::integer_32;
use super::string::SYNTAX;
use super::{Command, Context, Handler, Keys};
use crate::limits::DATABASES;
use crate::resp::Args;
use crate::shard::view::Stop;

const ALL_KEYS: Keys = Keys::Range { first: 1, last: -1, step: 1 };
const TWO_KEYS: Keys = Keys::Range { first: 1, last: 2, step: 1 };
const ROW: Command = Command {
    name: "",
    arity: -2,
    flags: 0,
    keys: ALL_KEYS,
    handler: Handler::Keyed(del),
    summary: "",
    group: "generic",
    since: "1.0.0",
    complexity: "O(N) in the number of keys",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "del",
        flags: WRITE,
        handler: Handler::Keyed(del),
        summary: "Deletes keys and returns how many existed.",
        ..ROW
    },
    Command {
        name: "unlink",
        flags: WRITE | FAST,
        handler: Handler::Keyed(del),
        summary: "Deletes keys and returns how many existed; here the same as DEL.",
        since: "4.0.0",
        ..ROW
    },
    Command {
        name: "exists",
        flags: READONLY | FAST,
        handler: Handler::Keyed(exists),
        summary: "Returns how many of the keys exist.",
        ..ROW
    },
    Command {
        name: "touch",
        flags: READONLY | FAST,
        handler: Handler::Keyed(exists),
        summary: "Returns how many of the keys exist; there are no access times to update.",
        since: "3.2.1",
        ..ROW
    },
    Command {
        name: "type",
        arity: 2,
        flags: READONLY | FAST,
        keys: Keys::Range { first: 1, last: 1, step: 1 },
        handler: Handler::Keyed(type_of),
        summary: "Returns the type of the value of a key.",
        complexity: "O(1)",
        ..ROW
    },
    Command {
        name: "rename",
        arity: 3,
        flags: WRITE,
        keys: TWO_KEYS,
        handler: Handler::Keyed(rename),
        summary: "Gives a key another name, over a key that has it.",
        complexity: "O(N) in the length of the value",
        ..ROW
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: WRITE | FAST,
        keys: TWO_KEYS,
        handler: Handler::Keyed(renamenx),
        summary: "Gives a key another name unless a key has it.",
        complexity: "O(N) in the length of the value",
        ..ROW
    },
    Command {
        name: "copy",
        arity: -3,
        flags: WRITE | DENYOOM | OTHER_DB,
        keys: TWO_KEYS,
        handler: Handler::Keyed(copy),
        summary: "Copies the value and expiry of a key to another key.",
        since: "6.2.0",
        complexity: "O(N) in the length of the value",
        ..ROW
    },
    Command {
        name: "move",
        arity: 3,
        flags: WRITE | FAST | OTHER_DB,
        keys: Keys::Range { first: 1, last: 1, step: 1 },
        handler: Handler::Keyed(move_to),
        summary: "Moves a key to another database.",
        complexity: "O(N) in the length of the value",
        ..ROW
    },
];

const SAME_OBJECT: Stop = Stop::error("ERR source and destination objects are the same");

/// The keys of a command with [`OTHER_DB`]: argument and database of each. `db` is the
/// session's. Arguments that are wrong mean the session's database: the command itself reports
/// them.
pub fn keys_across(args: Args<'_>, db: u8) -> [(usize, u8); 2] {
    if args[0].eq_ignore_ascii_case(b"move") {
        return [(1, db), (1, parse_db(&args[2]).unwrap_or(db))];
    }
    let other = parse_copy_options(args.from(3)).ok().and_then(|options| options.db);
    [(1, db), (2, other.unwrap_or(db))]
}

fn parse_db(text: &[u8]) -> Result<u8, Stop> {
    let number = integer_32(text)?;
    if !(0..DATABASES as i32).contains(&number) {
        return Err(Stop::error("ERR DB index is out of range"));
    }
    Ok(number as u8)
}

#[derive(Default)]
struct CopyOptions {
    db: Option<u8>,
    replace: bool,
}

fn parse_copy_options(args: Args<'_>) -> Result<CopyOptions, Stop> {
    let mut options = CopyOptions::default();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        if word.eq_ignore_ascii_case(b"REPLACE") {
            options.replace = true;
        } else if word.eq_ignore_ascii_case(b"DB") {
            options.db = Some(parse_db(rest.next().ok_or(SYNTAX)?)?);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(options)
}

fn del(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let mut deleted = 0;
    for key in 0..ctx.view.len() {
        deleted += i64::from(ctx.view.exists(key));
        ctx.view.delete(key);
    }
    ctx.reply.int(deleted);
    Ok(())
}

fn exists(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let found = (0..ctx.view.len()).filter(|&key| ctx.view.exists(key)).count();
    ctx.reply.int(found as i64);
    Ok(())
}

fn type_of(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    ctx.reply.simple(ctx.view.kind(0).map_or("none", |kind| kind.name()));
    Ok(())
}

fn rename(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expect_source(ctx)?;
    if !ctx.view.same(0, 1) {
        copy_value(ctx)?;
        ctx.view.delete(0);
    }
    ctx.reply.ok();
    Ok(())
}

fn renamenx(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expect_source(ctx)?;
    let free = !ctx.view.exists(1);
    if free {
        copy_value(ctx)?;
        ctx.view.delete(0);
    }
    ctx.reply.int(i64::from(free));
    Ok(())
}

fn expect_source(ctx: &Context<'_, '_>) -> Result<(), Stop> {
    if ctx.view.exists(0) { Ok(()) } else { Err(Stop::error("ERR no such key")) }
}

/// Puts the first key's value and expiry at the second.
fn copy_value(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    if let Some((meta, value)) = ctx.view.any_value_shared(0)? {
        ctx.view.put(1, meta.kind, value, meta.expire_at_ms);
    }
    Ok(())
}

fn copy(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let options = parse_copy_options(ctx.args.from(3))?;
    if ctx.view.same(0, 1) {
        return Err(SAME_OBJECT);
    }
    let copied = ctx.view.exists(0) && (options.replace || !ctx.view.exists(1));
    if copied {
        copy_value(ctx)?;
    }
    ctx.reply.int(i64::from(copied));
    Ok(())
}

fn move_to(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    parse_db(&ctx.args[2])?;
    if ctx.view.same(0, 1) {
        return Err(SAME_OBJECT);
    }
    let moved = ctx.view.exists(0) && !ctx.view.exists(1);
    if moved {
        copy_value(ctx)?;
        ctx.view.delete(0);
    }
    ctx.reply.int(i64::from(moved));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Keyspace, replay};
    use super::keys_across;
    use crate::resp::Args;

    #[test]
    fn agrees_with_redis() {
        replay(include_str!("../../tests/transcripts/key.txt"));
    }

    fn across(words: &[&str]) -> [(usize, u8); 2] {
        let mut spans = Vec::new();
        let mut end = 0;
        for word in words {
            spans.push((end, end + word.len() as u32));
            end += word.len() as u32;
        }
        keys_across(Args::new(words.concat().as_bytes(), &spans), 7)
    }

    #[test]
    fn keys_of_two_databases() {
        assert_eq!(across(&["copy", "a", "b"]), [(1, 7), (2, 7)]);
        assert_eq!(across(&["COPY", "a", "b", "REPLACE", "db", "3"]), [(1, 7), (2, 3)]);
        assert_eq!(across(&["copy", "a", "b", "db", "3", "oops"]), [(1, 7), (2, 7)]);
        assert_eq!(across(&["copy", "a", "b", "db", "16"]), [(1, 7), (2, 7)]);
        assert_eq!(across(&["Move", "a", "2"]), [(1, 7), (1, 2)]);
        assert_eq!(across(&["move", "a", "x"]), [(1, 7), (1, 7)]);
    }

    #[test]
    fn only_moving_a_value_reads_it() {
        let mut space = Keyspace::default();
        space.run("MSET a 1 b 2 c 3");
        for line in [
            "EXISTS a b",
            "TYPE a",
            "TTL a",
            "TOUCH a",
            "RENAMENX a b",
            "RENAME a a",
            "COPY a b",
            "EXPIRE a 10 GT",
            "PERSIST a",
            "EXPIRE a -1",
            "DEL b",
        ] {
            space.run(line);
            assert_eq!(space.faults, 0, "{line}");
        }
        for line in ["EXPIRE c 10", "COPY c d", "RENAME c b", "MOVE b 3"] {
            assert_eq!((space.run(line), space.faults).1, 1, "{line}");
        }
    }
}
