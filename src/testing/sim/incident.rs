//! What happens to a server beside its load: checks, crashes, stops, restarts, clocks that jump.

use crate::testing::disk::Cut;
use crate::testing::faults::Faults;

use super::group::{Group, Image};
use super::machine::Machine;
use super::options::CORES_MAX;
use super::world::World;

/// Starts that are cut short, one after the other.
const CUT_STARTS_MAX: u32 = 3;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Power(Cut),
    Kill,
    Clean,
}

impl World {
    /// Lets something happen now and then. False when the server has refused to start on damaged
    /// devices.
    pub(super) fn incident(&mut self) -> Result<bool, String> {
        if self.random.chance(self.options.checks) {
            self.check()?;
        }
        if self.random.chance(self.options.wall_jumps) {
            let by_ms = self.random.below(60_000) as i64 * if self.draw_bool() { 1 } else { -1 };
            self.note(|_| format!("the wall clock jumps by {by_ms} ms"));
            self.clock.jump(by_ms);
        }
        let client = self.random.below(self.options.clients);
        if self.random.chance(self.options.disconnects) {
            self.note(|_| format!("client {client} disconnects"));
            let wires = self.wires();
            self.clients[client].disconnect(wires.as_ref());
        }
        if self.random.chance(self.options.lazy_readers) {
            let until_ns = self.clock.mono_ns() + self.random.below(200_000_000) as u64;
            self.clients[client].lazy_until_ns = until_ns;
        }
        if self.random.chance(self.options.crashes) {
            let end = self.draw_end();
            return self.restart(end);
        }
        Ok(true)
    }

    fn draw_bool(&mut self) -> bool {
        self.random.draw() & 1 == 0
    }

    fn draw_cut(&mut self) -> Cut {
        [Cut::Nothing, Cut::Everything, Cut::Writes, Cut::Sectors][self.random.below(4)]
    }

    fn draw_end(&mut self) -> End {
        match self.random.below(4) {
            0 => End::Kill,
            1 => End::Clean,
            _ => End::Power(self.draw_cut()),
        }
    }

    /// The first start of a simulation.
    pub(super) fn start(&mut self) -> Result<bool, String> {
        let cores = self.options.cores;
        self.begin(cores, Faults::default())?;
        self.recover(None)?;
        self.ground.disk.set_faults(self.options.faults);
        self.set_homes();
        Ok(true)
    }

    fn set_homes(&mut self) {
        let Some(machine) = &self.machine else { return };
        for (at, group) in self.groups.iter_mut().enumerate() {
            let name = |name| machine.home(&super::workload::key(at, name));
            group.set_homes((0..super::model::NAMES).map(name).collect());
        }
        self.note(|world| {
            let homes: Vec<&[usize]> = world.groups.iter().map(Group::homes).collect();
            format!("the names of each group are on the cores {homes:?}")
        });
    }

    /// Ends the run, starts another, and checks what is there.
    fn restart(&mut self, end: End) -> Result<bool, String> {
        self.note(|_| format!("the run ends: {end:?}"));
        let end = self.end(end)?;
        let images = self.images(end);
        self.lose(end);
        let mut cut_starts = 0;
        loop {
            match self.try_start(cut_starts < CUT_STARTS_MAX)? {
                Started::Ready => break,
                Started::Cut => cut_starts += 1,
                Started::Failed => cut_starts = CUT_STARTS_MAX,
                Started::Refused => {
                    self.counts.refused += 1;
                    return Ok(false);
                }
            }
        }
        self.counts.restarts += 1;
        self.compare(&images)?;
        self.ground.disk.set_faults(self.options.faults);
        self.set_homes();
        Ok(true)
    }

    /// Brings a clean stop about, unless writing has failed: then the process is killed.
    fn end(&mut self, end: End) -> Result<End, String> {
        self.draining = true;
        if end == End::Clean {
            if let Some(machine) = &mut self.machine {
                machine.stop();
            }
            let until_ns = self.clock.mono_ns() + 30_000_000_000;
            while !self.machine.as_mut().is_none_or(Machine::is_stopped) {
                if self.clock.mono_ns() > until_ns {
                    return Err("the server does not stop".into());
                }
                self.step()?;
            }
        }
        let poisoned = self.poisoned_ns.is_some();
        if end == End::Clean && !poisoned {
            let failures = self.machine.as_mut().map_or(Vec::new(), Machine::failures);
            if !failures.is_empty() {
                return Err(format!("a clean stop failed: {failures:?}"));
            }
        }
        Ok(if poisoned && end == End::Clean { End::Kill } else { end })
    }

    fn images(&mut self, end: End) -> Vec<Image> {
        let clock = self.clock.clone();
        let durable = self.promise(matches!(end, End::Power(_)));
        let complete = end == End::Clean;
        let groups = self.groups.iter_mut();
        groups.map(|group| group.stopped(complete, &durable, &clock)).collect()
    }

    fn lose(&mut self, end: End) {
        self.counts.crashes += 1;
        self.machine = None;
        match end {
            End::Power(cut) => self.ground.disk.lose_power(cut),
            End::Kill => self.ground.disk.lose_process(),
            End::Clean => {
                // Reads for clients that are gone, and headers of segments that come back.
                self.ground.disk.lose_process();
                if self.draw_bool() {
                    self.ground.disk.lose_power(Cut::Nothing);
                }
            }
        }
        let now_ns = self.clock.mono_ns();
        for client in &mut self.clients {
            client.disconnect(None);
            client.due_ns = now_ns;
        }
        self.poisoned_ns = None;
        self.write_errors = self.ground.disk.injected().write_errors;
    }

    /// One attempt to start, which may be cut short.
    fn try_start(&mut self, may_be_cut: bool) -> Result<Started, String> {
        self.draining = true;
        let cores = 1 + self.random.below(CORES_MAX);
        let faulty = may_be_cut && self.random.below(3) == 0;
        let faults = if faulty { self.options.faults } else { Faults::default() };
        let cut_after = (may_be_cut && self.random.below(3) == 0).then(|| self.random.below(100));
        self.note(|_| format!("a start with {cores} cores, faulty: {faulty}, cut: {cut_after:?}"));
        let before = self.ground.disk.injected();
        let started = match self.begin(cores, faults) {
            Ok(()) => self.recover(cut_after),
            Err(text) => Err(text),
        };
        match started {
            Ok(true) => return Ok(Started::Ready),
            Ok(false) => {
                self.note(|_| "the start is cut short".into());
                let end = if self.draw_bool() { End::Kill } else { End::Power(self.draw_cut()) };
                self.lose(end);
                return Ok(Started::Cut);
            }
            Err(_) => {}
        }
        let failed = started.err().unwrap_or_default();
        self.note(|_| format!("the start failed: {failed}"));
        self.lose(End::Kill);
        let injected = self.ground.disk.injected();
        if injected != before {
            return Ok(Started::Failed);
        }
        if injected.lies > 0 {
            return Ok(Started::Refused);
        }
        Err(format!("the server does not start: {failed}"))
    }

    /// Opens the devices.
    fn begin(&mut self, cores: usize, faults: Faults) -> Result<(), String> {
        self.ground.disk.set_timing(None);
        self.ground.disk.set_faults(faults);
        let setup = self.setup(cores);
        let machine = Machine::start(&self.ground, &setup, &mut self.random);
        self.ground.disk.set_timing(Some(self.options.timing(&self.clock)));
        self.machine = Some(machine?);
        Ok(())
    }

    /// Turns until all keys are there; false when that was cut short.
    fn recover(&mut self, cut_after: Option<usize>) -> Result<bool, String> {
        self.draining = true;
        let until_ns = self.clock.mono_ns() + 60_000_000_000;
        let mut turns = 0;
        while let Some(machine) = &mut self.machine {
            if machine.is_ready() {
                machine.notice_ready();
                break;
            }
            if machine.is_stopped() {
                return Err(format!("{:?}", machine.failures()));
            }
            if cut_after.is_some_and(|after| turns >= after) {
                return Ok(false);
            }
            if self.clock.mono_ns() > until_ns {
                return Err("recovery does not end".into());
            }
            self.step()?;
            turns += 1;
        }
        self.draining = false;
        Ok(true)
    }

    fn compare(&mut self, images: &[Image]) -> Result<(), String> {
        self.ground.disk.set_faults(Faults::default());
        let from_ns = self.clock.mono_ns();
        let seen = self.observe()?;
        let damaged = self.ground.disk.injected().lies > 0;
        let clock = self.clock.clone();
        for (at, group) in self.groups.iter_mut().enumerate() {
            let checked = if damaged {
                group.started_damaged(&seen[at], from_ns)
            } else {
                group.started(&images[at], &seen[at], from_ns, &clock)
            };
            checked.map_err(|text| format!("after a restart, group {at}: {text}"))?;
        }
        self.check_counts(&seen)
    }
}

/// How an attempt to start went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Started {
    Ready,
    /// It was cut short.
    Cut,
    /// Because of a fault that was made up meanwhile.
    Failed,
    /// Because the devices are damaged.
    Refused,
}
