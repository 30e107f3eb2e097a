//! Arrays and lines of text into RecordIO: an array becomes an `.npy` file, whatever it was before, a line its bytes.

use super::array::{Array, read};
use super::inputs::Input;
use super::{Done, MAX_RECORD, Watch, skipped};
use crate::convert::output::RecFile;
use crate::formats::npy::header;
use ringreel::error::{Error, FsError, Result};
use ringreel::sched::in_order;
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

/// Packs arrays: a record of each input, the first file of which is read.
///
/// # Errors
/// With `strict`, the first input that cannot be packed; what the filesystem says of what is written. Without it, such
/// inputs are skipped, counted and logged.
pub fn arrays(inputs: &[Input], mut out: RecFile, options: Options, watch: &Watch<'_>) -> Result<Done> {
    let mut done = Done::default();
    (watch.total)(inputs.len() as u64);
    let work = |n: u64| record(&inputs[n as usize].files[0]);
    in_order(0..inputs.len() as u64, options.threads, &work, |n, record| {
        let input = &inputs[n as usize];
        stopped(watch, &input.stem)?;
        (watch.step)();
        match record {
            Ok(record) => {
                done.samples += 1;
                out.write(n, &record)
            }
            Err(why) => skipped(&mut done, options.strict, &input.files[0], &why),
        }
    })?;
    done.take(out.finish()?);
    Ok(done)
}

/// Packs lines of text, without line ends, in the order of the files.
///
/// # Errors
/// As [`arrays`]; a line that is longer than a record can be.
pub fn lines(paths: &[PathBuf], mut out: RecFile, watch: &Watch<'_>) -> Result<Done> {
    let mut done = Done::default();
    for path in paths {
        each_line(path, &mut |number, line| {
            stopped(watch, &format!("{}:{number}", path.display()))?;
            (watch.step)();
            out.write(done.samples, &line)?;
            done.samples += 1;
            Ok(())
        })?;
    }
    done.take(out.finish()?);
    Ok(done)
}

/// Gives each line of a file, without its end, to `take`, with its number from 1 on.
///
/// # Errors
/// The error of `take`; a line that is longer than a record can be; what the filesystem says.
pub fn each_line(path: &Path, take: &mut dyn FnMut(u64, Vec<u8>) -> Result<()>) -> Result<()> {
    let file = File::open(path).map_err(|error| FsError::new("open", path, error))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    for number in 1u64.. {
        let mut line = Vec::new();
        let read = file.by_ref().take(MAX_RECORD + 1).read_until(b'\n', &mut line);
        if read.map_err(|error| FsError::new("read", path, error))? == 0 {
            break;
        }
        if line.len() as u64 > MAX_RECORD {
            return Err(Error::Sample(format!("{}: line {number} is longer than a record can be", path.display())));
        }
        let end = line.strip_suffix(b"\n").map_or(line.len(), |line| line.strip_suffix(b"\r").unwrap_or(line).len());
        line.truncate(end);
        take(number, line)?;
    }
    Ok(())
}

fn stopped(watch: &Watch<'_>, at: &str) -> Result<()> {
    if (watch.stop)() { Err(Error::Interrupted { what: format!("the end of the packing (at {at})") }) } else { Ok(()) }
}

fn record(path: &Path) -> std::result::Result<Vec<u8>, String> {
    let Array { dtype, shape, data, .. } = read(path)?;
    let header = header(&dtype, &shape).map_err(|error| error.to_string())?;
    let record = [&header, &data[..]].concat();
    if record.len() as u64 > MAX_RECORD { Err("it is longer than a record can be".to_owned()) } else { Ok(record) }
}
