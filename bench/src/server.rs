//! Servers that we start, wait for and end: ours and its peers, on a port and CPUs of their own.

use crate::control::{Control, Info};
use crate::os;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STOP_WAIT: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(1);

/// Which options a program understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lavik,
    /// redis-server, valkey-server and whatever takes their options.
    Redis,
}

impl Kind {
    /// By the name of the program.
    pub fn guess(program: &Path) -> Kind {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned());
        match name {
            Some(name) if name.contains("redis") || name.contains("valkey") => Kind::Redis,
            _ => Kind::Lavik,
        }
    }
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub program: PathBuf,
    pub kind: Kind,
    pub extra_args: Vec<String>,
    pub cpus: Vec<usize>,
}

impl ServerSpec {
    /// The first line of `--version`.
    pub fn version(&self) -> String {
        let output = Command::new(&self.program).arg("--version").stdin(Stdio::null()).output();
        let Ok(output) = output else { return "unknown".into() };
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("unknown").to_string()
    }
}

/// How to start it this time.
#[derive(Clone, Debug)]
pub struct Launch {
    pub spec: ServerSpec,
    /// Logs and data go here.
    pub dir: PathBuf,
    pub data_file_bytes: u64,
    /// Whether the data must outlive the process: peers then write an append-only file.
    pub persistent: bool,
    /// A program that runs the server, such as valgrind with its options.
    pub wrapper: Vec<String>,
    pub ready_wait: Duration,
}

impl Launch {
    pub fn data_file(&self) -> PathBuf {
        self.dir.join("lavik.data")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn args(&self, port: u16) -> Vec<String> {
        let dir = self.dir.display().to_string();
        let mut args: Vec<String> = match self.spec.kind {
            Kind::Lavik => [
                ("--bind", "127.0.0.1".into()),
                ("--port", port.to_string()),
                ("--threads", self.spec.cpus.len().max(1).to_string()),
                ("--data-file", self.data_file().display().to_string()),
                ("--data-file-size", self.data_file_bytes.to_string()),
                ("--log-dir", dir),
            ]
            .into_iter()
            .flat_map(|(name, value)| [name.to_string(), value])
            .chain(["--no-pin-workers".into()])
            .collect(),
            Kind::Redis => [
                ("--bind", "127.0.0.1".into()),
                ("--port", port.to_string()),
                ("--save", String::new()),
                ("--appendonly", if self.persistent { "yes" } else { "no" }.into()),
                ("--dir", dir),
            ]
            .into_iter()
            .flat_map(|(name, value)| [name.to_string(), value])
            .collect(),
        };
        args.extend(self.spec.extra_args.iter().cloned());
        args
    }

    fn command(&self, port: u16) -> Result<Command, String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .map_err(|e| format!("cannot write {}: {e}", self.log_file().display()))?;
        let errors = log.try_clone().map_err(|e| format!("cannot open the log twice: {e}"))?;
        let mut command = match self.wrapper.split_first() {
            None => Command::new(&self.spec.program),
            Some((wrapper, args)) => {
                let mut command = Command::new(wrapper);
                command.args(args).arg(&self.spec.program);
                command
            }
        };
        command.args(self.args(port)).stdin(Stdio::null()).stdout(log).stderr(errors);
        os::bind_child(&mut command, &self.spec.cpus);
        Ok(command)
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(self.log_file()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

/// A running server; ended when dropped.
pub struct Server {
    child: Child,
    pub addr: SocketAddr,
    /// From the start of the process to the first `+PONG`.
    pub ready_after: Duration,
    launch: Launch,
    has_ended: bool,
}

impl Server {
    /// Starts it and waits until it answers PING without `-LOADING`. Call it from a thread that
    /// outlives the server: the kernel kills the server when that thread ends.
    pub fn start(launch: &Launch) -> Result<Server, String> {
        let addr = free_addr()?;
        let started = Instant::now();
        let child = launch.command(addr.port())?.spawn().map_err(|e| {
            let program = launch.wrapper.first().map_or_else(
                || launch.spec.program.display().to_string(),
                |wrapper| format!("{wrapper} {}", launch.spec.program.display()),
            );
            format!("cannot start {program}: {e}")
        })?;
        let launch = launch.clone();
        let mut server =
            Server { child, addr, ready_after: Duration::ZERO, launch, has_ended: false };
        server.wait_ready(started)?;
        server.ready_after = started.elapsed();
        Ok(server)
    }

    fn wait_ready(&mut self, started: Instant) -> Result<(), String> {
        let program = self.launch.spec.program.display().to_string();
        loop {
            let last = match Control::connect(self.addr).and_then(|mut control| control.ping()) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                self.has_ended = true;
                return Err(format!("{program} ended at start ({status}):\n{}", self.tail()));
            }
            if os::interrupted() {
                return Err("interrupted".into());
            }
            if started.elapsed() > self.launch.ready_wait {
                let waited = self.launch.ready_wait;
                return Err(format!(
                    "{program} not ready in {waited:?} ({last}):\n{}",
                    self.tail()
                ));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    fn tail(&self) -> String {
        self.launch.log_tail()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn control(&self) -> Result<Control, String> {
        Control::connect(self.addr)
    }

    pub fn info(&self, section: &str) -> Result<Info, String> {
        self.control()?.info(section)
    }

    pub fn cpu_ns(&self) -> Result<u64, String> {
        os::cpu_ns(self.pid()).map_err(|e| format!("cannot read the server's CPU time: {e}"))
    }

    pub fn status_bytes(&self, field: &str) -> Result<u64, String> {
        os::status_bytes(self.pid(), field).map_err(|e| format!("cannot read its memory: {e}"))
    }

    /// The crash: SIGKILL.
    pub fn kill(mut self) {
        self.end(libc::SIGKILL, STOP_WAIT);
    }

    /// A clean stop; an error if it had to be killed after `wait`.
    pub fn stop(mut self, wait: Duration) -> Result<(), String> {
        if self.end(libc::SIGTERM, wait) {
            return Ok(());
        }
        Err(format!("{} did not stop in {wait:?}", self.launch.spec.program.display()))
    }

    /// True if the signal was enough.
    fn end(&mut self, signal: i32, wait: Duration) -> bool {
        if self.has_ended {
            return true;
        }
        os::signal(self.child.id(), signal);
        let begin = Instant::now();
        while begin.elapsed() < wait {
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.has_ended = true;
                return true;
            }
            std::thread::sleep(POLL_EVERY);
        }
        // Both fail only if the child has ended in between.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.has_ended = true;
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(libc::SIGTERM, STOP_WAIT);
    }
}

/// A loopback address that nobody listened on a moment ago.
fn free_addr() -> Result<SocketAddr, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|e| format!("no free port: {e}"))
}

/// A fresh directory for data files and logs; removed when dropped.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    keep: bool,
}

impl WorkDir {
    pub fn create(parent: &Path, keep: bool) -> Result<WorkDir, String> {
        let path = parent.join(format!("lavik-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(WorkDir { path, keep })
    }

    /// A directory inside, made if it is not there.
    pub fn sub(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path)
            .map_err(|e| format!("cannot create {}: {e}", path.display()))?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.keep {
            // What is left behind is named in the report and harms nobody.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Launch, Server, ServerSpec, WorkDir};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    fn launch(program: &str, dir: &Path) -> Launch {
        let spec = ServerSpec {
            program: program.into(),
            kind: Kind::guess(Path::new(program)),
            extra_args: vec!["--extra".into()],
            cpus: vec![0, 1],
        };
        Launch {
            spec,
            dir: dir.into(),
            data_file_bytes: 1 << 30,
            persistent: false,
            wrapper: Vec::new(),
            ready_wait: Duration::from_secs(5),
        }
    }

    #[test]
    fn kinds_are_guessed_by_name() {
        assert_eq!(Kind::guess(Path::new("/usr/bin/redis-server")), Kind::Redis);
        assert_eq!(Kind::guess(Path::new("valkey-server")), Kind::Redis);
        assert_eq!(Kind::guess(Path::new("/redis/target/release/lavik")), Kind::Lavik);
    }

    #[test]
    fn each_kind_gets_its_options() {
        let lavik = launch("lavik", &PathBuf::from("/d")).args(7).join(" ");
        assert_eq!(
            lavik,
            "--bind 127.0.0.1 --port 7 --threads 2 --data-file /d/lavik.data \
             --data-file-size 1073741824 --log-dir /d --no-pin-workers --extra"
        );
        let redis = launch("redis-server", &PathBuf::from("/d")).args(7).join(" ");
        assert_eq!(redis, "--bind 127.0.0.1 --port 7 --save  --appendonly no --dir /d --extra");
    }

    #[test]
    fn a_server_that_ends_or_is_missing_is_an_error() {
        let dir = WorkDir::create(&std::env::temp_dir(), false).unwrap();
        let mut missing = launch("/no/such/lavik", &dir.path);
        missing.spec.cpus.clear();
        assert!(Server::start(&missing).err().unwrap().contains("cannot start /no/such/lavik"));
        let mut ends = launch("/bin/false", &dir.path);
        ends.spec.cpus.clear();
        assert!(Server::start(&ends).err().unwrap().contains("ended at start"));
    }
}
