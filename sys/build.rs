//! Finds SPDK, declares it with bindgen, compiles the shim and says what to link.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "spdk")]
    spdk::build();
}

#[cfg(feature = "spdk")]
mod spdk {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// What the server calls; everything else stays out of the bindings.
    const FUNCTIONS: &str = "lavik_.*|spdk_(free|env_fini|pci_addr_parse)\
        |spdk_nvme_(detach|transport_id_parse|qpair_process_completions)\
        |spdk_nvme_ctrlr_(is_failed|fail|is_active_ns|get_ns|get_num_ns|free_io_qpair\
        |process_admin_completions|cmd_abort)\
        |spdk_nvme_ns_(get_sector_size|get_size|get_md_size|get_max_io_xfer_size)\
        |spdk_nvme_ns_cmd_(read|write|flush)";
    const TYPES: &str = "lavik_.*|spdk_pci_addr|spdk_nvme_transport_id";
    /// Structures that cross the border only as pointers.
    const OPAQUE: &[&str] =
        &["spdk_nvme_ctrlr", "spdk_nvme_ns", "spdk_nvme_qpair", "spdk_nvme_cpl"];
    /// Archives with constructors that register transports, sockets and drivers: whole, or they
    /// are dropped.
    const SPDK: &[&str] =
        &["nvme", "sock", "sock_posix", "env_dpdk", "util", "log", "json", "jsonrpc", "rpc"];
    const DPDK: &[&str] = &[
        "eal",
        "kvargs",
        "telemetry",
        "ring",
        "mempool",
        "mempool_ring",
        "pci",
        "bus_pci",
        "bus_vdev",
        "mbuf",
    ];
    const SYSTEM: &[&str] = &["numa", "uuid", "dl", "pthread", "m"];

    pub fn build() {
        for name in ["SPDK_DIR", "LAVIK_BYPASS_CACHE", "HOME"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        println!("cargo::rerun-if-changed=shim.c");
        println!("cargo::rerun-if-changed=shim.h");
        let root = find();
        declare(&root);
        compile(&root);
        link(&root);
    }

    /// A folder with `include/spdk` and `lib`: `SPDK_DIR`, the build of setup/bypass.sh, or what
    /// pkg-config knows.
    fn find() -> PathBuf {
        let given = std::env::var_os("SPDK_DIR").map(PathBuf::from);
        let root = given
            .or_else(cached)
            .or_else(packaged)
            .unwrap_or_else(|| fail("there is no SPDK here: run setup/bypass.sh, or set SPDK_DIR"));
        if !root.join("include/spdk/nvme.h").is_file() {
            fail(&format!("{} has no include/spdk/nvme.h", root.display()));
        }
        root
    }

    fn cached() -> Option<PathBuf> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../setup/bypass.sh");
        println!("cargo::rerun-if-changed=../vendor/PINS");
        let output = Command::new(script).arg("--print").output().ok()?;
        let root = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
        println!("cargo::rerun-if-changed={}", root.join("done").display());
        root.join("done").is_file().then_some(root)
    }

    fn packaged() -> Option<PathBuf> {
        let output =
            Command::new("pkg-config").args(["--variable=prefix", "spdk_nvme"]).output().ok()?;
        let prefix = String::from_utf8(output.stdout).ok()?.trim().to_string();
        (output.status.success() && !prefix.is_empty()).then(|| PathBuf::from(prefix))
    }

    fn fail(text: &str) -> ! {
        println!("cargo::error={text}");
        std::process::exit(1)
    }

    fn declare(root: &Path) {
        let mut bindings = bindgen::Builder::default()
            .header("shim.h")
            .clang_arg(format!("-I{}", root.join("include").display()))
            .allowlist_function(FUNCTIONS)
            .allowlist_type(TYPES)
            .derive_default(true)
            .layout_tests(true)
            .generate_comments(false);
        for name in OPAQUE {
            bindings = bindings.opaque_type(name);
        }
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let written = bindings.generate().map(|found| found.write_to_file(out.join("bindings.rs")));
        if !matches!(written, Ok(Ok(()))) {
            fail("bindgen does not understand these headers of SPDK; is libclang installed?");
        }
    }

    fn compile(root: &Path) {
        let mut shim = cc::Build::new();
        shim.file("shim.c").include(root.join("include")).define("_GNU_SOURCE", None);
        shim.warnings(true).extra_warnings(false);
        if shim.try_compile("lavik_shim").is_err() {
            fail("shim.c does not compile against this version of SPDK");
        }
    }

    fn link(root: &Path) {
        for lib in ["lib", "build/lib", "dpdk/build/lib"] {
            if root.join(lib).is_dir() {
                println!("cargo::rustc-link-search=native={}", root.join(lib).display());
            }
        }
        let exists = |name: &str| {
            ["lib", "build/lib", "dpdk/build/lib"]
                .iter()
                .any(|lib| root.join(lib).join(format!("lib{name}.a")).is_file())
        };
        let spdk = SPDK.iter().map(|name| format!("spdk_{name}"));
        let dpdk = DPDK.iter().map(|name| format!("rte_{name}")).filter(|name| exists(name));
        for name in spdk.chain(dpdk) {
            println!("cargo::rustc-link-lib=static:+whole-archive,-bundle={name}");
        }
        for name in SYSTEM {
            println!("cargo::rustc-link-lib={name}");
        }
    }
}
