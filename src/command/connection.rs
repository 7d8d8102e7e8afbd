//! The connection family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
