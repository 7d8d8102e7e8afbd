//! `instructions`: user-space instructions of the server per operation, counted by callgrind.
//! The only speed figure that a shared machine hardly disturbs, hence the one for CI.
//!
//! Two things are taken out of the counts: what the server does by the clock, by the rate of an
//! idle second, and turns that found less to do because the client was late, by taking the best
//! of several windows.

use super::{dataset, fill, fleet_options, launch, op_name, uniform};
use crate::dataset::Dataset;
use crate::engine::plan::Stop;
use crate::engine::{Fleet, FleetOptions};
use crate::host::Host;
use crate::json::Json;
use crate::options::{GetPercent, Options};
use crate::server::{Kind, Launch, Server, WorkDir};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEYS: u64 = 64_000;
const VALUE_BYTES: usize = 1024;
const OPERATIONS: u64 = 4000;
const CONNECTIONS: [usize; 1] = [8];

/// Windows of a case, each of all its operations; the cheapest counts.
const WINDOWS: usize = 5;

/// How long the idle server is watched: one timer tick more or less must not matter.
const IDLE: Duration = Duration::from_secs(5);

/// Operations of a case before it is counted, so that its buffers have their size.
const WARM_OPERATIONS: u64 = 1000;

/// Under valgrind everything takes fifty times as long.
const READY_WAIT: Duration = Duration::from_secs(120);
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A figure may exceed the stored one by this share.
const TOLERANCE: f64 = 0.02;

/// One measured case.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    name: String,
    per_operation: f64,
    device_reads_per_get: Option<f64>,
}

pub fn run(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let host = Host::read();
    host.print();
    println!("server: {} under {}", options.lavik.version(), valgrind_version()?);
    let figures = measure(options, &dataset)?;
    write(options, &host, &figures)?;
    if let Some(path) = &options.update {
        std::fs::write(path, stored_text(&figures))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    match &options.check {
        None => Ok(()),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            check(&figures, &text)
        }
    }
}

fn measure(options: &Options, dataset: &Dataset) -> Result<Vec<Figure>, String> {
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let launch = launch_under_callgrind(options, dir.sub("a")?, dataset);
    let callgrind = Callgrind { out: out_file(&launch.dir), dumps: 0 };
    let server = Server::start(&launch)?;
    let figures = measure_cases(options, dataset, &server, callgrind)?;
    // The figures are there and the data is worthless; valgrind delivers a signal late, if at all.
    server.kill();
    Ok(figures)
}

fn launch_under_callgrind(options: &Options, dir: PathBuf, dataset: &Dataset) -> Launch {
    let out = format!("--callgrind-out-file={}", out_file(&dir).display());
    let mut launch = launch(options, &options.lavik, dir, dataset);
    // Fair scheduling: a thread that waits in io_uring would keep the others from running.
    let fair = "--fair-sched=yes".into();
    launch.wrapper = vec!["valgrind".into(), "--tool=callgrind".into(), fair, out];
    launch.ready_wait = READY_WAIT;
    let quiet = match launch.spec.kind {
        // Spinning while idle is not work for an operation; without it an idle server parks.
        Kind::Lavik => ["--busy-poll-us", "0"],
        // Ten timer ticks a second, stretched by valgrind, are several percent of an operation.
        Kind::Redis => ["--hz", "1"],
    };
    launch.spec.extra_args.extend(quiet.map(String::from));
    launch
}

fn measure_cases(
    options: &Options,
    dataset: &Dataset,
    server: &Server,
    callgrind: Callgrind,
) -> Result<Vec<Figure>, String> {
    let mut bench = Bench { options, server, callgrind, idle_per_second: 0.0 };
    let mut figures = Vec::new();
    for &connections in options.connections.as_deref().unwrap_or(&CONNECTIONS) {
        let fleet = bench.connect(connections, dataset)?;
        if figures.is_empty() {
            fleet.run(&fill(0..dataset.keys))?.check().map_err(|e| format!("loading: {e}"))?;
            bench.idle_per_second = bench.measure_idle()?;
        }
        for &op in &options.ops {
            for &pipeline in &options.pipelines {
                let name = format!("{}-p{pipeline}-c{connections}", op_name(op));
                let figure = bench.case(name, &fleet, op, pipeline)?;
                print(&figure);
                figures.push(figure);
            }
        }
    }
    Ok(figures)
}

/// A server under callgrind that is being measured.
struct Bench<'a> {
    options: &'a Options,
    server: &'a Server,
    callgrind: Callgrind,
    idle_per_second: f64,
}

impl Bench<'_> {
    fn connect(&self, connections: usize, dataset: &Dataset) -> Result<Fleet, String> {
        let options = fleet_options(self.options, self.server.addr, connections);
        Fleet::connect(FleetOptions { silence_max: SILENCE_MAX, ..options }, dataset)
    }

    fn measure_idle(&mut self) -> Result<f64, String> {
        self.callgrind.dump(self.server.pid())?;
        let begin = Instant::now();
        std::thread::sleep(IDLE);
        let instructions = self.callgrind.dump(self.server.pid())?;
        let per_second = instructions as f64 / begin.elapsed().as_secs_f64();
        println!("idle: {per_second:.0} instructions per second, taken out below");
        Ok(per_second)
    }

    fn case(
        &mut self,
        name: String,
        fleet: &Fleet,
        op: GetPercent,
        pipeline: usize,
    ) -> Result<Figure, String> {
        let count = self.options.operations.unwrap_or(OPERATIONS);
        let plan = |count| uniform(op, pipeline, Stop::Operations(0..count));
        fleet.run(&plan(WARM_OPERATIONS))?.check()?;
        let reads_before = self.device_reads()?;
        let (mut best, mut gets) = (f64::INFINITY, 0);
        for _ in 0..WINDOWS {
            self.callgrind.dump(self.server.pid())?;
            let begin = Instant::now();
            let outcome = fleet.run(&plan(count))?;
            let instructions = self.callgrind.dump(self.server.pid())? as f64;
            outcome.check()?;
            let by_the_clock = self.idle_per_second * begin.elapsed().as_secs_f64();
            best = best.min((instructions - by_the_clock) / count as f64);
            gets += outcome.gets;
        }
        let reads = self.device_reads()?.zip(reads_before).filter(|_| gets > 0);
        let device_reads_per_get =
            reads.map(|(after, before)| (after - before) as f64 / gets as f64);
        Ok(Figure { name, per_operation: best, device_reads_per_get })
    }

    fn device_reads(&self) -> Result<Option<u64>, String> {
        Ok(self.server.info("stats")?.number("device_reads"))
    }
}

fn print(figure: &Figure) {
    let reads = figure.device_reads_per_get;
    let reads = reads.map_or(String::new(), |reads| format!("  {reads:.2} device reads per GET"));
    println!("{:<16} {:>8.0} instructions per operation{reads}", figure.name, figure.per_operation);
}

fn write(options: &Options, host: &Host, figures: &[Figure]) -> Result<(), String> {
    let rows = figures.iter().map(|figure| {
        Json::Object(vec![
            ("case", figure.name.as_str().into()),
            ("instructions", figure.per_operation.into()),
            ("device_reads_per_get", figure.device_reads_per_get.into()),
        ])
    });
    let json = Json::Object(vec![
        ("host", host.json()),
        ("version", options.lavik.version().as_str().into()),
        ("rows", Json::List(rows.collect())),
    ]);
    super::write_json(options.json.as_deref(), &json)
}

/// Stored figures: one `name instructions` line each, so that a change shows well in a diff.
fn stored_text(figures: &[Figure]) -> String {
    let mut text = String::from("# User-space instructions per operation.\n");
    for figure in figures {
        text += &format!("{} {:.0}\n", figure.name, figure.per_operation);
    }
    text
}

fn parse_stored(text: &str) -> Result<Vec<(&str, f64)>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name, number.trim().parse().ok()?))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| "stored figures: a line is not `name number`".to_string())
}

/// Fails if a case got dearer, is gone, or was never stored. A cheaper one is only mentioned.
fn check(figures: &[Figure], stored: &str) -> Result<(), String> {
    let stored = parse_stored(stored)?;
    let mut faults = Vec::new();
    for (name, limit) in &stored {
        let Some(figure) = figures.iter().find(|figure| figure.name == *name) else {
            faults.push(format!("{name} was not measured"));
            continue;
        };
        let change = figure.per_operation / limit - 1.0;
        if change > TOLERANCE {
            let now = figure.per_operation;
            faults.push(format!("{name}: {now:.0} instead of {limit:.0} ({:+.1} %)", change * 1e2));
        } else if change < -TOLERANCE {
            println!("{name} is {:.1} % cheaper than stored: --update", change * -1e2);
        }
    }
    for figure in figures {
        if stored.iter().all(|(name, _)| *name != figure.name) {
            faults.push(format!("{} is not stored", figure.name));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("instructions: {}", faults.join("; "))) }
}

/// A process under callgrind that writes and resets its counts when asked.
struct Callgrind {
    out: PathBuf,
    dumps: usize,
}

impl Callgrind {
    /// Instructions since the last dump.
    fn dump(&mut self, pid: u32) -> Result<u64, String> {
        let output = Command::new("vgdb")
            .arg(format!("--pid={pid}"))
            .arg("dump")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cannot run vgdb (it comes with valgrind): {e}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("vgdb cannot reach the server: {}", errors.trim()));
        }
        self.dumps += 1;
        let path = self.out.with_extension(format!("out.{}", self.dumps));
        let text = std::fs::read_to_string(&path)
            .map_err(|e| format!("callgrind did not write {}: {e}", path.display()))?;
        total(&text).ok_or_else(|| format!("no total in {}", path.display()))
    }
}

fn out_file(dir: &Path) -> PathBuf {
    dir.join("callgrind.out")
}

fn total(dump: &str) -> Option<u64> {
    let line = dump.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

fn valgrind_version() -> Result<String, String> {
    match Command::new("valgrind").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        Err(error) => Err(format!("instructions needs valgrind in PATH: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, check, stored_text, total};

    fn figures(get: f64) -> Vec<Figure> {
        [("get-p1-c8", get), ("set-p1-c8", 2000.0)]
            .map(|(name, per_operation)| Figure {
                name: name.into(),
                per_operation,
                device_reads_per_get: None,
            })
            .into()
    }

    #[test]
    fn what_is_stored_passes_and_two_percent_more_as_well() {
        let stored = stored_text(&figures(1000.0));
        assert_eq!(check(&figures(1000.0), &stored), Ok(()));
        assert_eq!(check(&figures(1019.0), &stored), Ok(()));
        assert_eq!(check(&figures(500.0), &stored), Ok(()));
    }

    #[test]
    fn dearer_missing_and_unknown_cases_fail() {
        let stored = stored_text(&figures(1000.0));
        assert!(check(&figures(1021.0), &stored).unwrap_err().contains("get-p1-c8: 1021"));
        assert!(check(&figures(1000.0)[..1], &stored).unwrap_err().contains("not measured"));
        let one = stored_text(&figures(1000.0)[..1]);
        assert!(check(&figures(1000.0), &one).unwrap_err().contains("set-p1-c8 is not stored"));
        assert!(check(&figures(1000.0), "get-p1-c8 x").is_err());
    }

    #[test]
    fn totals_are_read() {
        assert_eq!(total("version: 1\nevents: Ir\n1 2\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("events: Ir\n"), None);
    }
}
