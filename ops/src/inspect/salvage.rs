//! What is left of damaged segments that manifests list, written into new segments elsewhere. Never into the ring: what
//! can still be read there would be delivered twice.

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

/// A damaged segment, and what was saved of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The damaged file.
    pub path: PathBuf,
    /// The new one; none where no sample is whole.
    pub to: Option<PathBuf>,
    /// Samples in it.
    pub samples: u64,
    /// Samples that the manifest lists.
    pub of: u64,
    /// Bytes of the new file.
    pub bytes: u64,
}

/// Reads every byte of what the manifests of a ring list, and writes what is whole of each damaged segment into a new
/// one in `dir`, which is made where it is not there. `begin` hears how many bytes there are, `progress` how many more
/// were read.
///
/// # Errors
/// A directory in the ring; what the filesystem says.
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
            Err(Error::Fs { source }) if source.is_gone() => continue, // missing, or reclaimed: nothing is left of it
            Err(error) => {
                tracing::error!("{error}: nothing of it is saved; the others are");
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

/// Makes the directory; an error where it lies in the ring.
fn outside(fs: &Arc<dyn Fs>, layout: &Layout, dir: &Path) -> Result<()> {
    let dir = std::path::absolute(dir).map_err(|error| FsError::new("stat", dir, error))?;
    let real = |path: &Path| std::fs::canonicalize(path).map_err(|error| FsError::new("stat", path, error));
    let there = dir.ancestors().find(|above| fs.exists(above).unwrap_or(false)).unwrap_or(&dir);
    if real(there)?.starts_with(real(layout.root())?) {
        let message = format!("--salvage {}: this directory lies in the ring: choose another one", dir.display());
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

/// The parts of a sample; none where one of them is not whole.
fn parts_of(sample: &SalvagedSample) -> Option<Vec<PartRef<'_>>> {
    let mut parts = Vec::new();
    for part in &sample.parts {
        let part = part.as_ref().ok()?;
        parts.push(PartRef::new(part.dtype.clone(), &part.shape, part.data().ok()?));
    }
    Some(parts)
}
