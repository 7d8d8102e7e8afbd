//! CONFIG: reads and changes settings, resets counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session::{After, SessionContext};
use super::{Command, Handler, Keys, flag, glob};
use crate::config::{Config, Live, RewriteError, SetError, options};
use crate::resp::{Args, Reply};
use crate::stats::CoreStats;

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

/// What the subcommands work with: all of the server, none of the connection.
struct Request<'a, 'r> {
    args: Args<'a>,
    config: &'a Live,
    stats: &'a [Arc<CoreStats>],
    reply: &'a mut Reply<'r>,
}

type Subcommand = fn(Request<'_, '_>);

/// Name, number of arguments (negative: at least) and function of each subcommand.
const SUBCOMMANDS: &[(&str, i16, Subcommand)] = &[
    ("get", -3, get),
    ("set", -4, set),
    ("resetstat", 2, reset_stat),
    ("rewrite", 2, rewrite),
    ("help", 2, help),
];

fn config(context: &mut SessionContext<'_>) -> After {
    let (args, server) = (context.args, context.server);
    let reply = &mut context.reply;
    dispatch(Request { args, config: &server.config, stats: &server.stats, reply });
    After::Nothing
}

fn dispatch(request: Request<'_, '_>) {
    let given = request.args.at(1);
    let row = SUBCOMMANDS.iter().find(|row| row.0.as_bytes().eq_ignore_ascii_case(given));
    let Some(&(name, arity, run)) = row else {
        let name = text(given);
        return request.reply.error(&format!("ERR unknown subcommand '{name}'. Try CONFIG HELP."));
    };
    let count = request.args.len() as i64;
    let (arity, exact) = (i64::from(arity.abs()), arity > 0);
    if count < arity || (exact && count > arity) {
        let text = format!("ERR wrong number of arguments for 'config|{name}' command");
        return request.reply.error(&text);
    }
    run(request);
}

/// An argument for use in an error text or as an option's value.
fn text(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).into_owned()
}

fn get(request: Request<'_, '_>) {
    let config = request.config.config();
    let mut found = BTreeMap::new();
    for pattern in request.args.from(2).iter() {
        find_all(&text(pattern), &config, &mut found);
    }
    request.reply.map(found.len());
    for (name, value) in found {
        request.reply.bulk(name.as_bytes());
        request.reply.bulk(value.as_bytes());
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

fn set(request: Request<'_, '_>) {
    let args = request.args.from(2);
    if !args.len().is_multiple_of(2) {
        return request.reply.error("ERR syntax error");
    }
    let words: Vec<String> = args.iter().map(text).collect();
    let changes: Vec<(&str, &str)> =
        words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    match request.config.set(&changes) {
        Ok(()) => request.reply.ok(),
        Err(error) => set_failed(request.reply, &error),
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

fn reset_stat(request: Request<'_, '_>) {
    request.stats.iter().for_each(|core| core.reset());
    request.reply.ok();
}

fn rewrite(request: Request<'_, '_>) {
    match request.config.rewrite() {
        Ok(()) => request.reply.ok(),
        Err(RewriteError::NoFile) => {
            request.reply.error("ERR The server is running without a config file");
        }
        Err(RewriteError::Io(error)) => {
            log::warn!("CONFIG REWRITE failed: {error}");
            request.reply.error(&format!("ERR Rewriting config file: {error}"));
        }
    }
}

fn help(request: Request<'_, '_>) {
    request.reply.array(HELP.len());
    HELP.iter().for_each(|line| request.reply.simple(line));
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::{Request, dispatch};
    use crate::config::{Config, Live, System, options};
    use crate::resp::{Args, Proto, Reply};
    use crate::stats::CoreStats;

    /// The reply to a command of words that spaces separate; `''` is an empty word.
    fn run(live: &Live, proto: Proto, line: &str) -> String {
        run_with(live, &[], proto, line)
    }

    fn run_with(live: &Live, stats: &[Arc<CoreStats>], proto: Proto, line: &str) -> String {
        let (mut buf, mut spans, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for word in line.split(' ').map(|word| if word == "''" { "" } else { word }) {
            let start = buf.len() as u32;
            buf.extend_from_slice(word.as_bytes());
            spans.push((start, buf.len() as u32));
        }
        let mut reply = Reply::new(&mut out, proto);
        let args = Args::new(&buf, &spans);
        dispatch(Request { args, config: live, stats, reply: &mut reply });
        String::from_utf8(out).expect("text").replace("\r\n", " ").trim_end().to_string()
    }

    /// Each command and its reply, in turn, on one server.
    fn transcript(lines: &[(&str, &str)]) {
        let live = Live::default();
        for (command, reply) in lines {
            assert_eq!(&run(&live, Proto::Resp2, command), reply, "{command}");
        }
    }

    #[test]
    fn get() {
        transcript(&[
            ("config get maxclients", "*2 $10 maxclients $5 10000"),
            ("CONFIG GET MaxClients", "*2 $10 MaxClients $5 10000"),
            ("config get nosuch", "*0"),
            ("config get nosuch*", "*0"),
            ("config get save", "*2 $4 save $0"),
            ("config get databases", "*2 $9 databases $2 16"),
            ("config get defrag-paused", "*2 $13 defrag-paused $2 no"),
            (
                "config get MAXMEMORY-[cp]* port",
                "*6 $17 maxmemory-clients $2 5% $16 maxmemory-policy $10 noeviction \
                 $4 port $4 6379",
            ),
            (
                "config get hash-max-*-entries hash-max-ziplist-entries",
                "*4 $25 hash-max-listpack-entries $3 512 $24 hash-max-ziplist-entries $3 512",
            ),
            ("config get", "-ERR wrong number of arguments for 'config|get' command"),
        ]);
        let live = Live::default();
        assert_eq!(run(&live, Proto::Resp3, "config get port"), "%1 $4 port $4 6379");
        let all = run(&live, Proto::Resp3, "config get *");
        let aliases: usize =
            options::all().filter(|o| o.is_compat()).map(|o| o.aliases.len()).sum();
        assert!(all.starts_with(&format!("%{} ", options::all().count() + aliases)));
    }

    #[test]
    fn set() {
        transcript(&[
            ("config set maxclients 50 Durability WRITTEN", "+OK"),
            (
                "config get maxclients durability",
                "*4 $10 durability $7 written $10 maxclients $2 50",
            ),
            ("config set maxmemory 1gb", "+OK"),
            ("config get maxmemory", "*2 $9 maxmemory $10 1073741824"),
            ("config set hash-max-ziplist-entries 10", "+OK"),
            ("config get hash-max-listpack-entries", "*2 $25 hash-max-listpack-entries $2 10"),
            ("config set timeout 3", "+OK"),
            ("config get idle-timeout", "*2 $12 idle-timeout $4 3000"),
            ("config set save ''", "+OK"),
            ("config set appendonly yes", "+OK"),
            ("config get appendonly", "*2 $10 appendonly $3 yes"),
        ]);
    }

    #[test]
    fn set_refused() {
        let failed = |option: &str, reason: &str| {
            format!("-ERR CONFIG SET failed (possibly related to argument '{option}') - {reason}")
        };
        let unknown = "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'";
        let range = "argument must be between 1 and 4294967295 inclusive";
        let levels = "argument(s) must be one of the following: debug, verbose, notice, warning";
        transcript(&[
            ("config set nosuch 1", unknown),
            ("config set maxmemory 1gb nosuch 2gb", unknown),
            ("config set maxclients 0", &failed("maxclients", range)),
            (
                "config set MAXCLIENTS x",
                &failed("MAXCLIENTS", "argument couldn't be parsed into an integer"),
            ),
            ("config set port 1", &failed("port", "can't set immutable config")),
            ("config set dir /", &failed("dir", "can't set protected config")),
            ("config set maxmemory 1 maxmemory 2", &failed("maxmemory", "duplicate parameter")),
            ("config set maxmemory 1gx", &failed("maxmemory", "argument must be a memory value")),
            (
                "config set defrag-paused 1",
                &failed("defrag-paused", "argument must be 'yes' or 'no'"),
            ),
            ("config set loglevel x", &failed("loglevel", levels)),
            ("config set maxmemory 1gb maxclients 0", &failed("maxclients", range)),
            ("config get maxmemory", "*2 $9 maxmemory $1 0"),
            ("config set a b c", "-ERR syntax error"),
            ("config set a", "-ERR wrong number of arguments for 'config|set' command"),
        ]);
    }

    #[test]
    fn other_subcommands() {
        transcript(&[
            ("config foo", "-ERR unknown subcommand 'foo'. Try CONFIG HELP."),
            ("config rewrite", "-ERR The server is running without a config file"),
            ("config rewrite x", "-ERR wrong number of arguments for 'config|rewrite' command"),
            ("config resetstat x", "-ERR wrong number of arguments for 'config|resetstat' command"),
        ]);
        let help = run(&Live::default(), Proto::Resp2, "config help");
        assert!(help.starts_with("*11 +CONFIG <subcommand> [<arg> [value] [opt] ...]."), "{help}");
        assert!(help.ends_with("+HELP +    Prints this help."), "{help}");
    }

    #[test]
    fn resetstat() {
        let stats = [Arc::new(CoreStats::default()), Arc::new(CoreStats::default())];
        stats.iter().for_each(|core| core.keyspace_hits.add(3));
        let reply = run_with(&Live::default(), &stats, Proto::Resp2, "config resetstat");
        assert_eq!(reply, "+OK");
        let hits =
            |core: &Arc<CoreStats>| (core.keyspace_hits.since_reset(), core.keyspace_hits.get());
        assert_eq!(stats.iter().map(hits).collect::<Vec<_>>(), [(0, 3), (0, 3)]);
    }

    #[test]
    fn rewrite() {
        let path: PathBuf =
            std::env::temp_dir().join(format!("lavik-config-{}.conf", std::process::id()));
        std::fs::write(&path, "# keep\nmaxclients 5\n").expect("write");
        let mut config = Config { file: Some(path.clone()), ..Config::default() };
        config.net.maxclients = 5;
        let live = Live::new(config, &System { cpus_allowed: vec![0], memory_bytes: 1 << 30 });
        assert_eq!(run(&live, Proto::Resp2, "config set maxclients 6"), "+OK");
        assert_eq!(run(&live, Proto::Resp2, "config rewrite"), "+OK");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "# keep\nmaxclients 6\n");
        std::fs::remove_file(&path).expect("remove");
        let failed = run(&live, Proto::Resp2, "config rewrite");
        assert_eq!(failed, "-ERR Rewriting config file: No such file or directory (os error 2)");
    }
}
