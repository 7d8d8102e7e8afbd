//! A read of the shard's own, of recovery or defrag, and how far it is.

use crate::disk::{Done, Errno};
use crate::mem::DmaBuf;

#[derive(Debug)]
pub enum Reading {
    Wanted,
    Submitted,
    Ready(DmaBuf),
    Failed(Errno),
}

impl From<Done> for Reading {
    fn from(done: Done) -> Reading {
        match (done.result, done.buf) {
            (Ok(()), Some(buf)) => Reading::Ready(buf),
            (Err(errno), _) => Reading::Failed(errno),
            (Ok(()), None) => Reading::Wanted,
        }
    }
}
