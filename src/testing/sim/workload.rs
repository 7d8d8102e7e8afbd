//! Commands that the simulated clients send.

use std::rc::Rc;

use crate::testing::disk::SimRandom;

use super::model::{Condition, DBS, Expiry, NAMES, Op, Slot, slot_db, slot_name};
use super::options::Options;

/// The name of a key.
pub fn key(group: usize, slot: Slot) -> Vec<u8> {
    format!("group{group}:name{}", slot_name(slot)).into_bytes()
}

/// Draws a command on keys of the database `db`.
pub fn draw(random: &mut SimRandom, options: &Options, db: usize, wall_ms: u64) -> Op {
    let mut draw = Draw { random, options, db, wall_ms };
    let kinds = [12, options.many, options.hashes, options.expiring, options.globals];
    let total: u32 = kinds.iter().sum();
    let mut pick = draw.random.below(total as usize) as u32;
    let kind = kinds.iter().position(|&weight| {
        let hit = pick < weight;
        pick = pick.saturating_sub(weight);
        hit
    });
    match kind {
        Some(1) => draw.many(),
        Some(2) => draw.hash(),
        Some(3) => draw.expiry(),
        Some(4) => draw.global(),
        _ => draw.text(),
    }
}

struct Draw<'a> {
    random: &'a mut SimRandom,
    options: &'a Options,
    db: usize,
    wall_ms: u64,
}

impl Draw<'_> {
    fn slot(&mut self) -> Slot {
        self.db * NAMES + self.random.below(NAMES)
    }

    fn slots(&mut self) -> Vec<Slot> {
        let db = self.db;
        let mut slots: Vec<Slot> = (db * NAMES..(db + 1) * NAMES).collect();
        let count = 1 + self.random.below(NAMES);
        while slots.len() > count {
            slots.remove(self.random.below(slots.len()));
        }
        slots
    }

    fn value(&mut self) -> Rc<[u8]> {
        let most = match self.random.below(4) {
            0 => self.options.value_bytes,
            _ => self.options.value_bytes.min(64),
        };
        let len = self.random.below(most + 1);
        let mut bytes = vec![b'a' + self.random.below(26) as u8; len];
        let mark = format!("{:x}.", self.random.draw());
        let marked = mark.len().min(len);
        bytes[..marked].copy_from_slice(&mark.as_bytes()[..marked]);
        bytes.into()
    }

    fn time(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.wall_ms.saturating_sub(10),
            1 => self.wall_ms + 1_000_000,
            _ => self.wall_ms + self.random.below(60) as u64,
        }
    }

    fn set(&mut self) -> Op {
        let condition = match self.random.below(6) {
            0 => Condition::IfAbsent,
            1 => Condition::IfPresent,
            _ => Condition::Always,
        };
        let expiry = match self.random.below(8) {
            0 => Expiry::Keep,
            1 if self.options.expiring > 0 => Expiry::In(1 + self.random.below(50) as u64),
            2 if self.options.expiring > 0 => {
                Expiry::At(self.wall_ms + 1 + self.random.below(50) as u64)
            }
            _ => Expiry::Never,
        };
        let get = self.random.below(8) == 0;
        Op::Set { slot: self.slot(), value: self.value(), condition, get, expiry }
    }

    fn text(&mut self) -> Op {
        let slot = self.slot();
        match self.random.below(16) {
            0..4 => Op::Set {
                slot,
                value: self.value(),
                condition: Condition::Always,
                get: false,
                expiry: Expiry::Never,
            },
            4..6 => self.set(),
            6..10 => Op::Get(slot),
            10 => Op::GetDel(slot),
            11 => Op::StrLen(slot),
            12 => Op::Append(slot, self.value()[..].iter().copied().take(300).collect()),
            13 => Op::IncrBy(slot, self.random.below(1000) as i64 - 300),
            14 => Op::Del(vec![slot]),
            _ => Op::Type(slot),
        }
    }

    fn many(&mut self) -> Op {
        let slots = self.slots();
        let (from, mut to) = (self.slot(), self.slot());
        let mut other = || slots.iter().map(|&slot| (slot, self.value())).collect::<Vec<_>>();
        let pairs = other();
        match self.random.below(10) {
            0 | 1 => Op::MSet(pairs),
            2 => Op::MSetNx(pairs),
            3 | 4 => Op::MGet(slots),
            5 => Op::Del(slots),
            6 => Op::Exists(slots),
            7 => Op::Rename { from, to, if_absent: self.random.below(4) == 0 },
            8 => {
                if from == to {
                    to = (1 - self.db) * NAMES + slot_name(from);
                }
                Op::Copy { from, to, replace: self.random.below(2) == 0 }
            }
            _ => Op::Move { from, to: (1 - self.db) * NAMES + slot_name(from) },
        }
    }

    fn hash(&mut self) -> Op {
        // Hashes live on one name, so that they are not always overwritten.
        let slot = self.db * NAMES;
        let field = |random: &mut SimRandom| format!("f{}", random.below(6)).into_bytes();
        match self.random.below(8) {
            0..3 => {
                let count = 1 + self.random.below(3);
                let fields = (0..count).map(|_| {
                    let value = self.value()[..].iter().copied().take(3000).collect();
                    (field(self.random), value)
                });
                Op::HSet(slot, fields.collect())
            }
            3 | 4 => Op::HGet(slot, field(self.random)),
            5 => Op::HDel(slot, vec![field(self.random)]),
            _ => Op::HGetAll(slot),
        }
    }

    fn expiry(&mut self) -> Op {
        let slot = self.slot();
        match self.random.below(6) {
            0 | 1 => Op::ExpireAt(slot, self.time()),
            2 => Op::Persist(slot),
            3 => Op::ExpireTime(slot),
            4 => self.set(),
            _ => Op::Get(slot),
        }
    }

    fn global(&mut self) -> Op {
        // Rarely: a flush makes everything before it uninteresting.
        match self.random.below(40) {
            0 => Op::Flush(None),
            1 => Op::Flush(Some(self.db)),
            2 => Op::Swap,
            _ => self.text(),
        }
    }
}

fn join(name: &str, args: &[&[u8]]) -> Vec<Vec<u8>> {
    let words = name.split(' ').map(|word| word.as_bytes().to_vec());
    words.chain(args.iter().map(|arg| arg.to_vec())).collect()
}

/// The arguments of a command on keys of a group.
pub fn arguments(op: &Op, group: usize) -> Vec<Vec<u8>> {
    let name = |slot: &Slot| key(group, *slot);
    let one = |word: &str, slot: &Slot| join(word, &[&name(slot)]);
    let all = |word: &str, slots: &[Slot]| {
        let mut args = join(word, &[]);
        args.extend(slots.iter().map(name));
        args
    };
    let pairs = |word: &str, pairs: &[(Slot, Rc<[u8]>)]| {
        let mut args = join(word, &[]);
        args.extend(pairs.iter().flat_map(|(slot, value)| [name(slot), value.to_vec()]));
        args
    };
    match op {
        Op::Get(slot) => one("GET", slot),
        Op::GetDel(slot) => one("GETDEL", slot),
        Op::StrLen(slot) => one("STRLEN", slot),
        Op::Append(slot, more) => join("APPEND", &[&name(slot), more]),
        Op::IncrBy(slot, by) => join("INCRBY", &[&name(slot), by.to_string().as_bytes()]),
        Op::Del(slots) => all("DEL", slots),
        Op::Exists(slots) => all("EXISTS", slots),
        Op::MGet(slots) => all("MGET", slots),
        Op::MSet(list) => pairs("MSET", list),
        Op::MSetNx(list) => pairs("MSETNX", list),
        Op::Rename { from, to, if_absent } => {
            join(if *if_absent { "RENAMENX" } else { "RENAME" }, &[&name(from), &name(to)])
        }
        Op::Move { from, to } => join("MOVE", &[&name(from), slot_db(*to).to_string().as_bytes()]),
        Op::ExpireAt(slot, ms) => join("PEXPIREAT", &[&name(slot), ms.to_string().as_bytes()]),
        Op::Persist(slot) => one("PERSIST", slot),
        Op::ExpireTime(slot) => one("PEXPIRETIME", slot),
        Op::Type(slot) => one("TYPE", slot),
        Op::HGet(slot, field) => join("HGET", &[&name(slot), field]),
        Op::HGetAll(slot) => one("HGETALL", slot),
        Op::Flush(None) => join("FLUSHALL", &[]),
        Op::Flush(Some(_)) => join("FLUSHDB", &[]),
        Op::Swap => join("SWAPDB 0 1", &[]),
        Op::Set { .. } | Op::Copy { .. } | Op::HSet(..) | Op::HDel(..) => with_options(op, group),
    }
}

fn with_options(op: &Op, group: usize) -> Vec<Vec<u8>> {
    let name = |slot: &Slot| key(group, *slot);
    match op {
        Op::Set { slot, value, condition, get, expiry } => {
            let mut args = join("SET", &[&name(slot), value]);
            match condition {
                Condition::Always => {}
                Condition::IfAbsent => args.push(b"NX".to_vec()),
                Condition::IfPresent => args.push(b"XX".to_vec()),
            }
            if *get {
                args.push(b"GET".to_vec());
            }
            match expiry {
                Expiry::Never => {}
                Expiry::Keep => args.push(b"KEEPTTL".to_vec()),
                Expiry::At(ms) => args.extend(join("PXAT", &[ms.to_string().as_bytes()])),
                Expiry::In(ms) => args.extend(join("PX", &[ms.to_string().as_bytes()])),
            }
            args
        }
        Op::Copy { from, to, replace } => {
            let mut args = join("COPY", &[&name(from), &name(to)]);
            args.extend(join("DB", &[slot_db(*to).to_string().as_bytes()]));
            if *replace {
                args.push(b"REPLACE".to_vec());
            }
            args
        }
        Op::HSet(slot, fields) => {
            let mut args = join("HSET", &[&name(slot)]);
            args.extend(fields.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
            args
        }
        Op::HDel(slot, fields) => {
            let mut args = join("HDEL", &[&name(slot)]);
            args.extend(fields.iter().cloned());
            args
        }
        _ => panic!("a command without options"),
    }
}

/// A command as it goes over the wire.
pub fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

const _: () = assert!(DBS == 2);
