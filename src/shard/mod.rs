//! The keys of one core: index in DRAM, records in the log. The only door to both.

pub mod index;
pub mod view;
