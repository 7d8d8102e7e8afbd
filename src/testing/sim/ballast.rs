//! Ballast: keys that fill the devices, so that defrag moves records and segments come back.
//!
//! They lie in a database of their own, and each has one command at a time: it holds the last
//! version that was answered, or one sent after it. The value follows from key and version, and
//! some versions are deletes.

use super::audit::words;
use super::client::Owed;
use super::group::OpId;
use super::reply::Reply;
use super::world::World;

/// The database of the ballast.
const DB: usize = 2;
/// Every so many versions one is a delete.
const DELETES_EVERY: u64 = 5;
/// Keys written, and read, in one pipeline.
const BATCH: usize = 16;
/// Keys looked at now and then; after restarts and at the end it is all of them.
const SAMPLE: usize = 48;

/// When the ballast is read, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A restart: what is found is durable.
    Started,
    Sample,
    All,
}

/// One key.
#[derive(Clone, Debug, Default)]
struct Key {
    /// The version that it had when that was last known; 0 is absent.
    known: u64,
    /// Commands since then.
    sent: Vec<Sent>,
    /// The last of them is not answered.
    under_way: bool,
}

#[derive(Clone, Debug)]
struct Sent {
    version: u64,
    /// Answered with success.
    done: Option<OpId>,
}

impl Key {
    /// The versions that it may have now, the oldest first.
    fn possible(&self) -> impl DoubleEndedIterator<Item = u64> {
        let done = self.sent.iter().rposition(|sent| sent.done.is_some());
        let known = done.is_none().then_some(self.known);
        let sent = self.sent[done.unwrap_or(0)..].iter().map(|sent| sent.version);
        known.into_iter().chain(sent)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ballast {
    keys: Vec<Key>,
    value_bytes: usize,
    /// The last version that was sent to any key.
    version: u64,
}

fn name(key: usize) -> Vec<u8> {
    format!("ballast{key}").into_bytes()
}

/// The value of a version; None where it is a delete.
fn value(key: usize, version: u64, len: usize) -> Option<Vec<u8>> {
    // 0 too: absent.
    if version.is_multiple_of(DELETES_EVERY) {
        return None;
    }
    let mark = format!("{key}.{version}.");
    let mut value = vec![b'a' + (version % 26) as u8; len.max(mark.len())];
    value[..mark.len()].copy_from_slice(mark.as_bytes());
    Some(value)
}

fn command(key: usize, version: u64, len: usize) -> Vec<Vec<u8>> {
    match value(key, version, len) {
        Some(value) => vec![b"SET".to_vec(), name(key), value],
        None => vec![b"DEL".to_vec(), name(key)],
    }
}

impl Ballast {
    pub fn new(bytes: u64, value_bytes: usize) -> Ballast {
        let count = if bytes == 0 { 0 } else { (bytes / value_bytes as u64).max(1) as usize };
        Ballast { keys: vec![Key::default(); count], value_bytes, version: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The next command on a key.
    fn next(&mut self, key: usize) -> Vec<Vec<u8>> {
        self.version += 1;
        let state = &mut self.keys[key];
        state.sent.push(Sent { version: self.version, done: None });
        state.under_way = true;
        command(key, self.version, self.value_bytes)
    }

    /// A command was answered, without an error if `done`.
    pub fn answered(&mut self, key: usize, version: u64, id: OpId, done: bool) {
        let state = &mut self.keys[key];
        state.under_way = false;
        let mut sent = state.sent.iter_mut().filter(|sent| sent.version == version);
        if let Some(sent) = sent.next().filter(|_| done) {
            sent.done = Some(id);
        }
    }

    /// The server has stopped: what may be there, as [`super::group::Group::stopped`].
    pub fn stopped(&mut self, complete: bool, durable: &dyn Fn(OpId) -> bool) {
        for key in &mut self.keys {
            let kept = |sent: &Sent| sent.done.is_some_and(|id| complete || durable(id));
            if let Some(last) = key.sent.iter().rposition(kept) {
                key.known = key.sent[last].version;
                key.sent.drain(..=last);
            }
            key.sent.iter_mut().for_each(|sent| sent.done = None);
            key.under_way = false;
        }
    }

    /// What was read of a key while nothing was under way.
    fn found(&mut self, key: usize, found: &Reply, look: Look) -> Result<(), String> {
        let (state, len) = (&mut self.keys[key], self.value_bytes);
        let is_found = |version: &u64| match (found, value(key, *version, len)) {
            (Reply::Bulk(bytes), Some(value)) => *bytes == value,
            (Reply::Null, None) => true,
            _ => false,
        };
        // Two deletes are the same.
        let Some(version) = state.possible().rev().find(is_found) else {
            return Err(format!("ballast {key} is {}, but: {state:?}", found.show()));
        };
        if look == Look::Started {
            state.known = version;
            state.sent.clear();
        }
        Ok(())
    }

    /// [`Ballast::found`] after a fault that may have brought back any version.
    fn found_damaged(&mut self, key: usize, found: &Reply) -> Result<(), String> {
        match found {
            Reply::Bulk(bytes) if version_of(key, bytes, self.value_bytes).is_none() => {
                Err(format!("ballast {key} was never {}", found.show()))
            }
            _ => Ok(()),
        }
    }
}

/// The version of a whole value.
fn version_of(key: usize, bytes: &[u8], len: usize) -> Option<u64> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(48)]).into_owned();
    let version = text.split('.').nth(1)?.parse().ok()?;
    (value(key, version, len)? == bytes).then_some(version)
}

impl World {
    /// Fills the devices, and a part of it once more.
    pub(super) fn load_ballast(&mut self) -> Result<(), String> {
        let mut keys: Vec<usize> = (0..self.ballast.keys.len()).collect();
        keys.extend(0..keys.len() / 2);
        for batch in keys.chunks(BATCH) {
            let mut commands = vec![words(&format!("SELECT {DB}"))];
            commands.extend(batch.iter().map(|&key| self.ballast.next(key)));
            let replies = self.call(&commands)?;
            let version = self.ballast.version - batch.len() as u64;
            for (at, (&key, reply)) in batch.iter().zip(&replies[1..]).enumerate() {
                let id = self.new_op();
                self.ballast_answered(key, version + 1 + at as u64, id, reply)?;
            }
        }
        Ok(())
    }

    /// A client overwrites or deletes a key of the ballast; false if there is none to be had.
    pub(super) fn churn(&mut self, client: usize) -> bool {
        if self.ballast.is_empty() {
            return false;
        }
        let key = self.random.below(self.ballast.keys.len());
        if self.ballast.keys[key].under_way {
            return false;
        }
        let command = self.ballast.next(key);
        let version = self.ballast.version;
        let id = self.new_op();
        let back = words(&format!("SELECT {}", self.clients[client].db));
        self.say(client, Owed::Select, &words(&format!("SELECT {DB}")));
        self.say(client, Owed::Ballast { id, key, version }, &command);
        self.say(client, Owed::Select, &back);
        true
    }

    /// A reply to SET or DEL on the ballast.
    pub(super) fn ballast_answered(
        &mut self,
        key: usize,
        version: u64,
        id: OpId,
        reply: &Reply,
    ) -> Result<(), String> {
        let done = match reply {
            Reply::Int(0 | 1) => true,
            Reply::Error(text) => {
                if !text.starts_with("NOSPACE") && !text.starts_with("IOERR") {
                    return Err(format!("ballast {key} was answered {text}"));
                }
                false
            }
            other if *other == Reply::ok() => true,
            other => return Err(format!("ballast {key} was answered {}", other.show())),
        };
        if done {
            self.acknowledge(id);
        }
        self.ballast.answered(key, version, id, done);
        Ok(())
    }

    /// Reads the ballast while nothing is under way.
    pub(super) fn check_ballast(&mut self, look: Look) -> Result<(), String> {
        let count = self.ballast.keys.len();
        let keys: Vec<usize> = match look {
            Look::Sample => (0..SAMPLE.min(count)).map(|_| self.random.below(count)).collect(),
            Look::Started | Look::All => (0..count).collect(),
        };
        let damaged = self.ground.disk.injected().lies > 0;
        for batch in keys.chunks(BATCH) {
            let mut commands = vec![words(&format!("SELECT {DB}"))];
            commands.extend(batch.iter().map(|&key| vec![b"GET".to_vec(), name(key)]));
            let replies = self.call(&commands)?;
            for (&key, reply) in batch.iter().zip(&replies[1..]) {
                match damaged {
                    true => self.ballast.found_damaged(key, reply)?,
                    false => self.ballast.found(key, reply, look)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ballast, Look, value};
    use crate::testing::sim::reply::Reply;

    /// Found after versions 1 and 2 were answered, the first durably, and 3 was not.
    #[test]
    fn a_key_holds_what_was_promised_and_nothing_that_was_lost() {
        let read = |version| value(0, version, 20).map_or(Reply::Null, Reply::Bulk);
        let mut ballast = Ballast::new(20, 20);
        for version in 1..=3 {
            ballast.next(0);
            ballast.answered(0, version, version as usize, version < 3);
        }
        assert!(ballast.found(0, &read(1), Look::All).is_err());
        assert!(ballast.found(0, &read(2), Look::All).is_ok());
        assert!(ballast.found(0, &read(3), Look::All).is_ok());
        ballast.stopped(false, &|id| id == 1);
        assert!(ballast.found(0, &read(1), Look::All).is_ok());
        assert!(ballast.found(0, &read(4), Look::All).is_err());
        assert!(ballast.found(0, &Reply::Null, Look::All).is_err());
        assert!(ballast.found(0, &Reply::Bulk(b"0.2.zzzz".to_vec()), Look::All).is_err());
        (0..2).for_each(|_| drop(ballast.next(0)));
        assert!(ballast.found(0, &Reply::Null, Look::All).is_ok(), "version 5 is a delete");
    }
}
