//! Writers of replies, straight into the buffer that is sent.

/// Version of the protocol that a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// Appends replies to a buffer. Aggregates announce their length first; the caller then writes
/// that many elements (twice as many for a map).
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    proto: Proto,
}

impl<'a> Reply<'a> {
    pub fn new(out: &'a mut Vec<u8>, proto: Proto) -> Reply<'a> {
        Reply { out, proto }
    }

    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// The protocol of what is written from now on; for HELLO.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// `+text`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `-text`; text starts with its code (`ERR ...`). Line ends inside become spaces.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error that repeats what the client has sent, which may be no UTF-8. Line ends at the end
    /// are left out, others become spaces.
    pub fn error_bytes(&mut self, text: &[u8]) {
        let end = text.iter().rposition(|&b| b != b'\r' && b != b'\n').map_or(0, |last| last + 1);
        self.out.push(b'-');
        self.out
            .extend(text[..end].iter().map(|&b| if b == b'\r' || b == b'\n' { b' ' } else { b }));
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn int(&mut self, value: i64) {
        self.out.push(b':');
        self.decimal(value);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The reply for no value: `$-1`, in RESP3 `_`.
    pub fn null(&mut self) {
        match self.proto {
            Proto::Resp2 => self.out.extend_from_slice(b"$-1\r\n"),
            Proto::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    /// The reply for no array: `*-1`, in RESP3 `_`.
    pub fn null_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Proto::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    pub fn array(&mut self, len: usize) {
        self.length(b'*', len);
    }

    /// A map of `pairs` pairs; a flat array in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.proto {
            Proto::Resp2 => self.length(b'*', pairs * 2),
            Proto::Resp3 => self.length(b'%', pairs),
        }
    }

    pub fn set(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.length(b'*', len),
            Proto::Resp3 => self.length(b'~', len),
        }
    }

    /// A message that no command has asked for; an array in RESP2.
    pub fn push(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.length(b'*', len),
            Proto::Resp3 => self.length(b'>', len),
        }
    }

    /// An integer that may not fit 64 bits, as decimal text; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits.as_bytes()),
            Proto::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// A boolean: `#t` / `#f`, in RESP2 `:1` / `:0`.
    pub fn boolean(&mut self, value: bool) {
        match self.proto {
            Proto::Resp2 => self.int(i64::from(value)),
            Proto::Resp3 => self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// A double in the shortest text that reads back as the same number; see
    /// [`double_string`].
    pub fn double(&mut self, value: f64) {
        self.double_text(&double_string(value));
    }

    /// A double whose text is ready; a bulk string in RESP2.
    pub fn double_text(&mut self, text: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(text.as_bytes()),
            Proto::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// A verbatim string (`format` has three letters); a bulk string in RESP2.
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        debug_assert_eq!(format.len(), 3);
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(format.as_bytes());
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Bytes that are a complete reply already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.push(mark);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn length(&mut self, mark: u8, len: usize) {
        self.out.push(mark);
        self.decimal(len as i64);
        self.out.extend_from_slice(b"\r\n");
    }

    fn decimal(&mut self, value: i64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.out.extend_from_slice(&digits[at..]);
    }
}

/// A double as Redis 7.2 shows it: the fewest digits that read back as the same number; whole
/// numbers up to 2^62 in full; others with an exponent when in full they would have more than
/// six decimals (unless they are from 0.001 to 10000) or more than six zeros at their end.
pub fn double_string(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.into();
    }
    const WHOLE_MAX: f64 = (1u64 << 62) as f64;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return (value as i64).to_string();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    let decimals = digits - 1 - exponent;
    let in_full =
        if decimals > 0 { decimals < 7 || exponent.abs() < 4 } else { exponent < digits + 7 };
    match exponent {
        _ if in_full => value.to_string(),
        0.. => format!("{mantissa}e+{exponent}"),
        _ => scientific,
    }
}

#[cfg(test)]
mod tests;
