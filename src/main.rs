//! Flags -> `Config` -> log -> server -> exit code.

use std::io::Write;
use std::process::ExitCode;

use lavik::config::{self, Config, Start, System};
use lavik::{logging, server};

fn main() -> ExitCode {
    let env = |name: &str| std::env::var(name).ok();
    let faults = match config::load(std::env::args_os().skip(1), &env) {
        Ok(Start::Print(text)) => return print(&text),
        Ok(Start::Run(config)) => match run(*config) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(faults) => faults,
        },
        Err(faults) => faults,
    };
    let mut stderr = std::io::stderr();
    for fault in faults {
        // Nobody is left to tell that standard error is closed.
        let _ = writeln!(stderr, "lavik: {fault}");
    }
    ExitCode::FAILURE
}

/// Runs the server until it stops. Errors: one line each.
fn run(config: Config) -> Result<(), Vec<String>> {
    let system = System::read();
    let faults = config.validate(&system);
    if !faults.is_empty() {
        return Err(faults.iter().map(ToString::to_string).collect());
    }
    let _log = logging::start(&config.logging).map_err(|error| vec![error])?;
    log::info!("lavik {} ({})", config::VERSION, config::REVISION);
    config.warnings(&system).iter().for_each(|warning| log::warn!("{warning}"));
    server::run(config, &system).map_err(|error| {
        log::error!("{error}");
        vec![error.to_string()]
    })
}

/// Shows a text on standard output, of which the reader may have seen enough.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
