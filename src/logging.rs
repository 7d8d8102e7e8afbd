//! Where messages go: files with rotation in `--log-dir`, or standard error.
//!
//! Messages are for starting, stopping and trouble. Nothing that happens once per command is
//! logged.

use std::error::Error;
use std::io::{self, Write};

use flexi_logger::{
    Cleanup, Criterion, DeferredNow, FileSpec, FlexiLoggerError, LogSpecification, Logger,
    LoggerHandle, Naming,
};
use log::Record;

use crate::config::Logging;

/// Keeps the log going; the last messages are written when it is dropped.
pub struct Handle {
    _logger: LoggerHandle,
}

/// Starts the log of the process. The error says which directory cannot be written, and why.
pub fn start(logging: &Logging) -> Result<Handle, String> {
    let place = || format!("log-dir {}", logging.dir.display());
    if !logging.to_stderr {
        std::fs::create_dir_all(&logging.dir).map_err(|error| format!("{}: {error}", place()))?;
    }
    let logger =
        builder(logging).start().map_err(|error| format!("{}: {}", place(), cause(&error)))?;
    // CONFIG SET loglevel changes this same filter, which costs nothing where it filters.
    log::set_max_level(logging.level.filter());
    Ok(Handle { _logger: logger })
}

fn builder(logging: &Logging) -> Logger {
    let logger = Logger::with(LogSpecification::trace())
        .format(line)
        .use_utc()
        // A log that cannot be written is no reason for the server to die.
        .panic_if_error_channel_is_broken(false);
    if logging.to_stderr {
        return logger.log_to_stderr();
    }
    let file = FileSpec::default().directory(&logging.dir).basename("lavik").suffix("log");
    let old_files = Cleanup::KeepLogFiles(logging.max_files.saturating_sub(1));
    logger
        .log_to_file(file.suppress_timestamp())
        .append()
        .rotate(Criterion::Size(logging.max_size_mb << 20), ROTATED, old_files)
        .cleanup_in_background_thread(false)
}

/// `lavik.log` is the current file, `lavik_2027-01-31_23-59-59.log` one that was full then.
const ROTATED: Naming =
    Naming::TimestampsCustomFormat { current_infix: Some(""), format: "%Y-%m-%d_%H-%M-%S" };

/// Time (UTC), level, thread, message.
fn line(out: &mut dyn Write, now: &mut DeferredNow, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("-");
    let time = now.format("%Y-%m-%dT%H:%M:%S%.6fZ");
    write!(out, "{time} {:5} {name:8} {}", record.level(), record.args())
}

/// The innermost error, which is the one that the system gave.
fn cause(error: &FlexiLoggerError) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use log::{Level, Record};

    use super::{builder, start};
    use crate::config::Logging;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lavik-log-{name}-{}", std::process::id()))
    }

    #[test]
    fn files_rotate_and_old_ones_go() {
        let dir = scratch("rotate");
        let logging =
            Logging { dir: dir.clone(), max_size_mb: 1, max_files: 2, ..Logging::default() };
        let (log, handle) = builder(&logging).build().expect("the directory can be written");
        let text = "x".repeat(1000);
        for _ in 0..3500 {
            log.log(&Record::builder().level(Level::Warn).args(format_args!("{text}")).build());
        }
        handle.flush();
        let mut names: Vec<String> = fs::read_dir(&dir)
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.contains(&"lavik.log".to_string()), "{names:?}");
        for name in &names {
            assert!(fs::metadata(dir.join(name)).expect("stat").len() <= (1 << 20) + 2000);
        }
        let file = fs::read_to_string(dir.join("lavik.log")).expect("read");
        let words: Vec<&str> = file.lines().next().expect("a line").split_whitespace().collect();
        assert_eq!(words[0].len(), "2027-01-31T23:59:59.123456Z".len());
        assert_eq!(words[1], "WARN");
        assert_eq!(words[3..], [text]);
        fs::remove_dir_all(&dir).expect("remove");
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let path = scratch("file");
        fs::write(&path, "").expect("write");
        let logging = Logging { dir: path.clone(), ..Logging::default() };
        let error = start(&logging).err().expect("a file is in the way");
        assert_eq!(error, format!("log-dir {}: File exists (os error 17)", path.display()));
        let below = Logging { dir: path.join("logs"), ..Logging::default() };
        let error = start(&below).err().expect("a file is in the way");
        assert_eq!(
            error,
            format!("log-dir {}/logs: Not a directory (os error 20)", path.display())
        );
        fs::remove_file(&path).expect("remove");
    }
}
