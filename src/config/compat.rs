//! Parameters of Redis that clients, tools and test suites read or set and that steer nothing
//! here: they are checked, stored and shown. A start with one away from its default says so.

use super::options::{Check, Field, Group, Opt, YES_NO};

const fn row(name: &'static str, default: &'static str, check: Check) -> Opt {
    let takes = match check {
        Check::YesNo => YES_NO,
        _ => "VALUE",
    };
    Opt::new(Group::Compatibility, name, takes, "", Field::Compat { default, check })
}

const fn yes_no(name: &'static str, default: &'static str) -> Opt {
    row(name, default, Check::YesNo).live()
}

const fn number(name: &'static str, default: &'static str, min: i64, max: i64) -> Opt {
    row(name, default, Check::Integer(min, max)).live()
}

const fn text(name: &'static str, default: &'static str) -> Opt {
    row(name, default, Check::Text)
}

const fn choice(name: &'static str, default: &'static str, names: &'static [&'static str]) -> Opt {
    row(name, default, Check::OneOf(names)).live()
}

const INT_MAX: i64 = i32::MAX as i64;

const EVICTION_POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

pub static PARAMETERS: &[Opt] = &[
    row("databases", "16", Check::Only("16")),
    row("daemonize", "no", Check::Only("no")),
    row("cluster-enabled", "no", Check::Only("no")),
    row("supervised", "no", Check::OneOf(&["upstart", "systemd", "auto", "no"])),
    text("pidfile", ""),
    text("logfile", ""),
    text("locale-collate", ""),
    yes_no("always-show-logo", "no"),
    yes_no("set-proc-title", "yes"),
    text("proc-title-template", "{title} {listen-addr} {server-mode}").live(),
    yes_no("crash-log-enabled", "yes"),
    yes_no("crash-memcheck-enabled", "yes"),
    yes_no("disable-thp", "yes"),
    row("ignore-warnings", "", Check::Words).live(),
    choice("enable-debug-command", "no", &["no", "yes", "local"]),
    choice("enable-module-command", "no", &["no", "yes", "local"]),
    row("enable-protected-configs", "no", Check::OneOf(&["no", "yes", "local"])),
    number("io-threads", "1", 1, 128),
    yes_no("io-threads-do-reads", "no"),
    number("hz", "10", 0, INT_MAX),
    yes_no("dynamic-hz", "yes"),
    yes_no("activerehashing", "yes"),
    yes_no("jemalloc-bg-thread", "yes"),
    choice("oom-score-adj", "no", &["no", "yes", "relative", "absolute"]),
    row("oom-score-adj-values", "0 200 800", Check::Words).live(),
    number("shutdown-timeout", "10", 0, INT_MAX),
    row("shutdown-on-sigint", "default", Check::Words).live(),
    row("shutdown-on-sigterm", "default", Check::Words).live(),
    number("lua-time-limit", "5000", 0, i64::MAX).aliases(&["busy-reply-threshold"]),
    row("dir", ".", Check::Text).protected(),
    row("dbfilename", "dump.rdb", Check::Text).protected(),
    row("save", "", Check::Words).live(),
    yes_no("stop-writes-on-bgsave-error", "yes"),
    yes_no("rdbcompression", "yes"),
    yes_no("rdbchecksum", "yes"),
    yes_no("rdb-del-sync-files", "no"),
    yes_no("rdb-save-incremental-fsync", "yes"),
    choice("sanitize-dump-payload", "no", &["no", "yes", "clients"]),
    yes_no("appendonly", "no"),
    text("appendfilename", "appendonly.aof"),
    text("appenddirname", "appendonlydir"),
    choice("appendfsync", "everysec", &["everysec", "always", "no"]),
    yes_no("no-appendfsync-on-rewrite", "no"),
    number("auto-aof-rewrite-percentage", "100", 0, INT_MAX),
    row("auto-aof-rewrite-min-size", "67108864", Check::Size).live(),
    yes_no("aof-load-truncated", "yes"),
    yes_no("aof-use-rdb-preamble", "yes"),
    yes_no("aof-timestamp-enabled", "no"),
    yes_no("aof-rewrite-incremental-fsync", "yes"),
    yes_no("aof-disable-auto-gc", "no"),
    choice("maxmemory-policy", "noeviction", EVICTION_POLICIES),
    number("maxmemory-samples", "5", 1, INT_MAX),
    number("maxmemory-eviction-tenacity", "10", 0, 100),
    number("lfu-log-factor", "10", 0, INT_MAX),
    number("lfu-decay-time", "1", 0, INT_MAX),
    number("active-expire-effort", "1", 1, 10),
    yes_no("lazyfree-lazy-eviction", "no"),
    yes_no("lazyfree-lazy-expire", "no"),
    yes_no("lazyfree-lazy-server-del", "no"),
    yes_no("lazyfree-lazy-user-del", "no"),
    yes_no("lazyfree-lazy-user-flush", "no"),
    yes_no("activedefrag", "no"),
    row("active-defrag-ignore-bytes", "104857600", Check::Size).live(),
    number("active-defrag-threshold-lower", "10", 0, 1000),
    number("active-defrag-threshold-upper", "100", 0, 1000),
    number("active-defrag-cycle-min", "1", 1, 99),
    number("active-defrag-cycle-max", "25", 1, 99),
    number("active-defrag-max-scan-fields", "1000", 1, i64::MAX),
    number("hash-max-listpack-entries", "512", 0, i64::MAX).aliases(&["hash-max-ziplist-entries"]),
    number("hash-max-listpack-value", "64", 0, i64::MAX).aliases(&["hash-max-ziplist-value"]),
    number("list-max-listpack-size", "-2", -INT_MAX - 1, INT_MAX)
        .aliases(&["list-max-ziplist-size"]),
    number("list-compress-depth", "0", 0, INT_MAX),
    number("set-max-intset-entries", "512", 0, i64::MAX),
    number("set-max-listpack-entries", "128", 0, i64::MAX),
    number("set-max-listpack-value", "64", 0, i64::MAX),
    number("zset-max-listpack-entries", "128", 0, i64::MAX).aliases(&["zset-max-ziplist-entries"]),
    number("zset-max-listpack-value", "64", 0, i64::MAX).aliases(&["zset-max-ziplist-value"]),
    number("hll-sparse-max-bytes", "3000", 0, i64::MAX),
    row("stream-node-max-bytes", "4096", Check::Size).live(),
    number("stream-node-max-entries", "100", 0, i64::MAX),
    row("proto-max-bulk-len", "536870912", Check::Size).live(),
    row(
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        Check::Words,
    )
    .live(),
    text("notify-keyspace-events", "").live(),
    number("tracking-table-max-keys", "1000000", 0, i64::MAX),
    number("latency-monitor-threshold", "0", 0, i64::MAX),
    yes_no("latency-tracking", "yes"),
    row("latency-tracking-info-percentiles", "50 99 99.9", Check::Words).live(),
    number("acllog-max-len", "128", 0, i64::MAX),
    choice("acl-pubsub-default", "resetchannels", &["allchannels", "resetchannels"]),
    number("socket-mark-id", "0", 0, u32::MAX as i64),
    row("repl-backlog-size", "1048576", Check::Size).live(),
    number("repl-backlog-ttl", "3600", 0, i64::MAX),
    number("repl-timeout", "60", 1, INT_MAX),
    number("repl-ping-replica-period", "10", 1, INT_MAX).aliases(&["repl-ping-slave-period"]),
    yes_no("repl-disable-tcp-nodelay", "no"),
    yes_no("repl-diskless-sync", "yes"),
    number("repl-diskless-sync-delay", "5", 0, INT_MAX),
    number("repl-diskless-sync-max-replicas", "0", 0, INT_MAX),
    choice("repl-diskless-load", "disabled", &["disabled", "on-empty-db", "swapdb"]),
    number("replica-priority", "100", 0, INT_MAX).aliases(&["slave-priority"]),
    yes_no("replica-read-only", "yes").aliases(&["slave-read-only"]),
    yes_no("replica-serve-stale-data", "yes").aliases(&["slave-serve-stale-data"]),
    yes_no("replica-lazy-flush", "no").aliases(&["slave-lazy-flush"]),
    yes_no("replica-ignore-maxmemory", "yes").aliases(&["slave-ignore-maxmemory"]),
    number("min-replicas-to-write", "0", 0, INT_MAX).aliases(&["min-slaves-to-write"]),
    number("min-replicas-max-lag", "10", 0, INT_MAX).aliases(&["min-slaves-max-lag"]),
    number("cluster-node-timeout", "15000", 0, i64::MAX),
    yes_no("cluster-require-full-coverage", "yes"),
    yes_no("cluster-allow-reads-when-down", "no"),
];
