//! The checker: what a group of keys may hold, given what clients have sent and been told.
//!
//! While the server runs every reply has to fit some order of the commands that respects who was
//! answered before whom was sent (linearizability). After a crash every name has to be what a
//! prefix of the commands on it makes of it, the prefix has to contain what was promised to be
//! durable, and what one command wrote on one core is there as a whole or not at all.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use crate::testing::clock::SimClock;

use super::model::{
    Effects, Entry, NAMES, Op, Outcome, SLOTS, Slot, State, Value, Want, Window, outcomes,
    show_state, slot_db, slot_name,
};
use super::reply::Reply;

/// Number of a command of this simulation.
pub type OpId = usize;

/// Combinations of what may have survived that are looked at.
const COMBINATIONS_MAX: usize = 20_000;

/// Orders that are followed at a time; more are no longer told apart.
const CONFIGS_MAX: usize = 600;

/// What one command did.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Write(Effects),
    Flush(Option<usize>),
    Swap,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    op: OpId,
    what: What,
}

impl Step {
    fn is_global(&self) -> bool {
        !matches!(self.what, What::Write(_))
    }

    fn names(&self) -> BTreeSet<usize> {
        match &self.what {
            What::Write(effects) => effects.iter().map(|(slot, _)| slot_name(*slot)).collect(),
            What::Flush(_) | What::Swap => (0..NAMES).collect(),
        }
    }

    /// Does the step to the slots that `mine` names.
    fn apply(&self, state: &mut State, mine: impl Fn(Slot) -> bool) {
        match &self.what {
            What::Write(effects) => {
                for (slot, entry) in effects.iter().filter(|(slot, _)| mine(*slot)) {
                    state[*slot] = entry.clone();
                }
            }
            What::Flush(db) => {
                let meant = |slot: &Slot| db.is_none_or(|db| slot_db(*slot) == db) && mine(*slot);
                (0..SLOTS).filter(meant).for_each(|slot| state[slot] = None);
            }
            What::Swap => {
                let half = SLOTS / 2;
                (0..half).filter(|&slot| mine(slot)).for_each(|slot| state.swap(slot, slot + half));
            }
        }
    }
}

/// One order of the commands so far.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Config {
    state: State,
    /// Steps behind the trunk.
    tail: Vec<Step>,
    /// Commands that have happened and are not answered, and what the answer has to be.
    done: Vec<(OpId, Want)>,
}

impl Config {
    /// Tells orders apart: the state follows from the steps, and values differ in their first bytes
    /// or in length.
    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for slot in &self.state {
            slot.as_ref().map(print_of).hash(&mut hasher);
        }
        for step in &self.tail {
            step.op.hash(&mut hasher);
            let What::Write(effects) = &step.what else { continue };
            for (slot, entry) in effects {
                (slot, entry.as_ref().map(print_of)).hash(&mut hasher);
            }
        }
        for (id, want) in &self.done {
            id.hash(&mut hasher);
            match want {
                Want::Is(Reply::Bulk(bytes)) => (bytes.len(), head(bytes)).hash(&mut hasher),
                Want::Pairs(map) => map.hash(&mut hasher),
                other => other.show().hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(32)]
}

fn print_of(entry: &Entry) -> (u64, Option<(u64, u64)>) {
    let mut hasher = DefaultHasher::new();
    match &entry.value {
        Value::Text(text) => (text.len(), head(text)).hash(&mut hasher),
        Value::Hash(map) => map.hash(&mut hasher),
    }
    (hasher.finish(), entry.expire)
}

#[derive(Clone, Debug)]
struct Pending {
    id: OpId,
    client: usize,
    op: Rc<Op>,
    from_ns: u64,
}

/// What a read of the whole group has found.
pub type Seen = Vec<Option<(Value, Option<u64>)>>;

/// See the module.
#[derive(Debug)]
pub struct Group {
    /// Core of each name in this run.
    homes: Vec<usize>,
    /// What is durable, and the steps behind it that are part of every order.
    base: State,
    trunk: Vec<Step>,
    configs: Vec<Config>,
    pending: Vec<Pending>,
    /// A command over cores may fail in part.
    pub partial: bool,
    /// Hashes of all values that were ever written.
    ever: BTreeSet<u64>,
    /// There were too many orders: what follows is not checked until everything is read.
    lost: bool,
    pub overflows: u32,
}

/// How a reply that reports a failure is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// Nothing has happened, or some cores' parts of a command over cores.
    Refused,
    /// It may have happened.
    Unknown,
}

fn failure(reply: &Reply) -> Option<Failure> {
    let Reply::Error(text) = reply else { return None };
    let starts = |start: &str| text.starts_with(start);
    if starts("IOERR a write") {
        return Some(Failure::Unknown);
    }
    let refused = starts("NOSPACE") || starts("IOERR") || starts("ERR read buffers");
    refused.then_some(Failure::Refused)
}

fn names_of_op(op: &Op) -> Vec<usize> {
    op.slots().into_iter().map(slot_name).collect()
}

fn hash_of(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Group {
    pub fn new() -> Group {
        let empty: State = vec![None; SLOTS];
        let config = Config { state: empty.clone(), tail: Vec::new(), done: Vec::new() };
        Group {
            homes: Vec::new(),
            base: empty,
            trunk: Vec::new(),
            configs: vec![config],
            pending: Vec::new(),
            partial: false,
            ever: BTreeSet::new(),
            lost: false,
            overflows: 0,
        }
    }

    pub fn set_homes(&mut self, homes: Vec<usize>) {
        self.homes = homes;
    }

    pub fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// Whether some order has the key, expired or not.
    pub fn may_have(&self, slot: Slot) -> bool {
        self.configs.iter().any(|config| config.state[slot].is_some())
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// A client has sent a command.
    pub fn sent(&mut self, id: OpId, client: usize, op: Rc<Op>, now_ns: u64) {
        self.pending.push(Pending { id, client, op, from_ns: now_ns });
    }

    /// A client has been answered.
    pub fn answered(&mut self, id: OpId, reply: &Reply, clock: &SimClock) -> Result<(), String> {
        if self.lost {
            self.pending.retain(|pending| pending.id != id);
            return Ok(());
        }
        let mut next = Vec::new();
        let related = self.related(id);
        for config in std::mem::take(&mut self.configs) {
            self.follow(config.clone(), (id, &related), reply, clock, &mut next);
            self.configs.push(config);
            if next.len() > CONFIGS_MAX {
                dedup(&mut next);
            }
            if next.len() > CONFIGS_MAX {
                self.give_up();
                self.pending.retain(|pending| pending.id != id);
                return Ok(());
            }
        }
        dedup(&mut next);
        if next.is_empty() {
            return Err(self.explain(id, reply));
        }
        self.configs = next;
        self.pending.retain(|pending| pending.id != id);
        if let [only] = &mut self.configs[..] {
            self.trunk.append(&mut only.tail);
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.overflows += u32::from(!self.lost);
        self.lost = true;
    }

    fn explain(&self, id: OpId, reply: &Reply) -> String {
        let op = self.pending.iter().find(|pending| pending.id == id);
        let mut text = format!("{op:?} was answered {}\n", reply.show());
        for config in self.configs.iter().take(4) {
            text += &format!("  but the keys are: {}\n", show_state(&config.state));
            for (id, want) in &config.done {
                text += &format!("    and command {id} is to be answered {}\n", want.show());
            }
        }
        for pending in &self.pending {
            text += &format!("  not answered: {pending:?}\n");
        }
        text
    }

    /// All orders that continue `config` up to `id` with this reply.
    fn follow(
        &mut self,
        mut config: Config,
        (id, related): (OpId, &[OpId]),
        reply: &Reply,
        clock: &SimClock,
        found: &mut Vec<Config>,
    ) {
        if let Some(place) = config.done.iter().position(|(done, _)| *done == id) {
            let (_, want) = config.done.remove(place);
            let failed = failure(reply);
            let fits = match want {
                Want::Failure => failed.is_some(),
                want => want.matches(reply) || failed == Some(Failure::Unknown),
            };
            if fits {
                found.push(config);
            }
            return;
        }
        for place in self.startable(&config) {
            if found.len() > 4 * CONFIGS_MAX {
                return;
            }
            if !related.contains(&self.pending[place].id) {
                continue;
            }
            let pending = self.pending[place].clone();
            if pending.id == id {
                self.finish(&config, &pending, reply, clock, found);
                continue;
            }
            for (outcome, want) in self.ways(&config, &pending, clock, true) {
                let mut next = config.clone();
                self.perform(&mut next, &pending, outcome);
                next.done.push((pending.id, want));
                self.follow(next, (id, related), reply, clock, found);
            }
        }
    }

    /// Commands under way whose order matters for `id`: they have a name in common with it, or with
    /// one that has.
    fn related(&self, id: OpId) -> Vec<OpId> {
        let mut names: BTreeSet<usize> = BTreeSet::new();
        let mut ids = Vec::new();
        let first = self.pending.iter().find(|pending| pending.id == id);
        names.extend(first.iter().flat_map(|pending| names_of_op(&pending.op)));
        loop {
            let before = ids.len();
            for pending in &self.pending {
                let own = names_of_op(&pending.op);
                if !ids.contains(&pending.id) && own.iter().any(|name| names.contains(name)) {
                    ids.push(pending.id);
                    names.extend(own);
                }
            }
            if ids.len() == before {
                return ids;
            }
        }
    }

    /// Commands that may happen next: on one key those of a client keep their order.
    fn startable(&self, config: &Config) -> Vec<usize> {
        let open = |pending: &Pending| !config.done.iter().any(|(done, _)| *done == pending.id);
        let waits = |place: usize| {
            let me = &self.pending[place];
            let names = names_of_op(&me.op);
            let before = |other: &Pending| {
                let shares = || names_of_op(&other.op).iter().any(|name| names.contains(name));
                other.client == me.client && open(other) && shares()
            };
            self.pending[..place].iter().any(before)
        };
        let places = 0..self.pending.len();
        places.filter(|&place| open(&self.pending[place]) && !waits(place)).collect()
    }

    /// How a command may go; with `early` before its answer is known.
    fn ways(
        &self,
        config: &Config,
        pending: &Pending,
        clock: &SimClock,
        early: bool,
    ) -> Vec<(Effects, Want)> {
        let window = Window { from_ns: pending.from_ns, clock: clock.clone() };
        let mut ways = Vec::new();
        for Outcome { effects, want } in outcomes(&pending.op, &config.state, &window) {
            if early && self.partial && effects.len() > 1 {
                let parts = self.parts(&effects);
                ways.extend(parts.into_iter().map(|part| (part, Want::Failure)));
            }
            ways.push((effects, want));
        }
        ways
    }

    /// What a command may have done that stopped in the middle: some cores' parts.
    fn parts(&self, effects: &Effects) -> Vec<Effects> {
        let core = |slot: Slot| self.homes.get(slot_name(slot)).copied().unwrap_or(0);
        let cores: BTreeSet<usize> = effects.iter().map(|(slot, _)| core(*slot)).collect();
        let cores: Vec<usize> = cores.into_iter().collect();
        let subset = |bits: usize| {
            let kept = |slot: Slot| {
                let place = cores.iter().position(|&c| c == core(slot));
                place.is_some_and(|place| bits >> place & 1 == 1)
            };
            effects.iter().filter(|(slot, _)| kept(*slot)).cloned().collect()
        };
        (1..(1 << cores.len()) - 1).map(subset).collect()
    }

    fn perform(&mut self, config: &mut Config, pending: &Pending, effects: Effects) {
        let what = match &*pending.op {
            Op::Flush(db) => What::Flush(*db),
            Op::Swap => What::Swap,
            _ if effects.is_empty() => return,
            _ => What::Write(effects),
        };
        if let What::Write(effects) = &what {
            let values = effects.iter().filter_map(|(_, entry)| entry.as_ref());
            self.ever.extend(values.map(|entry| hash_of(&entry.value)));
        }
        let step = Step { op: pending.id, what };
        step.apply(&mut config.state, |_| true);
        config.tail.push(step);
    }

    /// The command that has been answered happens now.
    fn finish(
        &mut self,
        config: &Config,
        pending: &Pending,
        reply: &Reply,
        clock: &SimClock,
        found: &mut Vec<Config>,
    ) {
        let failed = failure(reply);
        if failed.is_some() {
            found.push(config.clone());
        }
        for (effects, want) in self.ways(config, pending, clock, failed.is_some()) {
            let happened = match failed {
                None => want.matches(reply),
                Some(Failure::Unknown) => true,
                Some(Failure::Refused) => want == Want::Failure,
            };
            if happened {
                let mut next = config.clone();
                self.perform(&mut next, pending, effects);
                found.push(next);
            }
        }
    }

    /// Nothing is under way any more: commands whose clients are gone have happened or never will.
    pub fn settle_pending(&mut self, clock: &SimClock) {
        let mut extended = Vec::new();
        for config in self.configs.clone() {
            self.extend(config, clock, &mut extended);
        }
        self.pending.clear();
        for config in &mut extended {
            config.done.clear();
        }
        dedup(&mut extended);
        self.configs = extended;
    }

    /// Everything was read while nothing was under way.
    pub fn check(
        &mut self,
        seen: &Seen,
        saved: bool,
        from_ns: u64,
        clock: &SimClock,
    ) -> Result<(), String> {
        if self.lost {
            // What was written meanwhile is followed again once all of it is durable.
            if saved {
                self.restart_from(vec![taken(seen, from_ns)]);
            }
            return Ok(());
        }
        let mut kept = Vec::new();
        for config in &self.configs {
            let mut config = config.clone();
            if (0..SLOTS).all(|slot| fits(&mut config.state[slot], &seen[slot], from_ns, clock)) {
                kept.push(config);
            }
        }
        if kept.is_empty() {
            let states: Vec<String> =
                self.configs.iter().take(4).map(|config| show_state(&config.state)).collect();
            return Err(format!("found {}\n  allowed {states:?}", show_seen(seen)));
        }
        dedup(&mut kept);
        self.configs = kept;
        if let [only] = &mut self.configs[..] {
            self.trunk.append(&mut only.tail);
        }
        Ok(())
    }

    /// Forgets steps that no crash can undo.
    pub fn fold(&mut self, durable: &dyn Fn(OpId) -> bool) {
        let mut safe_names: BTreeSet<usize> = BTreeSet::new();
        let mut safe = vec![false; self.trunk.len()];
        for (place, step) in self.trunk.iter().enumerate().rev() {
            let names = step.names();
            if step.is_global() {
                // It is in the superblocks, which says nothing of the logs.
                safe[place] = durable(step.op);
                continue;
            }
            if durable(step.op) {
                safe_names.extend(&names);
            }
            safe[place] = names.iter().all(|name| safe_names.contains(name));
        }
        let count = safe.iter().position(|safe| !safe).unwrap_or(safe.len());
        for step in self.trunk.drain(..count) {
            step.apply(&mut self.base, |_| true);
        }
    }

    /// The server has stopped. With `complete` all that has happened is there; otherwise what
    /// `durable` says, and any prefix beyond.
    pub fn stopped(
        &mut self,
        complete: bool,
        durable: &dyn Fn(OpId) -> bool,
        clock: &SimClock,
    ) -> Image {
        self.settle_pending(clock);
        let configs = if self.lost { &[][..] } else { &self.configs[..] };
        let histories = configs.iter().map(|config| {
            let steps: Vec<Step> = self.trunk.iter().chain(&config.tail).cloned().collect();
            let durable = steps.iter().map(|step| complete || durable(step.op)).collect();
            (steps, durable)
        });
        Image { histories: histories.collect() }
    }

    /// All ways in which commands under way may have gone on.
    fn extend(&mut self, config: Config, clock: &SimClock, found: &mut Vec<Config>) {
        found.push(config.clone());
        if found.len() > 4 * CONFIGS_MAX || self.lost {
            return self.give_up();
        }
        for place in self.startable(&config) {
            let pending = self.pending[place].clone();
            for (effects, want) in self.ways(&config, &pending, clock, true) {
                let mut next = config.clone();
                self.perform(&mut next, &pending, effects);
                next.done.push((pending.id, want));
                self.extend(next, clock, found);
            }
        }
    }

    /// The server has started again and everything was read.
    pub fn started(
        &mut self,
        image: &Image,
        seen: &Seen,
        from_ns: u64,
        clock: &SimClock,
    ) -> Result<(), String> {
        if self.lost {
            self.restart_from(vec![taken(seen, from_ns)]);
            return Ok(());
        }
        let mut states: Vec<State> = Vec::new();
        for (steps, durable) in &image.histories {
            Crash::new(self, (steps, durable), seen, from_ns, clock).states(&mut states);
        }
        if states.is_empty() {
            return Err(self.explain_image(image, seen));
        }
        self.restart_from(states);
        Ok(())
    }

    /// After damage that was not to be seen by the server: any whole value is right.
    pub fn started_damaged(&mut self, seen: &Seen, now_ns: u64) -> Result<(), String> {
        let known = |(value, _): &(Value, Option<u64>)| self.ever.contains(&hash_of(value));
        // What was written while orders were not followed is not known.
        if self.overflows == 0 && !seen.iter().flatten().all(known) {
            return Err(format!("a value that was never written: {}", show_seen(seen)));
        }
        self.restart_from(vec![taken(seen, now_ns)]);
        Ok(())
    }

    fn restart_from(&mut self, states: Vec<State>) {
        self.lost = false;
        self.base = states[0].clone();
        self.trunk.clear();
        let config = |state| Config { state, tail: Vec::new(), done: Vec::new() };
        self.configs = states.into_iter().map(config).collect();
        dedup(&mut self.configs);
    }

    fn explain_image(&self, image: &Image, seen: &Seen) -> String {
        let mut text = format!("found {}\n", show_seen(seen));
        text += &format!("  on cores {:?}, durable {}\n", self.homes, show_state(&self.base));
        for (steps, durable) in image.histories.iter().take(3) {
            text += "  one history:\n";
            for (step, durable) in steps.iter().zip(durable) {
                let mut state: State = vec![None; SLOTS];
                step.apply(&mut state, |_| true);
                let does = match &step.what {
                    What::Write(effects) => {
                        let slots: Vec<Slot> = effects.iter().map(|(slot, _)| *slot).collect();
                        format!("writes {slots:?}: {}", show_state(&state))
                    }
                    other => format!("{other:?}"),
                };
                text += &format!("    {} durable: {durable}, {does}\n", step.op);
            }
        }
        text
    }
}

impl Default for Group {
    fn default() -> Group {
        Group::new()
    }
}

/// What may be on the devices after a stop: histories, and which of their steps are durable.
#[derive(Clone, Debug)]
pub struct Image {
    histories: Vec<(Vec<Step>, Vec<bool>)>,
}

/// One history against what was found.
struct Crash<'a> {
    group: &'a Group,
    steps: &'a [Step],
    durable: &'a [bool],
    seen: &'a Seen,
    from_ns: u64,
    clock: &'a SimClock,
    /// The steps on each name, by place.
    places: Vec<Vec<usize>>,
    /// Names that one step wrote on one core, with its number among the steps of each.
    units: Vec<Vec<(usize, usize)>>,
}

/// So many steps of a name survived, and the name's slots are what that makes of them.
struct Cut {
    steps: usize,
    state: State,
}

impl<'a> Crash<'a> {
    fn new(
        group: &'a Group,
        (steps, durable): (&'a [Step], &'a [bool]),
        seen: &'a Seen,
        from_ns: u64,
        clock: &'a SimClock,
    ) -> Crash<'a> {
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); NAMES];
        let mut units = Vec::new();
        for (place, step) in steps.iter().enumerate().filter(|(_, step)| !step.is_global()) {
            let names: Vec<usize> = step.names().into_iter().collect();
            for core in names.iter().map(|&name| group.homes[name]).collect::<BTreeSet<_>>() {
                let mine = names.iter().filter(|&&name| group.homes[name] == core);
                let unit: Vec<_> = mine.map(|&name| (name, places[name].len())).collect();
                units.extend((unit.len() > 1).then_some(unit));
            }
            names.iter().for_each(|&name| places[name].push(place));
        }
        Crash { group, steps, durable, seen, from_ns, clock, places, units }
    }

    /// States that explain what was found. A change of the whole keyspace is in the superblocks,
    /// apart from the logs: either all names have it or none.
    fn states(&self, found: &mut Vec<State>) {
        let globals = self.steps.iter().zip(self.durable).filter(|(step, _)| step.is_global());
        let globals: Vec<bool> = globals.map(|(_, durable)| *durable).collect();
        let floor = globals.iter().rposition(|durable| *durable).map_or(0, |last| last + 1);
        for count in floor..=globals.len() {
            let cuts: Vec<Vec<Cut>> = (0..NAMES).map(|name| self.cuts(name, count)).collect();
            let mut budget = COMBINATIONS_MAX;
            self.combine(&cuts, &mut Vec::new(), &mut budget, found);
        }
    }

    /// Puts together cuts of all names that leave no unit torn.
    fn combine(
        &self,
        cuts: &[Vec<Cut>],
        chosen: &mut Vec<usize>,
        budget: &mut usize,
        found: &mut Vec<State>,
    ) {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let name = chosen.len();
        if name < NAMES {
            for place in 0..cuts[name].len() {
                chosen.push(place);
                self.combine(cuts, chosen, budget, found);
                chosen.pop();
            }
            return;
        }
        let cut = |name: usize| &cuts[name][chosen[name]];
        if !self.units_are_whole(|name| cut(name).steps) {
            return;
        }
        let slots = (0..SLOTS).map(|slot| cut(slot_name(slot)).state[slot].clone());
        let state: State = slots.collect();
        if !found.contains(&state) {
            found.push(state);
        }
    }

    /// What one core wrote in one command is there for all its names or for none.
    fn units_are_whole(&self, cut: impl Fn(usize) -> usize) -> bool {
        let is_kept = |(name, number): &(usize, usize)| cut(*name) > *number;
        self.units.iter().all(|unit| unit.iter().all(|part| is_kept(part) == is_kept(&unit[0])))
    }

    fn is_linked(&self, name: usize) -> bool {
        self.units.iter().flatten().any(|(other, _)| *other == name)
    }

    /// The numbers of steps of a name that may have survived, with the first `globals` changes of
    /// the whole keyspace.
    fn cuts(&self, name: usize, globals: usize) -> Vec<Cut> {
        let places = &self.places[name];
        let floor = places.iter().rposition(|&place| self.durable[place]).map_or(0, |at| at + 1);
        // A log goes on behind a change only when that is durable.
        let all = self.steps.iter().enumerate().filter(|(_, step)| step.is_global());
        let next = all.map(|(place, _)| place).nth(globals).unwrap_or(usize::MAX);
        let most = places.iter().filter(|&&place| place < next).count();
        let linked = self.is_linked(name);
        let mut found: Vec<Cut> = Vec::new();
        let mut kept = self.replay(name, &places[..floor.min(most)], globals);
        for steps in floor..=most {
            if globals > 0 {
                kept = self.replay(name, &places[..steps], globals);
            } else if steps > floor {
                let step = &self.steps[places[steps - 1]];
                step.apply(&mut kept, |slot| slot_name(slot) == name);
            }
            let mut state = kept.clone();
            let mut slots = (0..SLOTS).filter(|slot| slot_name(*slot) == name);
            let fits = slots
                .all(|slot| fits(&mut state[slot], &self.seen[slot], self.from_ns, self.clock));
            if fits && (linked || !found.iter().any(|cut| cut.state == state)) {
                found.push(Cut { steps, state });
            }
        }
        found
    }

    fn replay(&self, name: usize, kept: &[usize], globals: usize) -> State {
        let mut state = self.group.base.clone();
        let mut globals_left = globals;
        for (place, step) in self.steps.iter().enumerate() {
            if step.is_global() {
                if globals_left > 0 {
                    globals_left -= 1;
                    step.apply(&mut state, |slot| slot_name(slot) == name);
                }
            } else if kept.binary_search(&place).is_ok() {
                step.apply(&mut state, |slot| slot_name(slot) == name);
            }
        }
        state
    }
}

/// Whether a key as the model has it may look like that; its expiry is known exactly then.
fn fits(
    entry: &mut Option<Entry>,
    seen: &Option<(Value, Option<u64>)>,
    from_ns: u64,
    clock: &SimClock,
) -> bool {
    match (entry, seen) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(entry), None) => entry.may_be(from_ns, clock).gone,
        (Some(entry), Some((value, expire))) => {
            let known = match (entry.expire, expire) {
                (None, None) => true,
                (Some((low, high)), Some(at)) => {
                    entry.expire = Some((*at, *at));
                    low <= *at && *at <= high
                }
                _ => false,
            };
            known && entry.value == *value && entry.may_be(from_ns, clock).there
        }
    }
}

fn dedup(configs: &mut Vec<Config>) {
    let mut known = BTreeSet::new();
    configs.retain(|config| known.insert(config.print()));
}

/// What was found as the state to go on from.
fn taken(seen: &Seen, since_ns: u64) -> State {
    let entry = |(value, expire): &(Value, Option<u64>)| {
        let expire = expire.map(|at| (at, at));
        Entry { value: value.clone(), expire, since_ns }
    };
    seen.iter().map(|seen| seen.as_ref().map(entry)).collect()
}

fn show_seen(seen: &Seen) -> String {
    show_state(&taken(seen, 0))
}
