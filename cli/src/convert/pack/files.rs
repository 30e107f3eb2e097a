//! Packs arrays and lines of text; each becomes a sample or a record.
//!
//! In RecordIO, an array becomes an `.npy` file, and a line its bytes. In a ring, an array becomes a tensor, and a line
//! bytes; the meta names the source file.

use super::array::{Array, read};
use super::inputs::{Input, where_they_are};
use super::target::{NewPart, Target};
use super::{Done, MAX_RECORD, Watch, skipped};
use crate::formats::npy::header;
use ringreel::error::{Error, FsError, Result};
use ringreel::sched::in_order;
use ringreel_format::{DType, Meta, Value};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Options of packing.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of reading threads.
    pub threads: usize,
    /// Fail at the first input that cannot be packed.
    pub strict: bool,
}

/// Packs arrays: one sample per input, with the parts `names`. Without `strict`, inputs that cannot be packed are skipped,
/// counted and logged.
///
/// # Errors
/// With `strict`, the first input that cannot be packed; the filesystem's errors for the output.
pub fn arrays(
    inputs: &[Input],
    names: &[String],
    mut target: Target<'_>,
    options: Options,
    watch: &Watch<'_>,
) -> Result<Done> {
    let mut done = Done::default();
    // Two folders may contain the same names, so the journal records absolute paths.
    let noted = |target: &Target<'_>, input: &Input| match target.has_journal() {
        true => where_they_are(&input.files),
        false => input.stem.clone(),
    };
    let left: Vec<&Input> = inputs.iter().filter(|input| !target.has(&noted(&target, input))).collect();
    done.kept = (inputs.len() - left.len()) as u64;
    (watch.total)(left.len() as u64);
    let as_records = matches!(target, Target::Rec(_));
    let work = |n: u64| sample(left[n as usize], names, as_records);
    let packed = in_order(0..left.len() as u64, options.threads, &work, |n, sample| {
        let input = left[n as usize];
        stopped(watch, &input.stem)?;
        (watch.step)();
        match sample {
            Ok((parts, meta)) => {
                let name = noted(&target, input);
                put(&mut target, &mut done, options, n, &name, &input.files[0], &parts, &meta)
            }
            Err((path, why)) => skipped(&mut done, options.strict, path, &why),
        }
    });
    ended(packed, target, done)
}

/// Packs lines of text, without line ends, in the order of the files.
///
/// # Errors
/// As [`arrays`].
pub fn lines(paths: &[PathBuf], mut target: Target<'_>, options: Options, watch: &Watch<'_>) -> Result<Done> {
    let (mut done, mut key) = (Done::default(), 0);
    let mut all = || -> Result<()> {
        for path in paths {
            let file = File::open(path).map_err(|error| FsError::new("open", path, error))?;
            let place = where_they_are(std::slice::from_ref(path));
            let mut file = BufReader::with_capacity(1 << 20, file);
            for number in 1u64.. {
                let mut line = Vec::new();
                let read = file.by_ref().take(MAX_RECORD + 1).read_until(b'\n', &mut line);
                if read.map_err(|error| FsError::new("read", path, error))? == 0 {
                    break;
                }
                if line.len() as u64 > MAX_RECORD {
                    return Err(Error::Sample(format!("{}: line {number} is too long for a record", path.display())));
                }
                let end =
                    line.strip_suffix(b"\n").map_or(line.len(), |line| line.strip_suffix(b"\r").unwrap_or(line).len());
                line.truncate(end);
                let name = format!("{place}:{number}");
                stopped(watch, &name)?;
                (watch.step)();
                if target.has(&name) {
                    done.kept += 1;
                    continue;
                }
                let mut meta = Meta::new();
                meta.set("file", path.to_string_lossy().as_ref());
                meta.set("line", number);
                let part = NewPart { dtype: DType::Bytes, shape: vec![line.len() as u64], data: line, record: None };
                put(&mut target, &mut done, options, key, &name, path, &[part], &meta)?;
                key += 1;
            }
        }
        Ok(())
    };
    let packed = all();
    ended(packed, target, done)
}

fn stopped(watch: &Watch<'_>, at: &str) -> Result<()> {
    if (watch.stop)() { Err(Error::Interrupted { what: format!("the end of the packing (at {at})") }) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)] // called for arrays and for lines
fn put(
    target: &mut Target<'_>,
    done: &mut Done,
    options: Options,
    key: u64,
    name: &str,
    path: &Path,
    parts: &[NewPart],
    meta: &Meta,
) -> Result<()> {
    match target.put(key, name, parts, meta) {
        Ok(()) => {
            done.samples += 1;
            Ok(())
        }
        Err(Error::Sample(why)) => skipped(done, options.strict, path, &why),
        Err(error) => Err(error),
    }
}

fn ended(packed: Result<()>, target: Target<'_>, mut done: Done) -> Result<Done> {
    match packed {
        Ok(()) => target.finish(&mut done).map(|()| done),
        Err(error) => {
            target.abandon(&error);
            Err(error)
        }
    }
}

type Loaded = (Vec<NewPart>, Meta);

fn sample<'a>(input: &'a Input, names: &[String], as_records: bool) -> std::result::Result<Loaded, (&'a Path, String)> {
    let (mut parts, mut about) = (Vec::new(), Meta::new());
    for (path, name) in input.files.iter().zip(names) {
        let Array { dtype, shape, mut data, mut meta } = read(path).map_err(|why| (path.as_path(), why))?;
        let mut record = None;
        if as_records {
            let header = header(&dtype, &shape).map_err(|error| (path.as_path(), error.to_string()))?;
            record = Some([&header, &data[..]].concat());
            data = Vec::new();
        }
        meta.set("file", path.to_string_lossy().as_ref());
        about.set(name.as_str(), Value::Map(meta));
        parts.push(NewPart { dtype, shape, data, record });
    }
    let mut meta = Meta::new();
    meta.set("input", input.stem.as_str());
    meta.set("files", Value::Map(about));
    Ok((parts, meta))
}
