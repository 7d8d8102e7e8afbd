//! House rules as a test: who may import whom, where `unsafe` may be, how long things are.

use std::path::{Path, PathBuf};

const LINE_CHARS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 900;

/// Functions that may be longer, as `file::function`, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Module -> modules of this crate that it may import. A module may always import itself.
const IMPORTS: &[(&str, &[&str])] = &[
    ("main", &["config", "logging", "server"]),
    (
        "server",
        &[
            "reactor", "driver", "net", "disk", "ring", "command", "config", "shard", "mesh",
            "mem", "clock", "limits", "stats", "resp", "metrics",
        ],
    ),
    ("reactor", &["driver", "net", "disk", "ring", "clock", "limits", "stats"]),
    (
        "driver",
        &[
            "net", "disk", "command", "config", "shard", "mesh", "mem", "clock", "limits", "stats",
            "resp",
        ],
    ),
    ("command", &["resp", "shard::view", "config", "limits", "clock", "stats"]),
    ("shard", &["mem", "limits", "clock", "disk", "stats"]),
    ("net", &["mem", "limits", "clock", "ring"]),
    ("disk", &["mem", "limits", "clock", "ring"]),
    ("ring", &["mem", "limits"]),
    ("mesh", &["limits", "mem"]),
    ("mem", &["limits"]),
    ("resp", &[]),
    ("config", &["limits"]),
    ("logging", &["config"]),
    ("metrics", &["command", "config", "clock", "limits", "stats"]),
    ("stats", &["limits"]),
    ("clock", &[]),
    ("limits", &[]),
    (
        "testing",
        &[
            "reactor", "driver", "net", "disk", "command", "config", "shard", "mesh", "mem",
            "clock", "limits", "stats", "resp",
        ],
    ),
];

/// Where `unsafe` may be: paths under `src`.
const UNSAFE_PLACES: &[&str] = &["mem/", "disk/", "net/", "mesh.rs", "ring.rs"];

/// Where time, sleep and the environment may be read; elsewhere they are arguments.
const CLOCK_PLACES: &[&str] =
    &["clock.rs", "server.rs", "server/", "main.rs", "config/", "metrics/"];
const CLOCK_WORDS: &[&str] =
    &["Instant::now(", "SystemTime::now(", "thread::sleep(", "env::var(", "env::var_os("];

struct Source {
    /// Relative to `src`.
    path: String,
    text: String,
}

impl Source {
    /// Lines before the file's `#[cfg(test)]` module, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.take_while(|(_, line)| *line != "#[cfg(test)]")
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/")
    }

    /// `command/string.rs` is in module `command`.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().expect("a part");
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn read_under(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    let read = paths.into_iter().map(|path| Source {
        text: std::fs::read_to_string(&path).expect("a source file"),
        path: path.strip_prefix(&root).expect("under the root").display().to_string(),
    });
    let read: Vec<Source> = read.collect();
    assert!(!read.is_empty(), "no sources under {folder}");
    read
}

fn assert_none(faults: &[String], rule: &str) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}

/// The `crate::` paths of a file: `use crate::a::{b, c}` gives `a::b` and `a::c`.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("crate::") {
        let before = code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[start + "crate::".len()..];
        expand("", rest, &mut found);
    }
    found
}

fn expand(prefix: &str, rest: &str, found: &mut Vec<String>) {
    if let Some(group) = rest.strip_prefix('{') {
        let (inner, _) = group.split_at(group_end(group));
        for part in split_group(inner) {
            expand(prefix, part.trim(), found);
        }
        return;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let path =
        if prefix.is_empty() { rest[..end].into() } else { format!("{prefix}::{}", &rest[..end]) };
    // Two parts are enough for the table.
    match rest[end..].strip_prefix("::") {
        Some(deeper) if prefix.is_empty() => expand(&path, deeper, found),
        _ => found.push(path),
    }
}

/// Where the group that was opened before `text` closes.
fn group_end(text: &str) -> usize {
    let mut depth = 1;
    for (index, c) in text.char_indices() {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return index;
        }
    }
    text.len()
}

fn split_group(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn without_comments(source: &Source) -> String {
    let lines = source.code().map(|(_, line)| line);
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let mut faults = Vec::new();
    for source in read_under("src") {
        let module = source.module();
        if module == "lib" || module == "bin" || source.is_test() {
            continue;
        }
        let row = IMPORTS.iter().find(|(name, _)| *name == module);
        let Some((_, allowed)) = row else {
            faults.push(format!("{}: module {module} is not in the table", source.path));
            continue;
        };
        for import in imports(&without_comments(&source)) {
            let target = import.split("::").next().expect("a part");
            let known = IMPORTS.iter().any(|(name, _)| *name == target);
            let listed = allowed
                .iter()
                .any(|path| import == *path || import.starts_with(&format!("{path}::")));
            if known && target != module && !listed {
                faults.push(format!("{} imports {import}", source.path));
            }
        }
    }
    assert_none(&faults, "imports that docs/ARCHITECTURE.md does not allow");
}

#[test]
fn the_import_reader_sees_every_form() {
    let code = "use crate::a::{b, c::{d, e}};\nuse crate::{f::g, h};\nlet x = crate::i::j();";
    assert_eq!(imports(code), ["a::b", "a::c", "f::g", "h", "i::j"]);
}

#[test]
fn unsafe_is_where_it_may_be_and_says_why() {
    let mut faults = Vec::new();
    for source in read_under("src") {
        let allowed = UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place));
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().expect("a part");
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if !words.into_iter().any(|word| word == "unsafe") {
                continue;
            }
            let place = format!("{}:{}", source.path, index + 1);
            if !allowed {
                faults.push(format!("{place}: unsafe in a file that is not listed"));
            }
            if !says_why(&lines, index) {
                faults.push(format!("{place}: no SAFETY comment"));
            }
        }
    }
    assert_none(&faults, "unsafe");
}

/// A `SAFETY:` (or `# Safety` of a declaration) on the line or in the comment above the
/// statement.
fn says_why(lines: &[&str], index: usize) -> bool {
    let above = lines[index.saturating_sub(12)..=index].iter().rev();
    let near = above.enumerate().take_while(|(distance, line)| {
        let text = line.trim();
        *distance < 4 || text.starts_with("//") || text.starts_with('#')
    });
    near.into_iter().any(|(_, line)| line.contains("SAFETY:") || line.contains("# Safety"))
}

#[test]
fn lines_functions_and_files_are_short() {
    let mut faults = Vec::new();
    for folder in ["src", "tests", "bench/src"] {
        for source in read_under(folder) {
            for (index, line) in source.text.lines().enumerate() {
                if line.chars().count() > LINE_CHARS_MAX {
                    faults.push(format!("{folder}/{}:{}: long line", source.path, index + 1));
                }
            }
            let lines = source.text.lines().count();
            if lines > FILE_LINES_MAX {
                faults.push(format!("{folder}/{}: {lines} lines", source.path));
            }
            if folder == "src" && !source.is_test() {
                faults.extend(long_functions(&source));
            }
        }
    }
    assert_none(&faults, "too long");
}

/// rustfmt puts the closing brace of a function at the indentation of its first line.
fn long_functions(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let lines: Vec<(usize, &str)> = source.code().collect();
    for (index, (number, line)) in lines.iter().enumerate() {
        let text = line.trim_start();
        let words: Vec<&str> = text.split([' ', '(', '<']).collect();
        let Some(place) = words.iter().position(|word| *word == "fn") else { continue };
        // A type such as `fn(&mut Config)` has no name behind the word.
        if text.starts_with("//") || !text.contains("fn ") || text.ends_with(';') {
            continue;
        }
        let indent = line.len() - text.len();
        let close = format!("{}}}", " ".repeat(indent));
        let length = lines[index..].iter().position(|(_, line)| **line == close).unwrap_or(0) + 1;
        let name = format!("{}::{}", source.path, words.get(place + 1).unwrap_or(&""));
        let excused = LONG_FUNCTIONS.iter().any(|(known, _)| *known == name);
        if length > FUNCTION_LINES_MAX && !excused {
            faults.push(format!("{name} (line {number}): {length} lines"));
        }
    }
    faults
}

#[test]
fn modules_have_docs_and_no_glob_imports_or_marks() {
    let mut faults = Vec::new();
    // In two parts, so that this file does not contain them.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    for folder in ["src", "tests", "bench/src"] {
        for source in read_under(folder) {
            let name = format!("{folder}/{}", source.path);
            if !source.text.starts_with("//!") && !source.is_test() {
                faults.push(format!("{name}: no doc comment of the module at the top"));
            }
            for (index, line) in source.text.lines().enumerate() {
                let place = format!("{name}:{}", index + 1);
                let words = line.split(|c: char| !c.is_alphanumeric());
                if words.into_iter().any(|word| marks.contains(&word)) {
                    faults.push(format!("{place}: an unfinished mark"));
                }
                let text = line.trim_start();
                let import = text.starts_with("use ") || text.starts_with("pub use ");
                if import && text.contains("::*") {
                    faults.push(format!("{place}: glob import"));
                }
            }
        }
    }
    assert_none(&faults, "habits");
}

#[test]
fn time_and_environment_are_arguments() {
    let mut faults = Vec::new();
    for source in read_under("src") {
        if CLOCK_PLACES.iter().any(|place| source.path.starts_with(place)) || source.is_test() {
            continue;
        }
        for (number, line) in source.code() {
            if let Some(word) = CLOCK_WORDS.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{}:{number}: {word})", source.path));
            }
        }
    }
    assert_none(&faults, "read the clock in clock.rs, the environment in config, and pass it on");
}

#[test]
fn dependencies_have_a_reason() {
    let mut faults = Vec::new();
    for manifest in ["Cargo.toml", "bench/Cargo.toml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
        let text = std::fs::read_to_string(path).expect("a manifest");
        let mut in_dependencies = false;
        let mut above = "";
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') && !above.starts_with('#') {
                let reason_behind = line.contains(" # ");
                if !reason_behind {
                    faults.push(format!("{manifest}: {line}"));
                }
            }
            above = line;
        }
    }
    assert_none(&faults, "a comment above each dependency says why it is there");
}
