//! Creates and opens rings. `ring.json` and the empty manifest 0 are published once each; the
//! process that loses the race uses the winner's files, or fails if they do not match its
//! configuration.

use crate::config::Config;
use crate::error::{Error, FsError, REPAIR_COMMAND, Result};
use crate::fs::atomic_publish::{publish, publish_by};
use crate::fs::{Fs, surely};
use crate::layout::{DIRECTORIES, Layout, SCRATCH, parse_number};
use crate::manifest::store::Manifests;
use crate::manifest::{Manifest, Summary};
use crate::random::random_u32;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::time::Duration;

/// The version of the ring layout that this crate writes and reads.
pub const RING_VERSION: u32 = 1;

/// How often the creation of a ring is tried when it fails with a transient error, and the first
/// pause between two attempts.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// The contents of `ring.json`, which never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingDescriptor {
    /// Version of the ring layout.
    pub ringreel: u32,
    /// Random id of the ring.
    pub ring_id: String,
    /// Maximum number of samples in a generation.
    pub swap_cap: u64,
    /// Names of the parts, in order.
    pub sample: Vec<String>,
    /// How a segment gets into a generation; always `link`.
    pub publish: String,
    /// Number of samples at the start of the ring that are held out for validation: they are never
    /// reclaimed and never served for training.
    #[serde(default, skip_serializing_if = "crate::manifest::is_zero")]
    pub validation: u64,
}

/// Reads `ring.json`. Returns `None` if it does not exist.
///
/// # Errors
/// A ring of another version; an invalid `ring.json`; filesystem errors.
pub fn read(fs: &dyn Fs, layout: &Layout) -> Result<Option<RingDescriptor>> {
    let path = layout.root().to_owned();
    let wrong = |message: String| Error::RingMismatch { path: path.clone(), message };
    let bytes = match fs.read(&layout.ring_json(), 1 << 20) {
        Ok(bytes) => bytes,
        // A stale handle does not prove that the ring is missing.
        Err(error) if error.is_gone() && !error.is_stale() => return Ok(None),
        Err(error) if error.source.kind() == ErrorKind::NotADirectory => return Err(no_directory(layout)),
        Err(error) => return Err(error.into()),
    };
    let damaged = |why: &str| wrong(format!("its ring.json is damaged ({why}); run {REPAIR_COMMAND} to rebuild it"));
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    let version = value.get("ringreel").and_then(serde_json::Value::as_u64).ok_or_else(|| damaged("no version"))?;
    if version != u64::from(RING_VERSION) {
        return Err(wrong(format!(
            "it has version {version}, this program uses version {RING_VERSION}: use a ringreel of that version, or \
             another RING"
        )));
    }
    let descriptor: RingDescriptor = serde_json::from_value(value).map_err(|error| damaged(&error.to_string()))?;
    if descriptor.publish != "link" {
        return Err(wrong(format!(
            "its segments are published by {:?}, but this program supports only `link`",
            descriptor.publish
        )));
    }
    if descriptor.swap_cap == 0 || descriptor.sample.is_empty() {
        return Err(damaged("no parts or no cap"));
    }
    Ok(Some(descriptor))
}

/// Returns the error for a directory without `ring.json`. If it has manifests of generations, a
/// ring lost its `ring.json`; otherwise no ring was created here yet.
pub fn missing(fs: &dyn Fs, layout: &Layout) -> Error {
    let path = layout.root().to_owned();
    let dir = layout.manifests();
    let names = surely(fs, &dir, || fs.list(&dir)).unwrap_or_default();
    // While another process creates the ring, this client may see manifest 0 before `ring.json`.
    if names.iter().filter_map(|name| parse_number(name)).any(|n| n > 0) {
        let message = format!("its ring.json is missing; run {REPAIR_COMMAND} to rebuild it");
        return Error::RingMismatch { path, message };
    }
    Error::RingNotFound { path }
}

/// Returns whether `ring.json` exists and has a version other than [`RING_VERSION`].
pub fn is_of_another_version(fs: &dyn Fs, layout: &Layout) -> bool {
    let json = fs.read(&layout.ring_json(), 1 << 20).ok();
    let value = json.and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    let version = value.and_then(|value| value.get("ringreel")?.as_u64());
    version.is_some_and(|version| version != u64::from(RING_VERSION))
}

/// Checks that the configuration matches the ring.
///
/// # Errors
/// [`Error::RingMismatch`] with the key that differs, both values, and what to do.
pub fn check(descriptor: &RingDescriptor, config: &Config) -> Result<()> {
    let differs = |key: &str, is: &str, says: &str, advice: &str| {
        let message = format!("it was made with {key} {is}, but the configuration has {key} {says}: {advice}");
        Err(Error::RingMismatch { path: config.ring.clone(), message })
    };
    if let Some(says) = config.swap_cap.filter(|says| *says != descriptor.swap_cap) {
        let is = descriptor.swap_cap.to_string();
        return differs("SWAP_CAP", &is, &says.to_string(), &format!("use {is}, or another RING"));
    }
    if let Some(says) = config.validation.filter(|says| *says != descriptor.validation) {
        let is = descriptor.validation.to_string();
        let advice = format!("use {is}, remove the key, or use another RING");
        return differs("VALIDATION", &is, &says.to_string(), &advice);
    }
    if let Some(says) = config.sample.as_ref().filter(|says| **says != descriptor.sample) {
        let (is, says) = (format!("[{}]", descriptor.sample.join(", ")), format!("[{}]", says.join(", ")));
        return differs("SAMPLE", &is, &says, "use the same parts, or another RING");
    }
    Ok(())
}

/// Opens the ring that the configuration describes, or creates it.
///
/// # Errors
/// A directory that cannot be created; a ring that does not match the configuration. Empty
/// directories of a failed creation are removed.
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
            // Another process may be creating the ring at the same time. On GlusterFS, one create
            // in about a thousand has no winner.
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
    let message = "it is not a directory and cannot hold a ring: choose another directory for RING".to_owned();
    Error::Config { origin: layout.root().display().to_string(), message }
}

fn make(fs: &dyn Fs, layout: &Layout, config: &Config, owner: &str) -> Result<RingDescriptor> {
    let missing = |key: &str| Error::Config {
        origin: layout.root().display().to_string(),
        message: format!("no ring exists here yet; to create one, set {key} in the configuration"),
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
                format!("the parent directory of the ring does not exist: create it, or change RING ({error})");
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

/// Returns the bytes of `ring.json`.
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
    // Removes only empty directories, because another process may be creating the same ring right
    // now.
    let _ = fs.remove_dir(&layout.staging_of(owner));
    for name in DIRECTORIES {
        let _ = fs.remove_dir(&layout.root().join(name));
    }
    let _ = fs.remove_dir(layout.root());
}

/// Returns whether a process may create a directory of this name before `ring.json` exists: one of
/// the ring's directories, or one of a filesystem probe.
pub fn is_of_a_birth(name: &str) -> bool {
    DIRECTORIES.contains(&name) || name == "write.1" || name.starts_with(SCRATCH)
}

/// Fails if the directory holds files that are not a ring's.
fn refuse_foreign(fs: &dyn Fs, layout: &Layout) -> Result<()> {
    // A false "not found" is returned as an error, because an empty list would let a ring be created
    // among foreign files.
    let names = fs.list(layout.root()).map_err(|error| match error.source.kind() {
        ErrorKind::NotADirectory | ErrorKind::NotFound => no_directory(layout),
        _ => error.into(),
    })?;
    if names.iter().any(|name| name == "ring.json") {
        return Ok(()); // another process created the ring meanwhile
    }
    if let lost @ Error::RingMismatch { .. } = missing(fs, layout) {
        return Err(lost);
    }
    match names.iter().find(|name| !is_of_a_birth(name)) {
        Some(stray) => Err(Error::RingMismatch {
            path: layout.root().to_owned(),
            message: format!(
                "it is not a ring and contains other files ({stray:?}): choose an empty or new directory for RING"
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
