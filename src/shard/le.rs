//! Little-endian fields of what is on the device.

use crate::shard::index::KeyHash;

/// Bytes of a key's hash on the device.
pub const HASH_BYTES: usize = 12;

pub fn put_u16(buf: &mut [u8], at: usize, value: u16) {
    buf[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub fn put_u32(buf: &mut [u8], at: usize, value: u32) {
    buf[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub fn put_u64(buf: &mut [u8], at: usize, value: u64) {
    buf[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub fn put_hash(buf: &mut [u8], at: usize, hash: &KeyHash) {
    put_u64(buf, at, hash.tag);
    put_u32(buf, at + 8, hash.place);
}

pub fn get_u16(buf: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([buf[at], buf[at + 1]])
}

pub fn get_u32(buf: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&buf[at..at + 4]);
    u32::from_le_bytes(bytes)
}

pub fn get_u64(buf: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&buf[at..at + 8]);
    u64::from_le_bytes(bytes)
}

pub fn get_hash(buf: &[u8], at: usize) -> KeyHash {
    KeyHash { tag: get_u64(buf, at), place: get_u32(buf, at + 8) }
}
