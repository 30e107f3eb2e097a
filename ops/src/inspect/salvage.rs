//! Copies the intact samples of damaged segments that manifests list into new segments outside the ring. (Inside the ring,
//! samples that are still readable would be delivered twice.)

use super::samples::careful;
use super::verify_file::{self, whole};
use ringreel::error::{Error, Result};
use ringreel::fs::{Fs, FsError};
use ringreel::layout::{Layout, read_generations};
use ringreel::manifest::store::Manifests;
use ringreel::random::random_u32;
use ringreel_format::{
    FormatError, PartRef, Salvage, SalvageItem, SalvagedSample, SampleRef, SegmentId, SegmentInfo, SegmentWriter,
    WriteOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A damaged segment, and its salvaged samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The damaged file.
    pub path: PathBuf,
    /// The new file; `None` if no sample is intact.
    pub to: Option<PathBuf>,
    /// Number of samples in the new file.
    pub samples: u64,
    /// Number of samples that the manifest lists.
    pub of: u64,
    /// Size of the new file in bytes.
    pub bytes: u64,
}

/// Verifies all segments that the manifests of a ring list, and writes the intact samples of each damaged one into a new
/// segment in `dir`, which is created if missing. Calls `begin` with the number of bytes to read, and `progress` with the
/// bytes read since its last call.
///
/// # Errors
/// A directory inside the ring; the filesystem's errors.
pub fn salvage(
    fs: &Arc<dyn Fs>,
    layout: &Layout,
    dir: &Path,
    begin: &dyn Fn(u64),
    progress: &dyn Fn(u64),
) -> Result<Vec<Saved>> {
    let manifests = Manifests::new(fs.clone(), layout.clone());
    let mut listed = Vec::new();
    for n in read_generations(&fs.list(layout.root())?) {
        let manifest = match manifests.get(n) {
            Ok(Some(manifest)) => manifest,
            Ok(None) | Err(Error::Manifest { .. }) => continue,
            Err(error) => return Err(error),
        };
        let entries = manifest.segments.iter();
        listed.extend(entries.map(|entry| (layout.read(n).join(entry.file()), entry.bytes, entry.samples)));
    }
    begin(listed.iter().fold(0, |sum, (_, bytes, _)| bytes.saturating_add(sum)));
    listed.sort();
    let mut saved = Vec::new();
    for (path, bytes, of) in listed {
        let checked = match verify_file::segment(&**fs, &path) {
            Ok(checked) => checked,
            Err(Error::Fs { source }) if source.is_gone() => continue, // missing or reclaimed
            Err(error) => {
                tracing::error!("cannot salvage this segment, continuing with the others: {error}");
                saved.push(Saved { path, to: None, samples: 0, of, bytes: 0 });
                continue;
            }
        };
        if !checked.findings.is_empty() {
            outside(fs, layout, dir)?;
            saved.push(save(&**fs, path, of, dir)?);
        }
        progress(bytes);
    }
    Ok(saved)
}

/// Creates the directory. Fails if it is inside the ring.
fn outside(fs: &Arc<dyn Fs>, layout: &Layout, dir: &Path) -> Result<()> {
    let dir = std::path::absolute(dir).map_err(|error| FsError::new("stat", dir, error))?;
    let real = |path: &Path| std::fs::canonicalize(path).map_err(|error| FsError::new("stat", path, error));
    let there = dir.ancestors().find(|above| fs.exists(above).unwrap_or(false)).unwrap_or(&dir);
    if real(there)?.starts_with(real(layout.root())?) {
        let message = format!("--salvage {}: the directory is inside the ring: choose another one", dir.display());
        return Err(Error::Sample(message));
    }
    Ok(fs.ensure_dir(&dir)?)
}

fn save(fs: &dyn Fs, path: PathBuf, of: u64, dir: &Path) -> Result<Saved> {
    let mut salvage = Salvage::new(whole(fs, &path)?, careful());
    let mut saved = Saved { path, to: None, samples: 0, of, bytes: 0 };
    let Some(info) = salvage.info().cloned() else { return Ok(saved) };
    let random = || u128::from(random_u32());
    let id = SegmentId(((random() << 96) | (random() << 64) | (random() << 32) | random()).to_be_bytes());
    let to = dir.join(format!("{id}.rec"));
    let failed = |error: FormatError| Error::format("write", &to)(error);
    let mut file = fs.create_new(&to)?;
    let info = SegmentInfo { id, ..info };
    let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default()).map_err(failed)?;
    for found in &mut salvage {
        if let SalvageItem::Sample(sample) = found
            && let Some(parts) = parts_of(&sample)
        {
            let sample = SampleRef { parts: &parts, meta: &sample.meta, unix_ms: sample.unix_ms };
            writer.sample(&mut file, &sample).map_err(failed)?;
        }
    }
    let sealed = writer.finish(&mut file).map_err(failed)?;
    file.sync()?;
    file.close()?;
    if sealed.samples == 0 {
        fs.forget_file(&to)?;
        return Ok(saved);
    }
    (saved.to, saved.samples, saved.bytes) = (Some(to), sealed.samples, sealed.len);
    Ok(saved)
}

/// Returns the parts of a sample; `None` if one is damaged.
fn parts_of(sample: &SalvagedSample) -> Option<Vec<PartRef<'_>>> {
    let mut parts = Vec::new();
    for part in &sample.parts {
        let part = part.as_ref().ok()?;
        parts.push(PartRef::new(part.dtype.clone(), &part.shape, part.data().ok()?));
    }
    Some(parts)
}
