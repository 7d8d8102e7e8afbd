//! When keys expire: time arguments of all commands, and the EXPIRE family.

use super::flag::{FAST, READONLY, WRITE};
use super::number::integer;
use super::{Command, Context, Handler, Keys};
use crate::resp::Args;
use crate::shard::view::Stop;

const ROW: Command = Command {
    name: "",
    arity: 2,
    flags: READONLY | FAST,
    keys: Keys::Range { first: 1, last: 1, step: 1 },
    handler: Handler::Keyed(ttl),
    summary: "",
    group: "generic",
    since: "1.0.0",
    complexity: "O(1)",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "expire",
        arity: -3,
        flags: WRITE | FAST,
        handler: Handler::Keyed(expire),
        summary: "Lets a key expire after some seconds.",
        ..ROW
    },
    Command {
        name: "pexpire",
        arity: -3,
        flags: WRITE | FAST,
        handler: Handler::Keyed(pexpire),
        summary: "Lets a key expire after some milliseconds.",
        since: "2.6.0",
        ..ROW
    },
    Command {
        name: "expireat",
        arity: -3,
        flags: WRITE | FAST,
        handler: Handler::Keyed(expireat),
        summary: "Lets a key expire at a Unix time in seconds.",
        since: "1.2.0",
        ..ROW
    },
    Command {
        name: "pexpireat",
        arity: -3,
        flags: WRITE | FAST,
        handler: Handler::Keyed(pexpireat),
        summary: "Lets a key expire at a Unix time in milliseconds.",
        since: "2.6.0",
        ..ROW
    },
    Command {
        name: "ttl",
        handler: Handler::Keyed(ttl),
        summary: "Returns the seconds until a key expires.",
        ..ROW
    },
    Command {
        name: "pttl",
        handler: Handler::Keyed(pttl),
        summary: "Returns the milliseconds until a key expires.",
        since: "2.6.0",
        ..ROW
    },
    Command {
        name: "expiretime",
        handler: Handler::Keyed(expiretime),
        summary: "Returns the Unix time in seconds at which a key expires.",
        since: "7.0.0",
        ..ROW
    },
    Command {
        name: "pexpiretime",
        handler: Handler::Keyed(pexpiretime),
        summary: "Returns the Unix time in milliseconds at which a key expires.",
        since: "7.0.0",
        ..ROW
    },
    Command {
        name: "persist",
        flags: WRITE | FAST,
        handler: Handler::Keyed(persist),
        summary: "Lets a key live on without expiry.",
        since: "2.2.0",
        ..ROW
    },
];

/// How a time argument counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeForm {
    /// The form that an option of SET and GETEX announces.
    pub fn of_option(word: &[u8]) -> Option<TimeForm> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        Some(match () {
            () if is("EX") => TimeForm::Seconds,
            () if is("PX") => TimeForm::Milliseconds,
            () if is("EXAT") => TimeForm::UnixSeconds,
            () if is("PXAT") => TimeForm::UnixMilliseconds,
            () => return None,
        })
    }

    /// Unix time in milliseconds; None where it leaves the range of `i64`.
    fn unix_ms(self, time: i64, now_ms: u64) -> Option<i64> {
        let time_ms = match self {
            TimeForm::Seconds | TimeForm::UnixSeconds => time.checked_mul(1000)?,
            TimeForm::Milliseconds | TimeForm::UnixMilliseconds => time,
        };
        match self {
            TimeForm::Seconds | TimeForm::Milliseconds => time_ms.checked_add_unsigned(now_ms),
            TimeForm::UnixSeconds | TimeForm::UnixMilliseconds => Some(time_ms),
        }
    }
}

fn invalid_time(command: &str) -> Stop {
    Stop::from(format!("ERR invalid expire time in '{command}' command"))
}

/// A time argument that must be positive, as Unix time in milliseconds.
pub fn positive_time(form: TimeForm, text: &[u8], now_ms: u64, command: &str) -> Result<u64, Stop> {
    let time = integer(text)?;
    let at_ms = form.unix_ms(time, now_ms).filter(|_| time > 0);
    at_ms.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| invalid_time(command))
}

/// Under which circumstances EXPIRE changes the expiry.
#[derive(Clone, Copy, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Conditions, Stop> {
        let mut found = Conditions::default();
        for word in args.iter() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            match () {
                () if is("NX") => found.nx = true,
                () if is("XX") => found.xx = true,
                () if is("GT") => found.gt = true,
                () if is("LT") => found.lt = true,
                () => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Stop::from(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if found.nx && (found.xx || found.gt || found.lt) {
            return Err(Stop::error(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if found.gt && found.lt {
            return Err(Stop::error("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(found)
    }

    /// A key without expiry counts as one that expires later than any other.
    fn allow(self, current_ms: Option<u64>, at_ms: i64) -> bool {
        let current_ms = current_ms.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        !(self.nx && current_ms.is_some()
            || self.xx && current_ms.is_none()
            || self.gt && current_ms.is_none_or(|current| at_ms <= current)
            || self.lt && current_ms.is_some_and(|current| at_ms >= current))
    }
}

fn expire(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expire_key(ctx, TimeForm::Seconds, "expire")
}

fn pexpire(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expire_key(ctx, TimeForm::Milliseconds, "pexpire")
}

fn expireat(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expire_key(ctx, TimeForm::UnixSeconds, "expireat")
}

fn pexpireat(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    expire_key(ctx, TimeForm::UnixMilliseconds, "pexpireat")
}

fn expire_key(ctx: &mut Context<'_, '_>, form: TimeForm, command: &str) -> Result<(), Stop> {
    let conditions = Conditions::parse(ctx.args.from(3))?;
    let time = integer(&ctx.args[2])?;
    let at_ms = form.unix_ms(time, ctx.view.now_ms()).ok_or_else(|| invalid_time(command))?;
    let changed = ctx.view.exists(0) && conditions.allow(ctx.view.expire_at_ms(0), at_ms);
    if changed {
        // A time before 1970 is past, like 0.
        ctx.view.set_expiry(0, Some(u64::try_from(at_ms).unwrap_or(0)))?;
    }
    ctx.reply.int(i64::from(changed));
    Ok(())
}

fn persist(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let expires = ctx.view.expire_at_ms(0).is_some();
    if expires {
        ctx.view.set_expiry(0, None)?;
    }
    ctx.reply.int(i64::from(expires));
    Ok(())
}

fn ttl(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let now_ms = ctx.view.now_ms();
    reply_time(ctx, |at_ms| to_seconds(at_ms - now_ms))
}

fn pttl(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let now_ms = ctx.view.now_ms();
    reply_time(ctx, |at_ms| at_ms - now_ms)
}

fn expiretime(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    reply_time(ctx, to_seconds)
}

fn pexpiretime(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    reply_time(ctx, |at_ms| at_ms)
}

/// Rounded to the nearest second.
fn to_seconds(time_ms: u64) -> u64 {
    (time_ms + 500) / 1000
}

/// Replies what `shown` makes of the expiry: -1 for a key without one, -2 for no key.
fn reply_time(ctx: &mut Context<'_, '_>, shown: impl Fn(u64) -> u64) -> Result<(), Stop> {
    let time = match ctx.view.expire_at_ms(0) {
        Some(at_ms) => shown(at_ms) as i64,
        None if ctx.view.exists(0) => -1,
        None => -2,
    };
    ctx.reply.int(time);
    Ok(())
}
