//! The key family.

use super::Command;
use crate::resp::Args;

pub const COMMANDS: &[Command] = &[];

/// The keys of a command with [`OTHER_DB`](super::flag::OTHER_DB): argument and database of
/// each. `db` is the session's. Arguments that are wrong mean the session's database: the
/// command itself reports them.
pub fn keys_across(args: Args<'_>, db: u8) -> [(usize, u8); 2] {
    let _ = args;
    [(1, db), (2, db)]
}
