//! `device`: cold GETs as a fraction of what fio reads from the same file, with reads of the
//! same size, a comparable queue depth and the same CPU.

use super::{connect, dataset, launch, load_all, uniform, us};
use crate::dataset::Dataset;
use crate::engine::plan::Stop;
use crate::host::Host;
use crate::json::Json;
use crate::options::Options;
use crate::os;
use crate::quartiles::Quartiles;
use crate::server::{Server, WorkDir};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 1024;

/// Connections and pipeline of the GETs, and fio's queue depth to compare with.
const SHAPES: [(usize, usize, usize); 3] = [(200, 1, 64), (40, 16, 64), (40, 1, 40)];

const SECTOR_BYTES: u64 = 512;

/// Field of fio's terse output, version 3, counted from zero.
const TERSE_READ_IOPS: usize = 7;

pub fn run(options: &Options) -> Result<(), String> {
    let dataset = dataset(options, KEYS, VALUE_BYTES)?;
    let fio = fio_version()?;
    let dir = WorkDir::create(&options.dir, options.keep)?;
    let launch = launch(options, &options.lavik, dir.sub("a")?, &dataset);
    let server = Server::start(&launch)?;
    load_all(options, server.addr, &dataset)?;
    let host = Host::read();
    host.print();
    println!("server: {}; {fio}; data in {}", options.lavik.version(), options.dir.display());
    let target = Target::find(&server, launch.data_file(), &dataset)?;
    println!("fio reads {} bytes at random in {} bytes", target.read_bytes, target.file_bytes);
    println!("     C    P depth   GET x1000    fio x1000   GET/fio (quartiles)");
    let mut rows = Vec::new();
    for (connections, pipeline, depth) in SHAPES {
        let fleet = connect(options, server.addr, connections, &dataset)?;
        let (mut gets, mut reads) = (Vec::new(), Vec::new());
        for pair in 0..options.pairs {
            for turn in 0..2 {
                if (pair + turn) % 2 == 0 {
                    let plan = uniform(100, pipeline, Stop::After(options.duration));
                    let outcome = fleet.run(&plan)?;
                    outcome.check()?;
                    gets.push(outcome.per_second());
                } else {
                    reads.push(target.fio(options, depth)?);
                }
            }
        }
        rows.push(report(connections, pipeline, depth, &gets, &reads));
    }
    let json = Json::Object(vec![
        ("host", host.json()),
        ("version", options.lavik.version().as_str().into()),
        ("read_bytes", target.read_bytes.into()),
        ("rows", Json::List(rows)),
    ]);
    super::write_json(options.json.as_deref(), &json)
}

fn report(connections: usize, pipeline: usize, depth: usize, gets: &[f64], fio: &[f64]) -> Json {
    let ratios: Vec<f64> = gets.iter().zip(fio).map(|(get, read)| get / read).collect();
    let ratio = Quartiles::of(&ratios);
    let (gets, fio) = (Quartiles::of(gets).median, Quartiles::of(fio).median);
    println!(
        "{connections:>6} {pipeline:>4} {depth:>5} {:>11.1} {:>12.1}   {:.2} ({:.2}..{:.2})",
        gets / 1e3,
        fio / 1e3,
        ratio.median,
        ratio.low,
        ratio.high
    );
    Json::Object(vec![
        ("connections", (connections as u64).into()),
        ("pipeline", (pipeline as u64).into()),
        ("fio_depth", (depth as u64).into()),
        ("gets_per_second", gets.into()),
        ("fio_reads_per_second", fio.into()),
        ("fraction", ratio.median.into()),
    ])
}

/// What fio is to read.
struct Target {
    file: PathBuf,
    /// The part that holds data: an unwritten extent is read without the device.
    file_bytes: u64,
    read_bytes: u64,
}

impl Target {
    /// Read size and written bytes by the server's own counters.
    fn find(server: &Server, file: PathBuf, dataset: &Dataset) -> Result<Target, String> {
        let before = server.info("stats")?;
        let sample = dataset.keys.min(10_000);
        let mut control = server.control()?;
        let mut key = Vec::new();
        for id in 0..sample.min(1000) {
            key.clear();
            dataset.append_key(id * (dataset.keys / sample), &mut key);
            control.call(&["GET", &String::from_utf8_lossy(&key)])?;
        }
        let after = control.info("stats")?;
        let grown = |name: &str| Some(after.number(name)? - before.number(name)?);
        let counters = grown("device_reads").zip(grown("device_read_bytes"));
        let (reads, bytes) = counters.ok_or("the server has no device_reads in INFO stats")?;
        if reads == 0 {
            return Err("GETs did not read the device: load more keys (--keys)".into());
        }
        let written = after.number("device_write_bytes").unwrap_or(dataset.bytes());
        let read_bytes = (bytes / reads).next_multiple_of(SECTOR_BYTES);
        let file_bytes = written.min(file_len(&file)?) / read_bytes * read_bytes;
        Ok(Target { file, file_bytes, read_bytes })
    }

    /// Random reads per second.
    fn fio(&self, options: &Options, depth: usize) -> Result<f64, String> {
        let mut command = Command::new("fio");
        command
            .args(["--name=device", "--rw=randread", "--direct=1", "--ioengine=io_uring"])
            .args(["--readonly", "--norandommap", "--time_based", "--allow_file_create=0"])
            .args(["--output-format=terse", "--terse-version=3"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--size={}", self.file_bytes))
            .arg(format!("--bs={}", self.read_bytes))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--runtime={}us", us(options.duration.as_nanos() as u64) as u64))
            .stdin(Stdio::null());
        os::bind_child(&mut command, &options.lavik.cpus);
        let output = command.output().map_err(|e| format!("cannot run fio: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("fio failed: {}{}", text.trim(), errors.trim()));
        }
        read_iops(&text).ok_or_else(|| format!("fio's output is not understood: {}", text.trim()))
    }
}

fn read_iops(terse: &str) -> Option<f64> {
    let line = terse.lines().find(|line| line.starts_with("3;"))?;
    line.split(';').nth(TERSE_READ_IOPS)?.parse().ok().filter(|&iops| iops > 0.0)
}

fn fio_version() -> Result<String, String> {
    match Command::new("fio").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        Err(error) => Err(format!("device needs fio in PATH: {error}")),
    }
}

fn file_len(path: &PathBuf) -> Result<u64, String> {
    let metadata = std::fs::metadata(path);
    metadata.map(|file| file.len()).map_err(|e| format!("cannot stat {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::read_iops;

    #[test]
    fn iops_are_field_eight() {
        let terse = "note: something\n3;fio-3.33;device;0;0;464060;92812;23203;5000;4;4\n";
        assert_eq!(read_iops(terse), Some(23203.0));
        assert_eq!(read_iops("3;fio;device;0;0;0;0;0;1"), None);
        assert_eq!(read_iops("fio: error"), None);
    }
}
