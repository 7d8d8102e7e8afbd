//! What a command sees of the keyspace: the keys that it named, as they are now, and a place
//! for what it changes.
//!
//! A command is a synchronous function over a [`View`]. It never waits. When it asks for bytes
//! that are not in memory, the accessor returns [`Stop::Fault`]; the command passes it up with
//! `?` and has changed nothing. The driver loads the bytes and runs the command again from the
//! start. What a command writes is buffered in the view and becomes one unit in the log after
//! the command has returned `Ok`.
//!
//! A key that expired at [`View::now_ms`] is absent to every accessor. A key named twice in one
//! command is one key: both positions show the same state, also after a write.

use std::borrow::Cow;

use crate::limits::BULK_LEN_MAX;

/// The type of a value. The numbers are part of the disk format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    String = 1,
    List = 2,
    Set = 3,
    ZSet = 4,
    Hash = 5,
    Stream = 6,
    /// A string in parts ([`crate::shard::parts`]). Commands see a string.
    Chain = 7,
    /// A part of one; not a key.
    Part = 8,
}

impl Kind {
    pub fn from_bits(bits: u8) -> Option<Kind> {
        Some(match bits {
            1 => Kind::String,
            2 => Kind::List,
            3 => Kind::Set,
            4 => Kind::ZSet,
            5 => Kind::Hash,
            6 => Kind::Stream,
            7 => Kind::Chain,
            8 => Kind::Part,
            _ => return None,
        })
    }

    /// The type that commands see.
    pub fn of_value(self) -> Kind {
        if self == Kind::Chain { Kind::String } else { self }
    }

    /// The word that TYPE replies.
    pub fn name(self) -> &'static str {
        match self {
            Kind::String | Kind::Chain | Kind::Part => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::ZSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        }
    }
}

/// What the index knows of a live key without reading the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub kind: Kind,
    /// Exact length of the stored value in bytes, when the index can hold it.
    pub value_len: Option<u32>,
    /// Unix time in milliseconds at which the key expires.
    pub expire_at_ms: Option<u64>,
    /// The value is longer than a record should be and lies in parts.
    pub in_parts: bool,
}

/// Why a command did not finish.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Bytes are missing; load them and run again.
    Fault(Fault),
    /// The error reply, without the leading `-` and the line end: `ERR syntax error`.
    Error(Cow<'static, str>),
}

impl Stop {
    /// An error reply of fixed text.
    pub const fn error(text: &'static str) -> Stop {
        Stop::Error(Cow::Borrowed(text))
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Stop {
        Stop::Error(Cow::Owned(text))
    }
}

/// Which values are to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The value of the key at this position among the command's keys.
    Key(usize),
    /// At least these bytes of it.
    Range { key: usize, start: usize, end: usize },
    /// The values of all keys of the command that exist.
    All,
}

pub const WRONG_TYPE: Stop =
    Stop::error("WRONGTYPE Operation against a key holding the wrong kind of value");

/// The value of a key in memory, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident<'a> {
    No,
    Yes(&'a [u8]),
    /// The bytes from `start` on, not all.
    Range {
        start: usize,
        bytes: &'a [u8],
    },
}

/// A value with what the index knows of it.
pub type Stored<'a> = (Meta, Cow<'a, [u8]>);

/// What a command does to a key; the last one wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    Put {
        kind: Kind,
        value: Cow<'a, [u8]>,
        expire_at_ms: Option<u64>,
    },
    /// Other bytes from `offset` on; what is missing before them is zero. Of a value in parts.
    Patch {
        offset: usize,
        bytes: &'a [u8],
        expire_at_ms: Option<u64>,
    },
    /// Another expiry. Of a value in parts.
    Expire {
        expire_at_ms: Option<u64>,
    },
    Delete,
}

/// One distinct key of a command.
#[derive(Clone, Debug)]
pub struct KeyState<'a> {
    pub name: &'a [u8],
    /// None when the key does not exist (or has expired).
    pub meta: Option<Meta>,
    pub value: Resident<'a>,
    pub write: Option<Write<'a>>,
}

/// A sequence of pseudo-random bits.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0. The bias is below `end` / 2^64.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next_u64()) * end as u128) >> 64) as usize
    }
}

/// The keyspace as one run of one command may see it.
#[derive(Debug)]
pub struct View<'a> {
    now_ms: u64,
    random: Random,
    keys: Vec<KeyState<'a>>,
    /// Position among the command's keys -> place in `keys`. Empty when they are the same.
    places: Vec<u32>,
}

impl<'a> View<'a> {
    /// `keys` are distinct; `places` maps each key position of the command to one of them, and
    /// is empty when that is the identity. `random` seeds [`View::random`].
    pub fn new(now_ms: u64, random: u64, keys: Vec<KeyState<'a>>, places: Vec<u32>) -> View<'a> {
        View { now_ms, random: Random(random), keys, places }
    }

    fn place(&self, key: usize) -> usize {
        if self.places.is_empty() { key } else { self.places[key] as usize }
    }

    fn state(&self, key: usize) -> &KeyState<'a> {
        &self.keys[self.place(key)]
    }

    /// Wall-clock time of the command in Unix milliseconds: one reading for the whole command.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Pseudo-random bits: the same sequence again when the command runs again after a fault.
    pub fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// A generator of its own, for draws while a value is borrowed from the view.
    pub fn split_random(&mut self) -> Random {
        Random(self.random.next_u64())
    }

    /// Number of key positions of the command.
    pub fn len(&self) -> usize {
        if self.places.is_empty() { self.keys.len() } else { self.places.len() }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether two key positions name the same key.
    pub fn same(&self, a: usize, b: usize) -> bool {
        self.place(a) == self.place(b)
    }

    pub fn name(&self, key: usize) -> &'a [u8] {
        self.state(key).name
    }

    /// Never faults.
    pub fn exists(&self, key: usize) -> bool {
        self.state(key).meta.is_some()
    }

    /// Never faults.
    pub fn kind(&self, key: usize) -> Option<Kind> {
        self.state(key).meta.map(|meta| meta.kind)
    }

    /// Expiry in Unix milliseconds; None for a key that is absent or does not expire. Never
    /// faults.
    pub fn expire_at_ms(&self, key: usize) -> Option<u64> {
        self.state(key).meta.and_then(|meta| meta.expire_at_ms)
    }

    /// Stored length of the value in bytes (0 when absent). Faults only when the index cannot
    /// hold the length.
    pub fn value_len(&self, key: usize) -> Result<usize, Stop> {
        match self.state(key).meta {
            None => Ok(0),
            Some(Meta { value_len: Some(len), .. }) => Ok(len as usize),
            Some(_) => Ok(self.bytes(key)?.len()),
        }
    }

    /// Refuses a key that exists with another type. Never faults.
    pub fn expect(&self, key: usize, kind: Kind) -> Result<(), Stop> {
        match self.kind(key) {
            Some(found) if found != kind => Err(WRONG_TYPE),
            _ => Ok(()),
        }
    }

    /// The value, None when the key is absent, `WRONGTYPE` when it has another type.
    pub fn value(&self, key: usize, kind: Kind) -> Result<Option<&[u8]>, Stop> {
        self.expect(key, kind)?;
        if !self.exists(key) {
            return Ok(None);
        }
        Ok(Some(self.bytes(key)?))
    }

    /// The stored bytes of a key of any type; for RENAME, COPY and MOVE.
    pub fn any_value(&self, key: usize) -> Result<Option<(Meta, &[u8])>, Stop> {
        match self.state(key).meta {
            None => Ok(None),
            Some(meta) => Ok(Some((meta, self.bytes(key)?))),
        }
    }

    /// As [`View::any_value`], but free of the view, so that the bytes can be put elsewhere
    /// without a copy.
    pub fn any_value_shared(&self, key: usize) -> Result<Option<Stored<'a>>, Stop> {
        let state = self.state(key);
        let Some(meta) = state.meta else { return Ok(None) };
        match (&state.write, state.value) {
            (Some(Write::Put { value, .. }), _) => Ok(Some((meta, value.clone()))),
            (_, Resident::Yes(bytes)) => Ok(Some((meta, Cow::Borrowed(bytes)))),
            (_, Resident::No | Resident::Range { .. }) => Err(Stop::Fault(Fault::Key(key))),
        }
    }

    /// Whether the value lies in parts, so that bytes of it are read and written rather than all.
    /// Never faults.
    pub fn in_parts(&self, key: usize) -> bool {
        self.state(key).meta.is_some_and(|meta| meta.in_parts)
    }

    /// Bytes `start..end` of the value of a key that has them and that the command has not
    /// written.
    pub fn slice(&self, key: usize, start: usize, end: usize) -> Result<&[u8], Stop> {
        match self.state(key).value {
            _ if start == end => Ok(&[]),
            Resident::Yes(bytes) => Ok(&bytes[start..end]),
            Resident::Range { start: from, bytes }
                if from <= start && end <= from + bytes.len() =>
            {
                Ok(&bytes[start - from..end - from])
            }
            _ => Err(Stop::Fault(Fault::Range { key, start, end })),
        }
    }

    /// Writes `bytes` over the value of a key that [is in parts](View::in_parts), from `offset`
    /// on; zeros fill what is missing before. The expiry stays.
    pub fn patch(&mut self, key: usize, offset: usize, bytes: &'a [u8]) {
        let place = self.place(key);
        let Some(meta) = &mut self.keys[place].meta else { return };
        debug_assert!(meta.in_parts);
        let end = (offset + bytes.len()) as u32;
        meta.value_len = meta.value_len.map(|len| len.max(end));
        let expire_at_ms = meta.expire_at_ms;
        self.keys[place].write = Some(Write::Patch { offset, bytes, expire_at_ms });
    }

    fn bytes(&self, key: usize) -> Result<&[u8], Stop> {
        let state = self.state(key);
        if let Some(Write::Put { value, .. }) = &state.write {
            return Ok(value);
        }
        match state.value {
            Resident::Yes(bytes) => Ok(bytes),
            Resident::No | Resident::Range { .. } => Err(Stop::Fault(Fault::Key(key))),
        }
    }

    /// Asks for the values of all keys at once, so that they are read in parallel. For commands
    /// that will look at every key.
    pub fn load_all(&self) -> Result<(), Stop> {
        let missing = self.keys.iter().any(|state| {
            let there = matches!(state.value, Resident::Yes(_));
            state.meta.is_some() && state.write.is_none() && !there
        });
        if missing { Err(Stop::Fault(Fault::All)) } else { Ok(()) }
    }

    /// Sets the key to a value. An expiry that is not after now deletes the key instead.
    pub fn put(
        &mut self,
        key: usize,
        kind: Kind,
        value: impl Into<Cow<'a, [u8]>>,
        expire_at_ms: Option<u64>,
    ) {
        let value = value.into();
        debug_assert!(value.len() <= BULK_LEN_MAX || kind != Kind::String);
        if expire_at_ms.is_some_and(|at| at <= self.now_ms) {
            return self.delete(key);
        }
        let place = self.place(key);
        let value_len = Some(value.len() as u32);
        self.keys[place].meta = Some(Meta { kind, value_len, expire_at_ms, in_parts: false });
        self.keys[place].write = Some(Write::Put { kind, value, expire_at_ms });
    }

    /// Changes the expiry of a key that exists and keeps its value. One that is not after now
    /// deletes the key and does not fault.
    pub fn set_expiry(&mut self, key: usize, expire_at_ms: Option<u64>) -> Result<(), Stop> {
        if expire_at_ms.is_some_and(|at| at <= self.now_ms) {
            self.delete(key);
        } else if self.in_parts(key) {
            let place = self.place(key);
            if let Some(meta) = &mut self.keys[place].meta {
                meta.expire_at_ms = expire_at_ms;
            }
            self.keys[place].write = Some(Write::Expire { expire_at_ms });
        } else if let Some((meta, value)) = self.any_value_shared(key)? {
            self.put(key, meta.kind, value, expire_at_ms);
        }
        Ok(())
    }

    /// Removes the key; nothing happens when it does not exist.
    pub fn delete(&mut self, key: usize) {
        let place = self.place(key);
        if self.keys[place].meta.take().is_some() {
            self.keys[place].write = Some(Write::Delete);
        }
    }

    /// Ends the view: the distinct keys with what the command wrote.
    pub fn into_keys(self) -> Vec<KeyState<'a>> {
        self.keys
    }
}
