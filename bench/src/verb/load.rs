//! `run`, `load` and `null`: against a server that somebody else has started.

use super::{connect, dataset, load_all, op_name, uniform, us};
use crate::engine::outcome::Outcome;
use crate::engine::plan::Stop;
use crate::host::Host;
use crate::json::Json;
use crate::null;
use crate::options::Options;
use crate::os;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 1024;
const CONNECTIONS: [usize; 2] = [40, 200];

pub fn load(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let outcome = load_all(options, address(options)?, &dataset)?;
    println!(
        "loaded {} keys of {} + {} bytes in {:.2} s: {:.0} per second",
        dataset.keys,
        dataset.key_bytes,
        dataset.value_bytes,
        outcome.seconds(),
        outcome.per_second()
    );
    Ok(())
}

pub fn run(options: &Options) -> Result<(), String> {
    let (dataset, addr) = (dataset(options, KEYS, VALUE_BYTES)?, address(options)?);
    let host = Host::read();
    host.print();
    println!("{:>5} {:>4} {:>5} {}", "op", "P", "C", Row::HEAD);
    let mut rows = Vec::new();
    let mut verdict = Ok(());
    for &connections in options.connections.as_deref().unwrap_or(&CONNECTIONS) {
        let fleet = connect(options, addr, connections, &dataset)?;
        for &op in &options.ops {
            for &pipeline in &options.pipelines {
                let stop = match options.operations {
                    Some(count) => Stop::Operations(0..count),
                    None => Stop::After(options.duration),
                };
                let mut plan = uniform(op, pipeline, stop);
                plan.rate = options.rate;
                let outcome = fleet.run(&plan)?;
                let row = Row::of(&outcome);
                println!("{:>5} {pipeline:>4} {connections:>5} {}", op_name(op), row.line());
                rows.push(row.json(&op_name(op), pipeline, connections));
                verdict = verdict.and(outcome.check());
            }
        }
    }
    let report = Json::Object(vec![("host", host.json()), ("rows", Json::List(rows))]);
    super::write_json(options.json.as_deref(), &report)?;
    verdict
}

pub fn null(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let listener = TcpListener::bind(address(options)?)
        .map_err(|e| format!("cannot listen on {}:{}: {e}", options.host, options.port))?;
    os::pin_thread(&options.lavik.cpus).map_err(|e| format!("cannot pin: {e}"))?;
    println!("null responder on port {}, values of {} bytes", options.port, dataset.value_bytes);
    null::serve(&listener, dataset).map_err(|e| format!("null responder: {e}"))
}

fn address(options: &Options) -> Result<SocketAddr, String> {
    let name = (options.host.as_str(), options.port);
    name.to_socket_addrs()
        .map_err(|e| format!("cannot resolve {}: {e}", options.host))?
        .next()
        .ok_or_else(|| format!("{} has no address", options.host))
}

/// One line of results.
struct Row {
    qps: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    errors: u64,
    missing: u64,
}

impl Row {
    const HEAD: &'static str =
        "       QPS    p50 us    p99 us  p99.9 us    max us   errors  missing";

    fn of(outcome: &Outcome) -> Row {
        let latency = &outcome.latency;
        Row {
            qps: outcome.per_second(),
            p50_us: us(latency.quantile_ns(0.5)),
            p99_us: us(latency.quantile_ns(0.99)),
            p999_us: us(latency.quantile_ns(0.999)),
            max_us: us(latency.max_ns()),
            errors: outcome.errors,
            missing: outcome.missing,
        }
    }

    fn line(&self) -> String {
        format!(
            "{:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>8} {:>8}",
            self.qps,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.max_us,
            self.errors,
            self.missing
        )
    }

    fn json(&self, op: &str, pipeline: usize, connections: usize) -> Json {
        Json::Object(vec![
            ("op", op.into()),
            ("pipeline", (pipeline as u64).into()),
            ("connections", (connections as u64).into()),
            ("qps", self.qps.into()),
            ("p50_us", self.p50_us.into()),
            ("p99_us", self.p99_us.into()),
            ("p999_us", self.p999_us.into()),
            ("max_us", self.max_us.into()),
            ("errors", self.errors.into()),
            ("missing", self.missing.into()),
        ])
    }
}
