//! The environment of SPDK: memory that devices can reach, and its one start per process.
//!
//! Once it has started, [`Region`](super::Region) takes its memory from here, so that read
//! buffers and log buffers go to the device as they are.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lavik_sys as sys;

/// Lines of the environment that are kept to explain a failure.
const LINES_KEPT: usize = 8;

static STARTED: AtomicBool = AtomicBool::new(false);
static LAST_LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the environment starts with.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// More arguments for DPDK, separated by spaces.
    pub eal_args: String,
    /// Hugepage memory taken at start in MiB.
    pub memory_mb: u32,
    /// The only PCI devices that may be touched, as `DDDD:BB:DD.F`; none: no PCI at all.
    pub pci_allowed: Vec<String>,
    /// A CPU that this process may run on.
    pub cpu: usize,
}

/// Starts the environment. To be called once, before any other thread runs.
pub fn start(start: &Start) -> Result<(), String> {
    assert!(!STARTED.load(Ordering::Relaxed), "the environment has started");
    let eal_args = CString::new(start.eal_args.as_str()).map_err(|error| error.to_string())?;
    let pci_allowed: Vec<sys::spdk_pci_addr> =
        start.pci_allowed.iter().map(|text| pci_address(text)).collect::<Result<_, _>>()?;
    let arguments = sys::lavik_environment {
        name: c"lavik".as_ptr(),
        eal_args: eal_args.as_ptr(),
        memory_mb: start.memory_mb as c_int,
        core: start.cpu as c_int,
        pci_allowed: pci_allowed.as_ptr(),
        pci_allowed_count: pci_allowed.len(),
    };
    // SAFETY: `keep_line` is a function that may be called from any thread.
    unsafe { sys::lavik_log_to(Some(keep_line)) };
    // SAFETY: every pointer in `arguments` lives until the call returns; C keeps none of them.
    match unsafe { sys::lavik_environment_start(&arguments) } {
        0 => {
            STARTED.store(true, Ordering::Release);
            Ok(())
        }
        code => Err(format!("the DPDK environment does not start ({code}): {}", last_line())),
    }
}

fn pci_address(text: &str) -> Result<sys::spdk_pci_addr, String> {
    let mut address = sys::spdk_pci_addr::default();
    let name = CString::new(text).map_err(|error| error.to_string())?;
    // SAFETY: both pointers are valid for the call.
    match unsafe { sys::spdk_pci_addr_parse(&mut address, name.as_ptr()) } {
        0 => Ok(address),
        _ => Err(format!("{text} is not a PCI address")),
    }
}

/// Takes a line of SPDK's log: errors and warnings to ours, all of them to the last lines.
extern "C" fn keep_line(level: c_int, text: *const c_char) {
    // SAFETY: the shim passes a string that ends with a zero and lives for the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim_end();
    match level {
        0 => log::warn!("SPDK: {text}"),
        1 => log::info!("SPDK: {text}"),
        _ => log::debug!("SPDK: {text}"),
    }
    if level == 0
        && let Ok(mut lines) = LAST_LINES.lock()
    {
        if lines.len() == LINES_KEPT {
            lines.remove(0);
        }
        lines.push(text.to_string());
    }
}

/// The last error that SPDK has written, to explain a failure of which it only says that.
pub fn last_line() -> String {
    let last = LAST_LINES.lock().ok().and_then(|lines| lines.last().cloned());
    last.unwrap_or_else(|| "it gave no reason; see standard error".into())
}

/// Memory of the environment, zeroed, on the NUMA node of the calling thread if that has some.
/// None as long as it has not started. Inner None: there is none left.
pub(super) fn allocate(len: usize) -> Option<Option<NonNull<u8>>> {
    if !STARTED.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: plain calls; the result is checked.
    let start = unsafe {
        let here = sys::lavik_alloc(len, sys::lavik_thread_node());
        if here.is_null() { sys::lavik_alloc(len, -1) } else { here }
    };
    Some(NonNull::new(start.cast()))
}

/// Gives memory back.
///
/// # Safety
/// `start` came from [`allocate`] and nothing refers to it any more.
pub(super) unsafe fn free(start: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { sys::spdk_free(start.as_ptr().cast()) };
}
