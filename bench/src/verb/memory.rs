//! `memory`: DRAM per key, at many points while the key count grows, since tables that double
//! look well at some counts and bad at others.

use super::{LOAD_CONNECTIONS, connect, dataset, fill, launch};
use crate::dataset::Dataset;
use crate::engine::plan::Stop;
use crate::host::Host;
use crate::json::Json;
use crate::options::Options;
use crate::server::{Server, WorkDir};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 64;
const POINTS: u64 = 40;

/// Keys, and bytes written to them over and over, before the base is taken: buffers that are
/// there for any number of keys are resident then and do not count as growth.
const WARM_KEYS: u64 = 1000;
const WARM_BYTES: u64 = 96 << 20;

/// Figures at one number of keys.
#[derive(Clone, Copy, Debug)]
struct Point {
    keys: u64,
    rss_bytes: u64,
    index_bytes: Option<u64>,
}

impl Point {
    fn read(server: &Server) -> Result<Point, String> {
        let mut control = server.control()?;
        Ok(Point {
            keys: control.integer(&["DBSIZE"])? as u64,
            rss_bytes: server.status_bytes("VmRSS")?,
            index_bytes: control.info("memory")?.number("index_bytes"),
        })
    }

    fn growth_per_key(&self, base: &Point) -> f64 {
        self.rss_bytes.saturating_sub(base.rss_bytes) as f64 / (self.keys - base.keys) as f64
    }

    fn index_per_key(&self) -> Option<f64> {
        Some(self.index_bytes? as f64 / self.keys as f64)
    }

    fn print(&self, base: &Point) {
        let index = self.index_per_key().map_or("-".into(), |bytes| format!("{bytes:.2}"));
        println!(
            "{:>12} {:>12.1} {:>12.2} {index:>14}",
            self.keys,
            mib(self.rss_bytes),
            self.growth_per_key(base)
        );
    }

    fn json(&self, base: &Point) -> Json {
        Json::Object(vec![
            ("keys", self.keys.into()),
            ("rss_bytes", self.rss_bytes.into()),
            ("growth_bytes_per_key", self.growth_per_key(base).into()),
            ("index_bytes_per_key", self.index_per_key().into()),
        ])
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    if dataset.keys < 10 * WARM_KEYS {
        return Err(format!("memory needs at least {} keys", 10 * WARM_KEYS));
    }
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let server = Server::start(&launch(options, &options.lavik, dir.sub("a")?, &dataset))?;
    let host = Host::read();
    host.print();
    println!("server: {}", options.lavik.version());
    let idle = Point::read(&server)?;
    warm_up(options, &server, &dataset)?;
    let base = Point::read(&server)?;
    println!(
        "RSS at start {:.1} MiB, with its buffers in use {:.1} MiB (the base)",
        mib(idle.rss_bytes),
        mib(base.rss_bytes)
    );
    let points = grow(options, &server, &dataset, &base)?;
    report(options, &host, &base, &points)
}

fn warm_up(options: &Options, server: &Server, dataset: &Dataset) -> Result<(), String> {
    let few = Dataset::new(WARM_KEYS, dataset.key_bytes, dataset.value_bytes)?;
    let fleet = connect(options, server.addr, LOAD_CONNECTIONS, &few)?;
    let writes = WARM_BYTES / (dataset.key_bytes + dataset.value_bytes) as u64;
    fleet.run(&fill(0..writes.max(WARM_KEYS)))?.check()?;
    // A GET of each touches the read buffers.
    let mut reads = fill(0..WARM_KEYS);
    reads.get_percent = 100;
    reads.stop = Stop::Operations(0..WARM_KEYS);
    fleet.run(&reads)?.check()
}

fn grow(
    options: &Options,
    server: &Server,
    dataset: &Dataset,
    base: &Point,
) -> Result<Vec<Point>, String> {
    println!("{:>12} {:>12} {:>12} {:>14}", "keys", "RSS MiB", "growth B/key", "index B/key");
    let fleet = connect(options, server.addr, LOAD_CONNECTIONS, dataset)?;
    let mut points = Vec::new();
    let mut loaded = WARM_KEYS;
    for step in 1..=POINTS {
        let end = dataset.keys * step / POINTS;
        fleet.run(&fill(loaded..end))?.check()?;
        loaded = end;
        let point = Point::read(server)?;
        if point.keys != end {
            return Err(format!("DBSIZE says {} after {end} keys", point.keys));
        }
        point.print(base);
        points.push(point);
    }
    Ok(points)
}

fn report(options: &Options, host: &Host, base: &Point, points: &[Point]) -> Result<(), String> {
    let worst = worst(points, base);
    println!(
        "worst point from a tenth of the keys on: {:.2} bytes per key at {} keys",
        worst.growth_per_key(base),
        worst.keys
    );
    let rows = points.iter().map(|point| point.json(base)).collect();
    let json = Json::Object(vec![
        ("host", host.json()),
        ("version", options.lavik.version().as_str().into()),
        ("base_rss_bytes", base.rss_bytes.into()),
        ("worst", worst.json(base)),
        ("points", Json::List(rows)),
    ]);
    super::write_json(options.json.as_deref(), &json)
}

/// The first tenth is left out: a page there is several bytes per key.
fn worst(points: &[Point], base: &Point) -> Point {
    let last = points[points.len() - 1];
    let counted = points.iter().filter(|point| point.keys * 10 >= last.keys);
    counted.fold(last, |worst, point| {
        if point.growth_per_key(base) > worst.growth_per_key(base) { *point } else { worst }
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::{Point, worst};

    fn point(keys: u64, rss_bytes: u64) -> Point {
        Point { keys, rss_bytes, index_bytes: Some(keys * 18) }
    }

    #[test]
    fn growth_is_counted_over_the_base() {
        let base = point(100, 5_000);
        assert_eq!(point(1_100, 25_000).growth_per_key(&base), 20.0);
        assert_eq!(point(1_100, 25_000).index_per_key(), Some(18.0));
        assert_eq!(point(1_100, 4_000).growth_per_key(&base), 0.0);
    }

    #[test]
    fn the_worst_point_is_not_one_of_the_first() {
        let base = point(0, 0);
        let points =
            [point(50, 9_000), point(500, 15_000), point(700, 14_000), point(1_000, 18_000)];
        assert_eq!(worst(&points, &base).keys, 500);
    }
}
