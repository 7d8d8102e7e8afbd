//! The ACL categories of a command, its tips to clients and its flags by name, as COMMAND INFO
//! shows them.

use super::flag;
use super::profile::Profile;

type Test = fn(&Profile) -> bool;

/// Every category with the test of who belongs to it, in the order in which they are shown.
static CATEGORIES: &[(&str, Test)] = &[
    ("@keyspace", |p| p.group == "generic" && p.name != "wait" || KEYSPACE.contains(&p.name)),
    ("@read", |p| p.is(flag::READONLY)),
    ("@write", |p| p.is(flag::WRITE)),
    ("@hash", |p| p.group == "hash"),
    ("@string", |p| p.group == "string"),
    ("@bitmap", |p| p.group == "bitmap"),
    ("@pubsub", |p| p.is(flag::PUBSUB)),
    ("@admin", is_admin),
    ("@fast", |p| p.is(flag::FAST)),
    ("@slow", |p| !p.is(flag::FAST)),
    ("@blocking", |p| p.is(flag::BLOCKING)),
    ("@dangerous", |p| is_admin(p) || DANGEROUS.contains(&p.name)),
    ("@connection", |p| p.group == "connection" || is_connection(p)),
];

/// Members that neither group nor flags tell.
const KEYSPACE: &[&str] = &["dbsize", "flushall", "flushdb", "swapdb"];
const DANGEROUS: &[&str] = &["flushall", "flushdb", "info", "keys", "swapdb"];

fn is_admin(profile: &Profile) -> bool {
    profile.is(flag::ADMIN) || ["lastsave", "role"].contains(&profile.name)
}

fn is_connection(profile: &Profile) -> bool {
    profile.name.split('|').next() == Some("command") || profile.name == "wait"
}

/// The categories of a command, each with its `@`.
pub fn categories(profile: &Profile) -> impl Iterator<Item = &'static str> + Clone + use<'_> {
    CATEGORIES.iter().filter(|(_, test)| test(profile)).map(|(name, _)| *name)
}

/// Flags by name, in the order in which they are shown.
static FLAG_NAMES: &[(u32, &str)] = &[
    (flag::WRITE, "write"),
    (flag::READONLY, "readonly"),
    (flag::DENYOOM, "denyoom"),
    (flag::ADMIN, "admin"),
    (flag::PUBSUB, "pubsub"),
    (flag::NOSCRIPT, "noscript"),
    (flag::BLOCKING, "blocking"),
    (flag::LOADING, "loading"),
    (flag::STALE, "stale"),
    (flag::SKIP_MONITOR, "skip_monitor"),
    (flag::SKIP_SLOWLOG, "skip_slowlog"),
    (flag::FAST, "fast"),
    (flag::NO_AUTH, "no_auth"),
    (flag::NO_MULTI, "no_multi"),
    (flag::MOVABLEKEYS, "movablekeys"),
    (flag::ALLOW_BUSY, "allow_busy"),
];

pub fn flag_names(flags: u32) -> impl Iterator<Item = &'static str> + Clone {
    FLAG_NAMES.iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, name)| *name)
}

const OUTPUT: &str = "nondeterministic_output";
const ORDER: &str = "nondeterministic_output_order";
const ALL_SHARDS: &str = "request_policy:all_shards";
const MULTI_SHARD: &str = "request_policy:multi_shard";
const ALL_NODES: &str = "request_policy:all_nodes";
const SUCCEEDED: &str = "response_policy:all_succeeded";
const SUM: &str = "response_policy:agg_sum";

/// What proxies and cluster clients may want to know. Sorted by name.
static TIPS: &[(&str, &[&str])] = &[
    ("client|info", &[OUTPUT]),
    ("client|list", &[OUTPUT]),
    ("command", &[ORDER]),
    ("command|docs", &[ORDER]),
    ("command|info", &[ORDER]),
    ("command|list", &[ORDER]),
    ("config|resetstat", &[ALL_NODES, SUCCEEDED]),
    ("config|rewrite", &[ALL_NODES, SUCCEEDED]),
    ("config|set", &[ALL_NODES, SUCCEEDED]),
    ("dbsize", &[ALL_SHARDS, SUM]),
    ("del", &[MULTI_SHARD, SUM]),
    ("exists", &[MULTI_SHARD, SUM]),
    ("flushall", &[ALL_SHARDS, SUCCEEDED]),
    ("flushdb", &[ALL_SHARDS, SUCCEEDED]),
    ("hgetall", &[ORDER]),
    ("hkeys", &[ORDER]),
    ("hrandfield", &[OUTPUT]),
    ("hscan", &[OUTPUT]),
    ("hvals", &[ORDER]),
    ("info", &[OUTPUT, ALL_SHARDS, "response_policy:special"]),
    ("keys", &[ALL_SHARDS, ORDER]),
    ("lastsave", &[OUTPUT]),
    ("mget", &[MULTI_SHARD]),
    ("mset", &[MULTI_SHARD, SUCCEEDED]),
    ("object|encoding", &[OUTPUT]),
    ("object|freq", &[OUTPUT]),
    ("object|idletime", &[OUTPUT]),
    ("object|refcount", &[OUTPUT]),
    ("ping", &[ALL_SHARDS, SUCCEEDED]),
    ("pttl", &[OUTPUT]),
    ("randomkey", &[ALL_SHARDS, "response_policy:special", OUTPUT]),
    ("scan", &[OUTPUT, "request_policy:special", "response_policy:special"]),
    ("time", &[OUTPUT]),
    ("touch", &[MULTI_SHARD, SUM]),
    ("ttl", &[OUTPUT]),
    ("unlink", &[MULTI_SHARD, SUM]),
    ("wait", &[ALL_SHARDS, "response_policy:agg_min"]),
    ("waitaof", &[ALL_SHARDS, "response_policy:agg_min"]),
];

pub fn tips(profile: &Profile) -> &'static [&'static str] {
    TIPS.binary_search_by_key(&profile.name, |(name, _)| name).map_or(&[], |at| TIPS[at].1)
}

/// A command that another one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    pub since: &'static str,
    pub replaced_by: &'static str,
}

static DEPRECATED: &[(&str, Deprecation)] = &[
    ("getset", Deprecation { since: "6.2.0", replaced_by: "`SET` with the `GET` option" }),
    ("hmset", Deprecation { since: "4.0.0", replaced_by: "`HSET` with several fields" }),
    ("psetex", Deprecation { since: "2.6.12", replaced_by: "`SET` with the `PX` option" }),
    ("quit", Deprecation { since: "7.2.0", replaced_by: "closing the connection" }),
    ("setex", Deprecation { since: "2.6.12", replaced_by: "`SET` with the `EX` option" }),
    ("setnx", Deprecation { since: "2.6.12", replaced_by: "`SET` with the `NX` option" }),
    ("substr", Deprecation { since: "2.0.0", replaced_by: "`GETRANGE`" }),
];

pub fn deprecation(profile: &Profile) -> Option<Deprecation> {
    DEPRECATED.iter().find(|(name, _)| *name == profile.name).map(|(_, deprecation)| *deprecation)
}

#[cfg(test)]
mod tests {
    use super::{TIPS, categories, deprecation, flag_names, tips};
    use crate::command::flag;
    use crate::command::profile::find;

    fn shown(name: &str) -> Vec<&'static str> {
        categories(&find(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn categories_follow_groups_and_flags() {
        assert_eq!(shown("hset"), ["@write", "@hash", "@fast"]);
        assert_eq!(shown("hgetall"), ["@read", "@hash", "@slow"]);
        assert_eq!(shown("command|count"), ["@slow", "@connection"]);
    }

    #[test]
    fn flags_have_names() {
        let names: Vec<&str> = flag_names(flag::WRITE | flag::FAST | flag::DENYOOM).collect();
        assert_eq!(names, ["write", "denyoom", "fast"]);
        assert_eq!(flag_names(0).count(), 0);
    }

    #[test]
    fn tips_and_deprecations_are_found_by_name() {
        assert!(TIPS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(tips(&find(b"hscan").unwrap()), ["nondeterministic_output"]);
        assert!(tips(&find(b"hget").unwrap()).is_empty());
        assert_eq!(deprecation(&find(b"hmset").unwrap()).unwrap().since, "4.0.0");
        assert_eq!(deprecation(&find(b"hset").unwrap()), None);
    }
}
