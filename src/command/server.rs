//! The server family: time, saving, stopping, role. INFO is in [`info`](super::info).

use std::sync::atomic::Ordering;

use super::session::{After, SessionContext};
use super::{Command, Handler, Keys, errors, flag, info};
use crate::resp::Args;

const fn row(
    name: &'static str,
    arity: i16,
    flags: u32,
    run: super::SessionFn,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let (keys, handler) = (Keys::None, Handler::Session(run));
    let (group, complexity) = ("server", "O(1)");
    Command { name, arity, flags, keys, handler, summary, group, since, complexity }
}

const ADMIN: u32 = flag::ADMIN | flag::NOSCRIPT;
const ANYTIME: u32 = flag::LOADING | flag::STALE;
const STOP: u32 = ADMIN | ANYTIME | flag::NO_MULTI | flag::ALLOW_BUSY;

pub const COMMANDS: &[Command] = &[
    row("bgsave", -1, ADMIN, bgsave, "1.0.0", "Starts writing everything to the devices."),
    row("info", -1, ANYTIME, info::info, "1.0.0", "Returns figures and facts about the server."),
    row(
        "lastsave",
        1,
        ANYTIME | flag::FAST,
        lastsave,
        "1.0.0",
        "Returns the time of the last save.",
    ),
    row(
        "role",
        1,
        ANYTIME | flag::NOSCRIPT | flag::FAST,
        role,
        "2.8.12",
        "Returns the part in replication.",
    ),
    row("save", 1, ADMIN | flag::NO_MULTI, save, "1.0.0", "Writes everything to the devices."),
    row("shutdown", -1, STOP, shutdown, "1.0.0", "Stops the server."),
    row("time", 1, ANYTIME | flag::FAST, time, "2.6.0", "Returns the server's time."),
];

const SAVING: &str = "ERR Background save already in progress";

fn time(context: &mut SessionContext<'_>) -> After {
    let now_ms = context.now.unix_ms;
    context.reply.array(2);
    context.reply.bulk((now_ms / 1000).to_string().as_bytes());
    context.reply.bulk((now_ms % 1000 * 1000).to_string().as_bytes());
    After::Nothing
}

fn lastsave(context: &mut SessionContext<'_>) -> After {
    let last_ms = context.server.state.last_save_ms.load(Ordering::Relaxed);
    context.reply.int((last_ms / 1000) as i64);
    After::Nothing
}

fn save(context: &mut SessionContext<'_>) -> After {
    if context.server.state.saving.load(Ordering::Relaxed) {
        context.reply.error(SAVING);
        return After::Nothing;
    }
    After::Save { reply_now: false }
}

fn bgsave(context: &mut SessionContext<'_>) -> After {
    let args = context.args;
    let schedule = args.len() == 2 && args[1].eq_ignore_ascii_case(b"schedule");
    if args.len() > 1 && !schedule {
        context.reply.error(errors::SYNTAX);
    } else if context.server.state.saving.load(Ordering::Relaxed) {
        context.reply.error(SAVING);
    } else {
        context.reply.simple("Background saving started");
        return After::Save { reply_now: true };
    }
    After::Nothing
}

/// A master without replicas.
fn role(context: &mut SessionContext<'_>) -> After {
    context.reply.array(3);
    context.reply.bulk(b"master");
    context.reply.int(0);
    context.reply.array(0);
    After::Nothing
}

fn shutdown(context: &mut SessionContext<'_>) -> After {
    match parse_shutdown(context.args.from(1)) {
        Ok(after) => after,
        Err(text) => {
            context.reply.error(text);
            After::Nothing
        }
    }
}

/// NOW is accepted and changes nothing: there are no replicas to wait for. For the same reason
/// a stop is never under way when another command runs, and ABORT finds none.
fn parse_shutdown(options: Args<'_>) -> Result<After, &'static str> {
    let (mut save, mut nosave, mut force, mut abort) = (false, false, false, false);
    for option in options.iter() {
        match option.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"now" => {}
            b"force" => force = true,
            b"abort" => abort = true,
            _ => return Err(errors::SYNTAX),
        }
    }
    let alone = options.len() == 1;
    match (save && nosave, abort) {
        (true, _) => Err(errors::SYNTAX),
        (false, true) if !alone => Err(errors::SYNTAX),
        (false, true) => Err("ERR No shutdown in progress."),
        (false, false) => Ok(After::Shutdown { save: !nosave, force }),
    }
}
