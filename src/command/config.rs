//! CONFIG: reads and changes settings, resets counters.

use std::collections::BTreeMap;

use super::session::{After, SessionContext};
use super::{Command, Handler, Keys, flag, glob};
use crate::config::{Config, RewriteError, SetError, options};
use crate::resp::Reply;

pub const COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: -2,
    flags: flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE,
    keys: Keys::None,
    handler: Handler::Session(config),
    summary: "A container for server configuration commands.",
    group: "server",
    since: "2.0.0",
    complexity: "Depends on subcommand.",
}];

const HELP: &[&str] = &[
    "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
    "HELP",
    "    Prints this help.",
];

type Subcommand = fn(&mut SessionContext<'_>);

/// Name, number of arguments (negative: at least) and function of each subcommand.
const SUBCOMMANDS: &[(&str, i16, Subcommand)] = &[
    ("get", -3, get),
    ("set", -4, set),
    ("resetstat", 2, reset_stat),
    ("rewrite", 2, rewrite),
    ("help", 2, help),
];

fn config(context: &mut SessionContext<'_>) -> After {
    let given = context.args.at(1);
    let count = context.args.len() as i64;
    let row = SUBCOMMANDS.iter().find(|row| row.0.as_bytes().eq_ignore_ascii_case(given));
    match row {
        None => {
            let name = text(given);
            context.reply.error(&format!("ERR unknown subcommand '{name}'. Try CONFIG HELP."));
        }
        Some(&(name, arity, _))
            if count < i64::from(arity.abs()) || (arity > 0 && count > i64::from(arity)) =>
        {
            let text = format!("ERR wrong number of arguments for 'config|{name}' command");
            context.reply.error(&text);
        }
        Some((_, _, run)) => run(context),
    }
    After::Nothing
}

/// An argument for use in an error text or as an option's value.
fn text(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).into_owned()
}

fn get(context: &mut SessionContext<'_>) {
    let config = context.server.config.config();
    let mut found = BTreeMap::new();
    for pattern in context.args.from(2).iter() {
        find_all(&text(pattern), &config, &mut found);
    }
    context.reply.map(found.len());
    for (name, value) in found {
        context.reply.bulk(name.as_bytes());
        context.reply.bulk(value.as_bytes());
    }
}

/// Adds the options whose name matches, with their values. A name without wildcards is shown as
/// the client has spelled it, a second name of a Redis parameter only then or by a pattern.
fn find_all(pattern: &str, config: &Config, found: &mut BTreeMap<String, String>) {
    if !pattern.contains(['*', '?', '[']) {
        found.extend(options::find(pattern).map(|opt| (pattern.to_string(), opt.show(config))));
        return;
    }
    let pattern = pattern.to_ascii_lowercase();
    for opt in options::all() {
        let second_names = if opt.is_compat() { opt.aliases } else { &[] };
        for name in second_names.iter().chain([&opt.name]) {
            if glob::matches(pattern.as_bytes(), name.as_bytes()) {
                found.insert(name.to_string(), opt.show(config));
            }
        }
    }
}

fn set(context: &mut SessionContext<'_>) {
    let args = context.args.from(2);
    if !args.len().is_multiple_of(2) {
        return context.reply.error("ERR syntax error");
    }
    let words: Vec<String> = args.iter().map(text).collect();
    let changes: Vec<(&str, &str)> =
        words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    match context.server.config.set(&changes) {
        Ok(()) => context.reply.ok(),
        Err(error) => set_failed(&mut context.reply, &error),
    }
}

fn set_failed(reply: &mut Reply<'_>, error: &SetError) {
    reply.error(&match error {
        SetError::Unknown(name) => {
            format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
        }
        SetError::Rejected { option, reason } => {
            format!("ERR CONFIG SET failed (possibly related to argument '{option}') - {reason}")
        }
    });
}

fn reset_stat(context: &mut SessionContext<'_>) {
    context.server.stats.iter().for_each(|core| core.reset());
    context.reply.ok();
}

fn rewrite(context: &mut SessionContext<'_>) {
    match context.server.config.rewrite() {
        Ok(()) => context.reply.ok(),
        Err(RewriteError::NoFile) => {
            context.reply.error("ERR The server is running without a config file");
        }
        Err(RewriteError::Io(error)) => {
            log::warn!("CONFIG REWRITE failed: {error}");
            context.reply.error(&format!("ERR Rewriting config file: {error}"));
        }
    }
}

fn help(context: &mut SessionContext<'_>) {
    context.reply.array(HELP.len());
    HELP.iter().for_each(|line| context.reply.simple(line));
}
