//! `--help` and `--version`.

use super::options::{Change, Group, Opt};
use super::{REVISION, VERSION, table};

const GROUPS: [Group; 10] = [
    Group::Network,
    Group::Storage,
    Group::Durability,
    Group::Cores,
    Group::Memory,
    Group::Maintenance,
    Group::Logging,
    Group::Monitoring,
    Group::Access,
    Group::Bypass,
];

/// Column at which explanations start.
const TEXT_COLUMN: usize = 38;

pub fn version() -> String {
    format!("lavik {VERSION} ({REVISION})\n")
}

pub fn text() -> String {
    let mut out = String::from(
        "Redis-compatible server for data larger than memory.\n\n\
         Usage: lavik [CONFIG-FILE] [OPTION...]\n\n\
         Every option is also a directive of the config file (redis.conf syntax) and a parameter\n\
         of CONFIG GET; CONFIG SET changes those marked *. Flags win over the file.\n\
         Sizes take units: 512mb, 1gb, 1GiB.\n",
    );
    for group in GROUPS {
        out.push_str(&format!("\n{}:\n", group.title()));
        for opt in table::OPTIONS.iter().filter(|opt| opt.group == group) {
            out.push_str(&entry(opt));
        }
    }
    out.push_str("\nOther:\n");
    out.push_str(&columns("  -h, --help", "show this text"));
    out.push_str(&columns("  -v, --version", "show the version"));
    out
}

fn entry(opt: &Opt) -> String {
    let short = opt.short.map_or("    ".into(), |short| format!("-{short}, "));
    let name = match opt.is_switch() {
        true => format!("  {short}--[no-]{}", opt.name),
        false => format!("  {short}--{} {}", opt.name, opt.takes),
    };
    let star = if opt.change == Change::Live { "* " } else { "" };
    let aliases: String = opt.aliases.iter().map(|alias| format!("; also --{alias}")).collect();
    let env: String = opt.env.iter().map(|name| format!("; also ${name}")).collect();
    let default = match opt.default_text().as_str() {
        "" => String::new(),
        text => format!(" [{text}]"),
    };
    columns(&name, &format!("{star}{}{aliases}{env}{default}", opt.help))
}

fn columns(name: &str, text: &str) -> String {
    match name.len() < TEXT_COLUMN {
        true => format!("{name:TEXT_COLUMN$}{text}\n"),
        false => format!("{name}\n{:TEXT_COLUMN$}{text}\n", ""),
    }
}
