//! The measurements, one file each, and what they share.

mod compare;
mod device;
mod instructions;
mod load;
mod memory;
mod overwrite;
mod restart;

use crate::dataset::Dataset;
use crate::engine::outcome::Outcome;
use crate::engine::plan::{Order, Plan, Stop};
use crate::engine::{Fleet, FleetOptions};
use crate::json::Json;
use crate::options::{GetPercent, Options};
use crate::server::{Launch, ServerSpec};
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DATA_FILE_BYTES_MIN: u64 = 1 << 30;

/// What a record takes in the log beside key and value, with room to spare, in bytes.
const RECORD_OVERHEAD_BYTES: u64 = 64;

const READY_WAIT: Duration = Duration::from_secs(30);
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Connections and pipeline that load a data set.
const LOAD_CONNECTIONS: usize = 16;
const LOAD_PIPELINE: usize = 16;

/// Runs the verb of the command line.
pub fn run(options: &Options) -> Result<(), String> {
    match options.verb.as_str() {
        "run" => load::run(options),
        "load" => load::load(options),
        "null" => load::null(options),
        "compare" => compare::run(options),
        "memory" => memory::run(options),
        "device" => device::run(options),
        "instructions" => instructions::run(options),
        "overwrite" => overwrite::run(options),
        "restart" => restart::run(options),
        other => Err(format!("there is no verb {other} (see --help)")),
    }
}

fn dataset(options: &Options, keys: u64, value_bytes: usize) -> Result<Dataset, String> {
    let keys = options.keys.unwrap_or(keys);
    Dataset::new(keys, options.key_bytes, options.value_bytes.unwrap_or(value_bytes))
}

fn launch(options: &Options, spec: &ServerSpec, dir: PathBuf, dataset: &Dataset) -> Launch {
    let needed = 4 * (dataset.bytes() + dataset.keys * RECORD_OVERHEAD_BYTES);
    let default = needed.max(DATA_FILE_BYTES_MIN).next_multiple_of(DATA_FILE_BYTES_MIN);
    Launch {
        spec: spec.clone(),
        dir,
        data_file_bytes: options.data_file_bytes.unwrap_or(default),
        persistent: false,
        wrapper: Vec::new(),
        ready_wait: READY_WAIT,
    }
}

fn fleet_options(options: &Options, addr: SocketAddr, connections: usize) -> FleetOptions {
    let pipeline_max = options.pipelines.iter().copied().max().unwrap_or(1).max(LOAD_PIPELINE);
    FleetOptions {
        addr,
        connections,
        cpus: options.client_cpus.clone(),
        pipeline_max,
        seed: options.seed,
        silence_max: SILENCE_MAX,
    }
}

fn connect(
    options: &Options,
    addr: SocketAddr,
    connections: usize,
    dataset: &Dataset,
) -> Result<Fleet, String> {
    Fleet::connect(fleet_options(options, addr, connections), dataset)
}

/// Uniform keys.
fn uniform(get_percent: GetPercent, pipeline: usize, stop: Stop) -> Plan {
    Plan { get_percent, pipeline, order: Order::Uniform, stop, rate: None }
}

/// SETs of the keys of these numbers, each once.
fn fill(numbers: Range<u64>) -> Plan {
    Plan {
        get_percent: 0,
        pipeline: LOAD_PIPELINE,
        order: Order::Sequential,
        stop: Stop::Operations(numbers),
        rate: None,
    }
}

/// Writes the whole data set and checks every answer.
fn load_all(options: &Options, addr: SocketAddr, dataset: &Dataset) -> Result<Outcome, String> {
    let fleet = connect(options, addr, LOAD_CONNECTIONS, dataset)?;
    let outcome = fleet.run(&fill(0..dataset.keys))?;
    outcome.check().map_err(|e| format!("loading: {e}"))?;
    Ok(outcome)
}

fn op_name(get_percent: GetPercent) -> String {
    match get_percent {
        100 => "get".into(),
        0 => "set".into(),
        share => format!("mix{share}"),
    }
}

fn write_json(path: Option<&Path>, json: &Json) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, format!("{json}\n"))
        .map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
