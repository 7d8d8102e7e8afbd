//! `restart`: how long until the data is served again, after a crash and after a clean stop.

use super::{connect, dataset, launch, load_all, uniform};
use crate::control::Reply;
use crate::dataset::Dataset;
use crate::engine::plan::Stop;
use crate::host::Host;
use crate::json::Json;
use crate::options::Options;
use crate::server::{Launch, Server, WorkDir};
use std::time::Duration;

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 128;

/// Recovery of a large data set takes its time.
const READY_WAIT: Duration = Duration::from_secs(600);
const STOP_WAIT: Duration = Duration::from_secs(120);

/// Longest age of an unflushed write of a server without WAITAOF.
const FLUSH_WAIT: Duration = Duration::from_millis(1500);

/// GETs after a restart, uniform over the keys.
const SAMPLE: u64 = 100_000;
const SAMPLE_CONNECTIONS: usize = 40;

pub fn run(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let mut launch = launch(options, &options.lavik, dir.sub("a")?, &dataset);
    launch.persistent = true;
    launch.ready_wait = READY_WAIT;
    let host = Host::read();
    host.print();
    println!("server: {}, {} keys", options.lavik.version(), dataset.keys);
    let server = Server::start(&launch)?;
    let load = load_all(options, server.addr, &dataset)?;
    println!("loaded in {:.2} s", load.seconds());
    make_durable(&server)?;
    server.kill();
    let after_crash = Server::start(&launch)?;
    let crash = check(options, "kill -9", &after_crash, &dataset)?;
    after_crash.stop(STOP_WAIT)?;
    let clean = clean_start(options, &launch, &dataset)?;
    let json = Json::Object(vec![
        ("host", host.json()),
        ("version", options.lavik.version().as_str().into()),
        ("keys", dataset.keys.into()),
        ("value_bytes", (dataset.value_bytes as u64).into()),
        ("ready_after_crash_s", crash.into()),
        ("ready_after_stop_s", clean.into()),
    ]);
    super::write_json(options.json.as_deref(), &json)
}

fn clean_start(options: &Options, launch: &Launch, dataset: &Dataset) -> Result<f64, String> {
    check(options, "clean stop", &Server::start(launch)?, dataset)
}

/// Waits until what was acknowledged is on the device.
fn make_durable(server: &Server) -> Result<(), String> {
    match server.control()?.call(&["WAITAOF", "1", "0", "10000"])? {
        Reply::Array(counts) if counts.first() == Some(&Reply::Integer(1)) => Ok(()),
        Reply::Error(_) => {
            std::thread::sleep(FLUSH_WAIT);
            Ok(())
        }
        other => Err(format!("WAITAOF: {other:?}")),
    }
}

/// Key count and a sample of values; the seconds that the start took.
fn check(options: &Options, how: &str, server: &Server, set: &Dataset) -> Result<f64, String> {
    let found = server.control()?.integer(&["DBSIZE"])?;
    if found as u64 != set.keys {
        return Err(format!("after {how}: {found} keys of {}", set.keys));
    }
    let fleet = connect(options, server.addr, SAMPLE_CONNECTIONS, set)?;
    let outcome = fleet.run(&uniform(100, 1, Stop::Operations(0..SAMPLE)))?;
    outcome.check().map_err(|e| format!("after {how}: {e}"))?;
    let seconds = server.ready_after.as_secs_f64();
    println!(
        "after {how}: ready in {seconds:.3} s, {:.2} million keys per second, {found} keys, \
         {} values right",
        set.keys as f64 / seconds / 1e6,
        outcome.gets
    );
    Ok(seconds)
}
