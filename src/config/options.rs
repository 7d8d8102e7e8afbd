//! What an option is, and how it is found. The rows are in [`table`](super::table) and
//! [`compat`](super::compat).

use super::sections::Config;
use super::{compat, table, value};

/// Heading in `--help` and in docs/OPERATIONS.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Network,
    Storage,
    Durability,
    Cores,
    Memory,
    Maintenance,
    Logging,
    Monitoring,
    Access,
    Bypass,
    Compatibility,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Network => "Network",
            Group::Storage => "Storage",
            Group::Durability => "Durability",
            Group::Cores => "Cores",
            Group::Memory => "Memory",
            Group::Maintenance => "Maintenance",
            Group::Logging => "Logging",
            Group::Monitoring => "Monitoring",
            Group::Access => "Access",
            Group::Bypass => "SPDK, DPDK and the userspace network stack",
            Group::Compatibility => "Accepted for compatibility, no effect",
        }
    }
}

/// When an option may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only before the start.
    Start,
    /// At any time.
    Live,
    /// Only before the start, because a client could use it to reach files.
    Protected,
}

/// How an option's value is reached in a [`Config`].
#[derive(Clone, Copy, Debug)]
pub enum Field {
    One {
        get: fn(&Config) -> String,
        set: fn(&mut Config, &str) -> Result<(), String>,
    },
    /// A list: replaced as a whole by each source of settings that has any value for it.
    Many {
        get: fn(&Config) -> Vec<String>,
        set: fn(&mut Config, &[String]) -> Result<(), String>,
    },
    /// Stored and shown, read by nobody.
    Compat {
        default: &'static str,
        check: Check,
    },
}

/// What a compatibility parameter accepts.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    YesNo,
    Integer(i64, i64),
    Size,
    OneOf(&'static [&'static str]),
    Text,
    /// Any number of words; those of repeated directives are put together.
    Words,
    /// Only this value, because we would not do what any other one asks for.
    Only(&'static str),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Name in the file, in CONFIG GET and, with `--` in front, on the command line.
    pub name: &'static str,
    pub group: Group,
    /// Placeholder of the value in `--help`; `yes|no` may be left out on the command line.
    pub takes: &'static str,
    pub help: &'static str,
    pub field: Field,
    pub short: Option<char>,
    pub aliases: &'static [&'static str],
    /// Environment variables that set it, the strongest last.
    pub env: &'static [&'static str],
    pub change: Change,
    /// The part that it steers is not built yet.
    pub later: bool,
    /// The option of which this one is another view.
    pub mirrors: Option<&'static str>,
}

pub const YES_NO: &str = "yes|no";

impl Opt {
    pub const fn new(
        group: Group,
        name: &'static str,
        takes: &'static str,
        help: &'static str,
        field: Field,
    ) -> Opt {
        Opt {
            name,
            group,
            takes,
            help,
            field,
            short: None,
            aliases: &[],
            env: &[],
            change: Change::Start,
            later: false,
            mirrors: None,
        }
    }

    pub const fn short(self, short: char) -> Opt {
        Opt { short: Some(short), ..self }
    }

    pub const fn aliases(self, aliases: &'static [&'static str]) -> Opt {
        Opt { aliases, ..self }
    }

    pub const fn env(self, env: &'static [&'static str]) -> Opt {
        Opt { env, ..self }
    }

    pub const fn live(self) -> Opt {
        Opt { change: Change::Live, ..self }
    }

    pub const fn protected(self) -> Opt {
        Opt { change: Change::Protected, ..self }
    }

    pub const fn later(self) -> Opt {
        Opt { later: true, ..self }
    }

    pub const fn mirrors(self, name: &'static str) -> Opt {
        Opt { mirrors: Some(name), ..self }
    }

    pub fn is_switch(&self) -> bool {
        self.takes == YES_NO
    }

    pub fn is_compat(&self) -> bool {
        matches!(self.field, Field::Compat { .. })
    }

    /// Whether several values are put together, also those of repeated flags and directives.
    pub fn is_list(&self) -> bool {
        matches!(self.field, Field::Many { .. } | Field::Compat { check: Check::Words, .. })
    }

    /// The value as a list of words; exactly one unless the option is a list.
    pub fn values(&self, config: &Config) -> Vec<String> {
        match self.field {
            Field::One { get, .. } => vec![get(config)],
            Field::Many { get, .. } => get(config),
            Field::Compat { default, .. } => {
                vec![config.compat.get(self.name).map_or(default, String::as_str).to_string()]
            }
        }
    }

    /// The value as CONFIG GET shows it.
    pub fn show(&self, config: &Config) -> String {
        self.values(config).join(" ")
    }

    /// Sets the value. Errors are in Redis's words and say nothing of the option's name.
    pub fn set(&self, config: &mut Config, values: &[String]) -> Result<(), String> {
        match (&self.field, values) {
            (Field::Many { set, .. }, _) => set(config, values),
            (Field::One { set, .. }, [only]) => set(config, only),
            (Field::Compat { check, .. }, _) if self.is_list() || values.len() == 1 => {
                let text = check.accept(&values.join(" "))?;
                config.compat.insert(self.name, text);
                Ok(())
            }
            _ => Err("wrong number of arguments".into()),
        }
    }

    /// Sets the value from one text, in which a list's elements are separated by spaces.
    pub fn set_text(&self, config: &mut Config, text: &str) -> Result<(), String> {
        match self.field {
            Field::Many { set, .. } => {
                let words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
                set(config, &words)
            }
            _ => self.set(config, &[text.to_string()]),
        }
    }

    /// The value of an untouched configuration.
    pub fn default_text(&self) -> String {
        self.show(&Config::default())
    }
}

impl Check {
    /// The text to store.
    fn accept(&self, text: &str) -> Result<String, String> {
        match *self {
            Check::YesNo => value::yes_no(text).map(value::show_yes_no),
            Check::Integer(min, max) => {
                value::integer::<i64>(text, min, max).map(|n| n.to_string())
            }
            Check::Size => value::size(text).map(|n| n.to_string()),
            Check::OneOf(names) => value::one_of(text, names).map(str::to_string),
            Check::Text | Check::Words => Ok(text.to_string()),
            Check::Only(only) if text.eq_ignore_ascii_case(only) => Ok(only.to_string()),
            Check::Only(only) => Err(format!("argument must be '{only}' in this server")),
        }
    }
}

/// Every option: ours first, then the compatibility parameters.
pub fn all() -> impl Iterator<Item = &'static Opt> {
    table::OPTIONS.iter().chain(compat::PARAMETERS)
}

/// The option of this name or alias, in any letter case.
pub fn find(name: &str) -> Option<&'static Opt> {
    let named = |opt: &&Opt| {
        opt.name.eq_ignore_ascii_case(name)
            || opt.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    };
    all().find(named)
}

/// The option of this one-letter form.
pub fn find_short(short: char) -> Option<&'static Opt> {
    all().find(|opt| opt.short == Some(short))
}

#[cfg(test)]
mod tests {
    use super::{Config, Field, all, find};

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut names: Vec<&str> =
            all().flat_map(|opt| opt.aliases.iter().chain([&opt.name])).copied().collect();
        assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
        names.sort_unstable();
        assert_eq!(names.windows(2).find(|pair| pair[0] == pair[1]), None);
        let mut shorts: Vec<char> = all().filter_map(|opt| opt.short).collect();
        shorts.sort_unstable();
        assert_eq!(shorts, ['b', 'i', 'p', 't']);
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let untouched = Config::default();
        for opt in all().filter(|opt| !opt.is_compat() && opt.name != "data-file") {
            let mut config = Config::default();
            opt.set_text(&mut config, &opt.show(&untouched)).expect(opt.name);
            assert_eq!(config, untouched, "{}", opt.name);
        }
    }

    #[test]
    fn defaults_of_compatibility_parameters_pass_their_own_check() {
        for opt in all() {
            if let Field::Compat { default, check } = opt.field {
                assert_eq!(check.accept(default), Ok(default.to_string()), "{}", opt.name);
            }
        }
    }

    #[test]
    fn second_names() {
        assert_eq!(
            find("HASH-max-ziplist-entries").map(|opt| opt.name),
            Some("hash-max-listpack-entries")
        );
        assert!(find("nosuch").is_none());
    }
}
