//! Command lines as one types them: words, quotes and escapes.

/// Splits a line into arguments. Double quotes know `\n \r \t \\ \" \xHH`, single quotes only
/// `\'`.
#[track_caller]
pub fn split(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start().as_bytes();
    while let Some(&first) = rest.first() {
        let (word, used) = match first {
            b'"' => double_quoted(rest),
            b'\'' => single_quoted(rest),
            _ => {
                let end = rest.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(rest.len());
                (rest[..end].to_vec(), end)
            }
        };
        words.push(word);
        rest = rest[used..].trim_ascii_start();
    }
    words
}

fn double_quoted(text: &[u8]) -> (Vec<u8>, usize) {
    let mut word = Vec::new();
    let mut at = 1;
    while text[at] != b'"' {
        if text[at] != b'\\' {
            word.push(text[at]);
            at += 1;
            continue;
        }
        let (byte, used) = escape(&text[at + 1..]);
        word.push(byte);
        at += 1 + used;
    }
    (word, at + 1)
}

fn escape(text: &[u8]) -> (u8, usize) {
    match text[0] {
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'x' => {
            let digits = std::str::from_utf8(&text[1..3]).expect("two digits after \\x");
            (u8::from_str_radix(digits, 16).expect("two hexadecimal digits after \\x"), 3)
        }
        other => (other, 1),
    }
}

fn single_quoted(text: &[u8]) -> (Vec<u8>, usize) {
    let end = text[1..].iter().position(|&b| b == b'\'').expect("a closing quote");
    (text[1..=end].to_vec(), end + 2)
}

/// Arguments as a line that `split` reads back.
pub fn join<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().map(|arg| {
        let arg = arg.as_ref();
        let plain = !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic());
        if plain && !arg.iter().any(|b| matches!(b, b'"' | b'\'' | b'\\')) {
            String::from_utf8_lossy(arg).into_owned()
        } else {
            format!("\"{}\"", arg.escape_ascii().to_string().replace("\\'", "'"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
