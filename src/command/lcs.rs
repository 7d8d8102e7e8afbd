//! LCS: the longest common subsequence of two strings.

use super::string::SYNTAX;
use super::{Context, number};
use crate::limits::BULK_LEN_MAX;
use crate::resp::{Args, Reply};
use crate::shard::view::{Kind, Stop};

#[derive(Default)]
struct Options {
    len_only: bool,
    ranges: bool,
    with_match_len: bool,
    match_len_min: i64,
}

/// A run of equal bytes: start in either string, and length.
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

pub(super) fn lcs(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    for key in 0..2 {
        ctx.view
            .expect(key, Kind::String)
            .map_err(|_| Stop::error("ERR The specified keys must contain string values"))?;
    }
    let options = parse_options(ctx.args.from(3))?;
    ctx.view.load_all()?;
    let a = ctx.view.value(0, Kind::String)?.unwrap_or_default();
    let b = ctx.view.value(1, Kind::String)?.unwrap_or_default();
    let table = Table::new(a, b)?;
    if options.len_only {
        ctx.reply.int(i64::from(table.at(a.len(), b.len())));
    } else if options.ranges {
        let total = table.at(a.len(), b.len());
        reply_ranges(&mut ctx.reply, &table.matches(a, b), &options, total);
    } else {
        let mut matches = table.matches(a, b);
        matches.reverse();
        let parts: Vec<&[u8]> = matches.iter().map(|m| &a[m.a..m.a + m.len]).collect();
        ctx.reply.bulk(&parts.concat());
    }
    Ok(())
}

fn parse_options(args: Args<'_>) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("IDX") {
            options.ranges = true;
        } else if is("LEN") {
            options.len_only = true;
        } else if is("WITHMATCHLEN") {
            options.with_match_len = true;
        } else if is("MINMATCHLEN") {
            let len = rest.next().ok_or(SYNTAX)?;
            options.match_len_min = number::integer(len)?;
        } else {
            return Err(SYNTAX);
        }
    }
    if options.ranges && options.len_only {
        return Err(Stop::error(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}

/// Lengths of the common subsequences of all pairs of prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    /// Takes four bytes for each pair of prefixes, at most [`BULK_LEN_MAX`] in all.
    fn new(a: &[u8], b: &[u8]) -> Result<Table, Stop> {
        let width = b.len() + 1;
        let len = (a.len() + 1) * width;
        if len * size_of::<u32>() > BULK_LEN_MAX {
            return Err(Stop::error(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let mut cells = Vec::new();
        cells.try_reserve_exact(len).map_err(|_| {
            Stop::error("ERR Insufficient memory, failed allocating transient memory for LCS")
        })?;
        cells.resize(len, 0);
        for (i, &byte_a) in a.iter().enumerate() {
            let (above, row) = cells[i * width..(i + 2) * width].split_at_mut(width);
            for (j, &byte_b) in b.iter().enumerate() {
                row[j + 1] = if byte_a == byte_b { above[j] + 1 } else { row[j].max(above[j + 1]) };
            }
        }
        Ok(Table { cells, width })
    }

    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.cells[a_len * self.width + b_len]
    }

    /// The runs of one longest subsequence, the last first. Where two are equally long, the end
    /// of `b` is given up: clients see which one is chosen.
    fn matches(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match matches.last_mut() {
                    Some(last) if last.a == i + 1 && last.b == j + 1 => {
                        *last = Match { a: i, b: j, len: last.len + 1 };
                    }
                    _ => matches.push(Match { a: i, b: j, len: 1 }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        matches
    }
}

fn reply_ranges(reply: &mut Reply<'_>, matches: &[Match], options: &Options, total: u32) {
    let shown = |m: &&Match| m.len as i64 >= options.match_len_min;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.iter().filter(shown).count());
    for found in matches.iter().filter(shown) {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for start in [found.a, found.b] {
            reply.array(2);
            reply.int(start as i64);
            reply.int((start + found.len - 1) as i64);
        }
        if options.with_match_len {
            reply.int(found.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.int(i64::from(total));
}
