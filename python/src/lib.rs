//! The extension module `ringreel._ringreel`: the Python binding of the crate `ringreel`.
//!
//! | file | |
//! |---|---|
//! | [`array`] | buffers shared with Python: the only `unsafe` |
//! | [`config`] | a configuration |
//! | [`meta`] | meta maps to and from Python's values |
//! | [`generator`], [`manager`], [`reader`], [`stream`] | the roles, and the status |
//! | [`watcher`] | observes a ring, for monitoring |
//! | [`image`] | batches of images out of RecordIO files |
//! | [`recordio`] | plain RecordIO files |
//! | [`input_split`] | one share of many plain RecordIO files |
//! | [`errors`] | converts each error into the matching exception |
//! | [`detached`] | work without the GIL that signals can interrupt |
//! | [`exclusive`] | a value that one call at a time uses, and its snapshot for signal handlers |
//! | [`interpreter`] | finalization of the interpreter, during which no other thread may request the GIL |
//! | [`forked`] | values that a forked child must not touch |
//! | [`logging`] | forwards the crate's log to Python's `logging` |
//! | [`buffers`] | memory for batches |
//! | [`command`] | the command `ringreel` |
//!
//! The binding is thin: names, defaults and conversions of values are in the Python package. Two rules hold
//! everywhere. First, a lock is taken, and a blocking operation is done, only without the GIL; so a thread that waits
//! for a lock never holds the GIL that the lock's owner needs. Second, a value with its own threads is dropped without
//! the GIL.
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
mod image;
mod input_split;
mod interpreter;
mod logging;
mod manager;
mod meta;
mod reader;
mod recordio;
mod stream;
mod watcher;

/// The extension module on which the package `ringreel` is built. It is private to the package.
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
    use crate::image::{ImageBatches, ImageEpoch, ImageReader};
    #[pymodule_export]
    use crate::input_split::InputSplit;
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
