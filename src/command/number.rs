//! Integers in arguments and values, as strict as Redis is.

use crate::shard::view::Stop;

pub const NOT_AN_INTEGER: Stop = Stop::error("ERR value is not an integer or out of range");

/// The integer that `text` writes in its only form: no plus, no spaces, no leading zeros, no
/// minus zero, in the range of `i64`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits are below 2^64.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// [`parse_i64`] with Redis's error.
pub fn integer(text: &[u8]) -> Result<i64, Stop> {
    parse_i64(text).ok_or(NOT_AN_INTEGER)
}

/// An integer within `i32`, as Redis takes database numbers.
pub fn integer_32(text: &[u8]) -> Result<i32, Stop> {
    i32::try_from(integer(text)?).map_err(|_| {
        Stop::error("ERR value is out of range, value must between -2147483648 and 2147483647")
    })
}

#[cfg(test)]
mod tests {
    use super::parse_i64;

    #[test]
    fn only_the_canonical_form_is_an_integer() {
        let accepted: [(&str, i64); 6] = [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("1000", 1000),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in accepted {
            assert_eq!(parse_i64(text.as_bytes()), Some(value));
        }
        let refused = [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x10",
            "1\0",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
        ];
        for text in refused {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }
}
