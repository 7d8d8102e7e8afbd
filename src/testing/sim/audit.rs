//! Checks while nothing is under way: every key, and the commands that look at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::testing::faults::Faults;

use super::group::Seen;
use super::model::{DBS, SLOTS, Slot, Value, slot_db};
use super::reply::Reply;
use super::workload::key;
use super::world::World;

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

impl World {
    /// Lets everything come to rest and reads it.
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.counts.checks += 1;
        self.rest()?;
        let clock = self.clock.clone();
        self.groups.iter_mut().for_each(|group| group.settle_pending(&clock));
        self.ground.disk.set_faults(Faults::default());
        let vague = self.counts().overflows > 0;
        let saved = vague && self.call(&[words("SAVE")])? == [Reply::ok()];
        let from_ns = self.clock.mono_ns();
        let seen = self.observe()?;
        let damaged = self.ground.disk.injected().lies > 0;
        for (at, group) in self.groups.iter_mut().enumerate() {
            let checked = match damaged {
                true => group.started_damaged(&seen[at], from_ns),
                false => group.check(&seen[at], saved, from_ns, &clock),
            };
            checked.map_err(|text| format!("at rest, group {at}: {text}"))?;
        }
        self.check_counts(&seen)?;
        self.ground.disk.set_faults(self.options.faults);
        Ok(())
    }

    /// Reads all keys of all groups.
    pub(super) fn observe(&mut self) -> Result<Vec<Seen>, String> {
        let mut seen: Vec<Seen> = vec![vec![None; SLOTS]; self.groups.len()];
        for db in 0..DBS {
            let places: Vec<(usize, Slot)> = (0..self.groups.len())
                .flat_map(|group| (0..SLOTS).map(move |slot| (group, slot)))
                .filter(|(_, slot)| slot_db(*slot) == db)
                .collect();
            let mut commands = vec![words(&format!("SELECT {db}"))];
            for &(group, slot) in &places {
                for word in ["GET", "HGETALL", "PEXPIRETIME"] {
                    commands.push(vec![word.as_bytes().to_vec(), key(group, slot)]);
                }
            }
            let replies = self.call(&commands)?;
            for ((group, slot), replies) in places.into_iter().zip(replies[1..].chunks(3)) {
                seen[group][slot] = match read_key(replies) {
                    Ok(found) => found,
                    Err(text) => {
                        self.give_up_key(group, slot, &text)?;
                        None
                    }
                };
            }
        }
        Ok(seen)
    }

    /// A key whose value is damaged is deleted, which needs no value.
    fn give_up_key(&mut self, group: usize, slot: Slot, text: &str) -> Result<(), String> {
        if self.ground.disk.injected().lies == 0 {
            return Err(format!("group {group} slot {slot}: {text}"));
        }
        let replies = self.call(&[vec![b"DEL".to_vec(), key(group, slot)]])?;
        match replies[..] {
            [Reply::Int(0 | 1)] => Ok(()),
            _ => Err(format!("a damaged key cannot be deleted: {replies:?}")),
        }
    }

    /// DBSIZE, KEYS and SCAN against what was read key by key.
    pub(super) fn check_counts(&mut self, seen: &[Seen]) -> Result<(), String> {
        // What is expired and still counted is known only while everything is followed.
        let vague = self.ground.disk.injected().lies > 0 || self.counts().overflows > 0;
        for db in 0..DBS {
            let select = words(&format!("SELECT {db}"));
            let replies = self.call(&[select, words("DBSIZE"), words("KEYS *")])?;
            let (mut sure, mut possible) = (BTreeSet::new(), BTreeSet::new());
            let mut count_max = 0;
            for (group, slots) in seen.iter().enumerate() {
                for slot in (0..SLOTS).filter(|slot| slot_db(*slot) == db) {
                    let name = key(group, slot);
                    match &slots[slot] {
                        Some((_, None)) => drop(sure.insert(name)),
                        Some((_, Some(_))) => drop(possible.insert(name)),
                        None => {}
                    }
                    let there = vague || slots[slot].is_some() || self.groups[group].may_have(slot);
                    count_max += i64::from(there);
                }
            }
            let counts = sure.len() as i64..=count_max;
            match &replies[1] {
                Reply::Int(n) if counts.contains(n) => {}
                other => return Err(format!("DBSIZE {db}: {other:?}, not in {counts:?}")),
            }
            let keys = names(&replies[2]).map_err(|text| format!("KEYS: {text}"))?;
            let scanned = self.scan(db)?;
            for (word, found) in [("KEYS", keys), ("SCAN", scanned)] {
                let unknown = found.iter().any(|n| !sure.contains(n) && !possible.contains(n));
                if unknown || !sure.is_subset(&found) {
                    let text: Vec<_> = found.iter().map(|n| String::from_utf8_lossy(n)).collect();
                    return Err(format!("{word} in {db}: {text:?}, but {sure:?} are there"));
                }
            }
        }
        Ok(())
    }

    fn scan(&mut self, db: usize) -> Result<BTreeSet<Vec<u8>>, String> {
        let (mut found, mut cursor) = (BTreeSet::new(), String::from("0"));
        for _ in 0..1000 {
            let scan = words(&format!("SCAN {cursor} COUNT 3"));
            let replies = self.call(&[words(&format!("SELECT {db}")), scan])?;
            let Reply::Array(parts) = &replies[1] else {
                return Err(format!("SCAN was answered {:?}", replies[1]));
            };
            let [Reply::Bulk(next), page] = &parts[..] else {
                return Err(format!("SCAN was answered {parts:?}"));
            };
            found.extend(names(page)?);
            cursor = String::from_utf8_lossy(next).into_owned();
            if cursor == "0" {
                return Ok(found);
            }
        }
        Err("SCAN does not end".into())
    }
}

fn names(reply: &Reply) -> Result<BTreeSet<Vec<u8>>, String> {
    let Reply::Array(parts) = reply else { return Err(format!("{reply:?}")) };
    let name = |part: &Reply| match part {
        Reply::Bulk(name) => Ok(name.clone()),
        other => Err(format!("{other:?} among names")),
    };
    let found: BTreeSet<Vec<u8>> = parts.iter().map(name).collect::<Result<_, String>>()?;
    if found.len() < parts.len() {
        return Err("a name comes twice".into());
    }
    Ok(found)
}

/// A key from the replies to GET, HGETALL and PEXPIRETIME.
fn read_key(replies: &[Reply]) -> Result<Option<(Value, Option<u64>)>, String> {
    let [get, all, time] = replies else { return Err("three replies were expected".into()) };
    let value = match (get, all) {
        (Reply::Bulk(text), _) => Value::Text(text.clone().into()),
        (Reply::Error(_), Reply::Array(parts)) if parts.len() >= 2 => hash(parts)?,
        (Reply::Null, Reply::Array(parts)) if parts.is_empty() => return Ok(None),
        // It has expired between the two.
        (Reply::Error(text), Reply::Array(parts)) if parts.is_empty() => {
            return if text.starts_with("WRONGTYPE") { Ok(None) } else { Err(text.clone()) };
        }
        (get, all) => return Err(format!("GET: {}, HGETALL: {}", get.show(), all.show())),
    };
    match time {
        Reply::Int(-1) => Ok(Some((value, None))),
        Reply::Int(-2) => Ok(None),
        Reply::Int(at) => Ok(Some((value, Some(*at as u64)))),
        other => Err(format!("PEXPIRETIME: {other:?}")),
    }
}

fn hash(parts: &[Reply]) -> Result<Value, String> {
    let pair = |pair: &[Reply]| match pair {
        [Reply::Bulk(field), Reply::Bulk(value)] => Ok((field.clone(), value.clone())),
        other => Err(format!("{other:?} in a hash")),
    };
    let map: BTreeMap<Vec<u8>, Vec<u8>> =
        parts.chunks(2).map(pair).collect::<Result<_, String>>()?;
    Ok(Value::Hash(Rc::new(map)))
}
