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
