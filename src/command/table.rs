//! The table of all commands and how a name finds its row.

use super::{
    Command, connection, counter, expire, global, hash, introspect, key, server, string, substring,
};

/// Every command, grouped by family.
pub static FAMILIES: &[&[Command]] = &[
    string::COMMANDS,
    substring::COMMANDS,
    counter::COMMANDS,
    key::COMMANDS,
    expire::COMMANDS,
    global::COMMANDS,
    hash::COMMANDS,
    connection::COMMANDS,
    server::COMMANDS,
    introspect::COMMANDS,
];

/// The command of this name in any letter case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let rows = FAMILIES.iter().flat_map(|family| family.iter());
    rows.into_iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Keys, flag};
    use super::{FAMILIES, find};

    const FLAGS: [(u32, &str); 4] = [
        (flag::WRITE, "write"),
        (flag::READONLY, "readonly"),
        (flag::DENYOOM, "denyoom"),
        (flag::FAST, "fast"),
    ];

    fn shown(row: &Command) -> String {
        let (first, last, step) = match row.keys {
            Keys::None => (0, 0, 0),
            Keys::Range { first, last, step } => (first, last, step),
        };
        let mut flags: Vec<&str> =
            FLAGS.iter().filter(|(bit, _)| row.is(*bit)).map(|(_, name)| *name).collect();
        flags.sort_unstable();
        let (name, arity, flags) = (row.name, row.arity, flags.join(" "));
        format!("{name}\t{arity}\t{first}\t{last}\t{step}\t{flags}")
    }

    /// Strings, keys and the keyspace have no other flags than those four.
    #[test]
    fn rows_agree_with_redis() {
        let recorded = include_str!("../../tests/transcripts/command_info.tsv");
        for line in recorded.lines().filter(|line| !line.starts_with("//")) {
            let name = line.split('\t').next().expect("a name");
            let row = find(name.as_bytes()).unwrap_or_else(|| panic!("no command {name}"));
            assert_eq!(shown(row), line);
        }
    }

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut names: Vec<&str> =
            FAMILIES.iter().flat_map(|family| family.iter()).map(|row| row.name).collect();
        assert!(names.iter().all(|name| !name.is_empty() && *name == name.to_ascii_lowercase()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
