//! What the tests of ringreel share.
//!
//! | module | what it has |
//! |---|---|
//! | [`ring`] | a small ring, numbered samples, what was delivered |
//! | [`fault`] | a filesystem whose calls pass through a fault: the layer that all doubles below but the disk use |
//! | [`hook`] | a fault that asks a closure before each call what shall become of it |
//! | [`stream`] | a ring whose samples are read by streams, and what a stream gave |
//! | [`cli`] | a directory with a configuration, the command `ringreel` and its output, mounts, listings |
//! | [`golden`] | fixed rings, and the text that the command prints about them |
//! | [`disk`] | a disk in memory that can lose its power |
//! | [`stale`] | clients of a filesystem that remember absent names |
//! | [`liar`] | filesystems that break one promise each, and the doctor's findings |
//! | [`contract`] | the contract of the coordination store, as a macro that makes a module of tests |
//! | [`process`] | tests that need a process of their own |
//! | [`log`] | the warnings of a call |
//! | [`wait`] | waiting until something is true |
//! | [`index`], [`lines`] | where the rings keep their index; ledgers |

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
