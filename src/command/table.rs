//! The table of all commands and how a name finds its row.

use super::{Command, config, connection, hash, introspect, key, server, string};

/// Every command, grouped by family.
pub static FAMILIES: &[&[Command]] = &[
    string::COMMANDS,
    key::COMMANDS,
    hash::COMMANDS,
    connection::COMMANDS,
    config::COMMANDS,
    server::COMMANDS,
    introspect::COMMANDS,
];

/// The command of this name in any letter case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let rows = FAMILIES.iter().flat_map(|family| family.iter());
    rows.into_iter().find(|row| row.name.as_bytes().eq_ignore_ascii_case(name))
}
