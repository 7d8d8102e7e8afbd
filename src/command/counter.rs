//! Counters: strings that hold a number.

use super::flag::{DENYOOM, FAST, WRITE};
use super::number::integer;
use super::{Command, Context, Handler, Keys, float};
use crate::shard::view::{Kind, Stop};

const ROW: Command = Command {
    name: "",
    arity: 2,
    flags: WRITE | DENYOOM | FAST,
    keys: Keys::Range { first: 1, last: 1, step: 1 },
    handler: Handler::Keyed(incr),
    summary: "",
    group: "string",
    since: "1.0.0",
    complexity: "O(1)",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "incr",
        handler: Handler::Keyed(incr),
        summary: "Adds one to the integer in a key, which starts out as 0.",
        ..ROW
    },
    Command {
        name: "incrby",
        arity: 3,
        handler: Handler::Keyed(incrby),
        summary: "Adds to the integer in a key, which starts out as 0.",
        ..ROW
    },
    Command {
        name: "decr",
        handler: Handler::Keyed(decr),
        summary: "Subtracts one from the integer in a key, which starts out as 0.",
        ..ROW
    },
    Command {
        name: "decrby",
        arity: 3,
        handler: Handler::Keyed(decrby),
        summary: "Subtracts from the integer in a key, which starts out as 0.",
        ..ROW
    },
    Command {
        name: "incrbyfloat",
        arity: 3,
        handler: Handler::Keyed(incrbyfloat),
        summary: "Adds to the floating-point number in a key, which starts out as 0.",
        since: "2.6.0",
        ..ROW
    },
];

fn incr(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    increment(ctx, 1)
}

fn incrby(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let amount = integer(&ctx.args[2])?;
    increment(ctx, amount)
}

fn decr(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    increment(ctx, -1)
}

fn decrby(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let amount = integer(&ctx.args[2])?;
    let amount = amount.checked_neg().ok_or(Stop::error("ERR decrement would overflow"))?;
    increment(ctx, amount)
}

fn increment(ctx: &mut Context<'_, '_>, amount: i64) -> Result<(), Stop> {
    let old = match ctx.view.value(0, Kind::String)? {
        Some(text) => integer(text)?,
        None => 0,
    };
    let overflow = Stop::error("ERR increment or decrement would overflow");
    let new = old.checked_add(amount).ok_or(overflow)?;
    ctx.view.put(0, Kind::String, new.to_string().into_bytes(), ctx.view.expire_at_ms(0));
    ctx.reply.int(new);
    Ok(())
}

fn incrbyfloat(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    const NOT_A_FLOAT: Stop = Stop::error("ERR value is not a valid float");
    let old = match ctx.view.value(0, Kind::String)? {
        Some(text) => float::parse_long_double(text).ok_or(NOT_A_FLOAT)?,
        None => float::LongDouble::ZERO,
    };
    let amount = float::parse_long_double(&ctx.args[2]).ok_or(NOT_A_FLOAT)?;
    let sum = float::add(old, amount)
        .ok_or(Stop::error("ERR increment would produce NaN or Infinity"))?;
    let text = float::format(sum);
    ctx.reply.bulk(text.as_bytes());
    ctx.view.put(0, Kind::String, text.into_bytes(), ctx.view.expire_at_ms(0));
    Ok(())
}
