//! A ring of training samples on a shared filesystem, written by many generators and read by a
//! training job.
//!
//! A generator stages samples in segment files and links each sealed segment into the filling
//! generation. A manager promotes a full generation by renaming its directory, and publishes its
//! manifest. Readers, split by rank, map or read the segments that manifests list.
//!
//! - [`Generator`] writes samples, [`Manager`] promotes and reclaims generations, [`Reader`] and
//!   [`Stream`] read samples.
//! - [`Config`] is the configuration that all roles share, [`Ring`] one process's handle of a ring.
//! - [`format`](mod@format) is the crate `ringreel_format`, which encodes and decodes segments.
//!
//! Other crates: `ringreel_recordio` (plain `.rec` files), `ringreel_ops` (inspect, verify, repair,
//! doctor, status), `ringreel_cli` (the command).
//!
//! ```
//! use ringreel::{Config, Generator, NamedPart, Reader};
//! use ringreel_format::{DType, Meta};
//!
//! # fn main() -> ringreel::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let yaml = "DBNAME: demo\nSWAP_CAP: 2\nSAMPLE: [data]\n";
//! let config = Config::parse(yaml, "example", dir.path(), true)?;
//!
//! let mut generator = Generator::open(&config)?;
//! for n in 0..2u8 {
//!     generator.write(&[NamedPart::new("data", DType::U8, &[3], &[n; 3])], &Meta::new(), &|| false)?;
//! }
//! generator.finish(true, &|| false)?; // true: promote the generation even if it is not full
//!
//! let reader = Reader::open(&config)?;
//! let generation = reader.newest()?;
//! let sample = reader.sample(&generation, 1)?;
//! assert_eq!(&sample.parts[0].data()?[..], &[1; 3]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

// Public for the other crates of this repository, and hidden because they may change at any time.
// The public API is re-exported below.
#[doc(hidden)]
pub mod commit;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod coordination;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod escape;
#[doc(hidden)]
pub mod failure_log;
#[doc(hidden)]
pub mod fs;
#[doc(hidden)]
pub mod heartbeat;
#[doc(hidden)]
pub mod humanize;
#[doc(hidden)]
pub mod layout;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod memory;
mod minutely;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod read;
#[doc(hidden)]
pub mod ring;
#[doc(hidden)]
pub mod role;
#[doc(hidden)]
pub mod run_log;
#[doc(hidden)]
pub mod runs;
#[doc(hidden)]
pub mod sched;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod swap;
#[doc(hidden)]
pub mod times;
#[doc(hidden)]
pub mod value_stats;
#[doc(hidden)]
pub mod write;

pub use config::{CheckFinite, Compress, Config, Durability, IndexPlace, MongoPlace, OnStale, ReadMode, Reuse, Verify};
pub use error::{Error, FsError, Result};
pub use read::batch::{Batch, StackedPart};
pub use read::checkpoint::State;
pub use read::shard::{Equal, Share};
pub use read::shuffle::Order;
pub use read::stream::{Item, Position, Stream, StreamOptions};
pub use read::{ReadPart, ReadSample, Reader};
pub use ring::Ring;
pub use ringreel_format as format;
pub use role::Role;
pub use segment::SampleId;
pub use swap::manager::{Manager, Swap};
pub use times::StreamStats;
pub use write::generator::{Generator, NamedPart, Summary};

/// Returns the milliseconds since 1970 by this machine's clock. For display only; never compared
/// between machines.
pub fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
