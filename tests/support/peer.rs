//! A live reference server to compare with.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::client::Client;
use super::dir::TestDir;
use super::server::free_port;
use super::wait_until;

pub struct Peer {
    child: Child,
    port: u16,
    /// (7, 0) for 7.0.15.
    version: (u32, u32),
    // Removed after the process has ended.
    _dir: TestDir,
}

/// The reference server: `LAVIK_PEER`, or what PATH has.
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("LAVIK_PEER") {
        return path.into();
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let names = ["redis-server", "valkey-server"];
    let mut found = names.iter().flat_map(|name| {
        std::env::split_paths(&dirs).map(|dir| dir.join(name)).collect::<Vec<_>>()
    });
    found.find(|path| path.is_file()).expect(
        "no redis-server or valkey-server on PATH, and these tests compare with one: \
         apt-get install redis-server",
    )
}

impl Peer {
    #[track_caller]
    pub fn start(name: &str) -> Peer {
        let dir = TestDir::new(&format!("{name}-peer"));
        let port = free_port();
        let mut command = Command::new(program());
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("start the reference server");
        let mut peer = Peer { child, port, version: (0, 0), _dir: dir };
        wait_until("the reference server answers", Duration::from_secs(30), || {
            Client::connect(port).is_ok_and(|mut client| client.try_call(&["PING"]).is_ok())
        });
        peer.version = version(&mut peer.client());
        peer
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("connect to the reference server")
    }

    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

fn version(client: &mut Client) -> (u32, u32) {
    let info = client.run("INFO server").text();
    let line = info.lines().find(|line| line.starts_with("redis_version:"));
    let version = line.expect("redis_version in INFO")["redis_version:".len()..].to_string();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
