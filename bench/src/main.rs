//! `lavik-bench`: loads RESP servers and measures them, ours against others.
//!
//! ```text
//!  verb ──▶ server (start, wait, CPU time, kill)        options, host, json
//!    │
//!    └────▶ engine: Fleet ─▶ one Worker per client core ─▶ Ring (io_uring)
//!                   Plan                 Conn ─▶ reply, dataset (check), histogram
//! ```
//! docs/BENCHMARKS.md says what each figure means.

#![deny(unsafe_code)]

mod control;
mod dataset;
mod engine;
mod histogram;
mod host;
mod json;
mod null;
mod options;
mod os;
mod prng;
mod quartiles;
mod reply;
mod server;
mod verb;

use options::{Options, Refusal, Surroundings, USAGE};
use std::path::PathBuf;
use std::process::ExitCode;

/// Where a build of ours may lie, seen from `bench/` and from the root.
const OUR_BUILDS: [&str; 2] = ["../target/release/lavik", "target/release/lavik"];

const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    os::catch_interrupts();
    let surroundings = Surroundings { cpus: os::allowed_cpus(), lavik: our_build() };
    match Options::parse(std::env::args_os().skip(1), &surroundings) {
        Ok(options) => report(verb::run(&options)),
        Err(Refusal::Help) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(Refusal::Fault(fault)) => {
            eprintln!("lavik-bench: {fault} (see --help)");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lavik-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn our_build() -> PathBuf {
    OUR_BUILDS.iter().map(PathBuf::from).find(|path| path.exists()).unwrap_or("lavik".into())
}
