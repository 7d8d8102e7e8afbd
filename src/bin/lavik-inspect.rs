//! `lavik-inspect`: what is on data devices and images of them, and whether it is whole. Opens
//! them for reading only.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lavik::limits::{SECTOR_SIZE_MIN, SEGMENT_SIZE_BYTES};
use lavik::shard::footer::{Entries, TRAILER_AT, Trailer};
use lavik::shard::index::KeyHasher;
use lavik::shard::record::{Lsn, UNIT};
use lavik::shard::scan::{Scan, counts};
use lavik::shard::segment::{self, Header, State};
use lavik::shard::superblock::{COPIES_AT, Invalid, SUPERBLOCK_BYTES, SetState, Superblock};
use lexopt::prelude::{Long, Short, Value};

const USAGE: &str = "\
Shows what is on data devices, or images of them. Writes to none.

  lavik-inspect [--segments] [--verify] PATH...

  --segments   a line per segment that holds records
  --verify     read all of it: checksums of every record, and footers against records

Each device is looked at alone; a part of a set will do. The status is 0, 1 if something is
damaged or cannot be read, 2 for wrong arguments.
";

#[derive(Default)]
struct Args {
    paths: Vec<PathBuf>,
    segments: bool,
    verify: bool,
}

fn parse() -> Result<Args, lexopt::Error> {
    let mut args = Args::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("segments") => args.segments = true,
            Long("verify") => args.verify = true,
            Long("help") | Short('h') => {
                say(USAGE);
                std::process::exit(0);
            }
            Value(path) => args.paths.push(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    if args.paths.is_empty() {
        return Err("no device is given; --help tells more".into());
    }
    Ok(args)
}

/// A reader that has had enough is no error.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lavik-inspect: {error}");
            return ExitCode::from(2);
        }
    };
    let mut whole = true;
    for path in &args.paths {
        let mut device = match Device::open(path) {
            Ok(device) => device,
            Err(error) => {
                let _ = writeln!(io::stderr(), "lavik-inspect: {}: {error}", path.display());
                whole = false;
                continue;
            }
        };
        let outcome = device.inspect(&args);
        say(&device.text);
        if let Err(error) = outcome {
            let _ = writeln!(io::stderr(), "lavik-inspect: {}: {error}", path.display());
            whole = false;
        }
        whole &= device.damage == 0;
    }
    ExitCode::from(u8::from(!whole))
}

/// One device and what is to be said of it.
struct Device {
    file: File,
    size_bytes: u64,
    text: String,
    damage: u64,
}

/// Sums over the segments of a device.
#[derive(Default)]
struct Totals {
    free: u64,
    data: u64,
    sealed: u64,
    values: u64,
    tombstones: u64,
    record_bytes: u64,
}

/// What a segment was found to hold.
struct Holds {
    sealed: bool,
    values: u32,
    tombstones: u32,
    /// Unit behind the last record.
    end: u32,
    last: Lsn,
}

impl Device {
    fn open(path: &Path) -> io::Result<Device> {
        let mut file = File::open(path)?;
        let size_bytes = file.seek(SeekFrom::End(0))?;
        let mut text = format!("{}: {size_bytes} bytes\n", path.display());
        if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            text += "  in use: what follows may be torn\n";
        }
        Ok(Device { file, size_bytes, text, damage: 0 })
    }

    fn line(&mut self, text: impl AsRef<str>) {
        let _ = writeln!(self.text, "  {}", text.as_ref());
    }

    fn damaged(&mut self, text: impl AsRef<str>) {
        self.damage += 1;
        self.line(format!("DAMAGED: {}", text.as_ref()));
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn inspect(&mut self, args: &Args) -> io::Result<()> {
        let mut newest: Option<Superblock> = None;
        for at in COPIES_AT {
            match Superblock::decode(&self.read(at, SUPERBLOCK_BYTES)?) {
                Ok(copy) => {
                    let (generation, run) = (copy.state.generation, copy.state.run);
                    self.line(format!("superblock at {at}: generation {generation}, run {run}"));
                    if newest.as_ref().is_none_or(|newest| newest.state.generation < generation) {
                        newest = Some(copy);
                    }
                }
                Err(Invalid::Blank) => self.line(format!("superblock at {at}: blank")),
                Err(Invalid::Version(version)) => {
                    self.damaged(format!("superblock at {at}: unknown version {version}"));
                }
                Err(Invalid::Foreign) => self.damaged(format!("superblock at {at}: not one")),
                Err(Invalid::Damaged) => self.damaged(format!("superblock at {at}: checksum")),
            }
        }
        let Some(superblock) = newest else {
            self.damaged("no superblock: it is no member of a set");
            return Ok(());
        };
        self.show_set(&superblock);
        self.segments(&superblock, args)
    }

    fn show_set(&mut self, superblock: &Superblock) {
        let state = &superblock.state;
        let member = usize::from(superblock.device);
        let id: String = state.set.0.iter().map(|byte| format!("{byte:02x}")).collect();
        self.line(format!("set {id}, {}-byte sectors", state.sector_size));
        self.line(format!("member {} of {}", member + 1, state.members.len()));
        for (i, other) in state.members.iter().enumerate() {
            let here = if i == member { ", this one" } else { "" };
            self.line(format!(
                "  {}: {} segments, id {:016x}{here}",
                i + 1,
                other.segments,
                other.id
            ));
        }
        for (logical, &physical) in state.databases.iter().enumerate() {
            let horizon = state.horizons[usize::from(physical)].0;
            if usize::from(physical) != logical || horizon > 0 {
                self.line(format!(
                    "database {logical}: stored as {physical}, records up to LSN {horizon} are dead"
                ));
            }
        }
    }

    fn segments(&mut self, superblock: &Superblock, args: &Args) -> io::Result<()> {
        let state = &superblock.state;
        let count = state.members[usize::from(superblock.device)].segments;
        if u64::from(count) * SEGMENT_SIZE_BYTES > self.size_bytes {
            self.damaged(format!("the device is shorter than its {count} segments"));
            return Ok(());
        }
        let hashes = KeyHasher::new(&state.seed);
        let mut totals = Totals::default();
        for number in 1..count {
            let at = u64::from(number) * SEGMENT_SIZE_BYTES;
            let header = match Header::decode(&self.read(at, SECTOR_SIZE_MIN)?) {
                Ok(header) => header,
                Err(why) => {
                    self.damaged(format!("segment {number}: header: {why}"));
                    continue;
                }
            };
            if header.set != state.set
                || (header.device, header.segment) != (superblock.device, number)
            {
                self.damaged(format!("segment {number}: the header belongs elsewhere"));
                continue;
            }
            if header.state == State::Free {
                totals.free += 1;
                continue;
            }
            let holds = self.segment(state, &header, &hashes, args.verify)?;
            totals.add(&holds);
            if args.segments {
                self.show_segment(&header, &holds);
            }
        }
        self.line(totals.show(args.verify));
        Ok(())
    }

    fn segment(
        &mut self,
        state: &SetState,
        header: &Header,
        hashes: &KeyHasher,
        verify: bool,
    ) -> io::Result<Holds> {
        let start = u64::from(header.segment) * SEGMENT_SIZE_BYTES;
        let seed = segment::seed(segment::set_seed(state.set), header.epoch);
        let tail =
            self.read(start + TRAILER_AT as u64, SEGMENT_SIZE_BYTES as usize - TRAILER_AT)?;
        let trailer = Trailer::decode(&tail, seed);
        if !verify {
            return Ok(Holds::told(header, trailer.as_ref()));
        }
        let bytes = self.read(start, SEGMENT_SIZE_BYTES as usize)?;
        let first_unit = (state.sector_size as usize / UNIT) as u32;
        let mut scan = Scan::new(&bytes, seed, first_unit, header.base, hashes);
        self.verify(header, trailer.as_ref(), &mut scan, &bytes, seed);
        Ok(Holds::scanned(header, trailer.is_some(), &scan))
    }

    /// Footers are copies of what the records say; the log of an unsealed segment ends where
    /// nothing behind it was ever durable.
    fn verify(
        &mut self,
        header: &Header,
        trailer: Option<&Trailer>,
        scan: &mut Scan,
        bytes: &[u8],
        seed: u32,
    ) {
        let number = header.segment;
        let end_bytes = scan.end as usize * UNIT;
        let count = scan.records.len() as u64;
        let Some(trailer) = trailer else {
            scan.look_beyond(bytes, seed);
            if scan.durable.0 >= header.base.0 + count {
                self.damaged(format!("segment {number}: the record at {end_bytes}"));
            }
            return;
        };
        if count < u64::from(trailer.entries) || trailer.base != header.base {
            self.damaged(format!("segment {number}: the record at {end_bytes}"));
            return;
        }
        // Recovery leaves out a unit that was cut short: what there is of it stays behind the end.
        scan.records.truncate(trailer.entries as usize);
        scan.end = trailer.end;
        let entries = &bytes[TRAILER_AT - trailer.entries_bytes as usize..TRAILER_AT];
        if !trailer.verify(entries, seed) {
            self.damaged(format!("segment {number}: the checksum of the footer"));
            return;
        }
        let first_unit = scan.records.first().map_or(0, |record| record.unit);
        let told = Entries::new(entries, first_unit);
        if !told.eq(scan.records.iter().map(|record| (record.unit, record.entry))) {
            self.damaged(format!("segment {number}: the footer contradicts the records"));
        }
    }

    fn show_segment(&mut self, header: &Header, holds: &Holds) {
        let sealed = if holds.sealed { "sealed" } else { "unsealed" };
        self.line(format!(
            "segment {}: {sealed}, run {}, core {}, LSN {} to {}, {} values, {} tombstones, \
             records end at {}",
            header.segment,
            header.epoch.run(),
            header.core,
            header.base.0,
            holds.last.0,
            holds.values,
            holds.tombstones,
            holds.end as usize * UNIT,
        ));
    }
}

impl Holds {
    /// By the trailer alone. Without one nothing is known but where the records start.
    fn told(header: &Header, trailer: Option<&Trailer>) -> Holds {
        match trailer {
            Some(trailer) => Holds {
                sealed: true,
                values: trailer.values,
                tombstones: trailer.tombstones,
                end: trailer.end,
                last: trailer.last(),
            },
            None => Holds { sealed: false, values: 0, tombstones: 0, end: 0, last: header.base },
        }
    }

    fn scanned(header: &Header, sealed: bool, scan: &Scan) -> Holds {
        let totals = scan.records.iter().map(|record| counts(&record.entry));
        let (values, tombstones) = totals.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let last = Lsn((header.base.0 + scan.records.len() as u64).saturating_sub(1));
        Holds { sealed, values, tombstones, end: scan.end, last }
    }
}

impl Totals {
    fn add(&mut self, holds: &Holds) {
        self.data += 1;
        self.sealed += u64::from(holds.sealed);
        self.values += u64::from(holds.values);
        self.tombstones += u64::from(holds.tombstones);
        self.record_bytes += u64::from(holds.end) * UNIT as u64;
    }

    fn show(&self, verified: bool) -> String {
        let Totals { free, data, sealed, values, tombstones, record_bytes } = self;
        let scope = if verified { "" } else { " in sealed ones" };
        format!(
            "segments: {free} free, {data} with records ({sealed} sealed); {values} values, \
             {tombstones} tombstones, {record_bytes} bytes{scope}"
        )
    }
}
