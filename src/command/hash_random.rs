//! HRANDFIELD.

use super::hash::load;
use super::hash_value::Pair;
use super::string::SYNTAX;
use super::{Context, number};
use crate::limits::BULK_LEN_MAX;
use crate::resp::{Args, Proto, Reply};
use crate::shard::view::{Random, Stop};

const NOT_SYMMETRIC: Stop = Stop::error(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
const OUT_OF_RANGE: Stop = Stop::error("ERR value is out of range");
const REPLY_TOO_LONG: Stop =
    Stop::error("ERR reply exceeds maximum allowed size (proto-max-bulk-len)");

/// Length of the shortest bulk string on the wire: `$0`, an empty text and two line ends.
const BULK_REPLY_LEN_MIN: usize = 6;

/// What HRANDFIELD with a count asks for.
struct Request {
    /// Negative: that many draws, in which a field may come again.
    count: i64,
    with_values: bool,
}

fn parse(args: Args<'_>) -> Result<Request, Stop> {
    let count = number::integer(args.at(2))?;
    if count == i64::MIN {
        return Err(NOT_SYMMETRIC);
    }
    match args.get(3) {
        None => return Ok(Request { count, with_values: false }),
        Some(word) if args.len() == 4 && word.eq_ignore_ascii_case(b"withvalues") => {}
        Some(_) => return Err(SYNTAX),
    }
    if count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    Ok(Request { count, with_values: true })
}

pub fn hrandfield(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let mut random = ctx.view.split_random();
    if ctx.args.len() == 2 {
        return one_field(ctx, &mut random);
    }
    let request = parse(ctx.args)?;
    let hash = load(&ctx.view)?;
    if hash.is_empty() || request.count == 0 {
        ctx.reply.array(0);
        return Ok(());
    }
    let entries = hash.entries().map(|entry| entry.map(|entry| (entry.field, entry.value)));
    let mut pairs: Vec<Pair<'_>> = entries.collect::<Result<_, _>>()?;
    if request.count < 0 {
        let draws = request.count.unsigned_abs() as usize;
        check_draws(&pairs, random.clone(), draws)?;
        let drawn = (0..draws).map(|_| pairs[random.below(pairs.len())]);
        reply_pairs(&mut ctx.reply, drawn, request.with_values);
        return Ok(());
    }
    let count = usize::try_from(request.count).map_or(pairs.len(), |n| n.min(pairs.len()));
    draw_distinct(&mut random, &mut pairs, count);
    reply_pairs(&mut ctx.reply, pairs[..count].iter().copied(), request.with_values);
    Ok(())
}

/// A number from the network decides how much is replied, so it is bounded, before anything is
/// written.
fn check_draws(pairs: &[Pair<'_>], mut random: Random, draws: usize) -> Result<(), Stop> {
    if draws > BULK_LEN_MAX / BULK_REPLY_LEN_MIN {
        return Err(REPLY_TOO_LONG);
    }
    let mut len = 0;
    for _ in 0..draws {
        let (field, value) = pairs[random.below(pairs.len())];
        len += BULK_REPLY_LEN_MIN + field.len() + value.len();
        if len > BULK_LEN_MAX {
            return Err(REPLY_TOO_LONG);
        }
    }
    Ok(())
}

fn one_field(ctx: &mut Context<'_, '_>, random: &mut Random) -> Result<(), Stop> {
    let hash = load(&ctx.view)?;
    if hash.is_empty() {
        ctx.reply.null();
        return Ok(());
    }
    let mut entries = hash.entries().skip(random.below(hash.len()));
    match entries.next().transpose()? {
        Some(entry) => ctx.reply.bulk(entry.field),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Moves `count` pairs, chosen uniformly, to the front (Fisher and Yates). Nothing moves when all
/// are wanted.
fn draw_distinct(random: &mut Random, pairs: &mut [Pair<'_>], count: usize) {
    if count == pairs.len() {
        return;
    }
    for at in 0..count {
        pairs.swap(at, at + random.below(pairs.len() - at));
    }
}

/// Writes the pairs; in RESP3 a field and its value are an array of their own.
fn reply_pairs<'p>(
    reply: &mut Reply<'_>,
    pairs: impl ExactSizeIterator<Item = Pair<'p>>,
    with_values: bool,
) {
    let nested = with_values && reply.proto() == Proto::Resp3;
    reply.array(if with_values && !nested { 2 * pairs.len() } else { pairs.len() });
    for (field, value) in pairs {
        if nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::command::testing::Keyspace;

    fn fields(reply: &[u8]) -> Vec<String> {
        let text = String::from_utf8(reply.to_vec()).unwrap();
        text.lines().skip(2).step_by(2).map(String::from).collect()
    }

    #[test]
    fn a_positive_count_draws_distinct_fields_and_reaches_all() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2 c 3 d 4 e 5");
        let mut seen = BTreeSet::new();
        for _ in 0..100 {
            let drawn = fields(&space.run("HRANDFIELD h 3"));
            assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 3);
            seen.extend(drawn);
        }
        assert_eq!(seen.len(), 5);
        assert_eq!(fields(&space.run("HRANDFIELD h 99")), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn a_negative_count_draws_that_many() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2");
        let drawn = fields(&space.run("HRANDFIELD h -1000"));
        assert_eq!(drawn.len(), 1000);
        let a = drawn.iter().filter(|field| *field == "a").count();
        assert!((400..600).contains(&a), "{a}");
    }

    #[test]
    fn values_come_with_their_fields() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2 c 3");
        for _ in 0..20 {
            let drawn = fields(&space.run("HRANDFIELD h -3 WITHVALUES"));
            for pair in drawn.chunks(2) {
                assert!(["a1", "b2", "c3"].contains(&pair.concat().as_str()), "{pair:?}");
            }
        }
    }

    #[test]
    fn every_field_is_drawn_alone() {
        let mut space = Keyspace::default();
        space.run("HSET h a 1 b 2 c 3");
        let seen: BTreeSet<Vec<u8>> = (0..100).map(|_| space.run("HRANDFIELD h")).collect();
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_reply_without_bound_is_refused() {
        let mut space = Keyspace::default();
        let value = "v".repeat(1 << 20);
        space.run(&format!("HSET h f {value}"));
        let error = b"-ERR reply exceeds maximum allowed size (proto-max-bulk-len)\r\n";
        assert_eq!(space.run("HRANDFIELD h -4611686018427387903 WITHVALUES"), error);
        assert_eq!(space.run("HRANDFIELD h -512"), error);
    }
}
