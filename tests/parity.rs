//! Replies compared byte for byte with a live reference server: the scripts of `tests/corpus`
//! in both protocol versions, with values in memory and with values that are on the device only.

use std::time::{Duration, Instant};

mod support;

use support::client::{Client, Value};
use support::corpus::{self, Action, Case, Step};
use support::peer::Peer;
use support::server::Server;

/// Time for what both servers do in the background.
const SOON_LIMIT: Duration = Duration::from_secs(15);

/// When values are moved out of memory.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    Fresh,
    /// Our server restarts at each `@cold`.
    Cold,
}

struct Pair {
    ours: Server,
    peer: Peer,
}

/// The two connections of a case.
struct Connections {
    ours: Client,
    peer: Client,
}

impl Pair {
    fn start(name: &str) -> Pair {
        Pair { ours: Server::fresh(name), peer: Peer::start(name) }
    }

    fn connect(&self, proto: &str) -> Connections {
        let mut both = Connections { ours: self.ours.client(), peer: self.peer.client() };
        for client in [&mut both.ours, &mut both.peer] {
            if proto == "3" {
                client.call(&["HELLO", proto]);
            }
        }
        both
    }

    /// Runs a case and describes what differs.
    fn run(&mut self, case: &Case, proto: &str, data: Data, differences: &mut Vec<String>) {
        let mut both = self.connect(proto);
        for client in [&mut both.ours, &mut both.peer] {
            assert_eq!(client.call(&["FLUSHALL"]), Value::Simple(b"OK".to_vec()));
        }
        for step in &case.steps {
            if matches!(step.action, Action::Cold) {
                if data == Data::Cold {
                    self.ours.restart();
                    both.ours = self.ours.client();
                    if proto == "3" {
                        both.ours.call(&["HELLO", "3"]);
                    }
                }
                continue;
            }
            if let Err(text) = both.step(step) {
                let place = format!("{} (RESP{proto}), line {}", case.name, step.line_number);
                differences.push(format!("{place}: {}\n{text}", step.line));
            }
        }
    }
}

impl Connections {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Call { compare, command } => {
                let args = corpus::arguments(command);
                let (ours, theirs) = (self.ours.try_call(&args), self.peer.call(&args));
                let ours = ours.map_err(|error| format!("  ours    {error}"))?;
                if compare.same(&ours, &theirs) { Ok(()) } else { Err(show(&ours, &theirs)) }
            }
            Action::Soon(args) => self.soon(args),
            Action::Scan(args) => {
                let ours = corpus::scan_all(&mut self.ours, args);
                let theirs = corpus::scan_all(&mut self.peer, args);
                if ours == theirs { Ok(()) } else { Err(show(&ours, &theirs)) }
            }
            Action::Raw(bytes) => {
                self.ours.send(bytes);
                self.peer.send(bytes);
                let (ours, theirs) = (self.ours.receive(), self.peer.receive());
                if ours == theirs { Ok(()) } else { Err(show(&ours, &theirs)) }
            }
            Action::Closed(bytes) => {
                self.ours.send(bytes);
                self.peer.send(bytes);
                let (ours, theirs) = (until_closed(&mut self.ours), until_closed(&mut self.peer));
                if ours == theirs { Ok(()) } else { Err(format!("  {ours}\n  {theirs}")) }
            }
            Action::Sleep(ms) => {
                std::thread::sleep(Duration::from_millis(*ms));
                Ok(())
            }
            Action::Cold => unreachable!("handled by the pair"),
        }
    }
}

impl Connections {
    fn soon(&mut self, args: &[Vec<u8>]) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let (ours, theirs) = (self.ours.call(args), self.peer.call(args));
            if ours == theirs {
                return Ok(());
            }
            if start.elapsed() > SOON_LIMIT {
                return Err(show(&ours, &theirs));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn until_closed(client: &mut Client) -> String {
    match client.rest(Duration::from_secs(5)) {
        Ok(bytes) => bytes.escape_ascii().to_string(),
        Err(error) => format!("not closed: {error}"),
    }
}

fn show(ours: &Value, theirs: &Value) -> String {
    format!("  ours    {}\n  theirs  {}", shorten(ours), shorten(theirs))
}

fn shorten(value: &Value) -> String {
    let text = format!("{value:?}");
    if text.len() <= 600 {
        text
    } else {
        format!("{}...", text.chars().take(600).collect::<String>())
    }
}

/// Runs a corpus file in all ways and fails with every difference.
fn compare(name: &str) {
    let cases = corpus::read(name);
    let mut pair = Pair::start(name);
    let mut differences = Vec::new();
    for case in &cases {
        // Cases that the reference server is too old for are asserted in tests/semantics.rs.
        if pair.peer.version() < case.since {
            continue;
        }
        for proto in ["2", "3"] {
            pair.run(case, proto, Data::Fresh, &mut differences);
        }
        if case.steps.iter().any(|step| matches!(step.action, Action::Cold)) {
            pair.run(case, "3", Data::Cold, &mut differences);
        }
    }
    let count = differences.len();
    differences.truncate(40);
    assert!(count == 0, "{count} differences, the first:\n{}", differences.join("\n"));
}

#[test]
fn strings() {
    compare("strings");
}

#[test]
fn numbers() {
    compare("numbers");
}

#[test]
fn keys() {
    compare("keys");
}

#[test]
fn expiry() {
    compare("expiry");
}

#[test]
fn hashes() {
    compare("hashes");
}

#[test]
fn connection() {
    compare("connection");
}

#[test]
fn server() {
    compare("server");
}

#[test]
fn protocol() {
    compare("protocol");
}

#[test]
fn arity_of_every_command() {
    compare("arity");
}

#[test]
fn wrong_types() {
    compare("wrong_types");
}
