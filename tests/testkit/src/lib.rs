//! What the tests of ringreel share.
//!
//! | module | contents |
//! |---|---|
//! | [`ring`] | a small ring, numbered samples, delivered samples |
//! | [`fault`] | a filesystem whose calls pass through a fault: the layer that all doubles below but the disk use |
//! | [`hook`] | a fault that lets a closure decide each call's fate |
//! | [`stream`] | a ring whose samples are read by streams, and the results of a stream |
//! | [`cli`] | a directory with a configuration, the command `ringreel` and its output, mounts, listings |
//! | [`golden`] | fixed rings, and the command's output for them |
//! | [`disk`] | a disk in memory that can lose its power |
//! | [`stale`] | clients of a filesystem that cache absent names |
//! | [`liar`] | filesystems that break one guarantee each, and the doctor's findings |
//! | [`contract`] | the contract of the coordination store, as a macro that generates a module of tests |
//! | [`memory_store`] | a coordination store in memory |
//! | [`process`] | tests that need a separate process |
//! | [`log`] | the warnings that a call logs |
//! | [`wait`] | waiting for a condition |
//! | [`index`], [`lines`] | the place of the rings' index; ledgers |

pub mod cli;
pub mod contract;
pub mod coordination;
pub mod disk;
pub mod fault;
pub mod golden;
pub mod hook;
pub mod liar;
pub mod lines;
pub mod log;
pub mod memory_store;
pub mod process;
pub mod ring;
pub mod stale;
pub mod stream;
pub mod wait;

use std::path::Path;
use std::sync::OnceLock;

/// The command `ringreel`, which Cargo builds before the integration tests.
///
/// It is the file that `RINGREEL_TEST_COMMAND` names, or the one beside the directory of the running test.
pub fn binary() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Ok(path) = std::env::var("RINGREEL_TEST_COMMAND") {
            return path;
        }
        let test = std::env::current_exe().unwrap();
        let found = test.ancestors().skip(1).take(3).map(|dir| dir.join("ringreel")).find(|path| path.is_file());
        let found = found.unwrap_or_else(|| panic!("no ringreel beside {}: run `cargo build`", test.display()));
        found.into_os_string().into_string().unwrap()
    })
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
