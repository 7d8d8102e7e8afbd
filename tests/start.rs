//! Starts that fail: one line that names the cause, exit code 1, and no file that was not there
//! before.

use std::net::TcpListener;
use std::path::Path;

mod support;

use support::client::Value;
use support::flip;
use support::server::{Launch, Server};

/// The line that a start ends with.
#[track_caller]
fn refusal(launch: &Launch) -> String {
    let output = launch.output_of_start();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_string()
}

#[track_caller]
fn assert_absent(path: &Path) {
    assert!(!path.exists(), "{} was left behind", path.display());
}

#[test]
fn a_port_in_use_creates_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bind any port");
    let port = taken.local_addr().expect("its number").port().to_string();
    for flag in ["--port", "--metrics-port"] {
        let launch = Launch::new("start-port").flag(flag).flag(&port);
        let text = refusal(&launch);
        assert!(text.contains(&port) && text.contains("in use"), "{text}");
        assert_absent(&launch.data_file());
    }
}

#[test]
fn a_data_file_that_is_too_small_is_not_created() {
    let launch = Launch::new("start-small").data_size("79mb");
    assert_eq!(refusal(&launch), "lavik: data-file-size: must be at least 80 MiB");
    assert_absent(&launch.data_file());
    let launch = Launch::new("start-few").data_size("80mb").threads(3);
    let text = refusal(&launch);
    assert!(text.contains("too few for 3 cores"), "{text}");
    assert_absent(&launch.data_file());
}

#[test]
fn files_created_for_a_start_that_fails_are_removed() {
    let launch = Launch::new("start-second").data_size("96mb");
    let second = launch.data_file().with_file_name("missing").join("second");
    let launch = launch.flag("--data-file").flag(second.to_str().expect("a plain path"));
    let text = refusal(&launch);
    assert!(text.contains("cannot create") && text.contains("second"), "{text}");
    assert_absent(&launch.data_file());
}

#[test]
fn one_file_under_two_names_is_given_once() {
    let launch = Launch::new("start-link");
    let (data, link) = (launch.data_file(), launch.data_file().with_file_name("link"));
    std::fs::write(&data, b"not ours").expect("write");
    std::os::unix::fs::symlink(&data, &link).expect("link");
    let launch = launch.flag("--data-file").flag(link.to_str().expect("a plain path"));
    let text = refusal(&launch);
    assert!(text.ends_with("are the same file; give it once"), "{text}");
    assert_eq!(std::fs::read(&data).expect("read"), b"not ours");
}

#[test]
fn what_is_neither_file_nor_block_device_is_named() {
    let launch = Launch::new("start-kind").existing_data_file();
    std::fs::create_dir(launch.data_file()).expect("a folder");
    let text = refusal(&launch);
    assert!(text.ends_with("it is neither a regular file nor a block device"), "{text}");
}

/// A device from an earlier day beside one of today would lose what was written since.
#[test]
fn an_old_copy_of_one_of_two_files_is_refused() {
    let launch = Launch::new("start-old").data_size("96mb");
    let (data, second) = (launch.data_file(), launch.data_file().with_file_name("second"));
    let old = launch.data_file().with_file_name("old");
    let launch = launch.flag("--data-file").flag(second.to_str().expect("a plain path"));
    let mut server: Server = launch.start();
    server.stop();
    std::fs::copy(&second, &old).expect("copy");
    server.start();
    assert_eq!(server.client().run("SET key value").text(), "OK");
    server.stop();
    std::fs::rename(&old, &second).expect("rename");
    let launch = Launch::new("start-old-again").existing_data_file();
    std::os::unix::fs::symlink(&data, launch.data_file()).expect("link");
    let launch = launch.flag("--data-file").flag(second.to_str().expect("a plain path"));
    let text = refusal(&launch);
    assert!(text.contains("second is older than the rest of its set"), "{text}");
}

#[test]
fn a_lost_terminal_does_not_stop_the_server() {
    let mut server = Server::fresh("start-hup");
    let signal = format!("kill -HUP {}", server.pid());
    let sent = std::process::Command::new("sh").args(["-c", &signal]).status().expect("run sh");
    assert!(sent.success());
    std::thread::sleep(std::time::Duration::from_millis(200));
    server.assert_running();
    assert_eq!(server.client().run("PING").text(), "PONG");
}

/// A set is given a second file: not while it would not start itself, and then for good.
#[test]
fn a_new_file_joins_a_set_that_is_whole() {
    let mut server = Launch::new("start-join").threads(2).data_size("100mb").start();
    let mut client = server.client();
    for i in 0..100 {
        client.call(&[b"SET".as_slice(), format!("key{i}").as_bytes(), &[b'v'; 100_000]]);
    }
    server.stop();
    let first = server.data_file();
    let second = first.with_file_name("second");
    server.add_flag("--data-file");
    server.add_flag(second.to_str().expect("UTF-8"));

    flip(&first, (11 << 23) + 20);
    let text = server.refusal();
    assert!(text.contains("the segment header at offset 92274688 is damaged"), "{text}");
    assert_absent(&second);
    flip(&first, (11 << 23) + 20);

    server.start();
    let log = std::fs::read_to_string(server.dir().join("logs/lavik.log")).expect("the log");
    let line = format!("{} was empty and has joined the set", second.display());
    assert!(log.contains(&line), "{log}");
    let mut client = server.client();
    assert_eq!(client.run("DBSIZE"), Value::Int(100));
    // More than the first file has room for.
    for i in 0..300 {
        let key = format!("more{}", i % 90);
        let set = client.call(&[b"SET".as_slice(), key.as_bytes(), &[b'w'; 1_000_000]]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()), "{i}");
    }
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.run("GET key99").bytes(), [b'v'; 100_000]);
    assert_eq!(client.run("GET more7").bytes(), [b'w'; 1_000_000]);
    server.stop();
    std::fs::rename(&second, second.with_extension("away")).expect("rename");
    let text = server.refusal();
    assert!(text.contains("member 2 of the 2 devices of the set is missing"), "{text}");
    assert!(text.contains("is empty and cannot stand in for it"), "{text}");
    assert_absent(&second);
}
