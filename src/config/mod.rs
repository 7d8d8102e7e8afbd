//! Settings: one table of options feeds flags, config file, CONFIG GET/SET and `--help`.

/// The settings in force. Those that CONFIG SET may change are read through it at run time.
#[derive(Debug, Default)]
pub struct Live {}
