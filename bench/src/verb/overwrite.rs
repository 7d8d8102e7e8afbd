//! `overwrite`: what endless uniform overwriting costs when most of the device is live data:
//! write amplification against the greedy bound, steadiness, and what GETs notice of it.

use super::{connect, launch, load_all, uniform, us};
use crate::control::{Control, Reply};
use crate::dataset::Dataset;
use crate::engine::Fleet;
use crate::engine::plan::{Plan, Stop};
use crate::host::Host;
use crate::json::Json;
use crate::options::Options;
use crate::quartiles::Quartiles;
use crate::server::{Launch, Server, WorkDir};
use std::time::Duration;

const VALUE_BYTES: usize = 1024;
const DATA_FILE_BYTES: u64 = 4 << 30;

/// The shape of the log: docs/FORMAT.md.
const SEGMENT_BYTES: u64 = 8 << 20;
const SEGMENT_OVERHEAD_BYTES: u64 = 12 << 10;
const UNIT_BYTES: u64 = 16;
const RECORD_FRAME_BYTES: u64 = 20;
const FOOTER_ENTRY_BYTES: u64 = 17;

/// Device-fulls that clients write before anything is measured, and while it is; the log itself
/// goes round three to four times as often.
const WARM_FULLS: f64 = 1.0;
const MEASURED_FULLS: f64 = 0.75;
const CONNECTIONS: usize = 40;
const PIPELINE: usize = 16;

/// Load while GETs are timed, per second.
const GET_RATE: f64 = 10_000.0;
const SET_RATE: f64 = 1_000.0;

const READY_WAIT: Duration = Duration::from_secs(120);
const SAMPLE: u64 = 200_000;

pub fn run(options: &Options) -> Result<(), String> {
    let file_bytes = options.data_file_bytes.unwrap_or(DATA_FILE_BYTES);
    let value_bytes = options.value_bytes.unwrap_or(VALUE_BYTES);
    let live = options.live_percent / 100.0;
    let slots = slots(file_bytes, (options.key_bytes + value_bytes) as u64);
    let keys = options.keys.unwrap_or((slots * live) as u64);
    let dataset = Dataset::new(keys, options.key_bytes, value_bytes)?;
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let mut launch = launch(options, &options.lavik, dir.sub("a")?, &dataset);
    (launch.data_file_bytes, launch.persistent) = (file_bytes, true);
    launch.ready_wait = READY_WAIT;
    let host = Host::read();
    host.print();
    let live = keys as f64 / slots;
    println!(
        "server: {}; {keys} keys of {} + {value_bytes} bytes in {} MiB: {:.1} % live",
        options.lavik.version(),
        options.key_bytes,
        file_bytes >> 20,
        100.0 * live
    );
    let server = Server::start(&launch)?;
    load_all(options, server.addr, &dataset)?;
    let fleet = connect(options, server.addr, CONNECTIONS, &dataset)?;
    println!("warming up: {WARM_FULLS} times the device");
    sets(&fleet, (slots * WARM_FULLS) as u64)?;
    let cost = amplification(&fleet, &server, options, slots, live)?;
    let reads = reads(options, &server, &dataset)?;
    check(options, server, &launch, &dataset)?;
    let mut fields = vec![("host", host.json()), ("live", live.into())];
    fields.extend(cost);
    fields.extend(reads);
    super::write_json(options.json.as_deref(), &Json::Object(fields))
}

/// Records that the whole device would hold.
fn slots(file_bytes: u64, payload_bytes: u64) -> f64 {
    let record = (payload_bytes + RECORD_FRAME_BYTES).next_multiple_of(UNIT_BYTES);
    let segments = file_bytes / SEGMENT_BYTES - 1;
    let usable = segments * (SEGMENT_BYTES - SEGMENT_OVERHEAD_BYTES);
    usable as f64 / (record + FOOTER_ENTRY_BYTES) as f64
}

/// Live share of the victims when always the emptiest segment is taken: live = (v - 1) / ln v.
fn greedy_share(live: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let share: f64 = (low + high) / 2.0;
        let at = (share - 1.0) / share.ln();
        if at < live { low = share } else { high = share }
    }
    low
}

fn sets(fleet: &Fleet, count: u64) -> Result<(), String> {
    fleet.run(&uniform(0, PIPELINE, Stop::Operations(0..count)))?.check()
}

struct Counts {
    clients: u64,
    moved: u64,
    device: u64,
}

impl Counts {
    fn read(control: &mut Control) -> Result<Counts, String> {
        // The server publishes its counters a few times a second.
        std::thread::sleep(Duration::from_millis(300));
        let (storage, stats) = (control.info("storage")?, control.info("stats")?);
        let field = |name: &str| {
            let value = storage.number(name).or_else(|| stats.number(name));
            value.ok_or_else(|| format!("INFO has no {name}"))
        };
        let (clients, moved) = (field("client_write_bytes")?, field("defrag_moved_bytes")?);
        Ok(Counts { clients, moved, device: field("device_write_bytes")? })
    }
}

type Fields = Vec<(&'static str, Json)>;

fn amplification(
    fleet: &Fleet,
    server: &Server,
    options: &Options,
    slots: f64,
    live: f64,
) -> Result<Fields, String> {
    let mut control = server.control()?;
    let before = Counts::read(&mut control)?;
    let (mut written, mut windows) = (0, Vec::new());
    while (written as f64) < slots * MEASURED_FULLS {
        let outcome = fleet.run(&uniform(0, PIPELINE, Stop::After(options.slice)))?;
        outcome.check()?;
        written += outcome.sets;
        windows.push(outcome.per_second());
    }
    let after = Counts::read(&mut control)?;
    let clients = (after.clients - before.clients) as f64;
    let measured = 1.0 + (after.moved - before.moved) as f64 / clients;
    let device = (after.device - before.device) as f64 / clients;
    let share = greedy_share(live);
    let bound = 1.0 / (1.0 - share);
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    let lowest = windows.iter().copied().fold(f64::INFINITY, f64::min) / mean;
    println!(
        "write amplification {measured:.2} of records, {device:.2} at the device; greedy bound \
         {bound:.2} (victims {share:.3} live): {:+.1} %",
        100.0 * (measured / bound - 1.0)
    );
    println!(
        "{} windows of {} ms: mean {mean:.0} SET/s, lowest {:.0} % of it",
        windows.len(),
        options.slice.as_millis(),
        100.0 * lowest
    );
    Ok(vec![
        ("amplification", measured.into()),
        ("device_amplification", device.into()),
        ("greedy_bound", bound.into()),
        ("sets_per_second", mean.into()),
        ("lowest_window", lowest.into()),
    ])
}

/// GETs at a fixed rate beside SETs at a fixed rate, with defrag on and paused in turn.
fn reads(options: &Options, server: &Server, dataset: &Dataset) -> Result<Fields, String> {
    let getters = connect(options, server.addr, CONNECTIONS, dataset)?;
    let mut setters = connect(options, server.addr, CONNECTIONS, dataset)?;
    let mut control = server.control()?;
    let (mut on, mut paused) = (Vec::new(), Vec::new());
    for pair in 0..2 * options.pairs {
        let pause = pair % 2 == 1;
        defrag(&mut control, if pause { "PAUSE" } else { "RESUME" })?;
        let latency = timed(&getters, &mut setters, options)?;
        if pause {
            paused.push(latency)
        } else {
            on.push(latency)
        }
        defrag(&mut control, "RESUME")?;
        std::thread::sleep(options.slice);
    }
    let ratios: Vec<f64> = on.iter().zip(&paused).map(|(on, off)| on / off).collect();
    let ratio = Quartiles::of(&ratios);
    let (on, paused) = (Quartiles::of(&on).median, Quartiles::of(&paused).median);
    println!(
        "p99.9 of {GET_RATE} GET/s beside {SET_RATE} SET/s: {on:.0} us with defrag, {paused:.0} us \
         with defrag paused, ratio {:.2} ({:.2}..{:.2})",
        ratio.median, ratio.low, ratio.high
    );
    Ok(vec![
        ("get_p999_us", on.into()),
        ("get_p999_paused_us", paused.into()),
        ("get_p999_ratio", ratio.median.into()),
    ])
}

fn defrag(control: &mut Control, what: &str) -> Result<(), String> {
    match control.call(&["DEFRAG", what])? {
        Reply::Status(_) => Ok(()),
        other => Err(format!("DEFRAG {what}: {other:?}")),
    }
}

fn timed(getters: &Fleet, setters: &mut Fleet, options: &Options) -> Result<f64, String> {
    let plan = |get_percent, rate| {
        let plan = uniform(get_percent, 1, Stop::After(options.slice));
        Plan { rate: Some(rate), ..plan }
    };
    let (gets, sets) = std::thread::scope(|scope| {
        let sets = scope.spawn(move || setters.run(&plan(0, SET_RATE)));
        let gets = getters.run(&plan(100, GET_RATE));
        (gets, sets.join().unwrap_or_else(|_| Err("a client thread panicked".into())))
    });
    sets?.check()?;
    let gets = gets?;
    gets.check()?;
    Ok(us(gets.latency.quantile_ns(0.999)))
}

/// Everything is there after a kill.
fn check(options: &Options, server: Server, launch: &Launch, set: &Dataset) -> Result<(), String> {
    server.kill();
    let server = Server::start(launch)?;
    let found = server.control()?.integer(&["DBSIZE"])?;
    if found as u64 != set.keys {
        return Err(format!("after kill -9: {found} keys of {}", set.keys));
    }
    let fleet = connect(options, server.addr, CONNECTIONS, set)?;
    fleet.run(&uniform(100, PIPELINE, Stop::Operations(0..SAMPLE)))?.check()?;
    println!("after kill -9: {found} keys, {SAMPLE} values right");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{greedy_share, slots};

    #[test]
    fn the_greedy_bound_is_the_one_of_the_formula() {
        let share = greedy_share(0.85);
        assert!((0.71..0.73).contains(&share), "{share}");
        assert!(((share - 1.0) / share.ln() - 0.85).abs() < 1e-6);
    }

    #[test]
    fn a_segment_holds_so_many_records() {
        // 1040 bytes of key and value are a record of 1072 bytes and an entry of 17.
        assert_eq!(slots(16 << 20, 1040) as u64, ((8 << 20) - (12 << 10)) / 1089);
    }
}
