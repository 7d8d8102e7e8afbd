//! The floating point of INCRBYFLOAT and HINCRBYFLOAT: the 80-bit extended format of x87 (64-bit
//! mantissa, round to nearest even), in software.
//!
//! Redis computes these commands in the C type `long double` and stores `%.17Lf` without
//! trailing zeros. Clients compare and store that text, so the same arithmetic is done here:
//! doubles would give other digits (`0.1 + 0.2` is `0.3` in Redis, not `0.30000000000000004`).

use super::natural::Natural;

/// Longest text that is looked at, in bytes.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// Exponent of the least significant mantissa bit: of subnormal numbers, of the largest numbers.
const EXPONENT_MIN: i32 = -16445;
const EXPONENT_MAX: i32 = 16320;
/// Decimal magnitudes beyond which a number surely overflows or vanishes.
const DECIMAL_MAGNITUDE_MAX: i64 = 4940;
const DECIMAL_MAGNITUDE_MIN: i64 = -4990;

/// An 80-bit extended number that is not NaN: `mantissa * 2^exponent`.
///
/// The top bit of the mantissa is set unless the number is zero or has the least exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

impl LongDouble {
    pub const ZERO: LongDouble = LongDouble::zero(false);

    const fn zero(negative: bool) -> LongDouble {
        LongDouble { negative, mantissa: 0, exponent: EXPONENT_MIN }
    }

    const fn infinity(negative: bool) -> LongDouble {
        LongDouble { negative, mantissa: 0, exponent: EXPONENT_MAX + 1 }
    }

    pub fn is_finite(self) -> bool {
        self.exponent <= EXPONENT_MAX
    }

    /// Rounds `wide * 2^exponent`. `inexact` means that the true value lies above that by less
    /// than one unit of `wide`, which then has at least 66 significant bits.
    fn round(negative: bool, wide: u128, exponent: i32, inexact: bool) -> LongDouble {
        if wide == 0 {
            return LongDouble::zero(negative);
        }
        let shift = wide.leading_zeros();
        let wide = wide << shift;
        let exponent = exponent - shift as i32;
        let drop = 64 + (EXPONENT_MIN - (exponent + 64)).max(0);
        if drop > 128 {
            return LongDouble::zero(negative);
        }
        let mut exponent = exponent + drop;
        let mut mantissa = wide.checked_shr(drop as u32).unwrap_or(0) as u64;
        let rest = wide << (128 - drop);
        const HALF: u128 = 1 << 127;
        if rest > HALF || (rest == HALF && (inexact || mantissa % 2 == 1)) {
            mantissa = mantissa.wrapping_add(1);
            if mantissa == 0 {
                mantissa = 1 << 63;
                exponent += 1;
            }
        }
        if exponent > EXPONENT_MAX {
            return LongDouble::infinity(negative);
        }
        if mantissa == 0 {
            return LongDouble::zero(negative);
        }
        LongDouble { negative, mantissa, exponent }
    }

    /// Rounds a natural number times `2^exponent`.
    fn round_natural(negative: bool, number: &Natural, exponent: i32) -> LongDouble {
        let (top, dropped_bits, inexact) = number.top();
        LongDouble::round(negative, top, exponent + dropped_bits as i32, inexact)
    }
}

/// Reads a number as C's `strtold` does: decimal or hexadecimal, `inf`, no space around. None
/// for anything else, for NaN, and for a number too large or too small for the format.
pub fn parse_long_double(text: &[u8]) -> Option<LongDouble> {
    if text.len() > TEXT_LEN_MAX {
        return None;
    }
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(LongDouble::infinity(negative));
    }
    let (number, nonzero) = match text {
        [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(negative, digits)?,
        digits => parse_decimal(negative, digits)?,
    };
    let in_range = number.is_finite() && (number.mantissa != 0) == nonzero;
    in_range.then_some(number)
}

/// The digits of a number without its point, how many of them are behind it, and the exponent.
struct Digits {
    digits: Vec<u8>,
    fraction_len: i64,
    exponent: i64,
}

/// Splits `12.5e-3`; `mark` (lower case) starts the exponent, which is decimal in any radix.
fn split_digits(text: &[u8], radix: u32, mark: u8) -> Option<Digits> {
    let is_digit = |&byte: &u8| char::from(byte).is_digit(radix);
    let whole_len = text.iter().take_while(|byte| is_digit(byte)).count();
    let (whole, rest) = text.split_at(whole_len);
    let rest_of_point = rest.strip_prefix(b".");
    let behind = rest_of_point.unwrap_or(rest);
    let fraction_len =
        rest_of_point.map_or(0, |rest| rest.iter().take_while(|byte| is_digit(byte)).count());
    let (fraction, tail) = behind.split_at(fraction_len);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match tail {
        [] => 0,
        [first, exponent @ ..] if first.to_ascii_lowercase() == mark => parse_exponent(exponent)?,
        _ => return None,
    };
    let value = |&byte: &u8| char::from(byte).to_digit(radix).unwrap_or(0) as u8;
    let digits = whole.iter().chain(fraction).map(value).collect();
    Some(Digits { digits, fraction_len: fraction_len as i64, exponent })
}

/// A decimal exponent, cut off where every number is out of range anyway.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let step = |value: i64, digit: &u8| (value * 10 + i64::from(digit - b'0')).min(1_000_000);
    Some(sign * digits.iter().fold(0, step))
}

/// Reads a decimal number, and whether it has a digit that is not 0.
fn parse_decimal(negative: bool, text: &[u8]) -> Option<(LongDouble, bool)> {
    let Digits { digits, fraction_len, exponent } = split_digits(text, 10, b'e')?;
    let Some(start) = digits.iter().position(|&digit| digit != 0) else {
        return Some((LongDouble::zero(negative), false));
    };
    let digits = &digits[start..];
    let power = exponent - fraction_len;
    let magnitude = digits.len() as i64 + power;
    if !(DECIMAL_MAGNITUDE_MIN..=DECIMAL_MAGNITUDE_MAX).contains(&magnitude) {
        return None;
    }
    let mut number = Natural::from_decimal(digits);
    let value = if power >= 0 {
        number.multiply_power_of_ten(power as u32);
        LongDouble::round_natural(negative, &number, 0)
    } else {
        let mut divisor = Natural::from_decimal(&[1]);
        divisor.multiply_power_of_ten(-power as u32);
        // Two bits more than a mantissa and its rounding bit.
        let (quotient, exponent, inexact) = number.divide(divisor, 68);
        LongDouble::round(negative, quotient, exponent, inexact)
    };
    Some((value, true))
}

/// Reads a hexadecimal number behind its `0x`, and whether it has a digit that is not 0.
fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<(LongDouble, bool)> {
    let Digits { digits, fraction_len, exponent } = split_digits(text, 16, b'p')?;
    let exponent = (exponent - 4 * fraction_len) as i32;
    let number = Natural::from_hexadecimal(&digits);
    let nonzero = digits.iter().any(|&digit| digit != 0);
    Some((LongDouble::round_natural(negative, &number, exponent), nonzero))
}

/// The rounded sum; None when it is not a finite number.
pub fn add(a: LongDouble, b: LongDouble) -> Option<LongDouble> {
    if !a.is_finite() || !b.is_finite() {
        return None;
    }
    // Where the exponents are equal the wide numbers are, too, in the order of the mantissas.
    let (a, b) = if (a.exponent, a.mantissa) >= (b.exponent, b.mantissa) { (a, b) } else { (b, a) };
    let distance = (a.exponent - b.exponent) as u32;
    let wide_a = u128::from(a.mantissa) << 63;
    let unshifted = u128::from(b.mantissa) << 63;
    let wide_b = unshifted.checked_shr(distance).unwrap_or(0);
    let inexact = wide_b.checked_shl(distance).unwrap_or(0) != unshifted;
    let wide = if a.negative == b.negative {
        wide_a + wide_b
    } else {
        // What was shifted out of b is taken from a as well.
        wide_a - wide_b - u128::from(inexact)
    };
    let negative = a.negative && (wide != 0 || b.negative);
    let sum = LongDouble::round(negative, wide, a.exponent - 63, inexact);
    sum.is_finite().then_some(sum)
}

/// The number with 17 decimals, rounded, without trailing zeros; `number` is finite.
pub fn format(number: LongDouble) -> String {
    debug_assert!(number.is_finite());
    let digits = if number.exponent >= 0 {
        let mut whole = Natural::from_u64(number.mantissa);
        whole.shift_left(number.exponent as u32);
        whole.into_decimal()
    } else {
        format_with_fraction(number.mantissa, number.exponent.unsigned_abs())
    };
    if number.negative && digits != "0" { format!("-{digits}") } else { digits }
}

/// Writes `mantissa / 2^shift`.
fn format_with_fraction(mantissa: u64, shift: u32) -> String {
    const DECIMALS: usize = 17;
    // Below 2^121: a mantissa is less than 2^64, 10^17 less than 2^57.
    let scaled = u128::from(mantissa) * 10u128.pow(DECIMALS as u32);
    let mut units = scaled.checked_shr(shift).unwrap_or(0);
    let rest = if shift < 128 { scaled << (128 - shift) } else { 0 };
    const HALF: u128 = 1 << 127;
    if rest > HALF || (rest == HALF && units % 2 == 1) {
        units += 1;
    }
    let mut text = format!("{units:0width$}", width = DECIMALS + 1);
    text.insert(text.len() - DECIMALS, '.');
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{LongDouble, add, format, parse_long_double};

    /// The reply of INCRBYFLOAT.
    fn increment(value: &str, amount: &str) -> String {
        let parse = |text: &str| parse_long_double(text.as_bytes());
        let (Some(value), Some(amount)) = (parse(value), parse(amount)) else {
            return "-ERR value is not a valid float".to_owned();
        };
        let not_finite = "-ERR increment would produce NaN or Infinity";
        add(value, amount).map_or(not_finite.to_owned(), format)
    }

    #[test]
    fn agrees_with_redis() {
        // The variable names a longer recording of the same form.
        let recorded = include_str!("../../tests/transcripts/float.tsv").to_owned();
        let more = std::env::var("LAVIK_FLOAT_CASES").map(std::fs::read_to_string);
        let more = more.map_or(String::new(), |read| read.expect("a readable file"));
        let mut count = 0;
        for line in recorded.lines().chain(more.lines()).filter(|line| !line.starts_with("//")) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [value, amount, expected] = fields[..] else { panic!("{line}") };
            assert_eq!(increment(value, amount), expected, "{value} + {amount}");
            count += 1;
        }
        assert!(count >= 300, "{count} cases");
    }

    #[test]
    fn the_limits_of_the_format() {
        let parse = |text: &str| parse_long_double(text.as_bytes());
        let largest = parse("0x1.fffffffffffffffep16383").expect("finite");
        assert_eq!((largest.mantissa, largest.exponent), (u64::MAX, super::EXPONENT_MAX));
        assert_eq!(parse("0x1.ffffffffffffffffp16383"), None, "rounds up to infinity");
        assert_eq!(add(largest, largest), None);
        let smallest = parse("0x1p-16445").expect("subnormal");
        assert_eq!((smallest.mantissa, smallest.exponent), (1, super::EXPONENT_MIN));
        assert_eq!(parse("0x1p-16446"), None, "half of the smallest rounds to zero");
        assert_eq!(parse("0x1.8p-16446"), Some(smallest));
        let negated = parse("-0x1p-16445").expect("subnormal");
        assert_eq!(add(smallest, negated), Some(LongDouble::ZERO));
        assert!(!parse("-inf").expect("infinity").is_finite());
        assert_eq!(format(smallest), "0");
        // Ties go to the even mantissa, and a tie with more behind it goes up.
        let tie = |text| parse(text).map(|number| number.mantissa);
        assert_eq!(tie("18446744073709551616.5"), Some(1 << 63));
        assert_eq!(tie("36893488147419103233"), Some(1 << 63));
        assert_eq!(tie("36893488147419103235"), Some((1 << 63) + 1));
        assert_eq!(tie("36893488147419103234.0000000000000000000000000001"), Some((1 << 63) + 1));
    }
}
