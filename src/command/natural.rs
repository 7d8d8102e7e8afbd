//! Natural numbers of any size, as far as exact conversion between decimal text and floating
//! point needs them.

/// Little-endian limbs; the last one is not zero, zero has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Natural {
    limbs: Vec<u32>,
}

/// Largest power of ten in a limb, and its exponent.
const LIMB_TENS: u32 = 1_000_000_000;
const LIMB_DIGITS: u32 = 9;

impl Natural {
    pub fn from_u64(value: u64) -> Natural {
        let mut number = Natural { limbs: vec![value as u32, (value >> 32) as u32] };
        number.trim();
        number
    }

    /// From digit values (0 to 9), most significant first.
    pub fn from_decimal(digits: &[u8]) -> Natural {
        let mut number = Natural { limbs: Vec::new() };
        for chunk in digits.chunks(LIMB_DIGITS as usize) {
            let value = chunk.iter().fold(0, |value, &digit| value * 10 + u32::from(digit));
            number.multiply_add(10u32.pow(chunk.len() as u32), value);
        }
        number
    }

    /// From digit values (0 to 15), most significant first.
    pub fn from_hexadecimal(digits: &[u8]) -> Natural {
        let limb =
            |chunk: &[u8]| chunk.iter().fold(0, |value, &digit| value << 4 | u32::from(digit));
        let mut number = Natural { limbs: digits.rchunks(8).map(limb).collect() };
        number.trim();
        number
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.limbs {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.limbs.push(carry as u32);
        }
    }

    pub fn multiply_power_of_ten(&mut self, power: u32) {
        for _ in 0..power / LIMB_DIGITS {
            self.multiply_add(LIMB_TENS, 0);
        }
        self.multiply_add(10u32.pow(power % LIMB_DIGITS), 0);
    }

    /// Divides in place by [`LIMB_TENS`] and returns the remainder.
    fn divide_limb_tens(&mut self) -> u32 {
        let mut rest = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            let value = rest << 32 | u64::from(*limb);
            *limb = (value / u64::from(LIMB_TENS)) as u32;
            rest = value % u64::from(LIMB_TENS);
        }
        self.trim();
        rest as u32
    }

    pub fn shift_left(&mut self, bits: u32) {
        let (limbs, bits) = ((bits / 32) as usize, bits % 32);
        self.multiply_add(1 << bits, 0);
        if !self.limbs.is_empty() {
            self.limbs.splice(0..0, std::iter::repeat_n(0, limbs));
        }
    }

    /// Number of significant bits.
    fn bits(&self) -> u32 {
        self.limbs.last().map_or(0, |last| self.limbs.len() as u32 * 32 - last.leading_zeros())
    }

    /// The number as `top * 2^dropped`, and whether bits were lost. Nothing is dropped unless
    /// more than 96 bits remain.
    pub fn top(&self) -> (u128, u32, bool) {
        let dropped = self.limbs.len().saturating_sub(4);
        let (low, high) = self.limbs.split_at(dropped);
        let top = high.iter().rev().fold(0u128, |top, &limb| top << 32 | u128::from(limb));
        (top, dropped as u32 * 32, low.iter().any(|&limb| limb != 0))
    }

    fn at_least(&self, other: &Natural) -> bool {
        let len = self.limbs.len().cmp(&other.limbs.len());
        len.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev())).is_ge()
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        for (at, limb) in self.limbs.iter_mut().enumerate() {
            let (value, under) = limb.overflowing_sub(other.limbs.get(at).copied().unwrap_or(0));
            let (value, under_again) = value.overflowing_sub(u32::from(borrow));
            *limb = value;
            borrow = under || under_again;
        }
        debug_assert!(!borrow);
        self.trim();
    }

    /// The quotient as `quotient * 2^exponent` with at least `bits` significant bits (below
    /// 127), and whether a rest remains. Neither number is zero.
    pub fn divide(mut self, mut divisor: Natural, bits: u32) -> (u128, i32, bool) {
        let shift = divisor.bits() as i32 - self.bits() as i32;
        self.shift_left(shift.max(0) as u32);
        divisor.shift_left((-shift).max(0) as u32);
        // Both have the same length now, so the quotient lies between 1/2 and 2.
        let mut quotient = 0u128;
        for _ in 0..=bits {
            quotient <<= 1;
            if self.at_least(&divisor) {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.multiply_add(2, 0);
        }
        (quotient, -shift - bits as i32, !self.limbs.is_empty())
    }

    pub fn into_decimal(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.limbs.is_empty() {
            chunks.push(self.divide_limb_tens());
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text.push_str(&format!("{chunk:0width$}", width = LIMB_DIGITS as usize));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Natural;

    #[test]
    fn decimal_text_survives() {
        for text in
            ["0", "7", "1000000000", "4294967296", "340282366920938463463374607431768211456"]
        {
            let digits: Vec<u8> = text.bytes().map(|digit| digit - b'0').collect();
            assert_eq!(Natural::from_decimal(&digits).into_decimal(), text);
        }
        let mut number = Natural::from_u64(3);
        number.shift_left(100);
        assert_eq!(number.clone().into_decimal(), "3802951800684688204490109616128");
        number.multiply_power_of_ten(20);
        assert_eq!(
            number.into_decimal(),
            "3802951800684688204490109616128".to_owned() + &"0".repeat(20)
        );
    }

    #[test]
    fn division_gives_the_leading_bits() {
        let divided = |a: u64, b: u64| Natural::from_u64(a).divide(Natural::from_u64(b), 68);
        let (quotient, exponent, rest) = divided(1, 3);
        assert_eq!((quotient, exponent, rest), ((1u128 << 69) / 3, -69, true));
        let (quotient, exponent, rest) = divided(12, 4);
        assert_eq!((quotient as f64 * 2f64.powi(exponent), rest), (3.0, false));
    }

    #[test]
    fn the_top_and_what_is_below() {
        let mut number = Natural::from_hexadecimal(&[1, 2]);
        assert_eq!(number.top(), (0x12, 0, false));
        number.shift_left(128);
        assert_eq!(number.top(), (0x12 << 96, 32, false));
        number.multiply_add(1, 1);
        assert_eq!(number.top(), (0x12 << 96, 32, true));
    }
}
