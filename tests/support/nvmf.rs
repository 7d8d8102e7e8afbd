//! An NVMe/TCP target of the SPDK that the server is built with, on loopback: a namespace of 512
//! byte sectors in memory and one of 4096 byte sectors in a file.

use std::fs::File;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::dir::TestDir;
use super::server::free_port;
use super::wait_until;

const SUBNQN: &str = "nqn.2026-01.test.lavik:disks";
const HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";
/// 2 MiB pages for the target and for one server.
const PAGES: u64 = 640;

/// Hugepages for the test; what was there before is there again afterwards.
pub struct Hugepages {
    before: String,
}

impl Hugepages {
    pub fn reserve() -> Hugepages {
        let before = std::fs::read_to_string(HUGEPAGES).expect("a kernel with hugepages");
        let wanted = before.trim().parse::<u64>().expect("a number").max(PAGES);
        std::fs::write(HUGEPAGES, wanted.to_string()).expect("root, to reserve hugepages");
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        if !mounts.contains(" hugetlbfs ") {
            std::fs::create_dir_all("/dev/hugepages").expect("a folder for hugepages");
            let mount = ["-t", "hugetlbfs", "nodev", "/dev/hugepages"];
            assert!(Command::new("mount").args(mount).status().expect("mount").success());
        }
        Hugepages { before }
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        let _ = std::fs::write(HUGEPAGES, self.before.trim());
    }
}

pub struct Target {
    dir: TestDir,
    port: u16,
    child: Option<Child>,
    // After the process that uses them.
    _pages: Hugepages,
}

impl Target {
    pub fn start(name: &str) -> Target {
        let dir = TestDir::new(name);
        let file = File::create(dir.join("disk")).expect("a file");
        file.set_len(512 << 20).expect("its size");
        let mut target =
            Target { dir, port: free_port(), child: None, _pages: Hugepages::reserve() };
        target.run();
        target
    }

    /// Starts the process; the file keeps what was in it, the memory does not.
    fn run(&mut self) {
        let config = self.dir.join("target.json");
        std::fs::write(&config, self.config()).expect("write the target's configuration");
        let log = File::create(self.dir.join("target.log")).expect("a log");
        let mut command = Command::new(nvmf_tgt());
        command.arg("--json").arg(config).arg("-r").arg(self.dir.join("rpc.sock"));
        command.args(["-s", "400", "-m", "0x1", "--no-pci"]).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.child = Some(command.spawn().expect("start nvmf_tgt"));
        wait_until("the target listens", Duration::from_secs(60), || {
            let child = self.child.as_mut().expect("a started target");
            assert!(
                child.try_wait().expect("its state").is_none(),
                "nvmf_tgt ended: {}",
                self.log()
            );
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("target.log")).unwrap_or_default()
    }

    fn config(&self) -> String {
        let (disk, port) = (self.dir.join("disk"), self.port);
        let method =
            |name: &str, params: String| format!(r#"{{"method":"{name}","params":{{{params}}}}}"#);
        let namespace = |nsid, bdev| {
            let namespace = format!(r#""namespace":{{"bdev_name":"{bdev}","nsid":{nsid}}}"#);
            method("nvmf_subsystem_add_ns", format!(r#""nqn":"{SUBNQN}",{namespace}"#))
        };
        let bdevs = [
            method(
                "bdev_malloc_create",
                r#""name":"memory","num_blocks":262144,"block_size":512"#.into(),
            ),
            method(
                "bdev_aio_create",
                format!(r#""name":"file","filename":"{}","block_size":4096"#, disk.display()),
            ),
        ];
        let listen = format!(
            r#""nqn":"{SUBNQN}","listen_address":{{"trtype":"TCP","adrfam":"IPv4",
            "traddr":"127.0.0.1","trsvcid":"{port}"}}"#
        );
        let nvmf = [
            method("nvmf_create_transport", r#""trtype":"TCP""#.into()),
            method(
                "nvmf_create_subsystem",
                format!(r#""nqn":"{SUBNQN}","allow_any_host":true,"serial_number":"LAVIK""#),
            ),
            namespace(1, "memory"),
            namespace(2, "file"),
            method("nvmf_subsystem_add_listener", listen),
        ];
        format!(
            r#"{{"subsystems":[{{"subsystem":"bdev","config":[{}]}},
            {{"subsystem":"nvmf","config":[{}]}}]}}"#,
            bdevs.join(","),
            nvmf.join(",")
        )
    }

    /// The address of a namespace: 1 in memory, 2 in the file.
    pub fn device(&self, nsid: u32) -> String {
        format!("spdk://tcp:127.0.0.1:{}/{SUBNQN}/{nsid}", self.port)
    }

    /// The target is gone at once, as a controller that is pulled out.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a started target");
        child.kill().expect("kill the target");
        child.wait().expect("wait for the target");
    }

    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn nvmf_tgt() -> PathBuf {
    let folder = match std::env::var_os("SPDK_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/setup/bypass.sh");
            let output = Command::new(script).arg("--print").output().expect("setup/bypass.sh");
            PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
        }
    };
    let places = ["bin/nvmf_tgt", "build/bin/nvmf_tgt"].map(|place| folder.join(place));
    let found = places.into_iter().find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("{} has no nvmf_tgt", folder.display()))
}
