//! HSCAN.
//!
//! A hash is one value, so every call sees all of it. A small one is returned at once. A large
//! one is walked in the order of a hash of the field names: the cursor is the place in that
//! order from which to go on. A field's place never changes, whatever happens to other fields,
//! so a field that stays from the first call to the last is returned.

use siphasher::sip::SipHasher13;

use super::global::parse_cursor;
use super::hash::load;
use super::hash_value::{Entry, HashValue};
use super::string::SYNTAX;
use super::{Context, glob, number};
use crate::resp::{Args, Reply};
use crate::shard::view::Stop;

/// A hash up to both limits is returned by one call.
const SMALL_FIELDS_MAX: usize = 512;
const SMALL_LEN_MAX: usize = 64 << 10;

/// A whole scan of a large hash takes at most this many calls, however small COUNT is: each call
/// looks at every field.
const CALLS_MAX: usize = 256;

const COUNT_DEFAULT: usize = 10;

/// Places have 48 bits: cursors stay exact in clients that keep numbers as doubles, and two
/// fields of a million rarely share a place. Those that do are returned together.
const PLACE_BITS: u32 = 48;

const INVALID_CURSOR: Stop = Stop::error("ERR invalid cursor");

/// The options behind the cursor.
struct Options<'a> {
    count: usize,
    pattern: Option<&'a [u8]>,
    values: bool,
}

fn parse_options<'a>(args: Args<'a>) -> Result<Options<'a>, Stop> {
    let mut options = Options { count: COUNT_DEFAULT, pattern: None, values: true };
    let mut at = 3;
    while let Some(word) = args.get(at) {
        let value = args.get(at + 1);
        at += 2;
        match (word.to_ascii_lowercase().as_slice(), value) {
            (b"count", Some(value)) => options.count = parse_count(value)?,
            (b"match", Some(value)) => options.pattern = Some(value),
            (b"novalues", _) => {
                options.values = false;
                at -= 1;
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok(options)
}

fn parse_count(text: &[u8]) -> Result<usize, Stop> {
    match number::integer(text)? {
        count @ 1.. => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(SYNTAX),
    }
}

pub fn hscan(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let cursor = parse_cursor(ctx.args.at(2)).ok_or(INVALID_CURSOR)?;
    let hash = load(&ctx.view)?;
    if hash.is_empty() {
        // Redis does not look at the options either when the key is missing.
        reply_page(&mut ctx.reply, 0, &[], true);
        return Ok(());
    }
    let options = parse_options(ctx.args)?;
    let (next, mut page) = take_page(hash, cursor, options.count)?;
    if let Some(pattern) = options.pattern {
        page.retain(|entry| glob::matches(pattern, entry.field));
    }
    reply_page(&mut ctx.reply, next, &page, options.values);
    Ok(())
}

fn reply_page(reply: &mut Reply<'_>, next: u64, page: &[Entry<'_>], values: bool) {
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(if values { 2 * page.len() } else { page.len() });
    for entry in page {
        reply.bulk(entry.field);
        if values {
            reply.bulk(entry.value);
        }
    }
}

/// The entries from the cursor on, about `count` of them, and the cursor behind them (0 at the
/// end).
fn take_page<'a>(
    hash: HashValue<'a>,
    cursor: u64,
    count: usize,
) -> Result<(u64, Vec<Entry<'a>>), Stop> {
    if hash.len() <= SMALL_FIELDS_MAX && hash.entries_len() <= SMALL_LEN_MAX {
        return Ok((0, hash.entries().collect::<Result<_, _>>()?));
    }
    let count = count.max(hash.len().div_ceil(CALLS_MAX));
    let mut placed = Vec::new();
    for entry in hash.entries() {
        let entry = entry?;
        let place = place(entry.field);
        if place >= cursor {
            placed.push((place, entry));
        }
    }
    let Some(last) = last_place(&mut placed, count) else {
        return Ok((0, placed.into_iter().map(|(_, entry)| entry).collect()));
    };
    placed.retain(|&(place, _)| place <= last);
    Ok((last + 1, placed.into_iter().map(|(_, entry)| entry).collect()))
}

/// The place of the `count`th entry; None when all entries come before it or on it.
fn last_place(placed: &mut [(u64, Entry<'_>)], count: usize) -> Option<u64> {
    if placed.len() <= count {
        return None;
    }
    let (_, &mut (last, _), behind) = placed.select_nth_unstable_by_key(count - 1, |e| e.0);
    behind.iter().any(|&(place, _)| place > last).then_some(last)
}

/// The same for a field in every process and version, or a scan across a restart would miss some.
fn place(field: &[u8]) -> u64 {
    SipHasher13::new().hash(field) >> (u64::BITS - PLACE_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::place;
    use crate::command::testing::Keyspace;

    /// Cursor and strings of a reply.
    fn scan(space: &mut Keyspace, line: &str) -> (u64, Vec<String>) {
        let reply = String::from_utf8(space.run(line)).unwrap();
        let lines: Vec<&str> = reply.split("\r\n").collect();
        assert_eq!(lines[0], "*2", "{reply}");
        let strings = lines[4..].iter().skip(1).step_by(2).map(|text| text.to_string());
        (lines[2].parse().unwrap(), strings.collect())
    }

    fn fill(space: &mut Keyspace, range: std::ops::Range<usize>) {
        let pairs: Vec<String> = range.map(|n| format!("field:{n} {n}")).collect();
        space.run(&format!("HSET h {}", pairs.join(" ")));
    }

    /// All fields of a whole scan with their values and the number of calls.
    fn scan_all(space: &mut Keyspace, options: &str) -> (BTreeMap<String, String>, usize) {
        let (mut cursor, mut calls, mut seen) = (0, 0, BTreeMap::new());
        loop {
            let (next, strings) = scan(space, &format!("HSCAN h {cursor} {options}"));
            for pair in strings.chunks(2) {
                let twice = seen.insert(pair[0].clone(), pair[1].clone());
                assert_eq!(twice, None, "{pair:?}");
            }
            calls += 1;
            cursor = next;
            if cursor == 0 {
                return (seen, calls);
            }
        }
    }

    #[test]
    fn a_large_hash_is_returned_in_pieces_each_field_once() {
        let mut space = Keyspace::default();
        fill(&mut space, 0..2000);
        let (seen, calls) = scan_all(&mut space, "COUNT 100");
        let expected: BTreeMap<String, String> =
            (0..2000).map(|n| (format!("field:{n}"), n.to_string())).collect();
        assert_eq!(seen, expected);
        assert_eq!(calls, 20);
        assert_eq!(scan_all(&mut space, "COUNT 2000").1, 1);
        assert_eq!(scan_all(&mut space, "COUNT 1999").1, 2);
        assert_eq!(scan_all(&mut space, "COUNT 9223372036854775807").1, 1);
    }

    #[test]
    fn a_small_count_does_not_take_more_calls_than_the_bound() {
        let mut space = Keyspace::default();
        fill(&mut space, 0..5000);
        let (seen, calls) = scan_all(&mut space, "COUNT 1");
        assert_eq!(seen.len(), 5000);
        assert_eq!(calls, 250);
    }

    #[test]
    fn fields_that_stay_are_returned_while_others_come_and_go() {
        let mut space = Keyspace::default();
        fill(&mut space, 0..1500);
        let (mut cursor, mut seen, mut round) = (0, BTreeSet::new(), 0);
        loop {
            let (next, strings) = scan(&mut space, &format!("HSCAN h {cursor} COUNT 50 NOVALUES"));
            seen.extend(strings);
            cursor = next;
            if cursor == 0 {
                break;
            }
            let doomed: Vec<String> =
                (0..40).map(|n| format!("field:{}", round * 40 + n)).collect();
            space.run(&format!("HDEL h {}", doomed.join(" ")));
            fill(&mut space, 10_000 + round * 70..10_000 + round * 70 + 70);
            round += 1;
        }
        assert!(round > 10, "{round}");
        for stays in round * 40..1500 {
            assert!(seen.contains(&format!("field:{stays}")), "{stays}");
        }
    }

    #[test]
    fn a_scan_of_a_hash_that_shrinks_ends() {
        let mut space = Keyspace::default();
        fill(&mut space, 0..600);
        let (cursor, _) = scan(&mut space, "HSCAN h 0");
        assert_ne!(cursor, 0);
        let doomed: Vec<String> = (1..600).map(|n| format!("field:{n}")).collect();
        space.run(&format!("HDEL h {}", doomed.join(" ")));
        let (cursor, strings) = scan(&mut space, &format!("HSCAN h {cursor}"));
        assert_eq!((cursor, strings), (0, vec!["field:0".to_string(), "0".to_string()]));
    }

    #[test]
    fn few_long_values_are_paged_too() {
        let mut space = Keyspace::default();
        let value = "v".repeat(2048);
        for n in 0..40 {
            space.run(&format!("HSET h f{n} {value}"));
        }
        let (cursor, strings) = scan(&mut space, "HSCAN h 0 COUNT 5");
        assert_ne!(cursor, 0);
        assert_eq!(strings.len(), 10);
    }

    #[test]
    fn a_pattern_filters_what_a_call_returns() {
        let mut space = Keyspace::default();
        fill(&mut space, 0..2000);
        let (seen, calls) = scan_all(&mut space, "MATCH field:19?? COUNT 1000");
        assert_eq!((seen.len(), calls), (100, 2));
    }

    #[test]
    fn values_can_be_left_out() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2 c 3");
        let (cursor, strings) = scan(&mut space, "HSCAN h 0 NOVALUES MATCH [ab]");
        assert_eq!((cursor, strings), (0, vec!["a".to_string(), "b".to_string()]));
    }

    /// Cursors outlive the process: the places are for ever.
    #[test]
    fn places_are_fixed() {
        assert_eq!(place(b""), 0xd1fb_a762_150c);
        assert_eq!(place(b"field"), 0xe0f35d825088);
    }
}
