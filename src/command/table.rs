//! The table of all commands and how a name finds its row.
//!
//! Names are found through a hash table that is laid out at compile time: one hash of at most
//! sixteen bytes of the name, one place, one comparison.

use super::{
    Command, config, connection, counter, expire, global, hash, introspect, key, maintenance,
    server, string, substring, wait,
};

/// Every command, grouped by family.
pub static FAMILIES: &[&[Command]] = FAMILY_LIST;

const FAMILY_LIST: &[&[Command]] = &[
    string::COMMANDS,
    substring::COMMANDS,
    counter::COMMANDS,
    key::COMMANDS,
    expire::COMMANDS,
    global::COMMANDS,
    hash::COMMANDS,
    connection::COMMANDS,
    config::COMMANDS,
    server::COMMANDS,
    maintenance::COMMANDS,
    introspect::COMMANDS,
    wait::COMMANDS,
];

const COUNT: usize = count();

/// All rows in the order of [`FAMILIES`].
static ROWS: [&Command; COUNT] = rows();

/// Places of the hash table; most stay empty, so a name seldom meets another's.
const PLACES: usize = 1024;
const _: () = assert!(COUNT * 4 <= PLACES);

/// Row number + 1 of each place, 0 for an empty one.
static INDEX: [u16; PLACES] = index();

/// All commands.
pub fn all() -> impl ExactSizeIterator<Item = &'static Command> + Clone {
    ROWS.iter().copied()
}

/// The command of this name in any letter case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut place = place(name);
    loop {
        let row = ROWS.get(usize::from(INDEX[place]).wrapping_sub(1))?;
        if row.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(row);
        }
        place = (place + 1) % PLACES;
    }
}

/// Where to look for a name first. Setting bit 5 makes letter case disappear; what else it makes
/// alike, the comparison tells apart.
const fn place(name: &[u8]) -> usize {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    let (head, tail) = ends(name);
    let mixed = ((head | FOLD) ^ (tail | FOLD).rotate_left(29) ^ name.len() as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - PLACES.trailing_zeros())) as usize
}

/// The first and the last bytes of a name, up to eight each; they overlap in a short one.
const fn ends(name: &[u8]) -> (u64, u64) {
    if let (Some(head), Some(tail)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        return (u64::from_le_bytes(*head), u64::from_le_bytes(*tail));
    }
    if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        return (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64);
    }
    match *name {
        [] => (0, 0),
        [a] => (a as u64, 0),
        [a, b] => (a as u64, b as u64),
        [a, b, c, ..] => (a as u64, b as u64 | (c as u64) << 8),
    }
}

const fn count() -> usize {
    let (mut count, mut family) = (0, 0);
    while family < FAMILY_LIST.len() {
        count += FAMILY_LIST[family].len();
        family += 1;
    }
    count
}

const fn rows() -> [&'static Command; COUNT] {
    let mut rows = [&FAMILY_LIST[FAMILY_LIST.len() - 1][0]; COUNT];
    let (mut at, mut family) = (0, 0);
    while family < FAMILY_LIST.len() {
        let mut row = 0;
        while row < FAMILY_LIST[family].len() {
            rows[at] = &FAMILY_LIST[family][row];
            at += 1;
            row += 1;
        }
        family += 1;
    }
    rows
}

const fn index() -> [u16; PLACES] {
    let rows = rows();
    let mut index = [0; PLACES];
    let mut at = 0;
    while at < COUNT {
        let mut place = place(rows[at].name.as_bytes());
        while index[place] != 0 {
            place = (place + 1) % PLACES;
        }
        at += 1;
        index[place] = at as u16;
    }
    index
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{COUNT, FAMILIES, INDEX, all, find, place};
    use crate::command::category::flag_names;
    use crate::command::{Command, Handler, Keys, flag};

    #[test]
    fn every_name_finds_its_row_in_any_case() {
        for row in all() {
            let found = find(row.name.as_bytes()).expect(row.name);
            assert!(std::ptr::eq(found, row), "{}", row.name);
            let upper = row.name.to_ascii_uppercase();
            assert!(std::ptr::eq(find(upper.as_bytes()).unwrap(), row), "{upper}");
        }
        assert_eq!(all().len(), COUNT);
        assert_eq!(FAMILIES.iter().map(|family| family.len()).sum::<usize>(), COUNT);
    }

    #[test]
    fn other_names_find_nothing() {
        for name in [&b""[..], b"h", b"hg", b"hge", b"hgett", b"nope", &[b'x'; 300], b"\0\0\0"] {
            assert!(find(name).is_none(), "{name:?}");
        }
        // Alike but for the bit that letter case is.
        assert!(find(b"lavik\x0ehreplace").is_none());
    }

    /// The bound on the work of a lookup: few names share a first place.
    #[test]
    fn names_are_found_within_a_few_places() {
        let steps = all().map(|row| {
            let first = place(row.name.as_bytes());
            (0..).find(|step| {
                INDEX[(first + step) % INDEX.len()] > 0 && {
                    let number = usize::from(INDEX[(first + step) % INDEX.len()]) - 1;
                    std::ptr::eq(super::ROWS[number], row)
                }
            })
        });
        let steps: Vec<usize> = steps.map(Option::unwrap).collect();
        assert!(steps.iter().max().unwrap() <= &3, "{steps:?}");
        assert!(steps.iter().sum::<usize>() * 5 <= COUNT, "{steps:?}");
    }

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut seen = HashSet::new();
        for row in all() {
            assert!(!row.name.is_empty() && seen.insert(row.name), "{} comes twice", row.name);
            assert_eq!(row.name, row.name.to_ascii_lowercase());
        }
    }

    #[test]
    fn flags_and_handlers_agree() {
        for row in all() {
            let both = row.is(flag::WRITE) && row.is(flag::READONLY);
            assert!(!both, "{} reads only and writes", row.name);
            let growing = row.is(flag::DENYOOM) && !row.is(flag::WRITE);
            assert!(!growing, "{} grows but does not write", row.name);
            let keyed = matches!(row.handler, Handler::Keyed(_));
            if keyed {
                let known = row.is(flag::WRITE) || row.is(flag::READONLY);
                assert!(known, "{} neither reads nor writes", row.name);
            }
            assert_eq!(keyed, row.keys != Keys::None, "{}", row.name);
        }
    }

    #[test]
    fn arities_leave_room_for_the_keys() {
        for row in all() {
            assert_ne!(row.arity, 0, "{}", row.name);
            let Keys::Range { first, last, step } = row.keys else { continue };
            let least = usize::from(row.arity.unsigned_abs());
            assert!(first > 0 && step > 0, "{}", row.name);
            assert!(usize::from(first) < least, "{} may lack its key", row.name);
            if last > 0 {
                assert!((last as usize) < least, "{} may lack its last key", row.name);
            }
            assert!(row.key_positions(least).count() > 0, "{}", row.name);
        }
    }

    #[test]
    fn documentation_is_complete() {
        for row in all() {
            for text in [row.summary, row.group, row.since, row.complexity] {
                assert!(!text.is_empty(), "{}", row.name);
                assert!(!text.contains('|'), "{}: the reference is a table", row.name);
            }
        }
    }

    fn shown(row: &Command) -> String {
        let (first, last, step) = match row.keys {
            Keys::None => (0, 0, 0),
            Keys::Range { first, last, step } => (first, last, step),
        };
        let mut flags: Vec<&str> = flag_names(row.flags).collect();
        flags.sort_unstable();
        let (name, arity, flags) = (row.name, row.arity, flags.join(" "));
        format!("{name}\t{arity}\t{first}\t{last}\t{step}\t{flags}")
    }

    /// Recorded from COMMAND INFO of a Redis server.
    #[test]
    fn rows_agree_with_redis() {
        let recorded = include_str!("../../tests/transcripts/command_info.tsv");
        for line in recorded.lines().filter(|line| !line.starts_with("//")) {
            let name = line.split('\t').next().expect("a name");
            let row = find(name.as_bytes()).unwrap_or_else(|| panic!("no command {name}"));
            assert_eq!(shown(row), line);
        }
    }
}
