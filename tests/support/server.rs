//! The real binary, started, watched and stopped.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use super::client::Client;
use super::dir::TestDir;
use super::wait_until;

/// Start with recovery and stop with a full flush, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// A start that must fail says so before it touches a device.
const REFUSAL_LIMIT: Duration = Duration::from_secs(20);

/// Default of `--flush-max-ms`: what was acknowledged longer ago survives `kill -9`.
pub const FLUSH_MAX_MS: u64 = 100;

/// The binary under test.
pub fn binary() -> PathBuf {
    match std::env::var_os("LAVIK_BIN") {
        Some(path) => std::path::absolute(path).expect("LAVIK_BIN"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_lavik")),
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind any port");
    listener.local_addr().expect("its number").port()
}

/// How a server is started.
pub struct Launch {
    dir: TestDir,
    threads: usize,
    /// None: the data file exists already.
    data_size: Option<&'static str>,
    /// Instead of a data file.
    devices: Vec<String>,
    flags: Vec<String>,
    password: Option<&'static str>,
}

impl Launch {
    pub fn new(name: &str) -> Launch {
        let dir = TestDir::new(name);
        let (data_size, flags, devices) = (Some("256mb"), Vec::new(), Vec::new());
        Launch { dir, threads: 2, data_size, devices, flags, password: None }
    }

    pub fn threads(mut self, threads: usize) -> Launch {
        self.threads = threads;
        self
    }

    pub fn password(mut self, password: &'static str) -> Launch {
        self.password = Some(password);
        self.flag("--requirepass").flag(password)
    }

    pub fn data_size(mut self, size: &'static str) -> Launch {
        self.data_size = Some(size);
        self
    }

    pub fn flag(mut self, flag: &str) -> Launch {
        self.flags.push(flag.to_string());
        self
    }

    /// Namespaces that SPDK drives, instead of a data file.
    pub fn spdk(mut self, devices: &[String]) -> Launch {
        self.devices = devices.to_vec();
        self.data_size = None;
        self
    }

    /// Leaves `--data-file-size` away.
    pub fn existing_data_file(mut self) -> Launch {
        self.data_size = None;
        self
    }

    pub fn data_file(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn command(&self, port: u16) -> Command {
        let mut command = Command::new(binary());
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--metrics-port", "0", "--threads", &self.threads.to_string()]);
        command.args(["--no-pin-workers", "--registered-buffer-mb-per-worker", "64"]);
        if self.devices.is_empty() {
            command.arg("--data-file").arg(self.data_file());
        } else {
            command.args(["--storage", "spdk"]);
        }
        for device in &self.devices {
            command.args(["--data-file", device]);
        }
        if let Some(size) = self.data_size {
            command.args(["--data-file-size", size]);
        }
        command.arg("--log-dir").arg(self.dir.join("logs"));
        command.args(&self.flags);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a start that is expected to fail to its end.
    #[track_caller]
    pub fn output_of_start(&self) -> Output {
        let mut command = self.command(free_port());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start the binary");
        let start = Instant::now();
        while child.try_wait().expect("wait for the server").is_none() {
            if start.elapsed() > REFUSAL_LIMIT {
                child.kill().expect("kill the server");
                panic!("the server serves although it should have refused to start");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().expect("its output")
    }

    #[track_caller]
    pub fn start(self) -> Server {
        let mut server = Server { launch: self, child: None, port: 0 };
        server.start();
        server
    }
}

pub struct Server {
    launch: Launch,
    child: Option<Child>,
    port: u16,
}

impl Server {
    /// A server of two threads on a fresh data file.
    #[track_caller]
    pub fn fresh(name: &str) -> Server {
        Launch::new(name).start()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        self.launch.dir.path()
    }

    pub fn data_file(&self) -> PathBuf {
        self.launch.data_file()
    }

    fn output(&self) -> PathBuf {
        self.launch.dir.join("output")
    }

    /// Starts the process and waits until it serves.
    #[track_caller]
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "already running");
        self.port = free_port();
        let output = File::options().create(true).append(true).open(self.output()).expect("log");
        let mut command = self.launch.command(self.port);
        command.stdout(output.try_clone().expect("log")).stderr(output);
        self.child = Some(command.spawn().expect("start the binary"));
        wait_until("the server answers PING", START_LIMIT, || {
            self.assert_running();
            self.answers()
        });
    }

    fn answers(&self) -> bool {
        let ping = || {
            let mut client = Client::connect(self.port)?;
            if let Some(password) = self.launch.password {
                client.try_call(&["AUTH", password])?;
            }
            client.try_call(&["PING"])
        };
        ping().is_ok_and(|reply| !reply.is_error())
    }

    #[track_caller]
    pub fn assert_running(&mut self) {
        let child = self.child.as_mut().expect("a started server");
        if let Some(status) = child.try_wait().expect("wait for the server") {
            panic!("the server ended by itself: {status}");
        }
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("connect to the server")
    }

    /// A connection that speaks RESP3.
    #[track_caller]
    pub fn client3(&self) -> Client {
        let mut client = self.client();
        assert!(matches!(client.call(&["HELLO", "3"]), super::client::Value::Map(_)));
        client
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a started server").id()
    }

    /// Memory of the process in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("status of the server");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        let kib: u64 = line.split_whitespace().nth(1).expect("a size").parse().expect("a number");
        kib * 1024
    }

    /// Asks the process to stop and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        let signal = format!("kill -TERM {}", self.pid());
        let sent = Command::new("sh").args(["-c", &signal]).status().expect("run sh");
        assert!(sent.success());
        let status = self.wait_for_end();
        assert!(status.success(), "clean stop ended with {status}");
    }

    /// Waits for a process that was told to stop over its own protocol.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("a started server");
        let mut status = None;
        wait_until("the server stops", STOP_LIMIT, || {
            status = child.try_wait().expect("wait for the server");
            status.is_some()
        });
        self.child = None;
        status.expect("the status that ended the wait")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a started server");
        child.kill().expect("kill the server");
        child.wait().expect("wait for the server");
    }

    /// A crash damages nothing: every record that was ever complete on the device still is, and
    /// every footer says what the records say.
    #[track_caller]
    pub fn assert_media_whole(&self) {
        let inspect = |flags: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_lavik-inspect"));
            command.args(flags).arg(self.data_file()).output().expect("run lavik-inspect")
        };
        // The kernel ends the writes of a killed process in its own time.
        wait_until("the device is free", START_LIMIT, || {
            !String::from_utf8_lossy(&inspect(&[]).stdout).contains("in use")
        });
        let output = inspect(&["--verify"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// One more flag for the starts that follow.
    pub fn add_flag(&mut self, flag: &str) {
        self.launch.flags.push(flag.into());
    }

    /// Runs a start that is expected to fail, and returns what it says.
    #[track_caller]
    pub fn refusal(&self) -> String {
        let output = self.launch.output_of_start();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    pub fn set_threads(&mut self, threads: usize) {
        self.launch.threads = threads;
    }

    /// Clean stop and start: values are on the device only afterwards.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    fn print_logs(&self) {
        let mut paths = vec![self.output()];
        let logs = std::fs::read_dir(self.launch.dir.join("logs"));
        paths.extend(logs.into_iter().flatten().flatten().map(|entry| entry.path()));
        for path in paths {
            let text = std::fs::read(&path).unwrap_or_default();
            let tail = &text[text.len().saturating_sub(4000)..];
            let tail = String::from_utf8_lossy(tail);
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("--- {} ---\n{tail}\n", path.display()).as_bytes(),
            );
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            self.print_logs();
        }
    }
}
