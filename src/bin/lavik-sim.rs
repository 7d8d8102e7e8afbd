//! `lavik-sim`: runs simulations by their seeds and reports what they find.

use std::io::Write;
use std::ops::Range;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use lavik::testing::sim::{Report, Sink, describe, simulate};
use lexopt::prelude::{Long, ValueExt};

const USAGE: &str = "\
Runs the server in simulation and checks it.

  lavik-sim --seeds A..B [--steps N] [--jobs J]   all seeds from A on, without B
  lavik-sim --seed S [--steps N] [--trace]        one seed, with what happens
  --check-determinism   run every seed twice and compare

A fault ends the process with status 1 after all seeds.
";

/// Without a trace the text of a fault is cut.
const FAULT_BYTES_MAX: usize = 1500;

struct Args {
    seeds: Range<u64>,
    steps: u64,
    jobs: usize,
    trace: bool,
    twice: bool,
}

fn parse() -> Result<Args, lexopt::Error> {
    let mut args = Args { seeds: 1..101, steps: 20_000, jobs: 1, trace: false, twice: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("seeds") => {
                let text = parser.value()?.string()?;
                let (start, end) = text.split_once("..").ok_or("--seeds takes A..B")?;
                args.seeds = number(start)?..number(end)?;
            }
            Long("seed") => {
                let seed = parser.value()?.parse()?;
                args.seeds = seed..seed + 1;
            }
            Long("steps") => args.steps = parser.value()?.parse()?,
            Long("jobs") => args.jobs = parser.value()?.parse()?,
            Long("trace") => args.trace = true,
            Long("check-determinism") => args.twice = true,
            Long("help") => {
                say(USAGE);
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(args)
}

fn number(text: &str) -> Result<u64, lexopt::Error> {
    text.parse().map_err(|_| format!("not a number: {text}").into())
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: nothing to be done about that.
    let _ = out.write_all(text.as_bytes());
}

/// A panic of the server is a fault like others.
fn run(seed: u64, steps: u64, trace: bool) -> Report {
    let sink = move || -> Option<Sink> { trace.then(|| Box::new(print_line) as Sink) };
    catch_unwind(move || simulate(seed, steps, sink())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Report {
            hash: 0,
            steps,
            counts: lavik::testing::sim::Counts::default(),
            fault: Some(format!("panic: {}", text.unwrap_or_default())),
        }
    })
}

fn print_line(line: &str) {
    say(&format!("{line}\n"));
}

/// Runs one seed; returns whether all is well.
fn seed(args: &Args, seed: u64, totals: &Mutex<Report>) -> bool {
    let report = run(seed, args.steps, args.trace);
    let mut fault = report.fault.clone();
    if args.twice && fault.is_none() && run(seed, args.steps, false) != report {
        fault = Some("a second run went otherwise".into());
    }
    if let Ok(mut totals) = totals.lock() {
        add(&mut totals, &report);
    }
    let Some(mut fault) = fault else { return true };
    if !args.trace && fault.len() > FAULT_BYTES_MAX {
        fault = fault.chars().take(FAULT_BYTES_MAX).collect::<String>() + "...";
    }
    say(&format!(
        "seed {seed}: {fault}\n  at step {}: {}\n  \
         replay: lavik-sim --seed {seed} --steps {} --trace\n",
        report.steps,
        describe(seed),
        report.steps,
    ));
    false
}

fn add(totals: &mut Report, report: &Report) {
    totals.steps += report.steps;
    let (sum, one) = (&mut totals.counts, &report.counts);
    sum.commands += one.commands;
    sum.failed += one.failed;
    sum.crashes += one.crashes;
    sum.restarts += one.restarts;
    sum.checks += one.checks;
    sum.refused += one.refused;
    sum.overflows += one.overflows;
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(error) => {
            say(&format!("{error}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let next = AtomicU64::new(args.seeds.start);
    let failed = AtomicUsize::new(0);
    let none = Report { hash: 0, steps: 0, counts: Default::default(), fault: None };
    let totals = Mutex::new(none);
    thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= args.seeds.end {
                        return;
                    }
                    failed.fetch_add(usize::from(!seed(&args, number, &totals)), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    let count = args.seeds.end.saturating_sub(args.seeds.start);
    if let Ok(totals) = totals.into_inner() {
        let (steps, counts) = (totals.steps, totals.counts);
        say(&format!("{count} seeds, {failed} with faults; {steps} steps, {counts:?}\n"));
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
