//! The introspect family.

use super::Command;

pub const COMMANDS: &[Command] = &[];
