//! From command line, environment and config file to a [`Config`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser};

use super::options::{self, Opt};
use super::sections::Config;
use super::{file, help};

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    Run(Box<Config>),
    /// Show this text and stop.
    Print(String),
}

/// A value that some source gives to an option.
#[derive(Debug)]
struct Given {
    opt: &'static Opt,
    values: Vec<String>,
    /// Where it stands, for error messages: `--port`, `lavik.conf:3: port`.
    origin: String,
}

/// One place where values come from, in the order in which they stand there.
type Source = Vec<Given>;

/// What the command line says.
#[derive(Debug, Default)]
struct Line {
    given: Source,
    file: Option<PathBuf>,
    print: Option<String>,
}

/// Reads `args` (without the program's name), the variables that `env` knows and the config file
/// that the first positional argument names. Flags are stronger than variables, variables than
/// the file. Errors: every fault found, one line each.
pub fn load(
    args: impl IntoIterator<Item = OsString>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Start, Vec<String>> {
    let mut faults = Vec::new();
    let line = command_line(Parser::from_args(args), &mut faults);
    if let Some(text) = line.print {
        return Ok(Start::Print(text));
    }
    let mut config = Config { file: line.file, ..Config::default() };
    if let Some(path) = config.file.clone() {
        match std::fs::read(&path) {
            Ok(bytes) => apply_file(&mut config, &path, &bytes, &mut faults),
            Err(error) => faults.push(format!("{}: {error}", path.display())),
        }
    }
    apply(&mut config, environment(env), &mut faults);
    apply(&mut config, line.given, &mut faults);
    match faults.is_empty() {
        true => Ok(Start::Run(Box::new(config))),
        false => Err(faults),
    }
}

/// Applies the text of a config file.
pub(super) fn apply_file(config: &mut Config, path: &Path, bytes: &[u8], faults: &mut Vec<String>) {
    let place = |line: usize| format!("{}:{line}", path.display());
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = bytes[..error.valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
            return faults.push(format!("{}: not valid UTF-8", place(line)));
        }
    };
    let mut source = Source::new();
    for entry in file::directives(text) {
        match entry {
            Err((line, fault)) => faults.push(format!("{}: {fault}", place(line))),
            Ok(file::Directive { line, name, values }) => match options::find(&name) {
                None => faults.push(format!("{}: unknown directive '{name}'", place(line))),
                Some(opt) => {
                    source.push(Given { opt, values, origin: format!("{}: {name}", place(line)) });
                }
            },
        }
    }
    apply(config, source, faults);
}

/// Applies one source. Of repeated options the last one counts; the values of a list add up.
fn apply(config: &mut Config, source: Source, faults: &mut Vec<String>) {
    for (at, last) in source.iter().enumerate() {
        let same = |given: &&Given| std::ptr::eq(given.opt, last.opt);
        if source[at + 1..].iter().any(|given| same(&given)) {
            continue;
        }
        let values: Vec<String> = match last.opt.is_list() {
            true => source.iter().filter(same).flat_map(|g| g.values.clone()).collect(),
            false => last.values.clone(),
        };
        if let Err(fault) = last.opt.set(config, &values) {
            let text =
                if values.is_empty() { String::new() } else { format!(" {}", values.join(" ")) };
            faults.push(format!("{}{text}: {fault}", last.origin));
        }
    }
}

/// What the environment gives; where two variables name the same option, the later one of its
/// row wins.
fn environment(env: &dyn Fn(&str) -> Option<String>) -> Source {
    let variables = options::all().flat_map(|opt| opt.env.iter().map(move |name| (opt, *name)));
    let given = |(opt, name): (&'static Opt, &str)| {
        env(name).map(|value| Given { opt, values: vec![value], origin: name.to_string() })
    };
    variables.filter_map(given).collect()
}

fn command_line(mut parser: Parser, faults: &mut Vec<String>) -> Line {
    let mut line = Line::default();
    loop {
        let taken = match next_word(&mut parser) {
            Ok(None) => return line,
            Ok(Some(word)) => line.take(word, &mut parser),
            Err(error) => Err(error.to_string()),
        };
        faults.extend(taken.err());
    }
}

/// A word of the command line; flags with their dashes.
enum Word {
    Flag(String),
    Positional(OsString),
}

fn next_word(parser: &mut Parser) -> Result<Option<Word>, lexopt::Error> {
    Ok(parser.next()?.map(|arg| match arg {
        Arg::Short(short) => Word::Flag(format!("-{short}")),
        Arg::Long(name) => Word::Flag(format!("--{name}")),
        Arg::Value(value) => Word::Positional(value),
    }))
}

impl Line {
    fn take(&mut self, word: Word, parser: &mut Parser) -> Result<(), String> {
        match word {
            Word::Flag(flag) if flag == "-h" || flag == "--help" => self.print = Some(help::text()),
            Word::Flag(flag) if flag == "-v" || flag == "--version" => {
                self.print = Some(help::version());
            }
            Word::Flag(flag) => {
                let value = Line::flag(&flag, parser);
                let (opt, value) = value.map_err(|fault| format!("{flag}: {fault}"))?;
                self.given.push(Given { opt, values: vec![value], origin: flag });
            }
            Word::Positional(path) if self.file.is_none() => self.file = Some(path.into()),
            Word::Positional(word) => {
                return Err(format!("unexpected argument '{}'", word.display()));
            }
        }
        Ok(())
    }

    /// The option and the value that a flag means.
    fn flag(flag: &str, parser: &mut Parser) -> Result<(&'static Opt, String), String> {
        let attached = parser.optional_value();
        let (opt, negated) = find_flag(flag).ok_or("unknown option, see --help")?;
        Ok((opt, flag_value(parser, opt, negated, attached)?))
    }
}

/// The option of a flag, and whether it is the `--no-...` form of a switch.
fn find_flag(flag: &str) -> Option<(&'static Opt, bool)> {
    let Some(name) = flag.strip_prefix("--") else {
        return options::find_short(flag.chars().nth(1)?).map(|opt| (opt, false));
    };
    let switch = |name| options::find(name).filter(|opt| opt.is_switch());
    let plain = options::find(name).map(|opt| (opt, false));
    plain.or_else(|| Some((switch(name.strip_prefix("no-")?)?, true)))
}

/// The value of the flag that was just read, `attached` by `=` or following it. A switch needs
/// none; `yes` or `no` may follow.
fn flag_value(
    parser: &mut Parser,
    opt: &Opt,
    negated: bool,
    attached: Option<OsString>,
) -> Result<String, String> {
    let value = match attached {
        Some(_) if negated => return Err("takes no value".into()),
        Some(value) => value,
        None if negated => "no".into(),
        None if opt.is_switch() => next_yes_no(parser).unwrap_or_else(|| "yes".into()),
        None => parser.value().map_err(|_| "needs a value".to_string())?,
    };
    value.into_string().map_err(|_| "value is not valid UTF-8".into())
}

fn next_yes_no(parser: &mut Parser) -> Option<OsString> {
    parser.try_raw_args()?.next_if(|word| word == "yes" || word == "no")
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::{Start, apply_file, load};
    use crate::config::value::DataFile;
    use crate::config::{Config, Durability, options};

    fn start(line: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Start, Vec<String>> {
        let quoted = line.split_whitespace().map(|word| if word == "''" { "" } else { word });
        load(quoted.map(Into::into), env)
    }

    /// The configuration of a faultless command line; `''` stands for an empty argument.
    pub fn config(line: &str) -> Config {
        match start(line, &|_| None) {
            Ok(Start::Run(config)) => *config,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn faults(line: &str) -> Vec<String> {
        start(line, &|_| None).expect_err(line)
    }

    fn file(text: &str) -> Result<Config, Vec<String>> {
        let (mut config, mut faults) = (Config::default(), Vec::new());
        apply_file(&mut config, Path::new("lavik.conf"), text.as_bytes(), &mut faults);
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    #[test]
    fn all_forms_of_a_flag() {
        for line in ["--port 7", "--port=7", "-p 7", "-p7", "-p=7", "--PORT 7", "--port 6 --port 7"]
        {
            assert_eq!(config(line).net.port, 7, "{line}");
        }
        assert_eq!(config("--shards 3").threads.threads, 3);
        assert_eq!(config("-t 3").threads.threads, 3);
        assert_eq!(config("--max-memory 1gb").memory.maxmemory_bytes, 1 << 30);
        assert_eq!(config("--maxmemory 512mb").memory.maxmemory_bytes, 512 << 20);
        assert_eq!(config("--slowlog-log-slower-than -1").slowlog.log_slower_than_us, -1);
        for line in ["-i -1", "-i off", "--idle-timeout=0", "--timeout 0"] {
            assert_eq!(config(&format!("-i 5 {line}")).net.idle_timeout_ms, 0, "{line}");
        }
        assert_eq!(config("--timeout 2").net.idle_timeout_ms, 2000);
        assert_eq!(config("--save '' --appendonly no").net.port, 6379);
    }

    #[test]
    fn switches() {
        for line in ["--logtostderr", "--logtostderr yes", "--logtostderr=yes"] {
            assert!(config(line).logging.to_stderr, "{line}");
        }
        for line in ["", "--no-logtostderr", "--logtostderr no", "--logtostderr --no-logtostderr"] {
            assert!(!config(line).logging.to_stderr, "{line}");
        }
        assert!(!config("--no-pin-workers").threads.pin_workers);
        let both = config("--shutdown-checkpoint --data-file yes");
        assert!(both.persistence.shutdown_checkpoint);
        assert_eq!(both.storage.data_files, [DataFile::Path("yes".into())]);
    }

    #[test]
    fn lists_add_up() {
        let config = config("--data-file a --data-file=b --bind ::1 -b 127.0.0.1 --cpus 0-3,8");
        assert_eq!(options::find("data-file").map(|o| o.show(&config)), Some("a b".into()));
        assert_eq!(options::find("bind").map(|o| o.show(&config)), Some("::1 127.0.0.1".into()));
        assert_eq!(config.threads.cpus, [0, 1, 2, 3, 8]);
    }

    #[test]
    fn data_files_and_their_creation() {
        let bare = config("").storage;
        assert_eq!(bare.devices(), [DataFile::Path("lavik.data".into())]);
        assert_eq!(bare.create_size_bytes(), Some(1 << 30));
        assert_eq!(config("--data-file f").storage.create_size_bytes(), None);
        let sized = config("--data-file f --data-file-size 2gb").storage;
        assert_eq!(sized.create_size_bytes(), Some(2 << 30));
        assert_eq!(config("--data-file-size 2gb").storage.create_size_bytes(), Some(2 << 30));
    }

    #[test]
    fn plans_of_cores() {
        let plan = |line: &str| config(line).threads.plan(&[2, 3]);
        assert_eq!(plan(""), [Some(2), Some(3)]);
        assert_eq!(plan("-t 1"), [Some(2)]);
        assert_eq!(plan("--cpus 3"), [Some(3)]);
        assert_eq!(plan("-t 3 --no-pin-workers"), [None, None, None]);
    }

    #[test]
    fn every_fault_is_reported() {
        assert_eq!(
            faults("--port x --nosuch=1 --threads --no-port --no-pin-workers=yes"),
            vec![
                "--nosuch: unknown option, see --help",
                "--no-pin-workers: takes no value",
                "--port x: argument couldn't be parsed into an integer",
                "--threads --no-port: argument couldn't be parsed into an integer",
            ]
        );
    }

    #[test]
    fn help_and_version_win() {
        let version = start("--port x --version", &|_| None);
        let text = format!("lavik {} ({})\n", crate::config::VERSION, crate::config::REVISION);
        assert_eq!(version, Ok(Start::Print(text)));
        assert!(
            matches!(start("-h", &|_| None), Ok(Start::Print(text)) if text.contains("Usage:"))
        );
    }

    #[test]
    fn environment() {
        let env = |name: &str| match name {
            "BYCORF_EAL_ARGS" => Some("-a 0000:01:00.0".into()),
            "BYCORF_DPDK_MEMORY_MB" => Some("1".into()),
            "LAVIK_DPDK_MEMORY_MB" => Some("8192".into()),
            "BYCORF_DPDK_IP" => Some("198.18.0.2".into()),
            "BYCORF_DPDK_NETMASK" => Some("255.255.0.255".into()),
            _ => None,
        };
        let fault = "BYCORF_DPDK_NETMASK 255.255.0.255: argument must be an IPv4 network mask";
        assert_eq!(start("", &env), Err(vec![fault.to_string()]));
        let good = |name: &str| env(name).filter(|_| name != "BYCORF_DPDK_NETMASK");
        let Ok(Start::Run(config)) = start("--dpdk-ip 10.0.0.1", &good) else { panic!() };
        assert_eq!(config.bypass.eal_args, "-a 0000:01:00.0");
        assert_eq!(config.bypass.dpdk_memory_mb, 8192);
        assert_eq!(config.bypass.dpdk_ip, Some([10, 0, 0, 1].into()));
    }

    #[test]
    fn a_file() {
        let text = "# all kinds\nPORT 7000\nbind 127.0.0.1 -::1\ndata-file a\ndata-file \"b c\"\n\
                    durability synced\nshutdown-checkpoint yes\nmaxmemory 1gb\n\
                    client-output-buffer-limit normal 0 0 0\n\
                    client-output-buffer-limit pubsub 32mb 8mb 60\nsave 900 1\n";
        let config = file(text).expect("no faults");
        assert_eq!(config.net.port, 7000);
        assert_eq!(config.net.listen_addresses().len(), 2);
        assert_eq!(config.storage.data_files[1], DataFile::Path("b c".into()));
        assert_eq!(config.persistence.durability, Durability::Synced);
        assert!(config.persistence.shutdown_checkpoint);
        assert_eq!(config.compat["client-output-buffer-limit"], "normal 0 0 0 pubsub 32mb 8mb 60");
        assert_eq!(config.compat["save"], "900 1");
    }

    #[test]
    fn faults_of_a_file_name_the_line() {
        let text =
            "port 1\nnosuch 2\n\nport x\nport 1 2\nport\nbind \"\nlogtostderr maybe\ndaemonize yes";
        assert_eq!(
            file(text).expect_err("faults"),
            [
                "lavik.conf:2: unknown directive 'nosuch'",
                "lavik.conf:7: unbalanced quotes",
                "lavik.conf:6: port: wrong number of arguments",
                "lavik.conf:8: logtostderr maybe: argument must be 'yes' or 'no'",
                "lavik.conf:9: daemonize yes: argument must be 'no' in this server",
            ]
        );
        let (mut config, mut faults) = (Config::default(), Vec::new());
        let bytes = b"port 1\n\xff\n";
        apply_file(&mut config, Path::new("f"), bytes, &mut faults);
        assert_eq!(faults, ["f:2: not valid UTF-8"]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let path = std::env::temp_dir().join(format!("lavik-load-{}.conf", std::process::id()));
        std::fs::write(&path, "port 7000\ndata-file a\ndata-file b\nthreads 3\n").expect("write");
        let line = format!("--port 7001 {} --data-file c", path.display());
        let config = config(&line);
        assert_eq!(config.net.port, 7001);
        assert_eq!(config.threads.threads, 3);
        assert_eq!(config.storage.data_files, [DataFile::Path("c".into())]);
        assert_eq!(config.file.as_deref(), Some(path.as_path()));
        std::fs::remove_file(&path).expect("remove");
        let missing = format!("{}: No such file or directory (os error 2)", path.display());
        assert_eq!(
            faults(&format!("{} two", path.display())),
            ["unexpected argument 'two'", &missing]
        );
    }
}
