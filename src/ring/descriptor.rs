//! The birth of a ring: `ring.json` and the empty manifest 0 are published once each; the first one wins, and all
//! others use what is there or refuse to go on.

use crate::config::Config;
use crate::error::{Error, FsError, REPAIR, Result};
use crate::fs::atomic_publish::{publish, publish_by};
use crate::fs::{Fs, surely};
use crate::layout::{DIRECTORIES, Layout, SCRATCH, parse_number};
use crate::manifest::store::Manifests;
use crate::manifest::{Manifest, Summary};
use crate::random::random_u32;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::time::Duration;

/// Version of a ring's layout that is made and used.
pub const RING_VERSION: u32 = 1;

/// How often the birth is tried when something passes by, and the first pause between.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// `ring.json`: what a ring is, once and for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingDescriptor {
    /// Version of the layout.
    pub ringreel: u32,
    /// Random name of the ring.
    pub ring_id: String,
    /// Samples in a generation.
    pub swap_cap: u64,
    /// Names of the parts, in order.
    pub sample: Vec<String>,
    /// How a segment comes into a generation: `link`.
    pub publish: String,
    /// So many samples, the ring's first, are held out: kept, and not served for training.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub validation: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Reads `ring.json`; none where there is no ring.
///
/// # Errors
/// A ring of another version; a file that is no `ring.json`; what the filesystem says.
pub fn read(fs: &dyn Fs, layout: &Layout) -> Result<Option<RingDescriptor>> {
    let path = layout.root().to_owned();
    let wrong = |message: String| Error::RingMismatch { path: path.clone(), message };
    let bytes = match fs.read(&layout.ring_json(), 1 << 20) {
        Ok(bytes) => bytes,
        // A stale handle does not say that there is no ring.
        Err(error) if error.is_gone() && !error.is_stale() => return Ok(None),
        Err(error) if error.source.kind() == ErrorKind::NotADirectory => return Err(no_directory(layout)),
        Err(error) => return Err(error.into()),
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|error| wrong(format!("its ring.json is damaged ({error}): {REPAIR} makes it again")))?;
    match value.get("ringreel").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(RING_VERSION) => {}
        Some(version) => {
            return Err(wrong(format!(
                "it has version {version}, this program uses version {RING_VERSION}: use a ringreel of that version, or another RING"
            )));
        }
        None => return Err(wrong(format!("its ring.json is damaged (it names no version): {REPAIR} makes it again"))),
    }
    let descriptor: RingDescriptor = serde_json::from_value(value)
        .map_err(|error| wrong(format!("its ring.json is damaged ({error}): {REPAIR} makes it again")))?;
    if descriptor.publish != "link" {
        return Err(wrong(format!(
            "its segments are published by {:?}, this program knows `link`",
            descriptor.publish
        )));
    }
    if descriptor.swap_cap == 0 || descriptor.sample.is_empty() {
        return Err(wrong(format!("its ring.json is damaged (it names no parts or no cap): {REPAIR} makes it again")));
    }
    Ok(Some(descriptor))
}

/// What to say of a directory without `ring.json`: manifests of generations prove that it is a ring
/// which lost it; else there is none (yet).
pub fn missing(fs: &dyn Fs, layout: &Layout) -> Error {
    let path = layout.root().to_owned();
    let dir = layout.manifests();
    let names = surely(fs, &dir, || fs.list(&dir)).unwrap_or_default();
    // Manifest 0 alone may be seen before ring.json, while another process makes the ring.
    if names.iter().filter_map(|name| parse_number(name)).any(|n| n > 0) {
        let message = format!("its ring.json is missing: {REPAIR} makes it again");
        return Error::RingMismatch { path, message };
    }
    Error::RingNotFound { path }
}

/// Whether there is a `ring.json` that names another version than ours.
pub fn is_of_another_version(fs: &dyn Fs, layout: &Layout) -> bool {
    let json = fs.read(&layout.ring_json(), 1 << 20).ok();
    let value = json.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    let version = value.and_then(|value| value.get("ringreel")?.as_u64());
    version.is_some_and(|version| version != u64::from(RING_VERSION))
}

/// Whether what the user configured is what the ring is.
///
/// # Errors
/// Names the key that differs, both values, and what to do.
pub fn check(descriptor: &RingDescriptor, config: &Config) -> Result<()> {
    let wrong = |message: String| Error::RingMismatch { path: config.ring.clone(), message };
    match config.swap_cap {
        Some(cap) if cap != descriptor.swap_cap => {
            let is = descriptor.swap_cap;
            return Err(wrong(format!(
                "it was made with SWAP_CAP {is}, the configuration says {cap}: use {is}, or another RING"
            )));
        }
        _ => {}
    }
    match config.validation {
        Some(says) if says != descriptor.validation => {
            let is = descriptor.validation;
            return Err(wrong(format!(
                "it was made with VALIDATION {is}, the configuration says {says}: use {is}, or leave the key out, or \
                 use another RING"
            )));
        }
        _ => {}
    }
    match &config.sample {
        Some(sample) if *sample != descriptor.sample => {
            let (is, says) = (descriptor.sample.join(", "), sample.join(", "));
            Err(wrong(format!(
                "it was made with SAMPLE [{is}], the configuration says [{says}]: use the same, or another RING"
            )))
        }
        _ => Ok(()),
    }
}

/// Finds the ring that the configuration describes, or makes it.
///
/// # Errors
/// A directory that cannot be made; a ring that does not fit. What was begun is taken back.
pub fn find_or_make(
    fs: &dyn Fs,
    layout: &Layout,
    config: &Config,
    owner: &str,
    manifests: &Manifests,
) -> Result<RingDescriptor> {
    let mut attempt = 0;
    let descriptor = loop {
        attempt += 1;
        match read(fs, layout)? {
            Some(descriptor) => break descriptor,
            // Another one may be making it just now, and on some filesystems, once in a thousand times, nobody wins.
            None => match make(fs, layout, config, owner) {
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => std::thread::sleep(PAUSE * attempt),
                other => break other?,
            },
        }
    };
    check(&descriptor, config)?;
    if manifests.numbers()?.is_empty() {
        first_generation(fs, layout, &descriptor, owner)?;
    }
    Ok(descriptor)
}

fn no_directory(layout: &Layout) -> Error {
    let message = "it is no directory, and cannot hold a ring: choose another directory for RING".to_owned();
    Error::Config { origin: layout.root().display().to_string(), message }
}

fn make(fs: &dyn Fs, layout: &Layout, config: &Config, owner: &str) -> Result<RingDescriptor> {
    let missing = |key: &str| Error::Config {
        origin: layout.root().display().to_string(),
        message: format!("there is no ring here yet, and to make one {key} is needed in the configuration"),
    };
    let descriptor = RingDescriptor {
        ringreel: RING_VERSION,
        ring_id: (0..4).map(|_| format!("{:08x}", random_u32())).collect(),
        swap_cap: config.swap_cap.ok_or_else(|| missing("SWAP_CAP"))?,
        sample: config.sample.clone().ok_or_else(|| missing("SAMPLE"))?,
        publish: "link".to_owned(),
        validation: config.validation.unwrap_or(0),
    };
    let made = match fs.make_dir(layout.root()) {
        Ok(()) => true,
        Err(error) if error.is_taken() => {
            refuse_foreign(fs, layout)?;
            false
        }
        Err(error) if error.is_gone() && !error.is_stale() => {
            let message =
                format!("the directory that is to hold the ring does not exist: make it, or change RING ({error})");
            return Err(Error::Config { origin: layout.root().display().to_string(), message });
        }
        Err(error) => return Err(error.into()),
    };
    match fill(fs, layout, &descriptor, owner) {
        Ok(()) => read(fs, layout)?.ok_or_else(|| Error::RingNotFound { path: layout.root().to_owned() }),
        Err(error) => {
            if made && !fs.exists(&layout.ring_json()).unwrap_or(true) {
                take_back(fs, layout, owner);
            }
            Err(error)
        }
    }
}

fn fill(fs: &dyn Fs, layout: &Layout, descriptor: &RingDescriptor, owner: &str) -> Result<()> {
    for name in DIRECTORIES {
        fs.ensure_dir(&layout.root().join(name))?;
    }
    fs.ensure_dir(&layout.staging_of(owner))?;
    let temp = layout.staging_of(owner).join(format!("ring.json.{:08x}", random_u32()));
    publish(fs, &temp, &layout.ring_json(), &encode(descriptor)?, true).map_err(no_links)?;
    fs.sync_dir(layout.root())?;
    Ok(())
}

/// The bytes of `ring.json`.
pub fn encode(descriptor: &RingDescriptor) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(descriptor).map_err(|error| Error::Sample(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn no_links(error: FsError) -> Error {
    const ENOTSUP: i32 = 95;
    let refused = matches!(error.source.raw_os_error(), Some(ENOTSUP | 1 | 38));
    if error.op == "link" && refused {
        let message = format!(
            "this filesystem has no hard links, which a ring needs ({error}): choose another directory for RING"
        );
        return Error::Config { origin: error.path.display().to_string(), message };
    }
    error.into()
}

fn take_back(fs: &dyn Fs, layout: &Layout, owner: &str) {
    // Only what is empty goes: somebody else may be making the same ring at this moment.
    let _ = fs.remove_dir(&layout.staging_of(owner));
    for name in DIRECTORIES {
        let _ = fs.remove_dir(&layout.root().join(name));
    }
    let _ = fs.remove_dir(layout.root());
}

/// Whether a directory with this name may be where a ring is about to be made: one of its own, or where somebody measures.
pub fn is_of_a_birth(name: &str) -> bool {
    DIRECTORIES.contains(&name) || name == "write.1" || name.starts_with(SCRATCH)
}

/// A directory that holds other things is not made a ring of.
fn refuse_foreign(fs: &dyn Fs, layout: &Layout) -> Result<()> {
    // A wrong no is an error here.
    let names = fs.list(layout.root()).map_err(|error| match error.source.kind() {
        ErrorKind::NotADirectory | ErrorKind::NotFound => no_directory(layout),
        _ => error.into(),
    })?;
    if names.iter().any(|name| name == "ring.json") {
        return Ok(()); // somebody was faster
    }
    if let lost @ Error::RingMismatch { .. } = missing(fs, layout) {
        return Err(lost);
    }
    match names.iter().find(|name| !is_of_a_birth(name)) {
        Some(stray) => Err(Error::RingMismatch {
            path: layout.root().to_owned(),
            message: format!(
                "it is no ring, and holds other things ({stray:?}): choose an empty or a new directory for RING"
            ),
        }),
        None => Ok(()),
    }
}

fn first_generation(fs: &dyn Fs, layout: &Layout, descriptor: &RingDescriptor, owner: &str) -> Result<()> {
    for name in DIRECTORIES {
        fs.ensure_dir(&layout.root().join(name))?;
    }
    fs.ensure_dir(&layout.write(1))?;
    fs.ensure_dir(&layout.staging_of(owner))?;
    let summary = Summary::empty(&descriptor.ring_id, owner);
    let manifest = Manifest::new(summary, Vec::new());
    let temp = layout.staging_of(owner).join(format!("manifest.0.{:08x}", random_u32()));
    publish_by(fs, &temp, &layout.manifest(0), &|file| manifest.write_to(file), true)?;
    fs.sync_dir(&layout.manifests())?;
    Ok(())
}
