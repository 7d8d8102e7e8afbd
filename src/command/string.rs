//! The string family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
