//! docs/OPERATIONS.md says what the table says.

use super::options::{self, Change, Opt};

const OPERATIONS: &str = include_str!("../../docs/OPERATIONS.md");

/// The default, or a word for an empty one.
fn default_or(opt: &Opt, empty: &str) -> String {
    let default = opt.default_text();
    if default.is_empty() { empty.into() } else { default }
}

/// The line of an option in the document's tables.
fn row(opt: &Opt) -> String {
    let short = opt.short.map(|short| format!("`-{short}` ")).unwrap_or_default();
    let name = match opt.is_switch() {
        true => format!("--[no-]{}", opt.name),
        false => format!("--{} {}", opt.name, opt.takes),
    };
    let star = if opt.change == Change::Live { " *" } else { "" };
    let later = if opt.later { " (later)" } else { "" };
    let aliases: String = opt.aliases.iter().map(|alias| format!("; also `--{alias}`")).collect();
    let env: String = opt.env.iter().map(|name| format!("; also `{name}`")).collect();
    let (default, help) = (default_or(opt, "-"), opt.help);
    let name = name.replace('|', "\\|");
    format!("| {short}`{name}`{star}{later} | {default} | {help}{aliases}{env} |")
}

#[test]
fn every_option_is_documented_and_nothing_else() {
    let own = options::all().filter(|opt| !opt.is_compat());
    let wanted: Vec<String> = own.map(row).collect();
    let found: Vec<&str> = OPERATIONS.lines().filter(|line| line.starts_with("| `-")).collect();
    let missing: Vec<_> = wanted.iter().filter(|row| !found.contains(&row.as_str())).collect();
    let strange: Vec<_> = found.iter().filter(|row| !wanted.contains(&row.to_string())).collect();
    assert!(missing.is_empty() && strange.is_empty(), "missing {missing:#?}\nstrange {strange:#?}");
    assert_eq!(found.len(), wanted.len(), "a row is there twice");
}

#[test]
fn every_compatibility_parameter_is_documented() {
    let text = OPERATIONS.split_whitespace().collect::<Vec<_>>().join(" ");
    for opt in options::all().filter(|opt| opt.is_compat()) {
        let entry = format!("`{}` ({})", opt.name, default_or(opt, "empty"));
        assert!(text.contains(&entry), "{entry} is missing");
    }
}
