//! COMMAND: what the server can do, for clients and their tools.

use super::category::{categories, deprecation, flag_names, tips};
use super::key_spec::{KeySpec, access, specs};
use super::profile::{self, Profile, subcommands};
use super::session::{After, SessionContext};
use super::string::SYNTAX;
use super::{Command, Handler, Keys, flag, glob, table};
use crate::resp::{Args, Reply};
use crate::shard::view::Stop;

pub const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    flags: flag::LOADING | flag::STALE,
    keys: Keys::None,
    handler: Handler::Session(command),
    summary: "Describes all commands.",
    group: "server",
    since: "2.8.13",
    complexity: "O(N) where N is the number of all commands.",
}];

fn command(ctx: &mut SessionContext<'_>) -> After {
    if let Err(Stop::Error(text)) = dispatch(ctx.args, &mut ctx.reply) {
        ctx.reply.error(&text);
    }
    After::Nothing
}

/// Errors come before anything is written.
fn dispatch(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Stop> {
    if args.len() == 1 {
        info_all(reply);
        return Ok(());
    }
    match profile::subcommand("command", args)?.last_name() {
        "count" => reply.int(table::all().len() as i64),
        "docs" => docs(args.from(2), reply),
        "getkeys" => return get_keys(args.from(2), reply),
        "getkeysandflags" => return get_keys_and_flags(args.from(2), reply),
        "info" if args.len() == 2 => info_all(reply),
        "info" => info(args.from(2), reply),
        "list" => return list(args.from(2), reply),
        _ => help(reply),
    }
    Ok(())
}

fn help(reply: &mut Reply<'_>) {
    const LINES: &[&str] = &[
        "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "(no subcommand)",
        "    Describe all commands.",
        "COUNT",
        "    Return how many commands there are.",
        "DOCS [<command-name> ...]",
        "    Document the named commands, or all.",
        "GETKEYS <full-command>",
        "    Return the keys in a whole command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys in a whole command, and what it does with each.",
        "INFO [<command-name> ...]",
        "    Describe the named commands, or all.",
        "LIST [FILTERBY (MODULE <module-name>|ACLCAT <category>|PATTERN <pattern>)]",
        "    Return the names of all commands and subcommands, or of those that match.",
        "HELP",
        "    Print this help.",
    ];
    reply.array(LINES.len());
    LINES.iter().for_each(|line| reply.simple(line));
}

fn info_all(reply: &mut Reply<'_>) {
    reply.array(table::all().len());
    table::all().for_each(|row| describe(&Profile::of(row), reply));
}

fn info(names: Args<'_>, reply: &mut Reply<'_>) {
    reply.array(names.len());
    for name in names.iter() {
        match profile::find(name) {
            Some(profile) => describe(&profile, reply),
            None => reply.null(),
        }
    }
}

/// One element of COMMAND INFO.
fn describe(profile: &Profile, reply: &mut Reply<'_>) {
    reply.array(10);
    reply.bulk(profile.name.as_bytes());
    reply.int(i64::from(profile.arity));
    words(flag_names(profile.flags), reply);
    let (first, last, step) = match profile.keys {
        Keys::None => (0, 0, 0),
        Keys::Range { first, last, step } => (i64::from(first), i64::from(last), i64::from(step)),
    };
    [first, last, step].into_iter().for_each(|number| reply.int(number));
    words(categories(profile), reply);
    let tips = tips(profile);
    reply.set(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let specs = specs(profile);
    reply.set(specs.len());
    specs.iter().for_each(|spec| describe_keys(spec, reply));
    let subcommands = subcommands(profile.name);
    reply.set(subcommands.clone().count());
    subcommands.for_each(|row| describe(row, reply));
}

/// A set of simple strings.
fn words(words: impl Iterator<Item = &'static str> + Clone, reply: &mut Reply<'_>) {
    reply.set(words.clone().count());
    words.for_each(|word| reply.simple(word));
}

fn describe_keys(spec: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    words(spec.access.iter().copied(), reply);
    reply.bulk(b"begin_search");
    typed("index", &[("index", spec.index)], reply);
    reply.bulk(b"find_keys");
    let range = [("lastkey", spec.last), ("keystep", spec.step), ("limit", 0)];
    typed("range", &range, reply);
}

/// The map `type: kind, spec: numbers`.
fn typed(kind: &str, numbers: &[(&str, i64)], reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.int(*number);
    }
}

fn docs(names: Args<'_>, reply: &mut Reply<'_>) {
    let profiles: Vec<Profile> = if names.is_empty() {
        table::all().map(Profile::of).collect()
    } else {
        names.iter().filter_map(profile::find).collect()
    };
    reply.map(profiles.len());
    profiles.iter().for_each(|profile| document(profile, reply));
}

/// Name and documentation: a pair of a map.
fn document(profile: &Profile, reply: &mut Reply<'_>) {
    let deprecation = deprecation(profile);
    let subcommands = subcommands(profile.name);
    let subcommand_count = subcommands.clone().count();
    reply.bulk(profile.name.as_bytes());
    let optional = 3 * usize::from(deprecation.is_some()) + usize::from(subcommand_count > 0);
    reply.map(4 + optional);
    text_pair("summary", profile.summary, reply);
    text_pair("since", profile.since, reply);
    text_pair("group", profile.group, reply);
    text_pair("complexity", profile.complexity, reply);
    if let Some(deprecation) = deprecation {
        reply.bulk(b"doc_flags");
        words(["deprecated"].into_iter(), reply);
        text_pair("deprecated_since", deprecation.since, reply);
        text_pair("replaced_by", deprecation.replaced_by, reply);
    }
    if subcommand_count > 0 {
        reply.bulk(b"subcommands");
        reply.map(subcommand_count);
        subcommands.for_each(|row| document(row, reply));
    }
}

fn text_pair(name: &str, text: &str, reply: &mut Reply<'_>) {
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
}

/// The command that `args` are a whole call of, and the positions of its keys.
fn keys_of(args: Args<'_>) -> Result<(Profile, Vec<usize>), Stop> {
    let profile = profile::called(args).ok_or(Stop::error("ERR Invalid command specified"))?;
    if profile.keys == Keys::None {
        return Err(Stop::error("ERR The command has no key arguments"));
    }
    if !profile::takes(profile.arity, args.len()) {
        return Err(Stop::error("ERR Invalid number of arguments specified for command"));
    }
    let positions: Vec<usize> = profile.keys.positions(args.len()).collect();
    if positions.is_empty() {
        return Err(Stop::error("ERR Invalid arguments specified for command"));
    }
    Ok((profile, positions))
}

fn get_keys(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (_, positions) = keys_of(args)?;
    reply.array(positions.len());
    positions.iter().for_each(|&at| reply.bulk(args.at(at)));
    Ok(())
}

fn get_keys_and_flags(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Stop> {
    let (profile, positions) = keys_of(args)?;
    reply.array(positions.len());
    for (key, &at) in positions.iter().enumerate() {
        reply.array(2);
        reply.bulk(args.at(at));
        words(access(&profile, key), reply);
    }
    Ok(())
}

/// COMMAND LIST's filter.
enum Filter<'a> {
    All,
    /// There are no modules, so this matches nothing.
    Module,
    Category(&'a [u8]),
    /// In lower case.
    Pattern(Vec<u8>),
}

impl Filter<'_> {
    fn matches(&self, profile: &Profile) -> bool {
        match self {
            Filter::All => true,
            Filter::Module => false,
            Filter::Category(wanted) => {
                categories(profile).any(|name| name.as_bytes()[1..].eq_ignore_ascii_case(wanted))
            }
            Filter::Pattern(pattern) => glob::matches(pattern, profile.name.as_bytes()),
        }
    }
}

fn parse_filter(args: Args<'_>) -> Result<Filter<'_>, Stop> {
    if args.is_empty() {
        return Ok(Filter::All);
    }
    if args.len() != 3 || !args[0].eq_ignore_ascii_case(b"filterby") {
        return Err(SYNTAX);
    }
    match args[1].to_ascii_lowercase().as_slice() {
        b"module" => Ok(Filter::Module),
        b"aclcat" => Ok(Filter::Category(args.at(2))),
        b"pattern" => Ok(Filter::Pattern(args[2].to_ascii_lowercase())),
        _ => Err(SYNTAX),
    }
}

fn list(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Stop> {
    let filter = parse_filter(args)?;
    let mut names = Vec::new();
    for row in table::all() {
        let profile = Profile::of(row);
        let all = std::iter::once(profile).chain(subcommands(row.name).copied());
        names.extend(all.filter(|profile| filter.matches(profile)).map(|profile| profile.name));
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::dispatch;
    use crate::command::profile::SUBCOMMANDS;
    use crate::command::table;
    use crate::command::testing::{show_reply, split_words};
    use crate::resp::{Args, Proto, Reply};
    use crate::shard::view::Stop;

    fn run(line: &str, proto: Proto) -> String {
        let words = split_words(line);
        let mut at = 0;
        let spans: Vec<(u32, u32)> = words
            .iter()
            .map(|word| {
                at += word.len() as u32;
                (at - word.len() as u32, at)
            })
            .collect();
        let buf = words.concat();
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, proto);
        match dispatch(Args::new(&buf, &spans), &mut reply) {
            Ok(()) => {}
            Err(Stop::Error(text)) => reply.error(&text),
            Err(Stop::Fault(fault)) => panic!("{fault:?}"),
        }
        String::from_utf8(out).unwrap()
    }

    /// Replies recorded from a Redis server, but for what is said to differ.
    #[test]
    fn replies_are_those_of_redis() {
        let transcript = include_str!("../../tests/transcripts/command.txt");
        let mut proto = Proto::Resp2;
        let mut wrong = Vec::new();
        let mut lines = transcript.lines().peekable();
        while let Some(line) = lines.next() {
            match line.strip_prefix("> ") {
                Some(command) => {
                    let mut expected = Vec::new();
                    while let Some(line) = lines.next_if(|line| !line.starts_with(['>', '@', '/']))
                    {
                        expected.push(line);
                    }
                    let reply = show_reply(run(command, proto).as_bytes());
                    let expected = expected.join("\n");
                    if reply != expected.trim_end() {
                        wrong.push(format!("{command}\n{reply}\ninstead of\n{expected}"));
                    }
                }
                None if line == "@resp 3" => proto = Proto::Resp3,
                None => assert!(line.is_empty() || line.starts_with("//"), "{line}"),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Reads one reply; returns what is behind it.
    fn skip(text: &str) -> &str {
        let (line, mut rest) = text.split_once("\r\n").expect("a line end");
        let number = || line[1..].parse::<i64>().expect("a length");
        match line.as_bytes()[0] {
            b'+' | b':' | b'_' => rest,
            b'$' if number() < 0 => rest,
            b'$' => rest[number() as usize..].strip_prefix("\r\n").expect("a line end"),
            mark @ (b'*' | b'~' | b'%') => {
                for _ in 0..number() * if mark == b'%' { 2 } else { 1 } {
                    rest = skip(rest);
                }
                rest
            }
            mark => panic!("unexpected {}", char::from(mark)),
        }
    }

    #[test]
    fn every_reply_is_as_long_as_it_says() {
        for proto in [Proto::Resp2, Proto::Resp3] {
            for line in ["COMMAND", "COMMAND INFO", "COMMAND DOCS", "COMMAND LIST", "COMMAND HELP"]
            {
                assert_eq!(skip(&run(line, proto)), "", "{line}");
            }
        }
    }

    #[test]
    fn all_commands_are_described_listed_and_documented() {
        let count = table::all().len();
        assert_eq!(run("COMMAND COUNT", Proto::Resp2), format!(":{count}\r\n"));
        let all = run("COMMAND", Proto::Resp2);
        assert!(all.starts_with(&format!("*{count}\r\n")));
        assert_eq!(run("COMMAND INFO", Proto::Resp2), all);
        assert!(run("COMMAND DOCS", Proto::Resp3).starts_with(&format!("%{count}\r\n")));
        assert!(run("COMMAND DOCS", Proto::Resp2).starts_with(&format!("*{}\r\n", 2 * count)));
        let parents = |name: &str| table::find(name.as_bytes()).is_some();
        let known = SUBCOMMANDS.iter().filter(|row| parents(row.name.split('|').next().unwrap()));
        let listed = count + known.count();
        assert!(run("COMMAND LIST", Proto::Resp2).starts_with(&format!("*{listed}\r\n")));
    }

    #[test]
    fn documentation_tells_what_replaces_a_command() {
        let docs = run("COMMAND DOCS HMSET nope", Proto::Resp3);
        assert!(docs.starts_with("%1\r\n$5\r\nhmset\r\n%7\r\n$7\r\nsummary\r\n"), "{docs}");
        assert!(docs.contains("$9\r\ndoc_flags\r\n~1\r\n+deprecated\r\n"), "{docs}");
        assert_eq!(skip(&docs), "");
        let docs = run("COMMAND DOCS command", Proto::Resp2);
        assert!(docs.contains("$11\r\nsubcommands\r\n*14\r\n$13\r\ncommand|count\r\n*8\r\n"));
        assert!(run("COMMAND DOCS command|info", Proto::Resp2).starts_with("*2\r\n"));
    }
}
