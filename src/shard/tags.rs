//! Tags of the shard's own device requests.

/// Tags of the shard's own requests have the top bit set; the next three bits say what it is.
pub const OWN_TAG: u64 = 1 << 63;
const KIND_SHIFT: u32 = 60;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// Kinds of own requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagKind {
    Write = 0,
    Footer = 1,
    Flush = 2,
    Free = 3,
    Superblock = 4,
    Recovery = 5,
    Defrag = 6,
}

pub fn tag(kind: TagKind, number: u64) -> u64 {
    debug_assert!(number <= NUMBER_MASK);
    OWN_TAG | (kind as u64) << KIND_SHIFT | number
}

pub fn untag(tag: u64) -> Option<(TagKind, u64)> {
    let kind = match tag >> KIND_SHIFT {
        8 => TagKind::Write,
        9 => TagKind::Footer,
        10 => TagKind::Flush,
        11 => TagKind::Free,
        12 => TagKind::Superblock,
        13 => TagKind::Recovery,
        14 => TagKind::Defrag,
        _ => return None,
    };
    Some((kind, tag & NUMBER_MASK))
}
