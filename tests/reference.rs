//! docs/COMMANDS.md, written from the table, so that it says what the server does.
//!
//! The test compares the file with the table.
//! `LAVIK_WRITE_DOCS=1 cargo test --test reference` writes it anew.

use lavik::command::category::{deprecation, flag_names};
use lavik::command::profile::{Profile, find, subcommands};
use lavik::command::{Keys, table};

const HEAD: &str = "\
# Commands

Written by `LAVIK_WRITE_DOCS=1 cargo test --test reference` from the table in `src/command`; a test
compares. The semantics are those of Redis 7.2, error texts included, except for what the notes
say. Arity counts the command's name; a negative number is a minimum. Keys are the positions of
the first and the last key (negative: from the end) and the step between keys.

";

/// Where we differ from Redis 7.2, or are our own.
const NOTES: &[(&str, &str)] = &[
    ("command", "Documentation has no `arguments`; DOCS and INFO have no modules to show."),
    ("command|docs", "Without `arguments` and `history`."),
    ("command|getkeysandflags", "SET and BITFIELD show the flags of their widest use."),
    ("hmset", "Deprecated there, and served for good here."),
    (
        "hrandfield",
        "A negative count whose reply would exceed 512 MiB is refused instead of being streamed.",
    ),
    (
        "hscan",
        "Takes NOVALUES (Redis 7.4). Hashes of at most 512 fields and 64 KiB come at once. Of \
         larger ones a call returns COUNT fields or 1/256 of all, whichever is more. Cursors \
         have at most 49 bits and stay good across restarts.",
    ),
    (
        "hset",
        "A hash is at most 512 MiB with its lengths: `hash exceeds maximum allowed size \
         (proto-max-bulk-len)`.",
    ),
    ("lavik.hreplace", "Our own: sets the fields only if the hash exists; null if it does not."),
];

/// The whole file.
fn reference() -> String {
    let mut rows: Vec<Profile> = table::all().map(Profile::of).collect();
    rows.sort_unstable_by_key(|row| (row.group, row.name));
    let mut text = String::from(HEAD);
    for group in rows.chunk_by(|a, b| a.group == b.group) {
        text.push_str(&format!("## {}\n\n", group[0].group));
        text.push_str("| command | since | arity | keys | flags | what it does | notes |\n");
        text.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
        for row in group {
            text.push_str(&line(row));
            subcommands(row.name).for_each(|row| text.push_str(&line(row)));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn line(row: &Profile) -> String {
    let name = row.name.to_ascii_uppercase().replace('|', " ");
    let (since, arity, summary) = (row.since, row.arity, row.summary);
    let flags: Vec<&str> = flag_names(row.flags).collect();
    let (keys, flags, notes) = (keys(row.keys), flags.join(" "), notes(row));
    format!("| {name} | {since} | {arity} | {keys} | {flags} | {summary} | {notes} |\n")
}

fn keys(keys: Keys) -> String {
    match keys {
        Keys::None => String::new(),
        Keys::Range { first, last, step } => format!("{first} {last} {step}"),
    }
}

fn notes(row: &Profile) -> String {
    if let Some((_, note)) = NOTES.iter().find(|(name, _)| *name == row.name) {
        return note.to_string();
    }
    deprecation(row).map_or(String::new(), |by| format!("Replaced by {}.", by.replaced_by))
}

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/COMMANDS.md");

#[test]
fn the_file_agrees_with_the_table() {
    let expected = reference();
    if std::env::var_os("LAVIK_WRITE_DOCS").is_some() {
        std::fs::write(PATH, &expected).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(found == expected, "{PATH} is stale. It should be:\n{expected}");
}

#[test]
fn notes_are_about_commands_that_exist() {
    for (name, _) in NOTES {
        assert!(find(name.as_bytes()).is_some(), "{name}");
    }
}
