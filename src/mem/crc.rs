//! CRC32C (Castagnoli) of the log's records. The `crc32c` crate serves other processors; here it
//! takes three times the instructions for a value of 1 KiB and five times for a record's header,
//! together a fifth of a whole GET.
//!
//! Three streams hide the latency of the processor's CRC instruction (three cycles, one per cycle
//! in flight). Streams are joined by a carry-less multiplication: appending `n` bytes to what a
//! CRC has seen multiplies it by x^8n modulo the polynomial (Gopal et al., "Fast CRC computation
//! for iSCSI polynomial using CRC32 instruction", Intel 2011).

/// CRC32C of `bytes` appended to what `crc` has seen.
#[inline]
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_supported() {
        // SAFETY: the processor has the instructions that the function is compiled for.
        return unsafe { x86::append(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn is_supported() -> bool {
    is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64,
    };

    /// Words of eight bytes in one stream: long for values, short for what is left.
    const LONG: usize = 42;
    const SHORT: usize = 8;

    /// x^(64 * words - 33) modulo the reflected polynomial: what multiplies a CRC by x^(64 * words)
    /// when the product is reduced by one more CRC instruction.
    const fn shift(words: usize) -> i64 {
        let mut power = 0x8000_0000u32;
        let mut n = 0;
        while n < 64 * words - 33 {
            power = (power >> 1) ^ (0x82f6_3b78 * (power & 1));
            n += 1;
        }
        power as i64
    }

    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub fn append(crc: u32, bytes: &[u8]) -> u32 {
        let mut crc = u64::from(!crc);
        let (mut words, tail) = bytes.as_chunks::<8>();
        while let Some((block, rest)) = words.split_first_chunk() {
            crc = three::<LONG, { 3 * LONG }>(crc, block);
            words = rest;
        }
        while let Some((block, rest)) = words.split_first_chunk() {
            crc = three::<SHORT, { 3 * SHORT }>(crc, block);
            words = rest;
        }
        for word in words {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
        let mut crc = crc as u32;
        let (half, tail) = tail.as_chunks::<4>();
        for word in half {
            crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
        }
        for &byte in tail {
            crc = _mm_crc32_u8(crc, byte);
        }
        !crc
    }

    /// Three streams of `N` words each, joined.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn three<const N: usize, const TOTAL: usize>(crc: u64, block: &[[u8; 8]; TOTAL]) -> u64 {
        let (mut a, mut b, mut c) = (crc, 0, 0);
        for at in 0..N {
            a = _mm_crc32_u64(a, u64::from_le_bytes(block[at]));
            b = _mm_crc32_u64(b, u64::from_le_bytes(block[at + N]));
            c = _mm_crc32_u64(c, u64::from_le_bytes(block[at + 2 * N]));
        }
        multiply(a, const { shift(2 * N) }) ^ multiply(b, const { shift(N) }) ^ c
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn multiply(crc: u64, by: i64) -> u64 {
        let product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(by), 0);
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn equals_the_reference_at_every_length() {
        let bytes: Vec<u8> =
            (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..2300).chain([4095, 4096, 8191, 9000]) {
            let range = &bytes[bytes.len() - len..];
            assert_eq!(crc32c(0, range), crc32c::crc32c(range), "{len} bytes");
            assert_eq!(crc32c(0x1234_5678, range), crc32c::crc32c_append(0x1234_5678, range));
        }
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283, "check value of the catalogue");
    }
}
