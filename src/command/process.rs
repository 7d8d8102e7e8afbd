//! What the operating system says of this process. For INFO.

use std::fs;

/// Facts that are read anew for each INFO. What cannot be read is zero or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub id: u32,
    /// Kernel, its release and the machine, as `uname -srm` shows them.
    pub os: String,
    pub executable: String,
    pub rss_bytes: u64,
    pub rss_peak_bytes: u64,
    /// Memory of the host.
    pub system_bytes: u64,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
}

/// Clock ticks of /proc per second: `USER_HZ`, 100 on every architecture that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    pub fn read() -> Process {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let (user, system) = cpu_ticks(&read("/proc/self/stat"));
        let (kernel, release) =
            (read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease"));
        let executable = std::env::current_exe().unwrap_or_default();
        Process {
            id: std::process::id(),
            os: format!("{} {} {}", kernel.trim(), release.trim(), std::env::consts::ARCH),
            executable: executable.display().to_string(),
            rss_bytes: kib_field(&status, "VmRSS:"),
            rss_peak_bytes: kib_field(&status, "VmHWM:"),
            system_bytes: kib_field(&read("/proc/meminfo"), "MemTotal:"),
            cpu_user_s: user / TICKS_PER_SECOND,
            cpu_system_s: system / TICKS_PER_SECOND,
        }
    }
}

/// The value in bytes of a line like `VmRSS:    1234 kB`.
fn kib_field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let digits = line.trim().trim_end_matches("kB").trim_end();
    digits.parse::<u64>().unwrap_or(0) << 10
}

/// Ticks in user and in system mode of all threads: fields 14 and 15 of /proc/self/stat. The
/// second field, the name in parentheses, may hold blanks.
fn cpu_ticks(stat: &str) -> (f64, f64) {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0.0));
    (fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::{Process, cpu_ticks, kib_field};

    #[test]
    fn fields_of_proc() {
        let status = "Name:\tlavik\nVmHWM:\t    2048 kB\nVmRSS:\t    1000 kB\n";
        assert_eq!(kib_field(status, "VmRSS:"), 1_024_000);
        assert_eq!(kib_field(status, "VmHWM:"), 2 << 20);
        assert_eq!(kib_field(status, "MemTotal:"), 0);
        let stat = "77 (a ) b) S 1 77 77 0 -1 4194304 121 0 3 0 41 12 0 0 20 0";
        assert_eq!(cpu_ticks(stat), (41.0, 12.0));
        assert_eq!(cpu_ticks(""), (0.0, 0.0));
    }

    #[test]
    fn this_process_is_there() {
        let process = Process::read();
        assert_eq!(process.id, std::process::id());
        assert!(process.os.starts_with("Linux "), "{}", process.os);
        assert!(process.rss_bytes > 0 && process.rss_bytes <= process.rss_peak_bytes);
        assert!(process.system_bytes > process.rss_bytes);
    }
}
