//! What commands mean: a reference for a few keys in two databases, without a log, a device or
//! other cores.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::testing::clock::SimClock;

use super::reply::{Reply, show_bytes};

/// Databases that the simulator uses.
pub const DBS: usize = 2;
/// Names of keys in one group. Commands on several keys stay inside a group.
pub const NAMES: usize = 4;
/// Keys of a group: a name in a database.
pub const SLOTS: usize = DBS * NAMES;

/// `db * NAMES + name`.
pub type Slot = usize;

pub fn slot_db(slot: Slot) -> usize {
    slot / NAMES
}

pub fn slot_name(slot: Slot) -> usize {
    slot % NAMES
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Text(Rc<[u8]>),
    Hash(Rc<BTreeMap<Vec<u8>, Vec<u8>>>),
}

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    /// Bounds of the expiry in Unix milliseconds: when the command ran is known within bounds.
    pub expire: Option<(u64, u64)>,
    /// When the command that wrote it was sent, on the monotonic clock.
    pub since_ns: u64,
}

impl Entry {
    /// Whether a command that ran since `from_ns` may have seen the key as expired, or as there.
    /// The wall clock may have gone back: then an expired key is or is not there again.
    pub fn may_be(&self, from_ns: u64, clock: &SimClock) -> MayBe {
        let Some((low, high)) = self.expire else { return MayBe { there: true, gone: false } };
        let (least, _) = clock.wall_since(from_ns);
        let (_, most) = clock.wall_since(self.since_ns);
        MayBe { there: high > least, gone: low <= most }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayBe {
    pub there: bool,
    pub gone: bool,
}

pub type State = Vec<Option<Entry>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    Keep,
    At(u64),
    In(u64),
}

type Field = (Vec<u8>, Vec<u8>);

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Get(Slot),
    GetDel(Slot),
    Set {
        slot: Slot,
        value: Rc<[u8]>,
        condition: Condition,
        get: bool,
        expiry: Expiry,
    },
    StrLen(Slot),
    Append(Slot, Rc<[u8]>),
    IncrBy(Slot, i64),
    Del(Vec<Slot>),
    Exists(Vec<Slot>),
    MGet(Vec<Slot>),
    MSet(Vec<(Slot, Rc<[u8]>)>),
    MSetNx(Vec<(Slot, Rc<[u8]>)>),
    Rename {
        from: Slot,
        to: Slot,
        if_absent: bool,
    },
    Copy {
        from: Slot,
        to: Slot,
        replace: bool,
    },
    Move {
        from: Slot,
        to: Slot,
    },
    ExpireAt(Slot, u64),
    Persist(Slot),
    ExpireTime(Slot),
    Type(Slot),
    HSet(Slot, Vec<Field>),
    HGet(Slot, Vec<u8>),
    HDel(Slot, Vec<Vec<u8>>),
    HGetAll(Slot),
    /// A database, or all.
    Flush(Option<usize>),
    /// The two databases are exchanged.
    Swap,
}

impl Op {
    pub fn slots(&self) -> Vec<Slot> {
        match self {
            Op::Get(slot) | Op::GetDel(slot) | Op::StrLen(slot) | Op::Append(slot, _) => {
                vec![*slot]
            }
            Op::Set { slot, .. } | Op::IncrBy(slot, _) | Op::ExpireAt(slot, _) => vec![*slot],
            Op::Persist(slot) | Op::ExpireTime(slot) | Op::Type(slot) => vec![*slot],
            Op::HSet(slot, _) | Op::HGet(slot, _) | Op::HDel(slot, _) => vec![*slot],
            Op::HGetAll(slot) => vec![*slot],
            Op::Del(slots) | Op::Exists(slots) | Op::MGet(slots) => slots.clone(),
            Op::MSet(pairs) | Op::MSetNx(pairs) => pairs.iter().map(|(slot, _)| *slot).collect(),
            Op::Rename { from, to, .. } | Op::Copy { from, to, .. } => vec![*from, *to],
            Op::Move { from, to } => vec![*from, *to],
            Op::Flush(_) | Op::Swap => (0..SLOTS).collect(),
        }
    }

    pub fn is_global(&self) -> bool {
        matches!(self, Op::Flush(_) | Op::Swap)
    }
}

/// What a reply has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    Is(Reply),
    IntIn(i64, i64),
    /// Fields and values in any order.
    Pairs(Rc<BTreeMap<Vec<u8>, Vec<u8>>>),
    /// An error that starts so.
    Error(&'static str),
    /// Some error of the device.
    Failure,
}

impl Want {
    pub fn matches(&self, reply: &Reply) -> bool {
        match (self, reply) {
            (Want::Is(want), reply) => want == reply,
            (Want::IntIn(low, high), Reply::Int(n)) => low <= n && n <= high,
            (Want::Error(start), Reply::Error(text)) => text.starts_with(start),
            (Want::Pairs(map), Reply::Array(parts)) => {
                let mut pairs = parts.chunks_exact(2).map(|pair| match pair {
                    [Reply::Bulk(field), Reply::Bulk(value)] => map.get(field) == Some(value),
                    _ => false,
                });
                parts.len() == 2 * map.len() && pairs.all(|one| one)
            }
            _ => false,
        }
    }

    pub fn show(&self) -> String {
        match self {
            Want::Is(reply) => reply.show(),
            other => format!("{other:?}"),
        }
    }
}

pub type Effects = Vec<(Slot, Option<Entry>)>;

/// One way in which a command may have gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub effects: Effects,
    pub want: Want,
}

/// When a command ran: between being sent and now.
#[derive(Clone, Debug)]
pub struct Window {
    pub from_ns: u64,
    pub clock: SimClock,
}

/// All ways in which a command on keys may have gone: keys near their expiry are there or not.
pub fn outcomes(op: &Op, state: &State, window: &Window) -> Vec<Outcome> {
    let mut views: Vec<State> = vec![state.clone()];
    for slot in op.slots() {
        let Some(entry) = &state[slot] else { continue };
        let may_be = entry.may_be(window.from_ns, &window.clock);
        if may_be.gone {
            let gone: Vec<State> = views.iter().map(|view| without(view, slot)).collect();
            if !may_be.there {
                views.clear();
            }
            views.extend(gone);
        }
    }
    views.iter().map(|view| run(op, view, window)).collect()
}

fn without(view: &State, slot: Slot) -> State {
    let mut view = view.clone();
    view[slot] = None;
    view
}

const WRONG_TYPE: Want = Want::Error("WRONGTYPE");

fn reply(effects: Effects, reply: Reply) -> Outcome {
    Outcome { effects, want: Want::Is(reply) }
}

fn refusal(want: Want) -> Outcome {
    Outcome { effects: Vec::new(), want }
}

fn int(n: usize) -> Reply {
    Reply::Int(n as i64)
}

fn bulk(bytes: &[u8]) -> Reply {
    Reply::Bulk(bytes.to_vec())
}

/// The text at a slot, or None; the error is for another type.
fn text(view: &State, slot: Slot) -> Result<Option<&Rc<[u8]>>, Outcome> {
    match &view[slot] {
        None => Ok(None),
        Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
        Some(_) => Err(refusal(WRONG_TYPE)),
    }
}

type Map = Rc<BTreeMap<Vec<u8>, Vec<u8>>>;

fn hash(view: &State, slot: Slot) -> Result<Map, Outcome> {
    match &view[slot] {
        None => Ok(Rc::default()),
        Some(Entry { value: Value::Hash(map), .. }) => Ok(Rc::clone(map)),
        Some(_) => Err(refusal(WRONG_TYPE)),
    }
}

fn run(op: &Op, view: &State, window: &Window) -> Outcome {
    let result = match op {
        Op::HSet(..) | Op::HGet(..) | Op::HDel(..) | Op::HGetAll(_) => run_hash(op, view, window),
        Op::Set { .. } => run_set(op, view, window),
        Op::Get(_) | Op::GetDel(_) | Op::StrLen(_) | Op::Append(..) | Op::IncrBy(..) => {
            run_text(op, view, window)
        }
        Op::Rename { .. } | Op::Copy { .. } | Op::Move { .. } => Ok(run_move(op, view, window)),
        Op::ExpireAt(..) | Op::Persist(_) | Op::ExpireTime(_) | Op::Type(_) => {
            Ok(run_expiry(op, view, window))
        }
        _ => Ok(run_many(op, view, window)),
    };
    result.unwrap_or_else(|refused| refused)
}

fn run_text(op: &Op, view: &State, window: &Window) -> Result<Outcome, Outcome> {
    let changed = |slot: Slot, new: Vec<u8>| {
        let expire = view[slot].as_ref().and_then(|old| old.expire);
        let value = Value::Text(new.into());
        vec![(slot, Some(Entry { value, expire, since_ns: window.from_ns }))]
    };
    Ok(match op {
        Op::Get(slot) => match text(view, *slot)? {
            Some(text) => reply(vec![], bulk(text)),
            None => reply(vec![], Reply::Null),
        },
        Op::GetDel(slot) => match text(view, *slot)? {
            Some(text) => reply(vec![(*slot, None)], bulk(text)),
            None => reply(vec![], Reply::Null),
        },
        Op::StrLen(slot) => reply(vec![], int(text(view, *slot)?.map_or(0, |text| text.len()))),
        Op::Append(slot, more) => {
            let mut new = text(view, *slot)?.map_or(Vec::new(), |text| text.to_vec());
            new.extend_from_slice(more);
            let len = new.len();
            reply(changed(*slot, new), int(len))
        }
        Op::IncrBy(slot, by) => {
            let old = text(view, *slot)?.map(|text| String::from_utf8_lossy(text).parse::<i64>());
            match old.unwrap_or(Ok(0)).map(|old| old.checked_add(*by)) {
                Ok(Some(n)) => reply(changed(*slot, n.to_string().into_bytes()), Reply::Int(n)),
                _ => refusal(Want::Error("ERR ")),
            }
        }
        _ => panic!("not a command on a text"),
    })
}

fn run_set(op: &Op, view: &State, window: &Window) -> Result<Outcome, Outcome> {
    let Op::Set { slot, value, condition, get, expiry } = op else { panic!("not SET") };
    let old =
        if *get { text(view, *slot)?.map_or(Reply::Null, |text| bulk(text)) } else { Reply::ok() };
    let present = view[*slot].is_some();
    let passes = match condition {
        Condition::Always => true,
        Condition::IfAbsent => !present,
        Condition::IfPresent => present,
    };
    if !passes {
        return Ok(reply(vec![], if *get { old } else { Reply::Null }));
    }
    let expire = match expiry {
        Expiry::Never => None,
        Expiry::Keep => view[*slot].as_ref().and_then(|old| old.expire),
        Expiry::At(ms) => Some((*ms, *ms)),
        Expiry::In(ms) => {
            let (low, high) = window.clock.wall_since(window.from_ns);
            Some((low + ms, high + ms))
        }
    };
    let value = Value::Text(Rc::clone(value));
    Ok(reply(vec![(*slot, Some(Entry { value, expire, since_ns: window.from_ns }))], old))
}

fn run_hash(op: &Op, view: &State, window: &Window) -> Result<Outcome, Outcome> {
    let changed = |slot: Slot, map: BTreeMap<Vec<u8>, Vec<u8>>| {
        let expire = view[slot].as_ref().and_then(|old| old.expire);
        let value = Value::Hash(Rc::new(map));
        let entry = Entry { value, expire, since_ns: window.from_ns };
        let stays = !matches!(&entry.value, Value::Hash(map) if map.is_empty());
        vec![(slot, stays.then_some(entry))]
    };
    Ok(match op {
        Op::HSet(slot, fields) => {
            let mut map = BTreeMap::clone(&*hash(view, *slot)?);
            let before = map.len();
            map.extend(fields.iter().cloned());
            let added = map.len() - before;
            reply(changed(*slot, map), int(added))
        }
        Op::HDel(slot, fields) => {
            let mut map = BTreeMap::clone(&*hash(view, *slot)?);
            let removed = fields.iter().filter(|field| map.remove(*field).is_some()).count();
            let effects = if removed > 0 { changed(*slot, map) } else { vec![] };
            reply(effects, int(removed))
        }
        Op::HGet(slot, field) => match hash(view, *slot)?.get(field) {
            Some(value) => reply(vec![], bulk(value)),
            None => reply(vec![], Reply::Null),
        },
        Op::HGetAll(slot) => refusal(Want::Pairs(hash(view, *slot)?)),
        _ => panic!("not a command on a hash"),
    })
}

fn run_move(op: &Op, view: &State, window: &Window) -> Outcome {
    let there = |slot: Slot| view[slot].is_some();
    let copied = |from: Slot| {
        let old = view[from].clone();
        old.map(|old| Entry { since_ns: old.since_ns.min(window.from_ns), ..old })
    };
    match op {
        Op::Rename { from, .. } if !there(*from) => refusal(Want::Error("ERR no such key")),
        Op::Rename { from, to, if_absent } => {
            if *if_absent && there(*to) {
                return reply(vec![], Reply::Int(0));
            }
            if from == to {
                return reply(vec![], Reply::ok());
            }
            let effects = vec![(*to, copied(*from)), (*from, None)];
            reply(effects, if *if_absent { Reply::Int(1) } else { Reply::ok() })
        }
        Op::Copy { from, to, replace } => {
            if !there(*from) || (there(*to) && !replace) {
                return reply(vec![], Reply::Int(0));
            }
            reply(vec![(*to, copied(*from))], Reply::Int(1))
        }
        Op::Move { from, to } => {
            if !there(*from) || there(*to) {
                return reply(vec![], Reply::Int(0));
            }
            reply(vec![(*to, copied(*from)), (*from, None)], Reply::Int(1))
        }
        _ => panic!("not a command that moves keys"),
    }
}

fn run_expiry(op: &Op, view: &State, window: &Window) -> Outcome {
    match op {
        Op::ExpireAt(slot, ms) => {
            let Some(old) = &view[*slot] else { return reply(vec![], Reply::Int(0)) };
            let (low, _) = window.clock.wall_since(window.from_ns);
            let new = Entry {
                expire: Some((*ms, *ms)),
                since_ns: window.from_ns,
                value: old.value.clone(),
            };
            reply(vec![(*slot, (*ms > low).then_some(new))], Reply::Int(1))
        }
        Op::Persist(slot) => match &view[*slot] {
            Some(old) if old.expire.is_some() => {
                let new = Entry { expire: None, since_ns: window.from_ns, ..old.clone() };
                reply(vec![(*slot, Some(new))], Reply::Int(1))
            }
            _ => reply(vec![], Reply::Int(0)),
        },
        Op::ExpireTime(slot) => match &view[*slot] {
            None => reply(vec![], Reply::Int(-2)),
            Some(Entry { expire: None, .. }) => reply(vec![], Reply::Int(-1)),
            Some(Entry { expire: Some((low, high)), .. }) => {
                refusal(Want::IntIn(*low as i64, *high as i64))
            }
        },
        Op::Type(slot) => {
            let name = match &view[*slot] {
                None => "none",
                Some(Entry { value: Value::Text(_), .. }) => "string",
                Some(Entry { value: Value::Hash(_), .. }) => "hash",
            };
            reply(vec![], Reply::Simple(name.into()))
        }
        _ => panic!("not a command on an expiry"),
    }
}

fn run_many(op: &Op, view: &State, window: &Window) -> Outcome {
    let put = |(slot, value): &(Slot, Rc<[u8]>)| {
        let value = Value::Text(Rc::clone(value));
        (*slot, Some(Entry { value, expire: None, since_ns: window.from_ns }))
    };
    match op {
        Op::Del(slots) => {
            let there = slots.iter().filter(|slot| view[**slot].is_some());
            let effects: Effects = there.map(|slot| (*slot, None)).collect();
            let count = effects.len();
            reply(effects, int(count))
        }
        Op::Exists(slots) => {
            let count = slots.iter().filter(|slot| view[**slot].is_some()).count();
            reply(vec![], int(count))
        }
        Op::MGet(slots) => {
            let value = |slot: &Slot| match &view[*slot] {
                Some(Entry { value: Value::Text(text), .. }) => bulk(text),
                _ => Reply::Null,
            };
            reply(vec![], Reply::Array(slots.iter().map(value).collect()))
        }
        Op::MSet(pairs) => reply(pairs.iter().map(put).collect(), Reply::ok()),
        Op::MSetNx(pairs) => match pairs.iter().any(|(slot, _)| view[*slot].is_some()) {
            true => reply(vec![], Reply::Int(0)),
            false => reply(pairs.iter().map(put).collect(), Reply::Int(1)),
        },
        Op::Flush(_) | Op::Swap => reply(vec![], Reply::ok()),
        _ => panic!("not a command on many keys"),
    }
}

/// For a message.
pub fn show_state(state: &State) -> String {
    let show = |(slot, entry): (usize, &Option<Entry>)| {
        let entry = entry.as_ref()?;
        let value = match &entry.value {
            Value::Text(text) => show_bytes(text),
            Value::Hash(map) => format!("hash of {}", map.len()),
        };
        Some(format!("{}/{}={value} {:?}", slot_db(slot), slot_name(slot), entry.expire))
    };
    state.iter().enumerate().filter_map(show).collect::<Vec<_>>().join("; ")
}
