//! A ring of record segments on a shared filesystem, between many sample generators and a training job.
//!
//! Generators stage samples in segment files and link them into the generation that fills; a manager promotes a full
//! generation by one rename and publishes its manifest; readers, split by rank, map or read what manifests list.
//!
//! - [`generator`]: put samples in.   [`manager`]: keep the ring turning.   [`reader`]: take samples out.
//! - [`ring`]: the steps that all of them share.   [`coordination`]: counter, status, leases.   [`fs`]: what is asked of a disk.
//! - [`inspect`]: look at what lies on a disk, by path.   [`doctor`]: whether a ring can live in a place.
//! - [`status`]: how a ring is doing.   [`history`]: its last swaps.   [`watch`], [`metrics`]: again and again.
//! - `convert`: other formats into records, and samples into other formats (feature `cli`).
//! - [`segment`]: files of samples; their bytes are in the crate `ringreel_format`.
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
//! generator.finish(true, &|| false)?; // true: what is there becomes visible, full or not
//!
//! let reader = Reader::open(&config)?;
//! let generation = reader.newest()?;
//! let sample = reader.sample(&generation, 1)?;
//! assert_eq!(&sample.parts[0].data()?[..], &[1; 3]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
#[cfg(feature = "cli")]
pub mod convert;
pub mod coordination;
pub mod doctor;
pub mod error;
pub mod escape;
pub mod failure_log;
pub mod fs;
pub mod generator;
pub mod heartbeat;
pub mod history;
pub mod humanize;
pub mod inspect;
pub mod layout;
pub mod manager;
mod memory;
pub mod metrics;
mod minutely;
mod random;
pub mod reader;
#[cfg(feature = "cli")]
pub mod report;
pub mod ring;
pub mod role;
pub mod sched;
pub mod segment;
pub mod status;
pub mod watch;

pub use config::Config;
pub use error::{Error, Result};
pub use generator::{Generator, NamedPart};
pub use reader::Reader;
pub use reader::input_split::{InputSplit, SplitOptions};
pub use reader::prefetch::Prefetch;
pub use reader::stream::{Stream, StreamOptions};
pub use ring::Ring;
pub use ringreel_format as format;
pub use role::Role;
pub use segment::SampleId;

/// Milliseconds since 1970, by this machine's clock. For people to read; never compared between machines.
pub fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
