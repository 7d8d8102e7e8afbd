//! The keys of one core: index in DRAM, records in the log. The only door to both.

pub mod index;
mod index_arena;
mod index_hash;
mod index_pages;
mod index_partitions;
mod index_slot;
#[cfg(test)]
mod index_tests;
pub mod view;
