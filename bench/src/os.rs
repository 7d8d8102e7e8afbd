//! The few facts and switches of Linux that std does not wrap.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Nanoseconds on a monotonic clock from the first call on.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Whether ctrl-C or SIGTERM came: runs end, servers are stopped, files are removed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Turns the first SIGINT or SIGTERM into a flag; the second one ends the process at once.
pub fn catch_interrupts() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a zeroed sigaction is valid, and the handler only stores to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESETHAND;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

/// Binds the calling thread to `cpus`; an empty list leaves it alone.
pub fn pin_thread(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    // SAFETY: a zeroed cpu_set_t is the empty set, and `CPU_SET` checks its index.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the kernel fills the set, which is as large as we say.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Binds the child to `cpus`, keeps the terminal's ctrl-C from it, and has the kernel kill it
/// when our thread that started it ends in whatever way.
pub fn bind_child(command: &mut Command, cpus: &[usize]) {
    let cpus = cpus.to_vec();
    command.process_group(0);
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            pin_thread(&cpus)
        });
    }
}

/// Sends a signal to a child that has not been waited for.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved. The pid is an unreaped child's, so it is not reused.
    unsafe {
        libc::kill(pid as libc::pid_t, signal);
    }
}

/// CPU time in nanoseconds, user and system, of all threads that live now.
pub fn cpu_ns(pid: u32) -> io::Result<u64> {
    let mut total = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

/// A field of `/proc/PID/status` that is given in kB, in bytes.
pub fn status_bytes(pid: u32, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    field_kb(&text, field)
        .map(|kb| kb * 1024)
        .ok_or_else(|| io::Error::other(format!("no {field} in /proc/{pid}/status")))
}

fn field_kb(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{allowed_cpus, cpu_ns, field_kb, status_bytes};

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmRSSX:\t1 kB\nVmRSS:\t    2048 kB\nRssAnon:\t 7 kB\n";
        assert_eq!(field_kb(text, "VmRSS"), Some(2048));
        assert_eq!(field_kb(text, "RssAnon"), Some(7));
        assert_eq!(field_kb(text, "Rss"), None);
    }

    #[test]
    fn our_own_process_has_figures() {
        let pid = std::process::id();
        assert!(status_bytes(pid, "VmRSS").unwrap() > 100_000);
        assert!(cpu_ns(pid).unwrap() > 0);
        assert!(!allowed_cpus().is_empty());
    }
}
