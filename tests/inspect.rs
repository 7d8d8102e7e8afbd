//! `lavik-inspect` on devices of the real server: what it says of whole and of damaged ones.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;

mod support;

use support::client::Value;
use support::dir::TestDir;
use support::flip;
use support::server::{Launch, Server};

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 8 * MIB;

/// Exit code, standard output and standard error.
fn inspect(flags: &[&str], path: &Path) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lavik-inspect")).args(flags).arg(path).output();
    let output = output.expect("run lavik-inspect");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    (code, text(&output.stdout), text(&output.stderr))
}

/// A server with 40 values of 400 kB, a hash, and a deleted key.
fn filled(name: &str) -> Server {
    let server = Launch::new(name).threads(1).data_size("128mb").start();
    let mut client = server.client();
    let ok = Value::Simple(b"OK".to_vec());
    for i in 0..40 {
        let value = vec![b'a' + i; 400_000];
        assert_eq!(client.call(&[b"SET", format!("key{i}").as_bytes(), &value]), ok);
    }
    assert_eq!(client.run("HSET h f v"), Value::Int(1));
    assert_eq!(client.run("DEL key7"), Value::Int(1));
    // The filler behind the second group says that the first was durable.
    for key in ["first", "second"] {
        assert_eq!(client.call(&["SET", key, "v"]), ok);
        assert_eq!(client.run("WAITAOF 1 0 0"), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    }
    server
}

#[track_caller]
fn assert_says(text: &str, line: &str) {
    assert!(text.lines().any(|found| found.trim() == line), "no line {line:?} in\n{text}");
}

#[test]
fn a_whole_device_is_described_and_found_whole() {
    let mut server = filled("inspect-whole");
    let path = server.data_file();
    let (_, text, _) = inspect(&[], &path);
    assert_says(&text, "in use: what follows may be torn");
    server.stop();
    let before = std::fs::read(&path).expect("read");

    let (code, text, errors) = inspect(&["--verify", "--segments"], &path);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    assert_says(&text, "member 1 of 1");
    assert_says(&text, "superblock at 0: generation 3, run 1");
    assert_says(&text, "superblock at 1048576: generation 4, run 1");
    let sum = text.lines().last().expect("lines").trim();
    assert!(
        sum.starts_with("segments: 13 free, 2 with records (2 sealed); 43 values, 1 tombstones, "),
        "{sum}"
    );
    let first = "segment 1: sealed, run 1, core 0, LSN 524289 to 524309, 20 values, 0 tombstones, ";
    assert!(text.lines().any(|line| line.trim().starts_with(first)), "{text}");

    // The footers tell the same; nothing was written.
    let (code, quick, _) = inspect(&[], &path);
    assert_eq!(
        (code, quick.lines().last().map(str::trim)),
        (0, Some(&*format!("{sum} in sealed ones")))
    );
    assert!(std::fs::read(&path).expect("read") == before);
}

#[test]
fn damage_is_found_and_named() {
    let mut server = filled("inspect-damage");
    let path = server.data_file();
    server.stop();

    // A value in the first segment, which no start reads.
    flip(&path, SEGMENT + 512 + 1_000_000);
    let (code, text, _) = inspect(&[], &path);
    assert_eq!(code, 0, "{text}");
    let (code, text, _) = inspect(&["--verify"], &path);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("DAMAGED: segment 1: the record at 8"), "{text}");
    flip(&path, SEGMENT + 512 + 1_000_000);

    for (offset, line) in [
        (100, "DAMAGED: superblock at 0: checksum"),
        (2 * SEGMENT + 20, "DAMAGED: segment 2: header: its checksum is wrong"),
        (2 * SEGMENT - 64 - 17, "DAMAGED: segment 1: the checksum of the footer"),
    ] {
        flip(&path, offset);
        let (code, text, _) = inspect(&["--verify"], &path);
        assert_eq!(code, 1, "{text}");
        assert_says(&text, line);
        flip(&path, offset);
    }
    assert_eq!(inspect(&["--verify"], &path).0, 0);

    let file = OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(100 * MIB).expect("cut");
    let (code, text, _) = inspect(&[], &path);
    assert_eq!(code, 1);
    assert_says(&text, "DAMAGED: the device is shorter than its 16 segments");
}

/// What a crash leaves is not damage.
#[test]
fn an_unsealed_segment_is_whole_up_to_its_end() {
    let mut server = filled("inspect-crash");
    let path = server.data_file();
    server.kill();
    let (code, text, errors) = inspect(&["--verify"], &path);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    let sum = text.lines().last().expect("lines").trim();
    assert!(sum.contains("2 with records (1 sealed); 43 values, 1 tombstones"), "{sum}");
    // A record that was durable, in front of the fence's filler.
    flip(&path, 2 * SEGMENT + 512 + 100);
    let (code, text, _) = inspect(&["--verify"], &path);
    assert_eq!(code, 1, "{text}");
    assert_says(&text, "DAMAGED: segment 2: the record at 512");
}

/// Recovery leaves out a unit whose end is lost; the records at its start stay on the device.
#[test]
fn what_recovery_has_left_out_is_no_damage() {
    let mut server = filled("inspect-cut");
    let path = server.data_file();
    let mut client = server.client();
    let value = vec![b'u'; 100_000];
    let unit = [b"MSET".as_slice(), b"u1", b"x", b"u2", &value];
    assert_eq!(client.call(&unit), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.run("WAITAOF 1 0 0"), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    server.kill();
    let (_, text, _) = inspect(&["--verify", "--segments"], &path);
    let end = text.lines().find_map(|line| {
        let ours = line.contains("segment 2: unsealed");
        ours.then(|| line.rsplit_once(' ').expect("words").1.parse::<u64>().expect("an offset"))
    });
    // In the second of the unit's records, which nothing vouches for.
    flip(&path, 2 * SEGMENT + end.expect("segment 2") - 50_000);
    server.start();
    let mut client = server.client();
    assert!(client.run("GET u1").is_null() && client.run("GET u2").is_null());
    assert_eq!(client.run("GET second").text(), "v");
    server.stop();
    let (code, text, _) = inspect(&["--verify"], &path);
    assert_eq!(code, 0, "{text}");
    let sum = text.lines().last().expect("lines").trim();
    assert!(sum.contains("(2 sealed); 43 values, 1 tombstones"), "{sum}");
}

#[test]
fn other_files_and_flags() {
    let dir = TestDir::new("inspect-others");
    let path = dir.path().join("blank");
    File::create(&path).expect("create").set_len(80 * MIB).expect("grow");
    let (code, text, _) = inspect(&["--verify"], &path);
    assert_eq!(code, 1);
    assert_says(&text, "superblock at 0: blank");
    assert_says(&text, "DAMAGED: no superblock: it is no member of a set");
    flip(&path, 3);
    let (code, text, _) = inspect(&[], &path);
    assert_eq!(code, 1);
    assert_says(&text, "DAMAGED: superblock at 0: not one");
    let (code, text, errors) = inspect(&[], &dir.path().join("none"));
    assert_eq!((code, text.as_str()), (1, ""));
    assert!(errors.contains("none: No such file or directory"), "{errors}");
    assert_eq!(inspect(&["--bogus"], &path).0, 2);
    let empty = dir.path().join("empty");
    File::create(&empty).expect("create");
    let (code, _, errors) = inspect(&[], &empty);
    assert_eq!(code, 1);
    assert!(errors.contains("failed to fill whole buffer"), "{errors}");
}
