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

/// Columns of a line.
const WIDTH: usize = 100;

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

/// Name on the left, text on the right in lines of at most [`WIDTH`].
fn columns(name: &str, text: &str) -> String {
    let mut out = name.to_string();
    let mut at = name.len();
    if at >= TEXT_COLUMN {
        at = WIDTH;
    }
    for word in text.split(' ') {
        if at + 1 + word.len() > WIDTH {
            out.push('\n');
            at = 0;
        }
        let gap = if at < TEXT_COLUMN { TEXT_COLUMN - at } else { 1 };
        out.extend(std::iter::repeat_n(' ', gap));
        out.push_str(word);
        at += gap + word.len();
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, columns, text};
    use crate::config::options;

    #[test]
    fn long_names_and_long_texts_take_more_lines() {
        assert_eq!(columns("  -h", "show"), format!("  -h{:34}show\n", ""));
        let name = "x".repeat(40);
        assert_eq!(columns(&name, "a b"), format!("{name}\n{:38}a b\n", ""));
        let words = ["word"; 20].join(" ");
        let wrapped = columns("  -h", &words);
        assert_eq!(wrapped.lines().count(), 2);
        assert_eq!(wrapped.split_whitespace().count(), 21);
    }

    #[test]
    fn every_option_is_in_its_group_within_the_width() {
        let text = text();
        for opt in options::all().filter(|opt| !opt.is_compat()) {
            let flag = if opt.is_switch() { "--[no-]" } else { "--" };
            let start = format!("{flag}{}", opt.name);
            assert!(text.split_whitespace().any(|word| word == start), "{start}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(text.contains("  -p, --port N                        TCP port; 0 = off [6379]\n"));
    }
}
