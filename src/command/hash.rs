//! The hash family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
