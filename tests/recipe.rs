//! The five steps of the published recipe with its launch line and `redis-cli`, then restarts:
//! clean, after `kill -9`, and with other thread counts.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

mod support;

use support::server::{FLUSH_MAX_MS, Launch, Server};

/// Arguments of redis-cli and what it prints.
const STEPS: [(&[&str], &str); 5] = [
    (&["PING"], "PONG"),
    (&["SET", "greeting", "hello from Lavik"], "OK"),
    (&["GET", "greeting"], "hello from Lavik"),
    (&["HSET", "user:42", "name", "Ada"], "1"),
    (&["HGET", "user:42", "name"], "Ada"),
];

fn redis_cli(port: u16, args: &[&str]) -> String {
    let port = port.to_string();
    let output = Command::new("redis-cli").args(["-p", &port, "--raw"]).args(args).output();
    let output = output.expect("redis-cli is needed: apt-get install redis-tools");
    assert!(output.status.success(), "redis-cli {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim_end_matches('\n').to_string()
}

fn run_steps(server: &Server) {
    for (args, expected) in STEPS {
        assert_eq!(redis_cli(server.port(), args), expected, "redis-cli --raw {args:?}");
    }
}

fn check_data(server: &Server) {
    assert_eq!(redis_cli(server.port(), STEPS[2].0), STEPS[2].1);
    assert_eq!(redis_cli(server.port(), STEPS[4].0), STEPS[4].1);
    assert_eq!(redis_cli(server.port(), &["DBSIZE"]), "2");
    assert_eq!(redis_cli(server.port(), &["TYPE", "user:42"]), "hash");
}

fn fallocate(path: &Path) {
    let status = Command::new("fallocate").args(["-l", "512M"]).arg(path).status();
    assert!(status.expect("run fallocate").success());
}

/// Starts on a file that `fallocate` made, as the recipe does.
fn started(name: &str, threads: usize) -> Server {
    let mut launch = Launch::new(name).threads(threads).flag("--shutdown-checkpoint");
    fallocate(&launch.data_file());
    launch = launch.existing_data_file();
    launch.start()
}

#[test]
fn one_thread_clean_restart() {
    let mut server = started("recipe-1", 1);
    run_steps(&server);
    server.restart();
    check_data(&server);
}

#[test]
fn two_threads_as_published_two_clean_restarts() {
    let mut server = started("recipe-2", 2);
    run_steps(&server);
    server.restart();
    check_data(&server);
    server.restart();
    check_data(&server);
}

#[test]
fn three_threads_then_other_thread_counts() {
    let mut server = started("recipe-3", 3);
    run_steps(&server);
    for threads in [1, 2, 4, 3] {
        server.stop();
        server.set_threads(threads);
        server.start();
        check_data(&server);
    }
}

#[test]
fn data_survives_kill_after_flush_time() {
    let mut server = started("recipe-kill", 2);
    run_steps(&server);
    std::thread::sleep(Duration::from_millis(FLUSH_MAX_MS * 5));
    server.kill();
    server.start();
    check_data(&server);
    server.kill();
    server.set_threads(3);
    server.start();
    check_data(&server);
}

#[test]
fn written_durability_survives_kill_at_once() {
    let launch = Launch::new("recipe-written").flag("--durability").flag("written");
    let mut server = launch.start();
    run_steps(&server);
    server.kill();
    server.start();
    check_data(&server);
}

/// The binary's own answers to wrong flags: an error on standard error and exit code not 0.
#[test]
fn unusable_flags_are_refused() {
    let missing = Launch::new("recipe-missing").existing_data_file();
    let output = missing.output_of_start();
    assert!(!output.status.success(), "a missing data file without a size must be refused");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let data = missing.data_file();
    assert!(text.contains(data.to_str().expect("path")), "the error names the file: {text:?}");

    let unknown = Launch::new("recipe-unknown").flag("--no-such-flag");
    let output = unknown.output_of_start();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no-such-flag"), "the error names the flag: {text:?}");
}
