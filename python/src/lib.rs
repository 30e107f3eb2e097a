//! The extension module `ringreel._ringreel`: the crate `ringreel` as Python sees it.
//!
//! | file | |
//! |---|---|
//! | [`array`] | bytes that Python reads, and bytes that Python gives: the only `unsafe` |
//! | [`config`] | a configuration |
//! | [`meta`] | meta maps to and from Python's values |
//! | [`generator`], [`manager`], [`reader`], [`stream`] | the roles, and the status |
//! | [`watcher`] | looks at a ring, for monitoring |
//! | [`recordio`] | plain RecordIO files |
//! | [`errors`] | each error becomes the exception that mirrors it |
//! | [`detached`] | work without the GIL that signals get through to |
//! | [`exclusive`] | a value that one call at a time uses, and its snapshot for signal handlers |
//! | [`interpreter`] | Python's end, in which no other thread may ask for the GIL |
//! | [`forked`] | what belongs to one process is left alone in a forked child |
//! | [`logging`] | what the crate logs, told to Python's `logging` |
//! | [`buffers`] | memory for batches |
//! | [`command`] | the command `ringreel` |
//!
//! It is thin: names, defaults and conversions of values are in the Python package. Two rules hold everywhere. A lock
//! is taken, and anything that may wait is done, without the GIL only; so whoever waits for a lock never holds what its
//! owner needs. Whatever has threads of its own is dropped without the GIL too.
#![deny(unsafe_code)]

mod array;
mod buffers;
mod command;
mod config;
mod detached;
mod errors;
mod exclusive;
mod forked;
mod generator;
mod ids;
mod interpreter;
mod logging;
mod manager;
mod meta;
mod reader;
mod recordio;
mod stream;
mod watcher;

/// What the package `ringreel` is made of; not for use by itself.
#[pyo3::pymodule]
mod _ringreel {
    #[pymodule_export]
    use crate::array::{Part, WritablePart};
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::config::Config;
    #[pymodule_export]
    use crate::generator::Generator;
    #[pymodule_export]
    use crate::ids::SampleIds;
    #[pymodule_export]
    use crate::manager::run_manager;
    #[pymodule_export]
    use crate::reader::{Generation, Reader, status};
    #[pymodule_export]
    use crate::recordio::{RecordReader, RecordWriter, record_index};
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::watcher::Watcher;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::interpreter::watch_end(module.py())
    }
}
