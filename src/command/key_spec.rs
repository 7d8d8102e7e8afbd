//! What a command does to each of its keys, in the form of COMMAND INFO's key specifications.
//!
//! Where the keys are is in the command's row ([`Keys`]) and nowhere else. Here is only how each
//! is used; both together make the specifications.

use super::Keys;
use super::flag;
use super::profile::Profile;

/// Words of a key specification. `RO` reads, `RW` changes, `OW` overwrites and `RM` removes the
/// key; `access` returns data to the client, `update`, `insert` and `delete` say what happens to
/// the data.
pub type Access = &'static [&'static str];

const ASK: Access = &["RO"];
const READ: Access = &["RO", "access"];
const UPDATE: Access = &["RW", "update"];
const INSERT: Access = &["RW", "insert"];
const DELETE: Access = &["RW", "delete"];
const READ_UPDATE: Access = &["RW", "access", "update"];
const READ_DELETE: Access = &["RW", "access", "delete"];
/// Depends on the arguments of the call.
const VARIABLE: Access = &["RW", "access", "update", VARIABLE_FLAGS];
const OVERWRITE: Access = &["OW", "update"];
const OVERWRITE_NEW: Access = &["OW", "insert"];
const REMOVE: Access = &["RM", "delete"];

/// The word that is shown in a specification but not for the keys of a call.
pub const VARIABLE_FLAGS: &str = "variable_flags";

/// Access to the first key, the second, ...; the last entry holds for all further keys. Sorted
/// by name. Commands that only read and return what they read are left out.
static ACCESS: &[(&str, &[Access])] = &[
    ("append", &[INSERT]),
    ("bitfield", &[VARIABLE]),
    ("bitop", &[OVERWRITE, READ]),
    ("copy", &[READ, OVERWRITE]),
    ("decr", &[READ_UPDATE]),
    ("decrby", &[READ_UPDATE]),
    ("del", &[REMOVE]),
    ("exists", &[ASK]),
    ("expire", &[UPDATE]),
    ("expireat", &[UPDATE]),
    ("getdel", &[READ_DELETE]),
    ("getex", &[READ_UPDATE]),
    ("getset", &[READ_UPDATE]),
    ("hdel", &[DELETE]),
    ("hexists", &[ASK]),
    ("hincrby", &[READ_UPDATE]),
    ("hincrbyfloat", &[READ_UPDATE]),
    ("hlen", &[ASK]),
    ("hmset", &[UPDATE]),
    ("hset", &[UPDATE]),
    ("hsetnx", &[INSERT]),
    ("hstrlen", &[ASK]),
    ("incr", &[READ_UPDATE]),
    ("incrby", &[READ_UPDATE]),
    ("incrbyfloat", &[READ_UPDATE]),
    ("lavik.hreplace", &[UPDATE]),
    ("move", &[READ_UPDATE]),
    ("mset", &[OVERWRITE]),
    ("msetnx", &[OVERWRITE_NEW]),
    ("persist", &[UPDATE]),
    ("pexpire", &[UPDATE]),
    ("pexpireat", &[UPDATE]),
    ("psetex", &[OVERWRITE]),
    ("rename", &[READ_DELETE, OVERWRITE]),
    ("renamenx", &[READ_DELETE, OVERWRITE_NEW]),
    ("set", &[VARIABLE]),
    ("setbit", &[READ_UPDATE]),
    ("setex", &[OVERWRITE]),
    ("setnx", &[OVERWRITE_NEW]),
    ("setrange", &[UPDATE]),
    ("strlen", &[ASK]),
    ("touch", &[ASK]),
    ("type", &[ASK]),
    ("unlink", &[REMOVE]),
];

/// Keys that are used alike: from argument `index`, every `step`-th up to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pub index: i64,
    /// Relative to `index`; negative counts from the end of the arguments, -1 is the last.
    pub last: i64,
    pub step: i64,
    pub access: Access,
}

fn accesses(profile: &Profile) -> &'static [Access] {
    match ACCESS.binary_search_by_key(&profile.name, |(name, _)| name) {
        Ok(at) => ACCESS[at].1,
        Err(_) if profile.is(flag::WRITE) => &[UPDATE],
        Err(_) => &[READ],
    }
}

/// The access of a call's key, by its place among the keys.
pub fn access(profile: &Profile, key: usize) -> impl Iterator<Item = &'static str> + Clone + use<> {
    let accesses = accesses(profile);
    let access = accesses[key.min(accesses.len() - 1)];
    access.iter().copied().filter(|&word| word != VARIABLE_FLAGS)
}

/// The specifications of a command's keys.
pub fn specs(profile: &Profile) -> Vec<KeySpec> {
    let Keys::Range { first, last, step } = profile.keys else { return Vec::new() };
    let (first, last, step) = (i64::from(first), i64::from(last), i64::from(step));
    let accesses = accesses(profile);
    let one = |(at, &access)| KeySpec { index: first + at as i64 * step, last: 0, step, access };
    let mut specs: Vec<KeySpec> = accesses.iter().enumerate().map(one).collect();
    if let Some(rest) = specs.last_mut() {
        rest.last = if last < 0 { last } else { last - rest.index };
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, KeySpec, specs};
    use crate::command::profile::Profile;
    use crate::command::{Keys, flag, table};

    #[test]
    fn the_access_table_is_sorted() {
        assert!(ACCESS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn every_writing_command_says_what_it_does_to_its_keys() {
        for row in table::all().filter(|row| row.is(flag::WRITE) && row.keys != Keys::None) {
            let known = ACCESS.iter().any(|(name, _)| *name == row.name);
            assert!(known, "{} is not in ACCESS", row.name);
        }
    }

    /// The words agree with the flags, and the specifications cover exactly the row's keys.
    #[test]
    fn specifications_agree_with_the_rows() {
        for row in table::all().filter(|row| row.keys != Keys::None) {
            let specs = specs(&Profile::of(row));
            let changes = specs.iter().any(|spec| spec.access[0] != "RO");
            assert_eq!(changes, row.is(flag::WRITE), "{}", row.name);
            let least = usize::from(row.arity.unsigned_abs());
            for count in least..least + 4 {
                let expected: Vec<i64> = row.key_positions(count).map(|at| at as i64).collect();
                let mut found: Vec<i64> =
                    specs.iter().flat_map(|spec| positions(spec, count as i64)).collect();
                found.sort_unstable();
                assert_eq!(found, expected, "{} with {count} arguments", row.name);
            }
        }
    }

    fn positions(spec: &KeySpec, count: i64) -> Vec<i64> {
        let end = if spec.last < 0 { count + spec.last } else { spec.index + spec.last };
        (spec.index..=end).step_by(spec.step as usize).collect()
    }

    #[test]
    fn a_destination_and_its_sources_are_told_apart() {
        let bitop = Profile {
            name: "bitop",
            arity: -4,
            flags: flag::WRITE,
            keys: Keys::Range { first: 2, last: -1, step: 1 },
            summary: "",
            group: "bitmap",
            since: "",
            complexity: "",
        };
        let expected = [
            KeySpec { index: 2, last: 0, step: 1, access: &["OW", "update"] },
            KeySpec { index: 3, last: -1, step: 1, access: &["RO", "access"] },
        ];
        assert_eq!(specs(&bitop), expected);
    }
}
