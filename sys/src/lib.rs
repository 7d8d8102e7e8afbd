//! The C side: SPDK's and DPDK's functions as bindgen declares them, and the shim of `shim.c`.
//!
//! No logic here. Who calls it: `mem/environment.rs` and `disk/spdk/` of the server. Without the
//! feature `spdk` this crate is empty and needs nothing.

#[cfg(feature = "spdk")]
#[allow(
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

#[cfg(feature = "spdk")]
pub use bindings::*;
