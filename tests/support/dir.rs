//! A directory of one test, gone when the test ends, also when it fails.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new(name: &str) -> TestDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let leaf = format!("{name}-{}-{unique}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(leaf);
        std::fs::create_dir_all(&path).expect("create the test's directory");
        TestDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, leaf: &str) -> PathBuf {
        self.0.join(leaf)
    }
}

impl Drop for TestDir {
    /// `LAVIK_TEST_KEEP=1` leaves the directory of a failed test for a look.
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("LAVIK_TEST_KEEP").is_some() {
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
