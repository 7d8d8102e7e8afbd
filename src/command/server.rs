//! The server family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
