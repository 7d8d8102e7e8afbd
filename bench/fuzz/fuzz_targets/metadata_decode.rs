//! Superblocks, segment headers, trailers and footer entries: what is not one is refused, and
//! what is says the same after it has been written again. The first byte of the input chooses
//! which of them; with its high bit the checksum is made right first.

#![no_main]

use lavik::limits::{DEVICES_MAX, SECTOR_SIZE_MAX};
use lavik::shard::footer::{Entries, Entry, TRAILER_BYTES, Trailer};
use lavik::shard::record::Lsn;
use lavik::shard::segment::{self, Header, SEGMENT_SIZE};
use lavik::shard::superblock::{SUPERBLOCK_BYTES, Superblock};
use libfuzzer_sys::fuzz_target;

const SEED: u32 = 0x5eed;

/// The input at its start, zero behind it.
fn padded<const N: usize>(input: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = input.len().min(N);
    bytes[..len].copy_from_slice(&input[..len]);
    bytes
}

/// Makes the checksum in the last four bytes right.
fn seal(bytes: &mut [u8], seed: u32) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c_append(seed, &bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

fn superblock(input: &[u8], right: bool) {
    let mut bytes = padded::<SUPERBLOCK_BYTES>(input);
    if right {
        bytes[..8].copy_from_slice(b"LAVIKSET");
        seal(&mut bytes, 0);
    }
    let Ok(found) = Superblock::decode(&bytes) else { return };
    let state = &found.state;
    assert!(usize::from(found.device) < state.members.len());
    assert!(state.members.len() <= DEVICES_MAX);
    assert!(state.sector_size.is_power_of_two() && state.sector_size <= SECTOR_SIZE_MAX as u32);
    assert!(state.horizons.iter().all(|horizon| *horizon <= Lsn::MAX));
    let mut again = [0xaa; SUPERBLOCK_BYTES];
    found.encode(&mut again);
    assert!(Superblock::decode(&again).is_ok_and(|copy| copy == found));
}

fn segment_header(input: &[u8], right: bool) {
    let mut bytes = padded::<{ segment::HEADER_BYTES }>(input);
    if right {
        bytes[..8].copy_from_slice(b"LAVIKSEG");
        seal(&mut bytes, 0);
    }
    let Ok(found) = Header::decode(&bytes) else { return };
    assert!(found.base <= Lsn::MAX && found.previous <= Lsn::MAX && found.durable <= Lsn::MAX);
    let mut again = [0xaa; 512];
    found.encode(&mut again);
    assert_eq!(Header::decode(&again), Ok(found));
}

fn trailer(input: &[u8], right: bool) {
    let mut bytes = padded::<TRAILER_BYTES>(input);
    if right {
        bytes[..8].copy_from_slice(b"LAVIKEND");
        seal(&mut bytes, SEED);
    }
    let Some(found) = Trailer::decode(&bytes, SEED) else { return };
    assert!(found.last() >= found.base && found.last() <= Lsn::MAX);
    assert!(found.entries_bytes as usize + TRAILER_BYTES <= SEGMENT_SIZE);
    let mut again = [0xaa; TRAILER_BYTES];
    found.encode(&mut again, SEED);
    assert_eq!(Trailer::decode(&again, SEED), Some(found));
}

fn entries(input: &[u8]) {
    let mut bytes = 0;
    for (_, entry) in Entries::new(input, 32) {
        bytes += entry.len_bytes();
        assert!(entry.value_len().is_none_or(|len| len <= SEGMENT_SIZE));
        let mut again = vec![0xaa; entry.len_bytes()];
        entry.encode(&mut again);
        assert_eq!(Entry::decode(&again), Some(entry));
    }
    assert!(bytes <= input.len());
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    let right = choice & 0x80 != 0;
    match choice & 3 {
        0 => superblock(rest, right),
        1 => segment_header(rest, right),
        2 => trailer(rest, right),
        _ => entries(rest),
    }
});
