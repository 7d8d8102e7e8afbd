//! Bytes that are not a record are refused, and those that are come out as they went in. The
//! first eight bytes of the input choose the segment's seed and the place in the segment.

#![no_main]

use lavik::shard::index::KeyHash;
use lavik::shard::record::{
    self, Body, EXTENSION_BYTES, HEADER_BYTES, Header, Lsn, PlaceSeed, Put, UNIT,
};
use lavik::shard::view::Kind;
use libfuzzer_sys::fuzz_target;

/// What comes before the mutation and the payload in the input of [`written`].
const PLAN_BYTES: usize = 32;
const EXPIRY: u8 = 2 << 4;
const WIDE: u8 = 4 << 4;

/// Whatever the bytes are, a header that verifies describes a record that can be read.
fn any_bytes(bytes: &[u8], seed: PlaceSeed) {
    let Ok(header) = Header::decode(bytes, seed) else { return };
    assert!(header.units() > 0 && header.lsn <= Lsn::MAX);
    assert!(header.len_bytes() <= header.units() as usize * UNIT);
    if header.verify_payload(bytes).is_err() {
        return;
    }
    match header.body {
        Body::Value(_) => {
            let (key, value) = header.payload(bytes);
            let at = header.value_offset();
            assert!(at >= HEADER_BYTES && &bytes[at..at + value.len()] == value);
            assert!(at + value.len() < header.len_bytes() && key.len() < at);
        }
        Body::Tombstone => assert_eq!(header.units(), record::TOMBSTONE_UNITS),
        Body::Pad { units, .. } => assert_eq!(header.len_bytes(), units as usize * UNIT),
    }
}

/// Gives the bytes the checksum of a header, so that what it says is looked at.
fn sealed(bytes: &[u8], seed: u32) -> Option<Vec<u8>> {
    let flags = bytes.get(11)?;
    let extensions = [WIDE, EXPIRY].iter().filter(|&flag| flags & flag != 0).count();
    let mut bytes = bytes.to_vec();
    let header = bytes.get(4..HEADER_BYTES + EXTENSION_BYTES * extensions)?;
    let crc = crc32c::crc32c_append(seed, header);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Encodes what the input describes, checks it, changes up to four bytes of it in a row, which
/// a checksum always notices, and checks that it is noticed.
fn written(input: &[u8], seed: PlaceSeed) {
    let Some((plan, payload)) = input.split_first_chunk::<PLAN_BYTES>() else { return };
    let lsn = Lsn(number(&plan[..7]));
    let (what, db, continues) = (plan[7], plan[8] & 15, plan[8] & 16 != 0);
    let mut bytes = match what % 8 {
        0 => vec![0; record::TOMBSTONE_UNITS as usize * UNIT],
        1 => vec![0xaa; (1 + usize::from(plan[9])) * UNIT],
        _ => Vec::new(),
    };
    match what % 8 {
        0 => {
            let hash = KeyHash { tag: number(&plan[9..17]), place: number(&plan[17..21]) as u32 };
            record::encode_tombstone(&mut bytes, seed, lsn, db, &hash, continues);
            let header = Header::decode(&bytes, seed).expect("a tombstone");
            assert_eq!((header.body, header.db, header.lsn), (Body::Tombstone, db, lsn));
            assert_eq!(header.tombstone_hash(&bytes), hash);
        }
        1 => {
            let durable = Lsn(number(&plan[10..17]));
            record::encode_pad(&mut bytes, seed, lsn, durable);
            let header = Header::decode(&bytes, seed).expect("a filler");
            let units = (bytes.len() / UNIT) as u32;
            let durable = (units > 1).then_some(durable);
            assert_eq!((header.body, header.lsn), (Body::Pad { units, durable }, lsn));
        }
        kind => {
            let Some(kind) = Kind::from_bits(kind - 1) else { return };
            let (key, value) = payload.split_at(number(&plan[9..11]) as usize % (payload.len() + 1));
            // Long values need not come from the input.
            let value = value.repeat(1 + usize::from(plan[11]));
            let expire_at_ms = (plan[12] & 1 != 0).then(|| number(&plan[13..21]));
            let put = Put { db, key, kind, value: &value, expire_at_ms };
            bytes.resize(put.units() as usize * UNIT, 0xaa);
            put.encode(&mut bytes, seed, lsn, continues);
            let header = Header::decode(&bytes, seed).expect("a record");
            assert_eq!((header.body, header.db, header.lsn), (Body::Value(kind), db, lsn));
            assert_eq!((header.expire_at_ms, header.continues), (expire_at_ms, continues));
            assert_eq!(header.payload(&bytes), (key, &value[..]));
        }
    }
    let header = Header::decode(&bytes, seed).expect("what was written");
    assert_eq!(header.verify_payload(&bytes), Ok(()));
    // Four bytes, aligned: the checksum of the header is not contiguous with what it covers.
    let at = number(&plan[21..25]) as usize % (bytes.len() / 4) * 4;
    let before = bytes.clone();
    bytes[at..at + 4].iter_mut().zip(&plan[25..29]).for_each(|(byte, change)| *byte ^= change);
    let accepted = Header::decode(&bytes, seed)
        .is_ok_and(|header| header.verify_payload(&bytes).is_ok());
    assert_eq!(accepted, bytes == before, "a change at {at}");
}

fuzz_target!(|input: &[u8]| {
    let Some((place, rest)) = input.split_first_chunk::<8>() else { return };
    let (segment_seed, unit) = (number(&place[..4]) as u32, number(&place[4..]) as u32);
    let seed = PlaceSeed::new(segment_seed, unit);
    any_bytes(rest, seed);
    if let Some(bytes) = sealed(rest, segment_seed ^ unit) {
        any_bytes(&bytes, seed);
    }
    written(rest, seed);
});
