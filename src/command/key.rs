//! The key family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
