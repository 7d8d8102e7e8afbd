//! The hash that names a key: 96 bits of a keyed SipHash.

use siphasher::sip128::SipHasher13;

/// Secret of one data set. Whoever does not know it cannot choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed(pub [u8; 16]);

impl HashSeed {
    /// SipHash-1-3-128 of `key`, cut to 96 bits. Allocates nothing.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = SipHasher13::new_with_key(&self.0).hash(key);
        KeyHash { tag: hash.h1, place: hash.h2 as u32 }
    }
}

/// The hash of one key. Part of the disk format: it stands in segment footers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash {
    /// Decides the partition (low bits first) and the order inside it (high half).
    pub tag: u64,
    /// Decides the core (high bits first); the low bits add to the identity of a key.
    pub place: u32,
}

impl KeyHash {
    pub const SIZE_BYTES: usize = 12;

    /// Which of `cores` owns the key, by multiply-shift: below `cores`, even for any number.
    pub fn core(&self, cores: u32) -> u32 {
        ((u64::from(self.place) * u64::from(cores)) >> 32) as u32
    }

    /// The low half of the tag with its bits in reverse. Keys near each other in this order are
    /// near each other in the index, however many partitions it has.
    pub fn point(&self) -> u32 {
        (self.tag as u32).reverse_bits()
    }

    /// `tag` then `place`, little endian.
    pub fn to_bytes(self) -> [u8; KeyHash::SIZE_BYTES] {
        let mut bytes = [0; KeyHash::SIZE_BYTES];
        bytes[..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; KeyHash::SIZE_BYTES]) -> KeyHash {
        let [a, b, c, d, e, f, g, h, place @ ..] = bytes;
        let tag = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        KeyHash { tag, place: u32::from_le_bytes(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::{HashSeed, KeyHash};

    #[test]
    fn the_hash_is_siphash_1_3_128() {
        // The reference vectors are of SipHash-2-4; this pins key order, word order and the cut.
        let seed = HashSeed(std::array::from_fn(|i| i as u8));
        let full = siphasher::sip128::SipHasher13::new_with_keys(
            0x0706_0504_0302_0100,
            0x0f0e_0d0c_0b0a_0908,
        )
        .hash(b"key");
        let hash = seed.hash(b"key");
        assert_eq!(u128::from(hash.tag), full.as_u128() & u128::from(u64::MAX));
        assert_eq!(hash.place, (full.as_u128() >> 64) as u32);
        assert_ne!(HashSeed([0; 16]).hash(b"key"), hash);
    }

    #[test]
    fn bytes_are_tag_then_place_little_endian() {
        let hash = KeyHash { tag: 0x0807_0605_0403_0201, place: 0x0c0b_0a09 };
        assert_eq!(hash.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(KeyHash::from_bytes(hash.to_bytes()), hash);
    }

    #[test]
    fn cores_share_the_place_evenly() {
        let core = |place, cores| KeyHash { tag: 0, place }.core(cores);
        assert_eq!(core(0, 3), 0);
        assert_eq!(core(u32::MAX, 3), 2);
        assert_eq!(core(u32::MAX / 3, 3), 0);
        assert_eq!(core(u32::MAX / 3 + 1, 3), 1);
        assert_eq!(core(u32::MAX, 1), 0);
    }
}
