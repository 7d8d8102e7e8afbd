//! The hash that names a key: 96 bits of AES-CMAC with a secret key.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

const BLOCK: usize = 16;

/// Secret of one data set. Whoever does not know it cannot choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed(pub [u8; BLOCK]);

/// Hashes the keys of one data set: AES-128-CMAC (RFC 4493) of the key, cut to 96 bits.
#[derive(Clone)]
pub struct KeyHasher {
    cipher: Aes128,
    /// What the last block is combined with when it is whole, and when it is filled up.
    whole: u128,
    filled: u128,
}

impl KeyHasher {
    pub fn new(seed: &HashSeed) -> KeyHasher {
        let cipher = Aes128::new(&seed.0.into());
        let whole = double(encrypt(&cipher, 0));
        KeyHasher { cipher, whole, filled: double(whole) }
    }

    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mac = self.mac(key);
        KeyHash { tag: mac as u64, place: (mac >> 64) as u32 }
    }

    /// The code as a little-endian number.
    fn mac(&self, key: &[u8]) -> u128 {
        let (blocks, rest) = key.as_chunks::<BLOCK>();
        let (before, last) = match blocks.split_last() {
            Some((last, before)) if rest.is_empty() => {
                (before, u128::from_le_bytes(*last) ^ self.whole)
            }
            _ => (blocks, fill_up(rest) ^ self.filled),
        };
        let chain =
            |state, block: &[u8; BLOCK]| encrypt(&self.cipher, state ^ u128::from_le_bytes(*block));
        encrypt(&self.cipher, before.iter().fold(0, chain) ^ last)
    }
}

fn encrypt(cipher: &Aes128, block: u128) -> u128 {
    let mut block = block.to_le_bytes().into();
    cipher.encrypt_block(&mut block);
    u128::from_le_bytes(block.into())
}

/// A block that starts with `rest`, which is shorter.
fn fill_up(rest: &[u8]) -> u128 {
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x80;
    u128::from_le_bytes(block)
}

/// Twice the block in the field of 2^128 elements, whose numbers are big endian.
fn double(block: u128) -> u128 {
    let number = block.swap_bytes();
    ((number << 1) ^ ((number >> 127) * 0x87)).swap_bytes()
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
    use super::{HashSeed, KeyHash, KeyHasher};

    #[test]
    fn the_code_is_that_of_rfc_4493() {
        let number = |hex: u128| hex.swap_bytes();
        let seed = HashSeed(0x2b7e1516_28aed2a6_abf71588_09cf4f3c_u128.to_be_bytes());
        let hasher = KeyHasher::new(&seed);
        let text: Vec<u8> = [
            0x6bc1bee2_2e409f96_e93d7e11_7393172a_u128,
            0xae2d8a57_1e03ac9c_9eb76fac_45af8e51,
            0x30c81c46_a35ce411_e5fbc119_1a0a52ef,
            0xf69f2445_df4f9b17_ad2b417b_e66c3710,
        ]
        .iter()
        .flat_map(|block| block.to_be_bytes())
        .collect();
        let mac = |len: usize| hasher.mac(&text[..len]);
        assert_eq!(mac(0), number(0xbb1d6929_e9593728_7fa37d12_9b756746));
        assert_eq!(mac(16), number(0x070a16b4_6b4d4144_f79bdd9d_d04a287c));
        assert_eq!(mac(40), number(0xdfa66747_de9ae630_30ca3261_1497c827));
        assert_eq!(mac(64), number(0x51f0bebf_7e3b9d92_fc497417_79363cfe));
    }

    #[test]
    fn the_hash_is_the_front_of_the_code() {
        let hasher = KeyHasher::new(&HashSeed([7; 16]));
        let mac = hasher.mac(b"key").to_le_bytes();
        assert_eq!(hasher.hash(b"key").to_bytes(), mac[..12]);
        assert_ne!(KeyHasher::new(&HashSeed([0; 16])).hash(b"key"), hasher.hash(b"key"));
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
