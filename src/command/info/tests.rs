use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Args, Now, Process, Server, human, render};
use crate::config::Live;

fn server() -> Server {
    Server::new(Arc::new(Live::default()), "ab".repeat(20), 1_700_000_000_000, 2)
}

fn process() -> Process {
    Process {
        id: 42,
        os: "Linux 6.1.0 x86_64".into(),
        executable: "/usr/bin/lavik".into(),
        rss_bytes: 3 << 20,
        rss_peak_bytes: 4 << 20,
        system_bytes: 8 << 30,
        cpu_user_s: 1.5,
        cpu_system_s: 0.25,
    }
}

fn show(server: &Server, sections: &str) -> String {
    let mut spans = Vec::new();
    let mut at = 0;
    for word in sections.split_whitespace() {
        let start = at + sections[at..].find(word).expect("a word");
        at = start + word.len();
        spans.push((start as u32, at as u32));
    }
    let now = Now { mono_ns: 0, unix_ms: 1_700_000_090_500 };
    render(Args::new(sections.as_bytes(), &spans), server, &process(), now)
}

/// Names of the sections in the text.
fn sections(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("# ")).collect()
}

fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name} in {text}")).1
}

const DEFAULT: [&str; 12] = [
    "Server",
    "Clients",
    "Memory",
    "Persistence",
    "Stats",
    "Storage",
    "Replication",
    "CPU",
    "Modules",
    "Errorstats",
    "Cluster",
    "Keyspace",
];

#[test]
fn sections_in_their_order_and_once() {
    let server = server();
    let shown = |wanted: &str| sections(&show(&server, wanted)).join(" ");
    assert_eq!(shown(""), DEFAULT.join(" "));
    assert_eq!(shown("default"), DEFAULT.join(" "));
    assert_eq!(shown("keyspace SERVER server"), "Server Keyspace");
    assert_eq!(shown("commandstats foo"), "Commandstats");
    assert_eq!(shown("foo"), "");
    assert_eq!(shown("default commandstats").split(' ').count(), 13);
    assert_eq!(shown("all").split(' ').count(), 12);
    assert!(!shown("all").contains("Modules") && shown("all").contains("Commandstats"));
    assert_eq!(shown("everything").split(' ').count(), 13);
}

#[test]
fn a_blank_line_between_sections_and_none_at_the_end() {
    assert_eq!(
        show(&server(), "cluster keyspace"),
        "# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n"
    );
}

#[test]
fn every_line_is_a_title_or_a_pair() {
    for line in show(&server(), "everything").split_terminator("\r\n") {
        let pair = line.split_once(':').is_some_and(|(name, _)| !name.contains(' '));
        assert!(line.is_empty() || line.starts_with("# ") || pair, "{line:?}");
    }
}

#[test]
fn facts_of_the_server() {
    let text = show(&server(), "server");
    let expected = [
        ("redis_version", "7.2.4"),
        ("redis_mode", "standalone"),
        ("lavik_version", env!("CARGO_PKG_VERSION")),
        ("os", "Linux 6.1.0 x86_64"),
        ("arch_bits", "64"),
        ("process_id", "42"),
        ("tcp_port", "6379"),
        ("uptime_in_seconds", "90"),
        ("uptime_in_days", "0"),
        ("run_id", "abababababababababababababababababababab"),
        ("worker_threads", "2"),
    ];
    for (name, wanted) in expected {
        assert_eq!(value(&text, name), wanted, "{name}");
    }
}

#[test]
fn figures_are_sums_over_the_cores() {
    let server = server();
    for (core, amount) in server.stats.iter().zip([1, 10]) {
        core.clients.add(amount);
        core.index_bytes.add(amount << 20);
        core.client_bytes.add(amount << 10);
        core.keys[0].add(amount);
        core.keys[15].add(amount * 2);
        core.expires[15].add(amount);
        for counter in [&core.commands, &core.keyspace_hits, &core.device_reads] {
            counter.add(amount as u64);
        }
        core.device_write_bytes.add(4096 * amount as u64);
    }
    let text = show(&server, "all");
    let expected = [
        ("connected_clients", "11"),
        ("maxclients", "10000"),
        ("used_memory", "11545600"),
        ("used_memory_human", "11.01M"),
        ("used_memory_rss", "3145728"),
        ("used_memory_peak_human", "4.00M"),
        ("total_system_memory_human", "8.00G"),
        ("index_bytes", "11534336"),
        ("client_bytes", "11264"),
        ("total_commands_processed", "11"),
        ("keyspace_hits", "11"),
        ("keyspace_misses", "0"),
        ("device_reads", "11"),
        ("device_write_bytes", "45056"),
        ("used_cpu_user", "1.500000"),
        ("role", "master"),
        ("connected_slaves", "0"),
        ("db0", "keys=11,expires=0,avg_ttl=0"),
        ("db15", "keys=22,expires=11,avg_ttl=0"),
    ];
    for (name, wanted) in expected {
        assert_eq!(value(&text, name), wanted, "{name}");
    }
    assert!(!text.contains("db1:"));
    server.stats.iter().for_each(|core| core.reset());
    assert_eq!(value(&show(&server, "stats"), "total_commands_processed"), "0");
}

#[test]
fn state_of_saving_and_loading() {
    let server = server();
    let text = show(&server, "persistence");
    assert_eq!(value(&text, "loading"), "0");
    assert_eq!(value(&text, "rdb_last_save_time"), "1700000000");
    assert_eq!(value(&text, "rdb_last_bgsave_status"), "ok");
    server.state.loading.store(true, Ordering::Relaxed);
    server.state.saving.store(true, Ordering::Relaxed);
    server.state.last_save_failed.store(true, Ordering::Relaxed);
    let text = show(&server, "persistence");
    assert_eq!(value(&text, "loading"), "1");
    assert_eq!(value(&text, "rdb_bgsave_in_progress"), "1");
    assert_eq!(value(&text, "rdb_last_bgsave_status"), "err");
}

#[test]
fn bytes_for_people() {
    let cases: [(u64, &str); 8] = [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.00K"),
        (1_709_136, "1.63M"),
        (672_007_288, "640.88M"),
        (25_276_063_744, "23.54G"),
        (1 << 40, "1.00T"),
        (u64::MAX, "16.00E"),
    ];
    for (bytes, text) in cases {
        assert_eq!(human(bytes), text);
    }
}
