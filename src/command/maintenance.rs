//! DEFRAG: how space is made. What the subcommands change are settings; CONFIG and the flags know
//! them as well.

use super::session::{After, Server, SessionContext};
use super::{Command, Handler, Keys, flag};
use crate::config::{Live, SetError};
use crate::resp::Reply;

pub const COMMANDS: &[Command] = &[Command {
    name: "defrag",
    arity: -2,
    flags: flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE,
    keys: Keys::None,
    handler: Handler::Session(defrag),
    summary: "Shows and steers the reclamation of space on the devices.",
    group: "server",
    since: "7.2.0",
    complexity: "O(1)",
}];

const HELP: &[&str] = &[
    "DEFRAG <subcommand> [<arg>]. Subcommands are:",
    "STATUS",
    "    Return what defrag is doing, its settings and what it has done.",
    "PAUSE",
    "    Start no more work. Writes fail when the devices are full.",
    "RESUME",
    "    Work again.",
    "MAX-ACTIVE <segments>",
    "    Set how many segments of one device are emptied at a time.",
    "BLOCK-SLEEP <milliseconds>",
    "    Set the pause after each segment.",
    "RECORD-SLEEP <microseconds>",
    "    Set the pause after each record.",
    "HELP",
    "    Prints this help.",
];

/// What a subcommand does.
#[derive(Clone, Copy)]
enum Action {
    Status,
    /// Gives an option this value.
    Set(&'static str, &'static str),
    /// Gives an option the argument's value.
    Take(&'static str),
    Help,
}

/// Name, second name and action of each subcommand.
const SUBCOMMANDS: &[(&str, &str, Action)] = &[
    ("status", "status", Action::Status),
    ("pause", "pause", Action::Set("defrag-paused", "yes")),
    ("resume", "resume", Action::Set("defrag-paused", "no")),
    ("max-active", "concurrency", Action::Take("defrag-max-active-per-device")),
    ("block-sleep", "block-sleep-ms", Action::Take("defrag-sleep-ms")),
    ("record-sleep", "record-sleep-us", Action::Take("defrag-record-sleep-us")),
    ("help", "help", Action::Help),
];

fn defrag(context: &mut SessionContext<'_>) -> After {
    let (args, server, reply) = (context.args, context.server, &mut context.reply);
    let given = args.at(1);
    let is = |name: &str| name.as_bytes().eq_ignore_ascii_case(given);
    let Some(&(name, _, action)) = SUBCOMMANDS.iter().find(|row| is(row.0) || is(row.1)) else {
        let name = String::from_utf8_lossy(given);
        reply.error(&format!("ERR unknown subcommand '{name}'. Try DEFRAG HELP."));
        return After::Nothing;
    };
    let expected = if matches!(action, Action::Take(_)) { 3 } else { 2 };
    if args.len() != expected {
        reply.error(&format!("ERR wrong number of arguments for 'defrag|{name}' command"));
        return After::Nothing;
    }
    match action {
        Action::Status => status(server, reply),
        Action::Set(option, value) => set(&server.config, option, value, reply),
        Action::Take(option) => {
            set(&server.config, option, &String::from_utf8_lossy(args.at(2)), reply);
        }
        Action::Help => {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.simple(line));
        }
    }
    After::Nothing
}

fn set(config: &Live, option: &str, value: &str, reply: &mut Reply<'_>) {
    match config.set(&[(option, value)]) {
        Ok(()) => reply.ok(),
        Err(SetError::Rejected { reason, .. }) => reply.error(&format!("ERR {reason}")),
        Err(SetError::Unknown(option)) => reply.error(&format!("ERR no option {option}")),
    }
}

fn status(server: &Server, reply: &mut Reply<'_>) {
    let (settings, space) = (server.config.snapshot().maintenance, &server.space);
    let victims = space.victims.get().max(0) as u64;
    let state = match (settings.defrag_paused, victims) {
        (true, _) => "paused",
        (false, 0) => "idle",
        (false, _) => "active",
    };
    let numbers = [
        ("active", victims),
        ("max-active-per-device", settings.defrag_max_active_per_device.into()),
        ("block-sleep-ms", settings.defrag_sleep_ms),
        ("record-sleep-us", settings.defrag_record_sleep_us),
        ("segments", space.segments.get() as u64),
        ("free-segments", space.free.get() as u64),
        ("runs", space.defrag_runs.get()),
        ("incomplete-runs", space.defrag_incomplete.get()),
        ("moved-records", server.total(|core| &core.defrag_moved_records)),
        ("moved-bytes", server.total(|core| &core.defrag_moved_bytes)),
        ("tombstones-rewritten", server.total(|core| &core.defrag_tombstones)),
        ("damaged-places", server.total(|core| &core.defrag_damaged)),
    ];
    reply.map(numbers.len() + 1);
    reply.bulk(b"state");
    reply.bulk(state.as_bytes());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(number as i64);
    }
}
