//! Command-line options. All verbs share one set; each reads what it needs.

use crate::server::{Kind, ServerSpec};
use lexopt::prelude::{Long, Short, Value, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
lavik-bench VERB [options]

Verbs
  run           load a server that is already running (--host, --port)
  load          write all keys to a server that is already running
  null          be a RESP responder without a store: the client's ceiling (--port)
  compare       ours and a peer in interleaved slices: ratios, CPU per operation, latency
  memory        DRAM per key while the key count grows
  device        cold GETs against fio's random reads on the same file
  instructions  user-space instructions per operation, by callgrind
  overwrite     endless overwrite of a nearly full device: write amplification, steadiness,
                what GETs notice of defrag
  restart       kill -9 under data, time to the first answer, check of what is there

Servers (compare, memory, device, instructions, overwrite, restart)
  --lavik PATH           our server [../target/release/lavik, target/release/lavik, lavik]
  --peer PATH            the other one [redis-server]; may be a previous build of ours
  --lavik-kind, --peer-kind lavik|redis     which options it takes [by its name]
  --lavik-arg, --peer-arg ARG               passed on; repeat for more
  --server-cpus LIST     CPUs of the server [the first one]
  --dir PATH             data files and logs go into a fresh directory here [/dev/shm]
  --data-file-size SIZE  of our data file [four times the data, 1 GiB at least]
  --keep                 leave the directory behind
  --self-noise           compare: our server against itself

Load
  --host ADDR, --port N  run, load, null [127.0.0.1, 6379]
  --keys N               [100k]   --key-size BYTES    [16]   --value-size BYTES [1024]
  --op LIST              get, set or a share of GETs such as 80 [get,set]
  --pipeline LIST        [1,16]   --connections LIST  [40,200]
  --seconds S            run, device: length of one measurement [5]
  --operations N         run, instructions: count instead of time
  --rate N               run: operations per second, timed from the intended start
  --slice-ms MS          compare, overwrite [1000]
  --pairs N              compare, device, overwrite [8]
  --live-percent P       overwrite: share of the device that the keys take [85]
  --client-cpus LIST     one client thread each [all CPUs but the server's]
  --seed N               of the order of keys [1]

Output
  --json FILE            the report as JSON as well
  --check FILE           instructions: fail if a figure is over 2 % above the stored one
  --update FILE          instructions: store the figures
Lists are separated by commas. Counts take k and M, sizes K, M and G.
";

/// What to do with which keys of a workload.
pub type GetPercent = u64;

/// All options, with their defaults filled in.
#[derive(Clone, Debug)]
pub struct Options {
    pub verb: String,
    pub lavik: ServerSpec,
    pub peer: ServerSpec,
    pub self_noise: bool,
    pub dir: PathBuf,
    pub data_file_bytes: Option<u64>,
    pub keep: bool,
    pub host: String,
    pub port: u16,
    pub keys: Option<u64>,
    pub key_bytes: usize,
    pub value_bytes: Option<usize>,
    pub ops: Vec<GetPercent>,
    pub pipelines: Vec<usize>,
    pub connections: Option<Vec<usize>>,
    pub duration: Duration,
    pub operations: Option<u64>,
    pub rate: Option<f64>,
    pub slice: Duration,
    pub pairs: usize,
    pub live_percent: f64,
    pub client_cpus: Vec<usize>,
    pub seed: u64,
    pub json: Option<PathBuf>,
    pub check: Option<PathBuf>,
    pub update: Option<PathBuf>,
}

/// Why there is nothing to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Help,
    Fault(String),
}

/// CPUs and programs that defaults depend on.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub cpus: Vec<usize>,
    pub lavik: PathBuf,
}

impl Options {
    pub fn parse(
        args: impl IntoIterator<Item = OsString>,
        surroundings: &Surroundings,
    ) -> Result<Options, Refusal> {
        let mut parser = lexopt::Parser::from_args(args);
        let mut options = Options::defaults(surroundings);
        let mut cpus = CpuChoice::default();
        while let Some(arg) = parser.next().map_err(fault)? {
            match arg {
                Short('h') | Long("help") => return Err(Refusal::Help),
                Value(verb) if options.verb.is_empty() => {
                    options.verb = verb.string().map_err(fault)?;
                }
                Long(name) => {
                    let name = name.to_string();
                    options.set(&name, &mut parser, &mut cpus)?;
                }
                other => return Err(fault(other.unexpected())),
            }
        }
        if options.verb.is_empty() {
            return Err(Refusal::Help);
        }
        options.settle(cpus, surroundings)
    }

    fn defaults(surroundings: &Surroundings) -> Options {
        let spec = |program: PathBuf| ServerSpec {
            kind: Kind::guess(&program),
            program,
            extra_args: Vec::new(),
            cpus: Vec::new(),
        };
        Options {
            verb: String::new(),
            lavik: spec(surroundings.lavik.clone()),
            peer: spec("redis-server".into()),
            self_noise: false,
            dir: "/dev/shm".into(),
            data_file_bytes: None,
            keep: false,
            host: "127.0.0.1".into(),
            port: 6379,
            keys: None,
            key_bytes: 16,
            value_bytes: None,
            ops: vec![100, 0],
            pipelines: vec![1, 16],
            connections: None,
            duration: Duration::from_secs(5),
            operations: None,
            rate: None,
            slice: Duration::from_millis(1000),
            pairs: 8,
            live_percent: 85.0,
            client_cpus: Vec::new(),
            seed: 1,
            json: None,
            check: None,
            update: None,
        }
    }

    fn set(
        &mut self,
        name: &str,
        parser: &mut lexopt::Parser,
        cpus: &mut CpuChoice,
    ) -> Result<(), Refusal> {
        match name {
            "self-noise" => self.self_noise = true,
            "keep" => self.keep = true,
            _ => {
                let value = parser.value().map_err(fault)?.string().map_err(fault)?;
                self.set_value(name, &value, cpus)
                    .map_err(|why| Refusal::Fault(format!("--{name} {value}: {why}")))?;
            }
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &str, cpus: &mut CpuChoice) -> Result<(), String> {
        match name {
            "lavik" => set_program(&mut self.lavik, value),
            "peer" => set_program(&mut self.peer, value),
            "lavik-kind" => cpus.lavik_kind = Some(parse_kind(value)?),
            "peer-kind" => cpus.peer_kind = Some(parse_kind(value)?),
            "lavik-arg" => self.lavik.extra_args.push(value.into()),
            "peer-arg" => self.peer.extra_args.push(value.into()),
            "server-cpus" => cpus.server = Some(parse_list(value, parse_plain)?),
            "client-cpus" => cpus.client = Some(parse_list(value, parse_plain)?),
            "dir" => self.dir = value.into(),
            "data-file-size" => self.data_file_bytes = Some(parse_bytes(value)?),
            "host" => self.host = value.into(),
            "port" => self.port = parse_plain(value)?,
            "keys" => self.keys = Some(parse_count(value)?),
            "key-size" => self.key_bytes = parse_bytes(value)? as usize,
            "value-size" => self.value_bytes = Some(parse_bytes(value)? as usize),
            "op" => self.ops = parse_list(value, parse_op)?,
            "pipeline" => self.pipelines = parse_list(value, parse_positive)?,
            "connections" => self.connections = Some(parse_list(value, parse_positive)?),
            "seconds" => self.duration = parse_seconds(value)?,
            "operations" => self.operations = Some(parse_count(value)?),
            "rate" => self.rate = Some(parse_count(value)?.max(1) as f64),
            "slice-ms" => self.slice = Duration::from_millis(parse_positive(value)? as u64),
            "pairs" => self.pairs = parse_positive(value)?,
            "live-percent" => self.live_percent = f64::from(parse_plain::<u8>(value)?),
            "seed" => self.seed = parse_plain(value)?,
            "json" => self.json = Some(value.into()),
            "check" => self.check = Some(value.into()),
            "update" => self.update = Some(value.into()),
            _ => return Err("there is no such option".into()),
        }
        Ok(())
    }

    fn settle(mut self, cpus: CpuChoice, around: &Surroundings) -> Result<Options, Refusal> {
        let server = cpus.server.unwrap_or_else(|| around.cpus.iter().take(1).copied().collect());
        self.client_cpus = cpus.client.unwrap_or_else(|| {
            let others = around.cpus.iter().copied().filter(|cpu| !server.contains(cpu));
            let others: Vec<usize> = others.collect();
            if others.is_empty() { around.cpus.clone() } else { others }
        });
        for cpu in server.iter().chain(&self.client_cpus) {
            if !around.cpus.contains(cpu) {
                return Err(Refusal::Fault(format!("CPU {cpu} is not ours to use")));
            }
        }
        self.lavik.kind = cpus.lavik_kind.unwrap_or(self.lavik.kind);
        self.peer.kind = cpus.peer_kind.unwrap_or(self.peer.kind);
        self.lavik.cpus = server.clone();
        self.peer.cpus = server;
        Ok(self)
    }
}

/// Choices that are only settled when all options are known.
#[derive(Debug, Default)]
struct CpuChoice {
    server: Option<Vec<usize>>,
    client: Option<Vec<usize>>,
    lavik_kind: Option<Kind>,
    peer_kind: Option<Kind>,
}

fn fault(error: lexopt::Error) -> Refusal {
    Refusal::Fault(error.to_string())
}

fn set_program(spec: &mut ServerSpec, value: &str) {
    spec.program = value.into();
    spec.kind = Kind::guess(&spec.program);
}

fn parse_kind(value: &str) -> Result<Kind, String> {
    match value {
        "lavik" => Ok(Kind::Lavik),
        "redis" => Ok(Kind::Redis),
        _ => Err("lavik or redis".into()),
    }
}

fn parse_list<T>(value: &str, parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    value.split(',').map(parse).collect()
}

fn parse_plain<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| "not a number in range".to_string())
}

fn parse_positive(value: &str) -> Result<usize, String> {
    match parse_plain(value)? {
        0 => Err("must be at least 1".into()),
        number => Ok(number),
    }
}

fn parse_op(value: &str) -> Result<GetPercent, String> {
    match value {
        "get" => Ok(100),
        "set" => Ok(0),
        share => parse_plain(share)
            .ok()
            .filter(|&share| share <= 100)
            .ok_or_else(|| "get, set or a share of GETs of 0 to 100".to_string()),
    }
}

fn parse_seconds(value: &str) -> Result<Duration, String> {
    let seconds: f64 = parse_plain(value)?;
    if !(0.001..=1e6).contains(&seconds) {
        return Err("between 0.001 and 1000000".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn parse_count(value: &str) -> Result<u64, String> {
    parse_scaled(value, &[("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("m", 1_000_000)])
}

fn parse_bytes(value: &str) -> Result<u64, String> {
    let bare = value.strip_suffix("iB").or(value.strip_suffix('B')).unwrap_or(value);
    parse_scaled(bare, &[("K", 1 << 10), ("k", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)])
}

fn parse_scaled(value: &str, suffixes: &[(&str, u64)]) -> Result<u64, String> {
    let (digits, factor) = suffixes
        .iter()
        .find_map(|(suffix, factor)| Some((value.strip_suffix(suffix)?, *factor)))
        .unwrap_or((value, 1));
    let number: u64 = parse_plain(digits)?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_string())
}

#[cfg(test)]
mod tests {
    use super::{Options, Refusal, Surroundings, parse_bytes, parse_count, parse_op};
    use crate::server::Kind;

    fn parse(line: &str) -> Result<Options, Refusal> {
        let around = Surroundings { cpus: vec![0, 1, 2], lavik: "lavik".into() };
        Options::parse(line.split_whitespace().map(Into::into), &around)
    }

    #[test]
    fn defaults_split_the_cpus() {
        let options = parse("compare").unwrap();
        assert_eq!(options.lavik.cpus, [0]);
        assert_eq!(options.client_cpus, [1, 2]);
        assert_eq!(options.ops, [100, 0]);
        assert_eq!((options.lavik.kind, options.peer.kind), (Kind::Lavik, Kind::Redis));
    }

    #[test]
    fn options_are_read() {
        let options = parse(
            "run --keys 2M --value-size 4K --op get,80 --connections 1,2 --seconds 0.5 \
             --peer old/lavik --lavik x --lavik-kind redis --server-cpus 2 --self-noise",
        )
        .unwrap();
        assert_eq!((options.keys, options.value_bytes), (Some(2_000_000), Some(4096)));
        assert_eq!(options.ops, [100, 80]);
        assert_eq!(options.connections, Some(vec![1, 2]));
        assert_eq!(options.duration.as_millis(), 500);
        assert_eq!((options.lavik.kind, options.peer.kind), (Kind::Redis, Kind::Lavik));
        assert_eq!((options.lavik.cpus, options.client_cpus), (vec![2], vec![0, 1]));
        assert!(options.self_noise);
    }

    #[test]
    fn faults_name_the_option() {
        for (line, part) in [
            ("run --keys x", "--keys x"),
            ("run --bogus 1", "--bogus"),
            ("run --pipeline 0", "at least 1"),
            ("run --client-cpus 9", "CPU 9"),
            ("run twice", "twice"),
        ] {
            match parse(line) {
                Err(Refusal::Fault(text)) => assert!(text.contains(part), "{text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert_eq!(parse("").err(), Some(Refusal::Help));
    }

    #[test]
    fn counts_and_sizes() {
        assert_eq!(parse_count("100k"), Ok(100_000));
        assert_eq!(parse_bytes("1KiB"), Ok(1024));
        assert_eq!(parse_bytes("2GB"), Ok(2 << 30));
        assert_eq!(parse_bytes("64"), Ok(64));
        assert!(parse_count("-1").is_err());
        assert!(parse_bytes("99999999999G").is_err());
        assert_eq!(parse_op("50"), Ok(50));
        assert!(parse_op("101").is_err());
    }
}
