//! Commands on parts of strings.

use std::ops::Range;

use super::flag::{DENYOOM, FAST, READONLY, WRITE};
use super::number::integer;
use super::{Command, Context, Handler, Keys, lcs};
use crate::limits::BULK_LEN_MAX;
use crate::shard::view::{Kind, Stop};

const ROW: Command = Command {
    name: "",
    arity: 4,
    flags: READONLY,
    keys: Keys::Range { first: 1, last: 1, step: 1 },
    handler: Handler::Keyed(getrange),
    summary: "",
    group: "string",
    since: "1.0.0",
    complexity: "O(N) in the length of the string",
};

pub const COMMANDS: &[Command] = &[
    Command {
        name: "strlen",
        arity: 2,
        flags: READONLY | FAST,
        handler: Handler::Keyed(strlen),
        summary: "Returns the length of a string in bytes.",
        since: "2.2.0",
        complexity: "O(1)",
        ..ROW
    },
    Command {
        name: "append",
        arity: 3,
        flags: WRITE | DENYOOM | FAST,
        handler: Handler::Keyed(append),
        summary: "Appends to a string, which starts out empty.",
        since: "2.0.0",
        ..ROW
    },
    Command {
        name: "getrange",
        arity: 4,
        flags: READONLY,
        handler: Handler::Keyed(getrange),
        summary: "Returns the bytes of a string between two offsets.",
        since: "2.4.0",
        ..ROW
    },
    Command {
        name: "substr",
        arity: 4,
        flags: READONLY,
        handler: Handler::Keyed(getrange),
        summary: "Returns the bytes of a string between two offsets (old name of GETRANGE).",
        ..ROW
    },
    Command {
        name: "setrange",
        arity: 4,
        flags: WRITE | DENYOOM,
        handler: Handler::Keyed(setrange),
        summary: "Overwrites a part of a string, which grows with zero bytes as needed.",
        since: "2.2.0",
        ..ROW
    },
    Command {
        name: "lcs",
        arity: -3,
        flags: READONLY,
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        handler: Handler::Keyed(lcs::lcs),
        summary: "Finds the longest common subsequence of two strings.",
        since: "7.0.0",
        complexity: "O(N*M) in the lengths of the strings",
        ..ROW
    },
];

const TOO_LONG: Stop = Stop::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

fn strlen(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    ctx.view.expect(0, Kind::String)?;
    ctx.reply.int(ctx.view.value_len(0)? as i64);
    Ok(())
}

fn append(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let tail = ctx.args.at(2);
    if ctx.view.in_parts(0) {
        ctx.view.expect(0, Kind::String)?;
        let len = ctx.view.value_len(0)?;
        return patch(ctx, len, tail);
    }
    let head = ctx.view.value(0, Kind::String)?.unwrap_or_default();
    if head.len() + tail.len() > BULK_LEN_MAX {
        return Err(TOO_LONG);
    }
    let value = [head, tail].concat();
    ctx.reply.int(value.len() as i64);
    ctx.view.put(0, Kind::String, value, ctx.view.expire_at_ms(0));
    Ok(())
}

/// Writes over a value in parts.
fn patch<'a>(ctx: &mut Context<'a, '_>, offset: usize, bytes: &'a [u8]) -> Result<(), Stop> {
    if offset + bytes.len() > BULK_LEN_MAX {
        return Err(TOO_LONG);
    }
    if !bytes.is_empty() {
        ctx.view.patch(0, offset, bytes);
    }
    ctx.reply.int(ctx.view.value_len(0)? as i64);
    Ok(())
}

fn getrange(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let start = integer(&ctx.args[2])?;
    let end = integer(&ctx.args[3])?;
    if ctx.view.in_parts(0) {
        ctx.view.expect(0, Kind::String)?;
        let range = clamp(ctx.view.value_len(0)?, start, end);
        ctx.reply.bulk(ctx.view.slice(0, range.start, range.end)?);
        return Ok(());
    }
    let value = ctx.view.value(0, Kind::String)?.unwrap_or_default();
    ctx.reply.bulk(&value[clamp(value.len(), start, end)]);
    Ok(())
}

/// The bytes from `start` to `end`, both included, of a value of `len`; negative offsets count
/// from the end.
fn clamp(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    // Before clamping: -1 to -5 is empty even where both clamp to 0.
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let offset = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (offset(start), offset(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

fn setrange(ctx: &mut Context<'_, '_>) -> Result<(), Stop> {
    let offset = integer(&ctx.args[2])?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Stop::error("ERR offset is out of range"));
    };
    let bytes = ctx.args.at(3);
    ctx.view.expect(0, Kind::String)?;
    if bytes.is_empty() {
        ctx.reply.int(ctx.view.value_len(0)? as i64);
        return Ok(());
    }
    let end = offset.checked_add(bytes.len()).filter(|&end| end <= BULK_LEN_MAX).ok_or(TOO_LONG)?;
    if ctx.view.in_parts(0) {
        return patch(ctx, offset, bytes);
    }
    let mut value = ctx.view.value(0, Kind::String)?.unwrap_or_default().to_vec();
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(bytes);
    ctx.reply.int(value.len() as i64);
    ctx.view.put(0, Kind::String, value, ctx.view.expire_at_ms(0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Keyspace;
    use crate::limits::BULK_LEN_MAX;

    #[test]
    fn a_string_may_grow_to_the_limit_and_no_further() {
        let mut space = Keyspace::default();
        let too_long =
            b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n".to_vec();
        assert_eq!(space.run("SETRANGE k 1000000 x"), b":1000001\r\n");
        assert_eq!(space.run(&format!("SETRANGE k {BULK_LEN_MAX} x")), too_long);
        assert_eq!(space.run(&format!("SETRANGE k {} xy", BULK_LEN_MAX - 1)), too_long);
        assert_eq!(space.run("STRLEN k"), b":1000001\r\n");
    }

    #[test]
    fn strlen_reads_the_device_only_when_the_index_cannot_hold_the_length() {
        let mut space = Keyspace::default();
        space.run("SET k hello");
        assert_eq!((space.run("STRLEN k"), space.faults), (b":5\r\n".to_vec(), 0));
        space.lengths_indexed = false;
        assert_eq!((space.run("STRLEN k"), space.faults), (b":5\r\n".to_vec(), 1));
    }
}
