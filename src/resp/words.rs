//! The words of a request that is written as a line: blanks separate them, quotes keep blanks,
//! and escapes in double quotes stand for bytes that a keyboard has not.

use super::args::Span;
use super::parse::ProtocolError;

/// Splits a line without its end into words: their bytes replace `out`, their places in it are
/// appended to `spans`.
pub(super) fn split(
    mut line: &[u8],
    out: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    out.clear();
    loop {
        line = trim_start(line);
        if line.is_empty() {
            return Ok(());
        }
        let start = out.len();
        line = take_word(line, out)?;
        spans.push((start as u32, out.len() as u32));
    }
}

/// The blanks of C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn trim_start(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|&&byte| is_blank(byte)).count();
    &line[blanks..]
}

/// Appends the first word of `line` to `out` and returns what follows it. A word may have quoted
/// parts; a closing quote ends it.
fn take_word<'a>(mut line: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    while let Some((&byte, rest)) = line.split_first() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => return Ok(rest),
            b'"' | b'\'' => return take_quoted(byte, rest, out),
            _ => out.push(byte),
        }
        line = rest;
    }
    Ok(line)
}

/// Appends what comes before the closing `quote`, which only a blank or the end may follow.
fn take_quoted<'a>(
    quote: u8,
    mut line: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        line = match line {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', escaped @ ..] if quote == b'"' && !escaped.is_empty() => {
                take_escape(escaped, out)
            }
            [b'\\', b'\'', rest @ ..] if quote == b'\'' => {
                out.push(b'\'');
                rest
            }
            [byte, rest @ ..] if *byte == quote => {
                let ended = rest.first().is_none_or(|&next| is_blank(next));
                return if ended { Ok(rest) } else { Err(ProtocolError::UnbalancedQuotes) };
            }
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
        };
    }
}

/// Appends the byte that the escape sequence stands for (`line` starts after the backslash).
fn take_escape<'a>(line: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    if let [b'x', high, low, rest @ ..] = line
        && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
    {
        out.push(high << 4 | low);
        return rest;
    }
    out.push(match line[0] {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    });
    &line[1..]
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
