//! `ringreel cat`

use super::output::file_of;
use super::target_args::{Pick, failed};
use crate::formats::json::meta_json;
use crate::formats::png::Slice;
use crate::formats::{json, nifti, npy, npz, png};
use clap::{Args, ValueEnum};
use ringreel::error::Error;
use ringreel::read::ReadPart;
use ringreel_format::recordio::image::Image;
use ringreel_format::{DType, Part};
use ringreel_ops::inspect::samples::{Item, Samples};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Name of the pseudo-part with the image in a record.
const IMAGE: &str = "image";

/// Arguments of `ringreel cat`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel cat demo.ring -n 3 --part data -o data.npy      write one part, for numpy.load
  ringreel cat demo.ring -n 3 -o sample.npz                write a whole sample
  ringreel cat demo.ring/read.7 -n 0 --part data -o v.nii  write a volume, for a NIfTI viewer
  ringreel cat demo.ring --part data --axis 2 --slice 40 -o slice.png
  ringreel cat demo.ring --id 0a...1f.3 --as json | jq .meta
  ringreel cat 000017.rec --part label --as raw | xxd | head
  ringreel cat train.rec -n 12 --part image -o 12.jpg
                                            write the image of an MXNet record, without its header

The file name extension selects the format: .npy, .npz, .nii, .png or .json; any other extension
means raw. A record of a RecordIO file has one part, `record`, with its payload; of an MXNet image
record, the part `image` is the payload without the header (IRHeader). A bfloat16 part becomes
2-byte void elements in .npy and .npz (view them as ml_dtypes.bfloat16), and f32 in .nii.

Cat writes only the output file and does not use the index.
Exit status: 0 success, 1 the sample is damaged or the output could not be written, 2 the
arguments are invalid or the path could not be read.")]
pub struct Options {
    #[command(flatten)]
    pub pick: Pick,
    /// Write only this part; required for a sample of several parts, except with npz and json
    #[arg(short, long, value_name = "NAME")]
    part: Option<String>,
    /// Write to this file, which must not exist; `-` means stdout [default: -]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// Output format [default: by the file name extension]
    #[arg(long = "as", value_name = "FORMAT")]
    format: Option<Format>,
    /// For png of a volume: slice along this axis, from 0 [default: 0]
    #[arg(long, value_name = "N")]
    axis: Option<usize>,
    /// For png of a volume: index of the slice, from 0 [default: the middle]
    #[arg(long, value_name = "N")]
    slice: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Elements without a header: little-endian, row-major
    Raw,
    /// One NumPy array
    Npy,
    /// Archive of several NumPy arrays
    Npz,
    /// NIfTI-1, single file, uncompressed
    Nii,
    /// Image, or one slice of a volume, scaled to its value range
    Png,
    /// Text: dtype, shape and values; for a whole sample also its meta
    Json,
}

/// Writes one sample or one part.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    Ok(give(options).map_or_else(|error| failed(&error), |()| 0))
}

fn give(options: &Options) -> anyhow::Result<()> {
    let format = options.format()?;
    if file_of(options.output.as_deref()).is_none() && format != Format::Json && io::stdout().is_terminal() {
        let why = "the output is binary and stdout is a terminal: write it to a file (-o PATH) or a pipe, or use --as \
                   json";
        return Err(Error::Sample(why.to_owned()).into());
    }
    let (fs, subject) = options.pick.subject()?;
    let samples = Samples::open(fs, &subject)?;
    crate::render::samples::warn(&samples);
    let item = samples.get(options.pick.position(&samples)?)?;
    let parts = options.parts(&item, format)?;
    match file_of(options.output.as_deref()) {
        None => options.write(format, &item, &parts, &mut io::stdout().lock())?,
        Some(path) => {
            let mut target = Target { path, force: options.force, file: None };
            let done = options.write(format, &item, &parts, &mut target).and_then(|()| target.finish());
            done.inspect_err(|_| target.forget())?;
        }
    }
    Ok(())
}

impl Options {
    fn format(&self) -> anyhow::Result<Format> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let name =
            self.output.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().to_lowercase();
        Ok(match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            "nii" => Format::Nii,
            "png" => Format::Png,
            "json" => Format::Json,
            "gz" => {
                let why = format!("{name}: cannot write compressed files: leave out .gz, and compress it afterwards");
                return Err(Error::Sample(why).into());
            }
            _ => Format::Raw,
        })
    }

    /// Returns the selected parts.
    fn parts(&self, item: &Item, format: Format) -> anyhow::Result<Vec<ReadPart>> {
        let names: Vec<&str> = item.parts.iter().map(|part| &*part.name).collect();
        let Some(name) = &self.part else {
            if item.parts.len() == 1 || matches!(format, Format::Npz | Format::Json) {
                return Ok(item.parts.clone());
            }
            let why = format!(
                "sample {} has {} parts ({}): select one (--part NAME), or write all (--as npz or --as json)",
                item.position,
                names.len(),
                names.join(", ")
            );
            return Err(Error::Sample(why).into());
        };
        if let Some(part) = item.parts.iter().find(|part| part.name == *name) {
            return Ok(vec![part.clone()]);
        }
        match &item.parts[..] {
            [record] if item.id.is_none() && name == IMAGE => Ok(vec![image(record)?]),
            _ => Err(Error::Sample(format!("no part {name:?}: the parts are {}", names.join(", "))).into()),
        }
    }

    fn write(&self, format: Format, item: &Item, parts: &[ReadPart], out: &mut dyn Write) -> io::Result<()> {
        if let Some(part) = parts.iter().find(|part| part.dtype == DType::BF16)
            && matches!(format, Format::Npy | Format::Npz)
        {
            tracing::info!("NumPy has no bfloat16: view part {} as ml_dtypes.bfloat16", part.name);
        }
        match (format, parts) {
            (Format::Npz, parts) => npz::write(parts, out),
            (Format::Json, [part]) if self.part.is_some() => {
                json::write(part, out)?;
                out.write_all(b"\n")
            }
            (Format::Json, parts) => sample_json(item, parts, out),
            (Format::Raw, [part]) => {
                out.write_all(part.data().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?)
            }
            (Format::Npy, [part]) => npy::write(part, out),
            (Format::Nii, [part]) => {
                let of = item.id.map_or_else(|| format!("record {}", item.position), |id| id.to_string());
                nifti::write(part, &format!("ringreel {of} {}", part.name), out)
            }
            (Format::Png, [part]) => {
                let notes = png::write(part, Slice { axis: self.axis, place: self.slice }, out)?;
                notes.iter().for_each(|note| tracing::info!("{note}"));
                Ok(())
            }
            _ => Ok(()), // not reached: one part is selected
        }?;
        out.flush()
    }
}

/// Returns what follows the header of an MXNet image record.
fn image(record: &ReadPart) -> anyhow::Result<ReadPart> {
    let payload = record.data()?;
    let no = || Error::Sample("not an MXNet image record: shorter than the header and the labels".into());
    let content = payload.slice_ref(Image::decode(payload).map_err(|_| no())?.content);
    let part =
        Part::new(DType::Bytes, vec![content.len() as u64], content).map_err(|e| Error::Sample(e.to_string()))?;
    Ok(ReadPart { name: IMAGE.to_owned(), part })
}

fn sample_json(item: &Item, parts: &[ReadPart], out: &mut dyn Write) -> io::Result<()> {
    let text = |text: &str| serde_json::Value::from(text);
    let id = item.id.map_or(serde_json::Value::Null, |id| id.to_string().into());
    let file = text(&item.file.to_string_lossy());
    let meta = meta_json(&item.meta);
    write!(out, "{{\"position\": {}, \"id\": {id}, \"file\": {file}, \"meta\": {meta}, \"parts\": {{", item.position)?;
    for (n, part) in parts.iter().enumerate() {
        write!(out, "{}{}: ", if n > 0 { ", " } else { "" }, text(&part.name))?;
        json::write(part, out)?;
    }
    out.write_all(b"}}\n")
}

/// The output file. It is created at the first byte, so that an error before leaves no file.
struct Target<'a> {
    path: &'a Path,
    force: bool,
    file: Option<BufWriter<File>>,
}

impl Target<'_> {
    fn file(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            let mut how = OpenOptions::new();
            let how = if self.force { how.create(true).truncate(true) } else { how.create_new(true) };
            let file = how.write(true).open(self.path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => self.told("already exists: choose another name, or use --force", error),
                _ => self.told("cannot be written", error),
            })?;
            self.file = Some(BufWriter::new(file));
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("no file"))
    }

    fn told(&self, what: &str, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{} {what}: {error}", self.path.display()))
    }

    /// Completes the file, and creates it if nothing was written.
    fn finish(&mut self) -> io::Result<()> {
        self.file()?.flush()?;
        self.file()?.get_ref().sync_all().or_else(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Ok(()), // a pipe or a terminal
            _ => Err(error),
        })
    }

    /// Removes the unfinished file, unless it existed before.
    fn forget(&mut self) {
        if self.file.take().is_some() && !self.force {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

impl Write for Target<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}
