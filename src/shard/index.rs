//! The index: where each key's record is, in DRAM.
