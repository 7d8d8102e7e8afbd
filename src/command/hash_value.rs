//! The stored form of a hash: one byte string, the fields in the order in which they first came.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | layout: 1 |
//! | 1 | 1-5 | number of fields, a varint, at least 1 |
//!
//! and then for every field
//!
//! | bytes | what |
//! | --- | --- |
//! | 1-5 | length of the field, a varint |
//! | n | the field |
//! | 1-5 | length of the value, a varint |
//! | m | the value |
//!
//! The last value ends the string, and no field comes twice. A varint is a number of at most 32
//! bits in little-endian base 128: seven bits in a byte, the lowest first, the top bit set in
//! every byte but the last.
//!
//! A change copies the runs of bytes between the entries that it touches, so its cost is that of
//! one pass over the value plus the fields that it names.

use std::ops::Range;

use crate::shard::view::Stop;

const LAYOUT: u8 = 1;
const VARINT_LEN_MAX: usize = 5;

/// Shortest entry: an empty field with an empty value.
const ENTRY_LEN_MIN: usize = 2;

/// The stored bytes are not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl From<Damaged> for Stop {
    fn from(_: Damaged) -> Stop {
        Stop::error("ERR the stored hash is damaged")
    }
}

/// A hash as it is stored. Every access checks bounds; damage is found where it is reached.
#[derive(Clone, Copy, Debug)]
pub struct HashValue<'a> {
    count: usize,
    entries: &'a [u8],
}

impl<'a> HashValue<'a> {
    /// The hash of a key that does not exist.
    pub const EMPTY: HashValue<'static> = HashValue { count: 0, entries: &[] };

    pub fn parse(bytes: &'a [u8]) -> Result<HashValue<'a>, Damaged> {
        let [LAYOUT, rest @ ..] = bytes else { return Err(Damaged) };
        let (count, entries) = take_varint(rest)?;
        if count == 0 || count > entries.len() / ENTRY_LEN_MIN {
            return Err(Damaged);
        }
        Ok(HashValue { count, entries })
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of all fields and values with their length prefixes, in bytes.
    pub fn entries_len(&self) -> usize {
        self.entries.len()
    }

    /// The fields in stored order.
    pub fn entries(&self) -> Entries<'a> {
        Entries { total_len: self.entries.len(), rest: self.entries, left: self.count }
    }

    pub fn get(&self, field: &[u8]) -> Result<Option<&'a [u8]>, Damaged> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.field == field {
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }
}

/// One field of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub field: &'a [u8],
    pub value: &'a [u8],
    /// Where the entry lies among the entries' bytes.
    span: Range<usize>,
}

/// Iterator over the entries of a hash. Ends after the first damage.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    total_len: usize,
    rest: &'a [u8],
    left: usize,
}

impl<'a> Entries<'a> {
    fn take(&mut self) -> Result<Entry<'a>, Damaged> {
        let start = self.total_len - self.rest.len();
        let (field, rest) = take_text(self.rest)?;
        let (value, rest) = take_text(rest)?;
        self.rest = rest;
        self.left -= 1;
        if self.left == 0 && !rest.is_empty() {
            return Err(Damaged);
        }
        Ok(Entry { field, value, span: start..self.total_len - rest.len() })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let entry = self.take();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Changes to a hash, collected in stored order and then applied in one copy.
#[derive(Debug)]
pub struct Edit<'a> {
    old: HashValue<'a>,
    /// Entries that go, and the field and value that take their place.
    changes: Vec<(Range<usize>, Option<Pair<'a>>)>,
    added: Vec<Pair<'a>>,
    removed_count: usize,
}

/// A field and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

impl<'a> Edit<'a> {
    pub fn new(old: HashValue<'a>) -> Edit<'a> {
        Edit { old, changes: Vec::new(), added: Vec::new(), removed_count: 0 }
    }

    /// Gives an entry another value. Entries are changed in the order of [`HashValue::entries`].
    pub fn replace(&mut self, entry: &Entry<'a>, value: &'a [u8]) {
        self.change(entry, Some((entry.field, value)));
    }

    pub fn remove(&mut self, entry: &Entry<'a>) {
        self.removed_count += 1;
        self.change(entry, None);
    }

    fn change(&mut self, entry: &Entry<'a>, with: Option<Pair<'a>>) {
        debug_assert!(self.changes.last().is_none_or(|(span, _)| span.end <= entry.span.start));
        self.changes.push((entry.span.clone(), with));
    }

    /// Appends a field that the hash does not have.
    pub fn add(&mut self, field: &'a [u8], value: &'a [u8]) {
        self.added.push((field, value));
    }

    pub fn added_count(&self) -> usize {
        self.added.len()
    }

    pub fn removed_count(&self) -> usize {
        self.removed_count
    }

    /// Number of fields after the edit.
    pub fn count(&self) -> usize {
        self.old.count + self.added.len() - self.removed_count
    }

    /// The stored form of the edited hash, which must have a field.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.count() > 0);
        let mut out = Vec::with_capacity(self.encoded_len_max());
        out.push(LAYOUT);
        put_varint(&mut out, self.count());
        let mut copied = 0;
        for (span, with) in &self.changes {
            out.extend_from_slice(&self.old.entries[copied..span.start]);
            with.iter().for_each(|pair| put_pair(&mut out, pair));
            copied = span.end;
        }
        out.extend_from_slice(&self.old.entries[copied..]);
        self.added.iter().for_each(|pair| put_pair(&mut out, pair));
        out
    }

    fn encoded_len_max(&self) -> usize {
        let replaced = self.changes.iter().filter_map(|(_, with)| with.as_ref());
        let pairs = replaced.chain(&self.added);
        let grown: usize = pairs.map(|(f, v)| f.len() + v.len() + 2 * VARINT_LEN_MAX).sum();
        let gone: usize = self.changes.iter().map(|(span, _)| span.len()).sum();
        1 + VARINT_LEN_MAX + self.old.entries.len() - gone + grown
    }
}

fn put_pair(out: &mut Vec<u8>, (field, value): &Pair<'_>) {
    put_varint(out, field.len());
    out.extend_from_slice(field);
    put_varint(out, value.len());
    out.extend_from_slice(value);
}

/// Lengths and counts are bounded by `limits::BULK_LEN_MAX` and `limits::ARGS_MAX` per command,
/// and the whole value by the former, so they fit in 32 bits.
fn put_varint(out: &mut Vec<u8>, number: usize) {
    debug_assert!(u32::try_from(number).is_ok());
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn take_varint(bytes: &[u8]) -> Result<(usize, &[u8]), Damaged> {
    // Most lengths are short.
    if let [byte @ 0..0x80, rest @ ..] = bytes {
        return Ok((usize::from(*byte), rest));
    }
    let mut number = 0u64;
    for (at, &byte) in bytes.iter().take(VARINT_LEN_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            let number = u32::try_from(number).map_err(|_| Damaged)?;
            return Ok((number as usize, &bytes[at + 1..]));
        }
    }
    Err(Damaged)
}

fn take_text(bytes: &[u8]) -> Result<(&[u8], &[u8]), Damaged> {
    let (len, rest) = take_varint(bytes)?;
    rest.split_at_checked(len).ok_or(Damaged)
}

#[cfg(test)]
mod tests {
    use super::{Damaged, Edit, Entry, HashValue, Pair, put_varint, take_varint};

    fn hash(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut edit = Edit::new(HashValue::EMPTY);
        pairs.iter().for_each(|(field, value)| edit.add(field, value));
        edit.encode()
    }

    fn pairs(bytes: &[u8]) -> Result<Vec<Pair<'_>>, Damaged> {
        HashValue::parse(bytes)?.entries().map(|e| e.map(|e| (e.field, e.value))).collect()
    }

    fn entry<'a>(hash: HashValue<'a>, field: &[u8]) -> Entry<'a> {
        hash.entries().map(Result::unwrap).find(|entry| entry.field == field).unwrap()
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let long = [b'v'; 300];
        let bytes = hash(&[(b"ab", b"c"), (b"", &long)]);
        let mut expected = vec![1, 2, 2, b'a', b'b', 1, b'c', 0, 0xac, 0x02];
        expected.extend_from_slice(&long);
        assert_eq!(bytes, expected);
        let hash = HashValue::parse(&bytes).unwrap();
        assert_eq!(hash.get(b""), Ok(Some(&long[..])));
        assert_eq!(hash.get(b"ab"), Ok(Some(&b"c"[..])));
        assert_eq!(hash.get(b"a"), Ok(None));
    }

    #[test]
    fn edits_keep_the_order() {
        let bytes = hash(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")]);
        let old = HashValue::parse(&bytes).unwrap();
        let mut edit = Edit::new(old);
        edit.remove(&entry(old, b"a"));
        edit.replace(&entry(old, b"c"), b"three");
        edit.add(b"e", b"5");
        assert_eq!((edit.count(), edit.added_count(), edit.removed_count()), (4, 1, 1));
        let new = edit.encode();
        let expected: &[(&[u8], &[u8])] =
            &[(b"b", b"2"), (b"c", b"three"), (b"d", b"4"), (b"e", b"5")];
        assert_eq!(pairs(&new).unwrap(), expected);
    }

    #[test]
    fn varints_cover_32_bits_and_no_more() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u32::MAX as usize] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            bytes.push(9);
            assert_eq!(take_varint(&bytes), Ok((number, &[9u8][..])));
        }
        assert_eq!(take_varint(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(Damaged));
        assert_eq!(take_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(Damaged));
        assert_eq!(take_varint(&[0x80]), Err(Damaged));
        assert_eq!(take_varint(&[]), Err(Damaged));
    }

    #[test]
    fn every_cut_and_every_surplus_is_found() {
        let bytes = hash(&[(b"field", b"value"), (b"g", &[7; 200])]);
        for len in 0..bytes.len() {
            assert_eq!(pairs(&bytes[..len]), Err(Damaged), "cut to {len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(pairs(&longer), Err(Damaged));
    }

    #[test]
    fn wrong_layout_and_impossible_counts_are_found() {
        assert_eq!(pairs(&[2, 1, 0, 0]), Err(Damaged));
        assert_eq!(pairs(&[1, 0]), Err(Damaged));
        assert_eq!(pairs(&[1, 2, 0, 0]), Err(Damaged));
        assert_eq!(pairs(&[1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]), Err(Damaged));
        assert_eq!(pairs(&[1, 1, 0, 0]), Ok(vec![(&b""[..], &b""[..])]));
    }

    /// Flips every bit: decoding ends, with an answer or with damage, and reads nothing outside.
    #[test]
    fn a_flipped_bit_never_panics() {
        let bytes = hash(&[(b"field", b"value"), (b"g", &[7; 200]), (b"", b"")]);
        let mut damaged = 0;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            damaged += usize::from(pairs(&flipped).is_err());
        }
        // Both header bytes and the six lengths: every flip there shows.
        assert!(damaged >= 8 * 8, "{damaged}");
    }
}
