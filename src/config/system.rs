//! What the machine offers, as far as settings depend on it.

use std::fs;

use super::value;

/// Facts of the host and the control group, read once at start and handed down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// CPUs of the affinity mask.
    pub cpus_allowed: Vec<usize>,
    /// Memory that the process may use: the smaller of the host's and the control group's.
    pub memory_bytes: u64,
}

impl System {
    /// Asks the kernel. What cannot be read counts as one CPU, or as 1 GiB of memory.
    pub fn read() -> System {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let host = meminfo_total_bytes(&meminfo).unwrap_or(1 << 30);
        System {
            cpus_allowed: status_cpus_allowed(&status).unwrap_or_else(|| vec![0]),
            memory_bytes: cgroup_limit_bytes().map_or(host, |limit| limit.min(host)),
        }
    }
}

fn status_cpus_allowed(status: &str) -> Option<Vec<usize>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    value::cpu_list(line.trim()).ok()
}

fn meminfo_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The tightest memory limit of our control group and its parents.
fn cgroup_limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let read = |path: &str| fs::read_to_string(path).ok();
    groups.lines().filter_map(|line| cgroup_line_limit_bytes(line, &read)).min()
}

/// The limit that one line of `/proc/self/cgroup` leads to. Version 2 lines start with `0::`,
/// version 1 lines name their controllers. Inside a container the path may not exist under the
/// mount point; the mount's root is then our own group.
fn cgroup_line_limit_bytes(line: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (mount, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        list if list.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let groups =
        path.match_indices('/').map(|(at, _)| &path[..at]).chain([path.trim_end_matches('/')]);
    let limit = |group: &str| read(&format!("{mount}{group}/{file}"))?.trim().parse::<u64>().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::{cgroup_line_limit_bytes, meminfo_total_bytes, status_cpus_allowed};

    #[test]
    fn kernel_files() {
        let status = "Name:\tlavik\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,5\n";
        assert_eq!(status_cpus_allowed(status), Some(vec![0, 1, 2, 5]));
        let meminfo = "MemTotal:       16384 kB\nMemFree:  1 kB\n";
        assert_eq!(meminfo_total_bytes(meminfo), Some(16 << 20));
        assert_eq!(status_cpus_allowed("Name:\tx\n"), None);
        assert_eq!(meminfo_total_bytes("MemTotal: x kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let read = |path: &str| match path {
            "/sys/fs/cgroup/memory.max" => Some("9000\n".into()),
            "/sys/fs/cgroup/a/memory.max" => Some("4096\n".into()),
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".into()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("777\n".into()),
            _ => None,
        };
        assert_eq!(cgroup_line_limit_bytes("0::/a/b", &read), Some(4096));
        assert_eq!(cgroup_line_limit_bytes("0::/", &read), Some(9000));
        assert_eq!(cgroup_line_limit_bytes("5:cpu,memory:/x", &read), Some(777));
        assert_eq!(cgroup_line_limit_bytes("4:cpu:/x", &read), None);
        assert_eq!(cgroup_line_limit_bytes("nonsense", &read), None);
    }
}
