//! The pattern language of KEYS, SCAN MATCH and their kin: `*`, `?`, `[a-z]`, `[^a]`, `\x`.

/// Whether the whole of `text` matches `pattern`.
///
/// Takes at most `pattern.len() * text.len()` steps: on a mismatch only the last `*` takes in
/// one more byte, which is enough because whatever an earlier `*` could take in, the last one
/// can as well.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut at = 0;
    let mut rest = pattern;
    // Pattern behind the last `*`, and the text that it is being tried on.
    let mut retry: Option<(&[u8], usize)> = None;
    loop {
        if let [b'*', behind @ ..] = rest {
            retry = Some((behind, at));
            rest = behind;
            continue;
        }
        match text.get(at) {
            None if rest.is_empty() => return true,
            None => return false,
            Some(&byte) => {
                if let Some(behind) = match_one(rest, byte) {
                    rest = behind;
                    at += 1;
                    continue;
                }
            }
        }
        let Some((behind, start)) = retry else { return false };
        retry = Some((behind, start + 1));
        rest = behind;
        at = start + 1;
    }
}

/// Matches one byte against the element that `pattern` starts with; returns what is behind it.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match *pattern {
        [b'?', ref behind @ ..] => Some(behind),
        [b'[', ref class @ ..] => match_class(class, byte),
        // A backslash at the very end stands for itself.
        [b'\\', literal, ref behind @ ..] | [literal, ref behind @ ..] => {
            (literal == byte).then_some(behind)
        }
        [] => None,
    }
}

/// Matches one byte against a class whose `[` has been read. A class that is not closed ends
/// with the pattern.
fn match_class(class: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut rest) = match *class {
        [b'^', ref rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        match *rest {
            [] => break,
            [b']', ref behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', literal, ref behind @ ..] => {
                found |= literal == byte;
                rest = behind;
            }
            [a, b'-', b, ref behind @ ..] => {
                found |= (a.min(b)..=a.max(b)).contains(&byte);
                rest = behind;
            }
            [literal, ref behind @ ..] => {
                found |= literal == byte;
                rest = behind;
            }
        }
    }
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn agrees_with_redis() {
        let cases = include_str!("../../tests/transcripts/glob.tsv");
        for line in cases.lines().filter(|line| !line.starts_with("//")) {
            let fields: Vec<&str> =
                line.split('\t').map(|f| if f == "<empty>" { "" } else { f }).collect();
            let [pattern, text, expected] = fields[..] else { panic!("{line}") };
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected == "yes", "{pattern} on {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "a*".repeat(500) + "b";
        let text = "a".repeat(2000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
        assert!(matches(pattern.as_bytes(), (text + "b").as_bytes()));
    }
}
