//! Memory of one core: page-aligned regions for device I/O, the buffers cut from them, and the
//! fixed tables that bound work in flight.

mod buf;
mod crc;
#[cfg(feature = "spdk")]
pub mod environment;
mod log_buf;
mod region;
mod slots;

pub use buf::{BufPool, DmaBuf};
pub use crc::crc32c;
pub use log_buf::{DmaSlice, LogBuf};
pub use region::Region;
pub use slots::{Slots, Ticket};
