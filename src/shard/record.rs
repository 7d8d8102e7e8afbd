//! A record: one version of one key in the log. docs/FORMAT.md has the byte table.
//!
//! Every checksum starts from the seed of the segment's present life and the record's place in
//! it, so that bytes of an earlier life, of another segment or of another offset never verify.

use crate::limits::{DATABASES, RECORD_UNIT_BYTES};
use crate::mem::crc32c;
use crate::shard::index::KeyHash;
use crate::shard::le::{HASH_BYTES, get_hash, get_u32, get_u64, put_hash, put_u32, put_u64};
use crate::shard::view::Kind;

/// Bytes of a unit as `usize`.
pub const UNIT: usize = RECORD_UNIT_BYTES as usize;
/// Bytes of the shortest header: checksum, LSN and flags, lengths.
pub const HEADER_BYTES: usize = 16;
/// Bytes that a header grows by when it holds wide lengths, and again when it holds an expiry.
pub const EXTENSION_BYTES: usize = 8;
/// Bytes of the checksum behind the value.
pub const PAYLOAD_CRC_BYTES: usize = 4;
/// Bytes of a tombstone: the key's hash stands for the key.
pub const TOMBSTONE_BYTES: usize = HEADER_BYTES + HASH_BYTES + PAYLOAD_CRC_BYTES;
/// Units of a tombstone.
pub const TOMBSTONE_UNITS: u32 = (TOMBSTONE_BYTES / UNIT) as u32;
const KEY_LEN_BITS: u32 = 12;
const VALUE_LEN_BITS: u32 = 16;
const KEY_LEN_NARROW_MAX: usize = (1 << KEY_LEN_BITS) - 1;
/// Longest value whose length the shortest header holds.
pub const VALUE_LEN_NARROW_MAX: usize = (1 << VALUE_LEN_BITS) - 1;
const LSN_BITS: u32 = 56;

/// Kind of a filler up to the end of a sector.
pub const KIND_PAD: u8 = 15;
/// Kind of a tombstone.
pub const KIND_NONE: u8 = 0;

const TOMBSTONE: u8 = 1;
const EXPIRY: u8 = 2;
const WIDE: u8 = 4;
const CONTINUES: u8 = 8;

const _: () = assert!(TOMBSTONE_BYTES == 2 * UNIT, "a tombstone fills two units exactly");
const _: () = assert!(DATABASES <= 1 << 4, "a database number has four bits");

/// Log sequence number: the order of all records of one core; later runs are above earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The largest that a record can hold.
    pub const MAX: Lsn = Lsn((1 << LSN_BITS) - 1);
}

/// Where a record's checksums start: the segment's seed mixed with the record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceSeed(u32);

impl PlaceSeed {
    /// `unit` is the record's offset in its segment in 16-byte units.
    pub fn new(segment_seed: u32, unit: u32) -> PlaceSeed {
        PlaceSeed(segment_seed ^ unit)
    }
}

/// What goes into a record that holds a value.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// Physical database.
    pub db: u8,
    pub key: &'a [u8],
    pub kind: Kind,
    pub value: &'a [u8],
    pub expire_at_ms: Option<u64>,
}

impl Put<'_> {
    fn is_wide(&self) -> bool {
        self.key.len() > KEY_LEN_NARROW_MAX || self.value.len() > VALUE_LEN_NARROW_MAX
    }

    fn header_len(&self) -> usize {
        HEADER_BYTES
            + EXTENSION_BYTES * usize::from(self.is_wide())
            + EXTENSION_BYTES * usize::from(self.expire_at_ms.is_some())
    }

    /// Exact length of the record in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.header_len() + self.key.len() + self.value.len() + PAYLOAD_CRC_BYTES
    }

    /// Whole units that the record takes.
    pub fn units(&self) -> u32 {
        self.len_bytes().div_ceil(UNIT) as u32
    }

    /// Writes the record over all of `out`, which is [`Put::units`] long. `continues` says that
    /// the next record belongs to the same unit of work.
    #[inline]
    pub fn encode(&self, out: &mut [u8], seed: PlaceSeed, lsn: Lsn, continues: bool) {
        if let Some(last) = out.last_chunk_mut::<UNIT>() {
            last.fill(0);
        }
        let wide = self.is_wide();
        let mut flags = if continues { CONTINUES } else { 0 };
        let mut at = HEADER_BYTES;
        let mut lengths = u32::from(self.db) << (KEY_LEN_BITS + VALUE_LEN_BITS);
        if wide {
            flags |= WIDE;
            put_u32(out, at, self.key.len() as u32);
            put_u32(out, at + 4, self.value.len() as u32);
            at += EXTENSION_BYTES;
        } else {
            lengths |= self.key.len() as u32 | (self.value.len() as u32) << KEY_LEN_BITS;
        }
        if let Some(expire_at_ms) = self.expire_at_ms {
            flags |= EXPIRY;
            put_u64(out, at, expire_at_ms);
            at += EXTENSION_BYTES;
        }
        let crc = finish_header(&mut out[..at], seed, word(lsn, self.kind as u8, flags), lengths);
        let end = at + self.key.len() + self.value.len();
        let payload = &mut out[at..end];
        let (key, value) = payload.split_at_mut(self.key.len());
        key.copy_from_slice(self.key);
        value.copy_from_slice(self.value);
        let crc = crc32c(crc, payload);
        put_u32(out, end, crc);
    }
}

/// Writes a tombstone over all of `out` (two units).
pub fn encode_tombstone(
    out: &mut [u8],
    seed: PlaceSeed,
    lsn: Lsn,
    db: u8,
    hash: &KeyHash,
    continues: bool,
) {
    let flags = TOMBSTONE | if continues { CONTINUES } else { 0 };
    let lengths = u32::from(db) << (KEY_LEN_BITS + VALUE_LEN_BITS) | HASH_BYTES as u32;
    let crc = finish_header(&mut out[..HEADER_BYTES], seed, word(lsn, KIND_NONE, flags), lengths);
    let end = HEADER_BYTES + HASH_BYTES;
    put_hash(out, HEADER_BYTES, hash);
    let crc = crc32c(crc, &out[HEADER_BYTES..end]);
    put_u32(out, end, crc);
}

/// Writes a filler over all of `out`. From two units on it also says up to which LSN the log
/// was durable when it was written, which tells a torn tail from damage later.
pub fn encode_pad(out: &mut [u8], seed: PlaceSeed, lsn: Lsn, durable: Lsn) {
    out.fill(0);
    let units = (out.len() / UNIT) as u32;
    let wide = units > 1;
    let header_len = HEADER_BYTES + EXTENSION_BYTES * usize::from(wide);
    if wide {
        put_u64(out, HEADER_BYTES, durable.0);
    }
    let flags = if wide { WIDE } else { 0 };
    let lengths = units << KEY_LEN_BITS;
    finish_header(&mut out[..header_len], seed, word(lsn, KIND_PAD, flags), lengths);
}

fn word(lsn: Lsn, kind: u8, flags: u8) -> u64 {
    debug_assert!(lsn <= Lsn::MAX);
    lsn.0 | u64::from(kind | flags << 4) << LSN_BITS
}

/// Completes a header whose extensions are in place, and returns its checksum.
#[inline]
fn finish_header(header: &mut [u8], seed: PlaceSeed, word: u64, lengths: u32) -> u32 {
    put_u64(header, 4, word);
    put_u32(header, 12, lengths);
    let crc = crc32c(seed.0, &header[4..]);
    put_u32(header, 0, crc);
    crc
}

/// Whether `bytes`, a unit at least, can be a filler: a cheap look before the checksum.
pub fn looks_like_pad(bytes: &[u8]) -> bool {
    (get_u64(bytes, 4) >> LSN_BITS) as u8 & 15 == KIND_PAD
}

/// What a header says, checksum verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub lsn: Lsn,
    /// Physical database.
    pub db: u8,
    pub body: Body,
    pub expire_at_ms: Option<u64>,
    /// The next record belongs to the same unit of work.
    pub continues: bool,
    crc: u32,
    header_len: u32,
    key_len: u32,
    value_len: u32,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    Value(Kind),
    Tombstone,
    /// Filler of so many units; the log was durable up to this LSN when it was written.
    Pad {
        units: u32,
        durable: Option<Lsn>,
    },
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The record is longer than the bytes given.
    Short,
    /// The header does not verify: not a record of this place in its present life.
    Header,
    /// The header verifies and the bytes behind it do not.
    Payload,
}

impl Header {
    /// Reads and verifies the header at the start of `buf`.
    pub fn decode(buf: &[u8], seed: PlaceSeed) -> Result<Header, Invalid> {
        let header = Header::parse(buf)?;
        if crc32c(seed.0, &buf[4..header.key_start()]) != header.crc {
            return Err(Invalid::Header);
        }
        Ok(header)
    }

    /// Reads and verifies the whole record at the start of `buf`. One checksum serves for both:
    /// that of the payload goes on where that of the header ends.
    #[inline]
    pub fn decode_whole(buf: &[u8], seed: PlaceSeed) -> Result<Header, Invalid> {
        let header = Header::parse(buf)?;
        header.verify(buf, seed.0, 4)?;
        Ok(header)
    }

    /// What the bytes say, verified or not.
    #[inline(always)]
    fn parse(buf: &[u8]) -> Result<Header, Invalid> {
        let head: &[u8; HEADER_BYTES] = buf.first_chunk().ok_or(Invalid::Short)?;
        let word = get_u64(head, 4);
        let (kind, flags) = ((word >> LSN_BITS) as u8 & 15, (word >> (LSN_BITS + 4)) as u8);
        let lengths = get_u32(head, 12);
        let extensions = usize::from(flags & WIDE != 0) + usize::from(flags & EXPIRY != 0);
        let header_len = HEADER_BYTES + EXTENSION_BYTES * extensions;
        let header = buf.get(..header_len).ok_or(Invalid::Short)?;
        let mut key_len = lengths & KEY_LEN_NARROW_MAX as u32;
        let mut value_len = lengths >> KEY_LEN_BITS & VALUE_LEN_NARROW_MAX as u32;
        let body = match kind {
            KIND_NONE if flags & !CONTINUES == TOMBSTONE && key_len == HASH_BYTES as u32 => {
                Body::Tombstone
            }
            KIND_PAD if flags & !WIDE == 0 && header_len <= value_len as usize * UNIT => {
                let durable = (flags & WIDE != 0).then(|| Lsn(get_u64(header, HEADER_BYTES)));
                Body::Pad { units: value_len, durable }
            }
            _ if flags & TOMBSTONE != 0 => return Err(Invalid::Header),
            kind => Body::Value(Kind::from_bits(kind).ok_or(Invalid::Header)?),
        };
        if flags & WIDE != 0 && kind != KIND_PAD {
            key_len = get_u32(header, HEADER_BYTES);
            value_len = get_u32(header, HEADER_BYTES + 4);
        }
        let expire_at_ms =
            (flags & EXPIRY != 0).then(|| get_u64(header, header_len - EXTENSION_BYTES));
        Ok(Header {
            lsn: Lsn(word & Lsn::MAX.0),
            db: (lengths >> (KEY_LEN_BITS + VALUE_LEN_BITS)) as u8,
            body,
            expire_at_ms,
            continues: flags & CONTINUES != 0,
            crc: get_u32(head, 0),
            header_len: header_len as u32,
            key_len,
            value_len,
        })
    }

    /// Exact length of the record in bytes.
    pub fn len_bytes(&self) -> usize {
        match self.body {
            Body::Pad { units, .. } => units as usize * UNIT,
            _ => self.payload_end() + PAYLOAD_CRC_BYTES,
        }
    }

    /// Whole units that the record takes.
    pub fn units(&self) -> u32 {
        self.len_bytes().div_ceil(UNIT) as u32
    }

    fn key_start(&self) -> usize {
        self.header_len as usize
    }

    fn value_start(&self) -> usize {
        self.key_start() + self.key_len as usize
    }

    fn payload_end(&self) -> usize {
        self.value_start() + self.value_len as usize
    }

    /// Key and value without a look at their checksum: for records that never left memory.
    pub fn payload<'b>(&self, buf: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        let payload = &buf[self.key_start()..self.payload_end()];
        payload.split_at(self.key_len as usize)
    }

    /// The hash that a tombstone names its key by.
    pub fn tombstone_hash(&self, buf: &[u8]) -> KeyHash {
        debug_assert_eq!(self.body, Body::Tombstone);
        get_hash(buf, self.key_start())
    }

    /// Offset of the value from the start of the record. At least 16.
    pub fn value_offset(&self) -> usize {
        self.value_start()
    }

    /// Verifies everything behind the header: payload checksum and the zeros up to the unit.
    pub fn verify_payload(&self, buf: &[u8]) -> Result<(), Invalid> {
        self.verify(buf, self.crc, self.key_start())
    }

    /// Verifies what lies behind `start`, where a checksum stands at `crc`.
    #[inline(always)]
    fn verify(&self, buf: &[u8], crc: u32, start: usize) -> Result<(), Invalid> {
        let Some(record) = buf.get(..self.units() as usize * UNIT) else {
            return Err(Invalid::Short);
        };
        let valid = match self.body {
            Body::Pad { .. } => record[self.header_len as usize..].iter().all(|&byte| byte == 0),
            _ => {
                let end = self.payload_end();
                crc32c(crc, &record[start..end]) == get_u32(record, end)
                    && ends_in_zeros(record, end + PAYLOAD_CRC_BYTES)
            }
        };
        if valid { Ok(()) } else { Err(Invalid::Payload) }
    }
}

/// Whether a record is zero from `from` on, which is in its last unit or at its end.
#[inline]
fn ends_in_zeros(record: &[u8], from: usize) -> bool {
    let unused = record.len() - from;
    let last = record.last_chunk().map_or(0, |unit: &[u8; UNIT]| u128::from_be_bytes(*unit));
    last & ((1 << (8 * unused)) - 1) == 0
}

#[cfg(test)]
mod tests {
    use super::{
        Body, Header, Invalid, Lsn, PlaceSeed, Put, TOMBSTONE_BYTES, UNIT, encode_pad,
        encode_tombstone,
    };
    use crate::shard::index::KeyHash;
    use crate::shard::view::Kind;

    const SEED: PlaceSeed = PlaceSeed(0x1234_5678);

    fn put<'a>(key: &'a [u8], value: &'a [u8], expire_at_ms: Option<u64>) -> Put<'a> {
        Put { db: 9, key, kind: Kind::Hash, value, expire_at_ms }
    }

    fn encode(put: &Put<'_>, lsn: u64, continues: bool) -> Vec<u8> {
        let mut out = vec![0xaa; put.units() as usize * UNIT];
        put.encode(&mut out, SEED, Lsn(lsn), continues);
        out
    }

    #[test]
    fn what_goes_in_comes_out() {
        let long = vec![b'k'; 5000];
        let large = vec![b'v'; 70_000];
        for key in [&b""[..], b"k", b"sixteen-byte-key", &long[..4095], &long] {
            for value in [&b""[..], b"value", &large[..65_535], &large[..65_536], &large] {
                for expire_at_ms in [None, Some(u64::MAX)] {
                    let put = put(key, value, expire_at_ms);
                    let bytes = encode(&put, Lsn::MAX.0, true);
                    let header = Header::decode(&bytes, SEED).unwrap();
                    assert_eq!(header.lsn, Lsn::MAX);
                    assert_eq!((header.db, header.body), (9, Body::Value(Kind::Hash)));
                    assert_eq!(header.expire_at_ms, expire_at_ms);
                    assert!(header.continues);
                    assert_eq!(header.len_bytes(), put.len_bytes());
                    assert_eq!(header.verify_payload(&bytes), Ok(()));
                    assert_eq!(header.payload(&bytes), (key, value));
                    let at = header.value_offset();
                    assert_eq!(&bytes[at..at + value.len()], value);
                    assert!(at >= 16 && bytes.len() - at - value.len() >= 4);
                }
            }
        }
    }

    #[test]
    fn the_frame_of_a_short_record_is_twenty_bytes() {
        assert_eq!(put(b"0123456789abcdef", &[0; 128], None).len_bytes(), 20 + 16 + 128);
        assert_eq!(put(b"k", b"v", Some(1)).len_bytes(), 28 + 2);
        assert_eq!(put(b"k", &[0; 65_535], None).len_bytes(), 20 + 1 + 65_535);
        assert_eq!(put(b"k", &[0; 65_536], None).len_bytes(), 28 + 1 + 65_536);
    }

    #[test]
    fn bytes_are_laid_out_as_documented() {
        let bytes = encode(&put(b"key", b"value", None), 0x0001_0203_0405_0607, false);
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[4..11], [0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01]);
        assert_eq!(bytes[11], Kind::Hash as u8);
        assert_eq!(bytes[12..16], (3u32 | 5 << 12 | 9 << 28).to_le_bytes());
        assert_eq!(&bytes[16..24], b"keyvalue");
        let header_crc = crc32c::crc32c_append(SEED.0, &bytes[4..16]);
        assert_eq!(bytes[..4], header_crc.to_le_bytes());
        let payload_crc = crc32c::crc32c_append(header_crc, b"keyvalue");
        assert_eq!(bytes[24..28], payload_crc.to_le_bytes());
        assert_eq!(bytes[28..], [0; 4]);
    }

    fn is_whole(bytes: &[u8], seed: PlaceSeed) -> bool {
        Header::decode(bytes, seed).is_ok_and(|header| header.verify_payload(bytes).is_ok())
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut tombstone = vec![0; TOMBSTONE_BYTES];
        let hash = KeyHash { tag: 1, place: 2 };
        encode_tombstone(&mut tombstone, SEED, Lsn(5), 3, &hash, false);
        let mut pad = vec![0xaa; 96];
        encode_pad(&mut pad, SEED, Lsn(6), Lsn(4));
        let mut short_pad = vec![0xaa; 16];
        encode_pad(&mut short_pad, SEED, Lsn(6), Lsn(4));
        let large = vec![7; 66_000];
        vec![
            encode(&put(b"key", b"some value", None), 1, false),
            encode(&put(b"key", b"some value", Some(77)), 2, true),
            encode(&put(b"key", &large, Some(77)), 3, false)[..].to_vec(),
            tombstone,
            pad,
            short_pad,
        ]
    }

    #[test]
    fn no_truncation_is_accepted() {
        for bytes in samples() {
            assert!(is_whole(&bytes, SEED));
            let step = if bytes.len() > 1000 { 997 } else { 1 };
            for len in (0..bytes.len()).step_by(step) {
                assert!(!is_whole(&bytes[..len], SEED), "{len} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn no_flipped_bit_is_accepted() {
        for mut bytes in samples() {
            let step = if bytes.len() > 1000 { 1009 } else { 1 };
            for bit in (0..bytes.len() * 8).step_by(step) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_whole(&bytes, SEED), "bit {bit} of {}", bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_header_that_verifies_may_say_anything() {
        // Random headers with a right checksum: whatever they say, nothing outside is touched.
        let mut random = crate::testing::disk::SimRandom::new(1);
        let (mut valid, mut whole) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = vec![0; 16 + random.below(6) * 8];
            random.fill(&mut bytes);
            let flags = bytes[11] >> 4;
            let header_len = 16 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1)) as usize;
            let header_len = header_len.min(bytes.len());
            let crc = crc32c::crc32c_append(SEED.0, &bytes[4..header_len]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            if let Ok(header) = Header::decode(&bytes, SEED) {
                valid += 1;
                whole += usize::from(header.verify_payload(&bytes).is_ok());
            }
        }
        assert!(valid > 1000, "{valid}");
        assert_eq!(whole, 0);
    }

    #[test]
    fn a_record_of_another_place_or_life_is_refused() {
        let bytes = encode(&put(b"key", b"value", None), 1, false);
        for other in [0u32, 0x1234_5679, !0x1234_5678] {
            assert_eq!(Header::decode(&bytes, PlaceSeed(other)), Err(Invalid::Header));
        }
        assert_eq!(PlaceSeed::new(0x1234_0000, 0x5678), SEED);
    }

    #[test]
    fn zeros_are_no_record_whatever_the_seed() {
        // One seed in 2^32 gives the checksum 0 over zeros: such a header must fail all the same.
        let bytes = [0; 32];
        let colliding = seed_for_zero_checksum();
        assert_eq!(crc32c::crc32c_append(colliding, &bytes[4..16]), 0);
        assert_eq!(Header::decode(&bytes, PlaceSeed(colliding)), Err(Invalid::Header));
    }

    /// The checksum is linear in its seed, so the seed that gives 0 over twelve zeros follows
    /// from the images of the 32 unit seeds by elimination.
    fn seed_for_zero_checksum() -> u32 {
        let image = |seed: u32| crc32c::crc32c_append(seed, &[0; 12]);
        let constant = image(0);
        let mut rows: Vec<(u32, u32)> =
            (0..32).map(|bit| (image(1 << bit) ^ constant, 1 << bit)).collect();
        let (mut target, mut seed) = (constant, 0);
        for bit in 0..32 {
            let Some(at) = rows.iter().position(|row| row.0 >> bit & 1 == 1) else { continue };
            let pivot = rows.swap_remove(at);
            for row in &mut rows {
                if row.0 >> bit & 1 == 1 {
                    *row = (row.0 ^ pivot.0, row.1 ^ pivot.1);
                }
            }
            if target >> bit & 1 == 1 {
                (target, seed) = (target ^ pivot.0, seed ^ pivot.1);
            }
        }
        seed
    }

    #[test]
    fn a_filler_is_not_shorter_than_its_header() {
        let mut bytes = [0; 32];
        let flags = super::WIDE;
        let word = super::word(Lsn(1), super::KIND_PAD, flags);
        super::finish_header(&mut bytes[..24], SEED, word, 1 << super::KEY_LEN_BITS);
        assert_eq!(Header::decode(&bytes, SEED), Err(Invalid::Header));
        super::finish_header(&mut bytes[..24], SEED, word, 2 << super::KEY_LEN_BITS);
        let header = Header::decode(&bytes, SEED).unwrap();
        assert_eq!(header.verify_payload(&bytes), Ok(()));
    }
}
