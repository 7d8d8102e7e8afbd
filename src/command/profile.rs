//! A command or a subcommand as COMMAND shows it, and the table of subcommands.
//!
//! Commands with subcommands have one row in the [`table`](super::table) and one function; the
//! rows here say what each subcommand takes. [`subcommand`] checks arguments against them.

use super::{Command, Keys, errors, flag, table};
use crate::resp::Args;
use crate::shard::view::Stop;

/// What there is to know about a command without running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Lower case; `parent|name` for a subcommand.
    pub name: &'static str,
    /// As [`Command::arity`]; the name and the subcommand's name count as one argument each.
    pub arity: i16,
    pub flags: u32,
    pub keys: Keys,
    pub summary: &'static str,
    pub group: &'static str,
    pub since: &'static str,
    pub complexity: &'static str,
}

impl Profile {
    pub fn of(row: &Command) -> Profile {
        Profile {
            name: row.name,
            arity: row.arity,
            flags: row.flags,
            keys: row.keys,
            summary: row.summary,
            group: row.group,
            since: row.since,
            complexity: row.complexity,
        }
    }

    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The subcommand's name alone; the name itself for a command.
    pub fn last_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }
}

/// The subcommands of a command, sorted by name.
pub fn subcommands(parent: &str) -> impl Iterator<Item = &'static Profile> + Clone + use<'_> {
    SUBCOMMANDS.iter().filter(move |row| row.name.split('|').next() == Some(parent))
}

/// The command or subcommand (`parent|name`) of this name in any letter case.
pub fn find(name: &[u8]) -> Option<Profile> {
    match name.iter().position(|&byte| byte == b'|') {
        None => table::find(name).map(Profile::of),
        Some(at) => {
            let parent = table::find(&name[..at])?;
            find_subcommand(parent.name, &name[at + 1..]).copied()
        }
    }
}

fn find_subcommand(parent: &str, name: &[u8]) -> Option<&'static Profile> {
    subcommands(parent).find(|row| row.last_name().as_bytes().eq_ignore_ascii_case(name))
}

/// What a whole command line calls: the subcommand when the command has any and one is named.
pub fn called(args: Args<'_>) -> Option<Profile> {
    let row = table::find(args.get(0)?)?;
    match args.get(1) {
        Some(name) if subcommands(row.name).next().is_some() => {
            find_subcommand(row.name, name).copied()
        }
        _ => Some(Profile::of(row)),
    }
}

/// The subcommand that `args` call, with its arity checked.
pub fn subcommand(parent: &str, args: Args<'_>) -> Result<&'static Profile, Stop> {
    let Some(row) = find_subcommand(parent, args.get(1).unwrap_or_default()) else {
        let text = errors::unknown_subcommand(&parent.to_ascii_uppercase(), args);
        return Err(Stop::from(String::from_utf8_lossy(&text).into_owned()));
    };
    if !takes(row.arity, args.len()) {
        return Err(Stop::from(errors::wrong_arity(row.name)));
    }
    Ok(row)
}

/// Whether `count` arguments satisfy an arity.
pub fn takes(arity: i16, count: usize) -> bool {
    let least = usize::from(arity.unsigned_abs());
    if arity >= 0 { count == least } else { count >= least }
}

const SERVER_FLAGS: u32 = flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE;
const CLIENT_FLAGS: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;
const PLAIN_FLAGS: u32 = flag::LOADING | flag::STALE;

const fn row(
    name: &'static str,
    arity: i16,
    flags: u32,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
) -> Profile {
    Profile { name, arity, flags, keys: Keys::None, summary, group, since, complexity: "O(1)" }
}

const fn cost(complexity: &'static str, row: Profile) -> Profile {
    Profile { complexity, ..row }
}

const BY_CONNECTIONS: &str = "O(N) where N is the number of connections.";
const BY_OPTIONS: &str = "O(N) where N is the number of options.";
const BY_COMMANDS: &str = "O(N) where N is the number of commands shown.";
const BY_ARGUMENTS: &str = "O(N) where N is the number of arguments.";

/// All subcommands, sorted by name.
pub static SUBCOMMANDS: &[Profile] = &[
    row(
        "client|caching",
        3,
        CLIENT_FLAGS,
        "connection",
        "6.0.0",
        "Chooses whether the next command's keys are tracked.",
    ),
    row("client|getname", 2, CLIENT_FLAGS, "connection", "2.6.9", "Returns the connection's name."),
    row(
        "client|getredir",
        2,
        CLIENT_FLAGS,
        "connection",
        "6.0.0",
        "Returns which connection gets the invalidations of this one.",
    ),
    row("client|help", 2, PLAIN_FLAGS, "connection", "5.0.0", "Lists the subcommands."),
    row("client|id", 2, CLIENT_FLAGS, "connection", "5.0.0", "Returns the connection's number."),
    row("client|info", 2, CLIENT_FLAGS, "connection", "6.2.0", "Describes the connection."),
    cost(
        BY_CONNECTIONS,
        row("client|kill", -3, SERVER_FLAGS, "connection", "2.4.0", "Closes connections."),
    ),
    cost(
        BY_CONNECTIONS,
        row("client|list", -2, SERVER_FLAGS, "connection", "2.4.0", "Describes all connections."),
    ),
    row(
        "client|no-evict",
        3,
        SERVER_FLAGS,
        "connection",
        "7.0.0",
        "Exempts the connection from being closed when clients take too much memory.",
    ),
    row(
        "client|no-touch",
        3,
        CLIENT_FLAGS,
        "connection",
        "7.2.0",
        "Keeps the connection's commands from counting as use of their keys.",
    ),
    row("client|reply", 3, CLIENT_FLAGS, "connection", "3.2.0", "Turns replies off and on."),
    row(
        "client|setinfo",
        4,
        CLIENT_FLAGS,
        "connection",
        "7.2.0",
        "Records name or version of the client library.",
    ),
    row("client|setname", 3, CLIENT_FLAGS, "connection", "2.6.9", "Names the connection."),
    row(
        "command|count",
        2,
        PLAIN_FLAGS,
        "server",
        "2.8.13",
        "Returns how many commands there are.",
    ),
    cost(
        BY_COMMANDS,
        row("command|docs", -2, PLAIN_FLAGS, "server", "7.0.0", "Documents commands."),
    ),
    cost(
        BY_ARGUMENTS,
        row(
            "command|getkeys",
            -3,
            PLAIN_FLAGS,
            "server",
            "2.8.13",
            "Finds the keys in a whole command.",
        ),
    ),
    cost(
        BY_ARGUMENTS,
        row(
            "command|getkeysandflags",
            -3,
            PLAIN_FLAGS,
            "server",
            "7.0.0",
            "Finds the keys in a whole command, and what it does with each.",
        ),
    ),
    row("command|help", 2, PLAIN_FLAGS, "server", "5.0.0", "Lists the subcommands."),
    cost(
        BY_COMMANDS,
        row("command|info", -2, PLAIN_FLAGS, "server", "2.8.13", "Describes commands."),
    ),
    cost(
        "O(N) where N is the number of all commands.",
        row("command|list", -2, PLAIN_FLAGS, "server", "7.0.0", "Returns the names of commands."),
    ),
    cost(
        BY_OPTIONS,
        row("config|get", -3, SERVER_FLAGS, "server", "2.0.0", "Returns the values of options."),
    ),
    row("config|help", 2, PLAIN_FLAGS, "server", "5.0.0", "Lists the subcommands."),
    row("config|resetstat", 2, SERVER_FLAGS, "server", "2.0.0", "Sets counters back to zero."),
    row("config|rewrite", 2, SERVER_FLAGS, "server", "2.8.0", "Writes the configuration file."),
    cost(
        BY_OPTIONS,
        row("config|set", -4, SERVER_FLAGS, "server", "2.0.0", "Changes options while running."),
    ),
];

#[cfg(test)]
mod tests {
    use super::{SUBCOMMANDS, find, subcommand, subcommands};
    use crate::resp::Args;
    use crate::shard::view::Stop;

    #[test]
    fn names_are_sorted_and_lower_case() {
        assert!(SUBCOMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for row in SUBCOMMANDS {
            assert_eq!(row.name, row.name.to_ascii_lowercase());
            assert_eq!(row.name.split('|').count(), 2, "{}", row.name);
        }
    }

    #[test]
    fn subcommands_are_found_by_their_full_name() {
        assert_eq!(find(b"COMMAND|Count").unwrap().name, "command|count");
        assert_eq!(find(b"hget").unwrap().arity, 3);
        for name in [&b"command|"[..], b"|count", b"command|nope", b"hget|x", b"nope"] {
            assert_eq!(find(name), None, "{name:?}");
        }
        assert_eq!(subcommands("command").count(), 7);
        assert_eq!(subcommands("comman").count(), 0);
    }

    fn check(words: &[&str]) -> Result<&'static str, String> {
        let buf = words.concat();
        let mut at = 0;
        let spans: Vec<(u32, u32)> = words
            .iter()
            .map(|word| {
                at += word.len() as u32;
                (at - word.len() as u32, at)
            })
            .collect();
        match subcommand("command", Args::new(buf.as_bytes(), &spans)) {
            Ok(row) => Ok(row.name),
            Err(Stop::Error(text)) => Err(text.into_owned()),
            Err(Stop::Fault(fault)) => panic!("{fault:?}"),
        }
    }

    #[test]
    fn unknown_names_and_wrong_arities_are_refused() {
        assert_eq!(check(&["COMMAND", "INFO"]), Ok("command|info"));
        assert_eq!(
            check(&["COMMAND", "foo"]).unwrap_err(),
            "ERR unknown subcommand 'foo'. Try COMMAND HELP."
        );
        assert_eq!(
            check(&["COMMAND", "count", "x"]).unwrap_err(),
            "ERR wrong number of arguments for 'command|count' command"
        );
        let long = "a".repeat(200);
        let shown = "a".repeat(128);
        assert_eq!(
            check(&["COMMAND", &long]).unwrap_err(),
            format!("ERR unknown subcommand '{shown}'. Try COMMAND HELP.")
        );
    }
}
