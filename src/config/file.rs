//! The syntax of the config file, which is redis.conf's: a directive and its arguments per line,
//! `#` starts a comment line, words with spaces in them stand in quotes.

/// A line with something on it. Lines count from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct Directive {
    pub line: usize,
    pub name: String,
    pub values: Vec<String>,
}

/// The directives of a file, or for each faulty line its number and what is wrong with it.
pub fn directives(text: &str) -> Vec<Result<Directive, (usize, String)>> {
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.filter_map(|(line, text)| directive(line, text).transpose()).collect()
}

/// The directive on a line, if there is any.
fn directive(line: usize, text: &str) -> Result<Option<Directive>, (usize, String)> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let mut words = words(text).map_err(|fault| (line, fault.to_string()))?.into_iter();
    let name = words.next().unwrap_or_default();
    Ok(Some(Directive { line, name, values: words.collect() }))
}

/// Takes a line apart. In double quotes `\n \r \t \a \b \xHH` and an escaped character stand for
/// themselves; in single quotes only `\'` does.
pub fn words(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = text.as_bytes().trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(String::from_utf8(word).map_err(|_| "a word is not valid UTF-8")?);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

const UNBALANCED: &str = "unbalanced quotes";

/// The first word of `text` and what follows it.
fn word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut word = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' | b'\'' => {
                rest = quoted(byte, after, &mut word)?;
                let ended = rest.first().is_none_or(u8::is_ascii_whitespace);
                return if ended { Ok((word, rest)) } else { Err(UNBALANCED) };
            }
            _ if byte.is_ascii_whitespace() => break,
            _ => word.push(byte),
        }
        rest = after;
    }
    Ok((word, rest))
}

/// Appends what stands in quotes to `word`; returns what follows the closing quote.
fn quoted<'a>(quote: u8, text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    let mut rest = text;
    loop {
        let (&byte, after) = rest.split_first().ok_or(UNBALANCED)?;
        rest = after;
        match byte {
            b'\\' if quote == b'"' => rest = escaped(rest, word)?,
            b'\\' if rest.first() == Some(&b'\'') => {
                word.push(b'\'');
                rest = &rest[1..];
            }
            _ if byte == quote => return Ok(rest),
            _ => word.push(byte),
        }
    }
}

/// Appends the byte that an escape stands for; returns what follows it.
fn escaped<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    let hex = |byte: &u8| (*byte as char).to_digit(16);
    if let [b'x', high, low, rest @ ..] = text
        && let (Some(high), Some(low)) = (hex(high), hex(low))
    {
        word.push((high << 4 | low) as u8);
        return Ok(rest);
    }
    let (&byte, rest) = text.split_first().ok_or(UNBALANCED)?;
    word.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 0x07,
        b'b' => 0x08,
        other => other,
    });
    Ok(rest)
}

/// A word as it has to be written to be read back as it is.
pub fn quote(word: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '\\');
    if !word.is_empty() && !word.contains(special) && !word.starts_with('#') {
        return word.to_string();
    }
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{Directive, directives, quote, words};

    #[test]
    fn lines() {
        let text = "# comment\n\n  port 6380  \r\nbind 127.0.0.1 ::1\nsave \"\"\n\"open\nend";
        let directive = |line, name: &str, values: &[&str]| {
            let values = values.iter().map(|value| value.to_string()).collect();
            Ok(Directive { line, name: name.into(), values })
        };
        let found = directives(text);
        assert_eq!(
            found,
            [
                directive(3, "port", &["6380"]),
                directive(4, "bind", &["127.0.0.1", "::1"]),
                directive(5, "save", &[""]),
                Err((6, "unbalanced quotes".into())),
                directive(7, "end", &[]),
            ]
        );
    }

    #[test]
    fn quotes() {
        let taken = |text: &str| words(text).map(|words| words.join("|"));
        assert_eq!(taken(r#"a "b c" 'd e'"#), Ok("a|b c|d e".into()));
        assert_eq!(taken(r#""\x41\n\t\"\\q" 'it\'s \n'"#), Ok("A\n\t\"\\q|it's \\n".into()));
        assert_eq!(taken(r#""\xC3\xA9""#), Ok("é".into()));
        assert_eq!(taken("a# b"), Ok("a#|b".into()));
        for text in [r#""a"#, "'a", r#""a"b"#, r#""a\"#] {
            assert_eq!(taken(text), Err("unbalanced quotes"), "{text}");
        }
        assert_eq!(taken(r#""\xff""#), Err("a word is not valid UTF-8"));
    }

    #[test]
    fn what_is_quoted_reads_back() {
        assert_eq!(quote("plain-1.2"), "plain-1.2");
        for word in ["", "a b", "\"", "\\", "it's", "#x", "tab\tnl\ncr\r", "\u{1}é"] {
            assert_eq!(words(&quote(word)), Ok(vec![word.to_string()]));
        }
    }
}
