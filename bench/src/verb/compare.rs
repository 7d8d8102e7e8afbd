//! `compare`: two servers under the same load in turn, many short slices. On a noisy machine
//! only the ratio of neighbouring slices says something.

use super::{connect, dataset, launch, load_all, op_name, uniform, us};
use crate::dataset::Dataset;
use crate::engine::Fleet;
use crate::engine::outcome::Outcome;
use crate::engine::plan::Stop;
use crate::histogram::Histogram;
use crate::host::Host;
use crate::json::Json;
use crate::options::{GetPercent, Options};
use crate::quartiles::Quartiles;
use crate::server::{Server, ServerSpec, WorkDir};
use std::time::Duration;

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 1024;
const CONNECTIONS: [usize; 2] = [40, 200];

/// A slice of each server before the measured ones.
const WARM_UP: Duration = Duration::from_millis(200);

pub fn run(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let host = Host::read();
    let peer = if options.self_noise { &options.lavik } else { &options.peer };
    let specs = [&options.lavik, peer];
    print_head(options, &host, specs, &dataset);
    let a = start(options, specs[0], &dir, "a", &dataset)?;
    let b = start(options, specs[1], &dir, "b", &dataset)?;
    println!("{HEAD}");
    let mut rows = Vec::new();
    for &connections in options.connections.as_deref().unwrap_or(&CONNECTIONS) {
        let mut sides = [
            Side::connect(options, &a, connections, &dataset)?,
            Side::connect(options, &b, connections, &dataset)?,
        ];
        for &pipeline in &options.pipelines {
            for &op in &options.ops {
                let cell = measure(options, &mut sides, op, pipeline, connections)?;
                println!("{}", cell.lines());
                rows.push(cell.json());
            }
        }
    }
    let versions = specs.map(|spec| Json::Text(spec.version()));
    let report = Json::Object(vec![
        ("host", host.json()),
        ("versions", Json::List(versions.into())),
        ("keys", dataset.keys.into()),
        ("value_bytes", (dataset.value_bytes as u64).into()),
        ("rows", Json::List(rows)),
    ]);
    super::write_json(options.json.as_deref(), &report)
}

const HEAD: &str = "                                \
                    QPS x1000  CPU us/op    p50 us    p99 us  p99.9 us  \
                    reads/GET  bytes/GET   A/B of QPS (quartiles)   A/B of CPU";

fn print_head(options: &Options, host: &Host, specs: [&ServerSpec; 2], dataset: &Dataset) {
    host.print();
    for (name, spec) in ["A", "B"].iter().zip(specs) {
        println!("{name}: {} ({})", spec.program.display(), spec.version());
    }
    println!(
        "{} keys of {} + {} bytes, {} pairs of {:?}, server CPUs {:?}, client CPUs {:?}",
        dataset.keys,
        dataset.key_bytes,
        dataset.value_bytes,
        options.pairs,
        options.slice,
        options.lavik.cpus,
        options.client_cpus
    );
}

fn start(
    options: &Options,
    spec: &ServerSpec,
    dir: &WorkDir,
    name: &str,
    dataset: &Dataset,
) -> Result<Server, String> {
    let server = Server::start(&launch(options, spec, dir.sub(name)?, dataset))?;
    load_all(options, server.addr, dataset)?;
    Ok(server)
}

/// A server and the connections to it.
struct Side<'a> {
    server: &'a Server,
    fleet: Fleet,
}

/// What the slices of one side gave.
#[derive(Default)]
struct Figures {
    qps: Vec<f64>,
    cpu_us: Vec<f64>,
    gets: u64,
    latency: Histogram,
    device: Option<DeviceReads>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct DeviceReads {
    reads: u64,
    bytes: u64,
}

/// One line of the table: both sides under one load.
struct Cell {
    op: GetPercent,
    pipeline: usize,
    connections: usize,
    sides: [Figures; 2],
}

impl<'a> Side<'a> {
    fn connect(
        options: &Options,
        server: &'a Server,
        connections: usize,
        dataset: &Dataset,
    ) -> Result<Side<'a>, String> {
        Ok(Side { server, fleet: connect(options, server.addr, connections, dataset)? })
    }

    /// One slice: operations per second and CPU microseconds per operation go to `figures`.
    fn slice(
        &self,
        op: GetPercent,
        pipeline: usize,
        length: Duration,
        figures: &mut Figures,
    ) -> Result<(), String> {
        let before = self.server.cpu_ns()?;
        let outcome: Outcome = self.fleet.run(&uniform(op, pipeline, Stop::After(length)))?;
        let cpu_ns = self.server.cpu_ns()?.saturating_sub(before);
        outcome.check()?;
        figures.qps.push(outcome.per_second());
        figures.cpu_us.push(us(cpu_ns) / outcome.operations as f64);
        figures.gets += outcome.gets;
        figures.latency.merge(&outcome.latency);
        Ok(())
    }

    /// Peers have no such counters.
    fn device_reads(&self) -> Result<Option<DeviceReads>, String> {
        let info = self.server.info("stats")?;
        let field = |name| info.number(name);
        Ok(field("device_reads")
            .zip(field("device_read_bytes"))
            .map(|(reads, bytes)| DeviceReads { reads, bytes }))
    }
}

fn measure(
    options: &Options,
    sides: &mut [Side<'_>; 2],
    op: GetPercent,
    pipeline: usize,
    connections: usize,
) -> Result<Cell, String> {
    let mut figures = [Figures::default(), Figures::default()];
    let mut before = [None, None];
    for (side, before) in sides.iter().zip(&mut before) {
        side.slice(op, pipeline, WARM_UP, &mut Figures::default())?;
        *before = side.device_reads()?;
    }
    for pair in 0..options.pairs {
        // A B B A: a drift of the machine hits both alike.
        for turn in 0..2 {
            let which = (pair + turn) % 2;
            sides[which].slice(op, pipeline, options.slice, &mut figures[which])?;
        }
    }
    for (index, side) in sides.iter().enumerate() {
        figures[index].device = difference(before[index], side.device_reads()?);
    }
    Ok(Cell { op, pipeline, connections, sides: figures })
}

fn difference(before: Option<DeviceReads>, after: Option<DeviceReads>) -> Option<DeviceReads> {
    let (before, after) = before.zip(after)?;
    Some(DeviceReads { reads: after.reads - before.reads, bytes: after.bytes - before.bytes })
}

impl Figures {
    fn per_get(&self, pick: fn(&DeviceReads) -> u64) -> Option<f64> {
        let device = self.device.as_ref().filter(|_| self.gets > 0)?;
        Some(pick(device) as f64 / self.gets as f64)
    }

    fn line(&self) -> String {
        let show = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        format!(
            "{:>10.1} {:>10.2} {:>9.0} {:>9.0} {:>9.0} {:>10} {:>10}",
            Quartiles::of(&self.qps).median / 1e3,
            Quartiles::of(&self.cpu_us).median,
            us(self.latency.quantile_ns(0.5)),
            us(self.latency.quantile_ns(0.99)),
            us(self.latency.quantile_ns(0.999)),
            show(self.per_get(|device| device.reads)),
            show(self.per_get(|device| device.bytes)),
        )
    }

    fn json(&self) -> Json {
        Json::Object(vec![
            ("qps", Quartiles::of(&self.qps).median.into()),
            ("cpu_us_per_op", Quartiles::of(&self.cpu_us).median.into()),
            ("p50_us", us(self.latency.quantile_ns(0.5)).into()),
            ("p99_us", us(self.latency.quantile_ns(0.99)).into()),
            ("p999_us", us(self.latency.quantile_ns(0.999)).into()),
            ("max_us", us(self.latency.max_ns()).into()),
            ("device_reads_per_get", self.per_get(|device| device.reads).into()),
            ("device_read_bytes_per_get", self.per_get(|device| device.bytes).into()),
        ])
    }
}

/// Quartiles of the ratios of neighbouring slices.
fn pair_ratios(a: &[f64], b: &[f64]) -> Quartiles {
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    Quartiles::of(&ratios)
}

impl Cell {
    fn ratios(&self) -> (Quartiles, Quartiles) {
        let [a, b] = &self.sides;
        (pair_ratios(&a.qps, &b.qps), pair_ratios(&a.cpu_us, &b.cpu_us))
    }

    fn lines(&self) -> String {
        let (qps, cpu) = self.ratios();
        let name = format!("{} P{} C{}", op_name(self.op), self.pipeline, self.connections);
        format!(
            "{name:<28} A {}\n{:<28} B {}   {:.2} ({:.2}..{:.2}) {:>16.2}",
            self.sides[0].line(),
            "",
            self.sides[1].line(),
            qps.median,
            qps.low,
            qps.high,
            cpu.median
        )
    }

    fn json(&self) -> Json {
        let (qps, cpu) = self.ratios();
        let quartiles =
            |q: Quartiles| Json::List(vec![q.low.into(), q.median.into(), q.high.into()]);
        Json::Object(vec![
            ("op", op_name(self.op).as_str().into()),
            ("pipeline", (self.pipeline as u64).into()),
            ("connections", (self.connections as u64).into()),
            ("a", self.sides[0].json()),
            ("b", self.sides[1].json()),
            ("qps_ratio_quartiles", quartiles(qps)),
            ("cpu_ratio_quartiles", quartiles(cpu)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceReads, Figures, difference, pair_ratios};

    #[test]
    fn ratios_are_of_pairs_not_of_medians() {
        let ratios = pair_ratios(&[2.0, 30.0, 8.0], &[1.0, 10.0, 2.0]);
        assert_eq!((ratios.low, ratios.median, ratios.high), (2.5, 3.0, 3.5));
    }

    #[test]
    fn device_reads_are_per_get() {
        let at = |reads, bytes| Some(DeviceReads { reads, bytes });
        let device = difference(at(10, 1000), at(30, 3048));
        let figures = Figures { gets: 40, device, ..Figures::default() };
        assert_eq!(figures.per_get(|device| device.reads), Some(0.5));
        assert_eq!(figures.per_get(|device| device.bytes), Some(51.2));
        assert_eq!(difference(None, at(1, 1)), None);
        assert_eq!(Figures { device, ..Figures::default() }.per_get(|device| device.reads), None);
    }
}
