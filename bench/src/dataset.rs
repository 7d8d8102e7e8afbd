//! Keys and values by number. A value is a function of its key, so that every reply can be
//! checked without remembering anything.

use crate::prng::{Prng, mix};
use std::sync::Arc;

const KEY_PREFIX: &[u8] = b"key:";

/// Values begin with this many bytes that no other key's value begins with.
const STAMP_BYTES: usize = 8;

/// The rest of a value is a window of one pseudo-random text. Few starts keep the text of 1 KiB
/// values in the client's first-level cache.
const PATTERN_STARTS: usize = 4096;

/// `keys` keys of `key_bytes` with values of `value_bytes`.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub keys: u64,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pattern: Arc<[u8]>,
}

impl Dataset {
    /// Fails if the keys do not fit into the digits that `key_bytes` leaves.
    pub fn new(keys: u64, key_bytes: usize, value_bytes: usize) -> Result<Dataset, String> {
        if keys == 0 {
            return Err("a data set needs at least one key".into());
        }
        let digits = (keys - 1).checked_ilog10().unwrap_or(0) as usize + 1;
        if key_bytes < KEY_PREFIX.len() + digits {
            let needed = KEY_PREFIX.len() + digits;
            return Err(format!("{keys} keys need a key size of at least {needed} bytes"));
        }
        Ok(Dataset { keys, key_bytes, value_bytes, pattern: pattern(value_bytes) })
    }

    /// `key:000000000123`, as redis-benchmark writes it when `key_bytes` is 16.
    pub fn append_key(&self, id: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(KEY_PREFIX);
        out.resize(start + self.key_bytes, b'0');
        let mut rest = id;
        let mut at = out.len();
        while rest > 0 {
            at -= 1;
            out[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// The id in a key of any width, if it has one.
    pub fn key_id(key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(KEY_PREFIX)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    pub fn append_value(&self, id: u64, out: &mut Vec<u8>) {
        let (stamp, rest) = self.value(id);
        out.extend_from_slice(&stamp[..STAMP_BYTES.min(self.value_bytes)]);
        out.extend_from_slice(rest);
    }

    /// Whether `part` is what the value of `id` has at `offset`.
    pub fn value_matches(&self, id: u64, offset: usize, part: &[u8]) -> bool {
        if offset + part.len() > self.value_bytes {
            return false;
        }
        let (stamp, rest) = self.value(id);
        let in_stamp = part.len().min(STAMP_BYTES.saturating_sub(offset));
        let (head, tail) = part.split_at(in_stamp);
        let tail_at = (offset + in_stamp).saturating_sub(STAMP_BYTES);
        (head.is_empty() || head == &stamp[offset..offset + in_stamp])
            && (tail.is_empty() || tail == &rest[tail_at..tail_at + tail.len()])
    }

    fn value(&self, id: u64) -> ([u8; STAMP_BYTES], &[u8]) {
        let mixed = mix(id);
        let start = mixed as usize % PATTERN_STARTS;
        let rest = self.value_bytes.saturating_sub(STAMP_BYTES);
        (mixed.to_le_bytes(), &self.pattern[start..start + rest])
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.keys * (self.key_bytes + self.value_bytes) as u64
    }
}

fn pattern(value_bytes: usize) -> Arc<[u8]> {
    let mut prng = Prng::new(0x6c61_7669_6b00);
    let words = (PATTERN_STARTS + value_bytes).div_ceil(8);
    (0..words).flat_map(|_| prng.next_u64().to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::Dataset;

    fn key(dataset: &Dataset, id: u64) -> Vec<u8> {
        let mut key = Vec::new();
        dataset.append_key(id, &mut key);
        key
    }

    fn value(dataset: &Dataset, id: u64) -> Vec<u8> {
        let mut value = Vec::new();
        dataset.append_value(id, &mut value);
        value
    }

    #[test]
    fn keys_are_padded_to_their_size() {
        let dataset = Dataset::new(1000, 16, 0).unwrap();
        assert_eq!(key(&dataset, 123), b"key:000000000123");
        assert_eq!(key(&dataset, 0), b"key:000000000000");
        let dataset = Dataset::new(1000, 7, 0).unwrap();
        assert_eq!(key(&dataset, 999), b"key:999");
        assert_eq!(Dataset::key_id(b"key:000000000123"), Some(123));
        assert_eq!(Dataset::key_id(b"memtier-5"), None);
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        assert!(Dataset::new(1001, 7, 0).is_err());
        assert!(Dataset::new(0, 16, 0).is_err());
        assert!(Dataset::new(u64::MAX, 24, 0).is_ok());
    }

    #[test]
    fn every_split_of_a_value_matches_itself_and_no_other() {
        for value_bytes in [1, 7, 8, 9, 100] {
            let dataset = Dataset::new(1000, 16, value_bytes).unwrap();
            let good = value(&dataset, 5);
            assert_eq!(good.len(), value_bytes);
            for at in 0..=value_bytes {
                assert!(dataset.value_matches(5, 0, &good[..at]));
                assert!(dataset.value_matches(5, at, &good[at..]));
            }
            assert!(!dataset.value_matches(6, 0, &good));
        }
    }

    #[test]
    fn one_changed_byte_anywhere_is_seen() {
        let dataset = Dataset::new(1000, 16, 64).unwrap();
        for at in 0..64 {
            let mut bad = value(&dataset, 5);
            bad[at] ^= 1;
            assert!(!dataset.value_matches(5, 0, &bad), "byte {at}");
        }
        let long = [value(&dataset, 5), vec![0]].concat();
        assert!(!dataset.value_matches(5, 0, &long));
    }
}
