//! `ringreel inspect`

use super::output::{json_line, line};
use super::target_args::{Pick, failed};
use crate::render::{inspect as render, record, samples};
use clap::Args;
use ringreel::error::Error;
use ringreel::fs::Fs;
use ringreel::ring::descriptor;
use ringreel::segment::reader::read_tail;
use ringreel_format::SegmentInfo;
use ringreel_ops::inspect::fields::{Field, fields};
use ringreel_ops::inspect::file::{self, File};
use ringreel_ops::inspect::issue::Issue;
use ringreel_ops::inspect::records::{Record, What, walk};
use ringreel_ops::inspect::samples::Samples;
use ringreel_ops::inspect::{Subject, summary, tree};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Arguments of `ringreel inspect`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel inspect demo.ring                   describe generations, owners, parts and issues
  ringreel inspect demo.ring --generation 7    describe one generation (same as demo.ring/read.7)
  ringreel inspect demo.ring -n 3              describe one sample: its parts and its meta
  ringreel inspect demo.ring --tree            explain each name in the ring's directory
  ringreel inspect 000017.rec                  describe a segment
  ringreel inspect 000017.rec --tree           list its records with their offsets
  ringreel inspect 000017.rec --hex -n 0       show the bytes of a sample, field by field
  ringreel inspect train.rec --hex --record 5  show the bytes of one record of a RecordIO file
  ringreel inspect demo.ring --json | jq .odd  list the issues as JSON

Inspect writes nothing and does not use the index, so the ring may be in use and may belong to
another user. It reads frames, heads and the values of a few samples (--glance); `ringreel verify`
reads every byte.
Exit status: 0 no damage was seen, 1 damage was seen, 2 the arguments are invalid or the path
could not be read.")]
pub struct Options {
    #[command(flatten)]
    pub pick: Pick,
    /// Print JSON to stdout: one object, or one per line with --tree and --hex
    #[arg(long)]
    json: bool,
    /// List every record of a file, or every name in a ring
    #[arg(long, conflicts_with_all = ["sample", "id", "hex"])]
    tree: bool,
    /// Show the bytes of a sample (-n, --id) or of a record (--record), field by field
    #[arg(long)]
    hex: bool,
    /// With --hex: select record N of a file, from 0, as numbered by --tree
    #[arg(long, value_name = "N", requires = "hex", conflicts_with_all = ["sample", "id"])]
    record: Option<u64>,
    /// Number of samples whose values are read
    #[arg(long, value_name = "N", default_value_t = 16)]
    glance: u64,
}

/// Describes the path. Returns 1 if damage was seen.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    Ok(look(options).map_or_else(|error| failed(&error), i32::from))
}

/// Describes the path. Returns true if something is damaged.
fn look(options: &Options) -> anyhow::Result<bool> {
    let (fs, subject) = options.pick.subject()?;
    match &subject {
        _ if options.hex => hex(options, &fs, &subject),
        _ if options.tree => show_tree(options, &fs, &subject),
        _ if options.pick.sample.is_some() || options.pick.id.is_some() => sample(options, &fs, &subject),
        Subject::Ring(layout) => {
            let told = summary::ring(&fs, layout, options.glance)?;
            if options.json {
                json_line(&render::json_with_odd(&told, &told.issues, &told.path)?)?;
            } else {
                render::ring(&told).iter().try_for_each(|text| line(text))?;
            }
            if descriptor::is_of_another_version(&*fs, layout) {
                // The output may be incomplete or wrong, so exit with the error too.
                descriptor::read(&*fs, layout)?;
            }
            Ok(told.issues.iter().any(Issue::is_damage))
        }
        Subject::Generation(layout, dir) => {
            let (told, glance, issues) = summary::generation(&fs, layout, *dir, options.glance)?;
            if options.json {
                let facts = json!({ "generation": told, "glance": glance });
                json_line(&render::json_with_odd(&facts, &issues, layout.root())?)?;
            } else {
                render::generation(&told, glance.as_ref(), &issues, layout.root())
                    .iter()
                    .try_for_each(|text| line(text))?;
            }
            Ok(issues.iter().any(Issue::is_damage))
        }
        Subject::File(path) => match file::file(&fs, path, options.glance)? {
            File::Segment(told) => {
                if options.json {
                    json_line(&render::segment_json(&told)?)?;
                } else {
                    render::segment(&told).iter().try_for_each(|text| line(text))?;
                }
                Ok(told.issues.iter().any(Issue::is_damage))
            }
            File::Records(told) => {
                if options.json {
                    json_line(&render::json_with_odd(&told, &told.issues, &told.path)?)?;
                } else {
                    render::records(&told).iter().try_for_each(|text| line(text))?;
                }
                Ok(told.issues.iter().any(Issue::is_damage))
            }
        },
    }
}

/// Describes one sample or record.
fn sample(options: &Options, fs: &Arc<dyn Fs>, subject: &Subject) -> anyhow::Result<bool> {
    let samples = Samples::open(fs.clone(), subject)?;
    samples::warn(&samples);
    let position = options.pick.position(&samples)?;
    let (item, head) = (samples.get(position)?, samples.head(position)?);
    if options.json {
        json_line(&samples::item_json(&samples, &item, head.as_ref()))?;
    } else {
        samples::item(&samples, &item, head.as_ref()).iter().try_for_each(|text| line(text))?;
    }
    Ok(samples.has_damage())
}

/// Lists every name of a ring, or every record of a file.
fn show_tree(options: &Options, fs: &Arc<dyn Fs>, subject: &Subject) -> anyhow::Result<bool> {
    let mut done = Ok(());
    let mut entry = |entry: tree::Entry| {
        if done.is_ok() {
            done = if options.json { json_line(&render::entry_json(&entry)) } else { line(&render::entry(&entry)) };
        }
    };
    match subject {
        Subject::Ring(layout) => tree::tree(fs, layout, &mut entry)?,
        Subject::Generation(layout, dir) => tree::generation(fs, layout, *dir, &mut entry)?,
        Subject::File(path) => return records(options, &**fs, path),
    }
    done?;
    Ok(false)
}

fn records(options: &Options, fs: &dyn Fs, path: &Path) -> anyhow::Result<bool> {
    let (mut done, mut damaged, mut count) = (Ok(()), false, 0u64);
    walk(fs, path, &mut |record| {
        damaged |= matches!(record.what, What::Damage(_));
        count += 1;
        done = if options.json { json_line(&record::record_json(&record)) } else { line(&record::record(&record)) };
        done.is_ok()
    })?;
    done?;
    if count == 0 {
        tracing::error!("{} is empty: nothing was written, or it was truncated", path.display());
    }
    Ok(damaged || count == 0)
}

/// The records that `--hex` shows.
enum Shown {
    /// The record with this number.
    Record(u64),
    /// The records between two offsets: those of a sample, by the footer.
    Between(u64, u64),
    /// The records of the sample with this ordinal, from its head on.
    Sample(u64),
}

fn hex(options: &Options, fs: &Arc<dyn Fs>, subject: &Subject) -> anyhow::Result<bool> {
    let (path, shown) = match (subject, options.pick.sample.is_some() || options.pick.id.is_some()) {
        (Subject::File(path), false) => (path.clone(), Shown::Record(options.record.unwrap_or(0))),
        (_, false) => {
            let why = "--hex requires a sample (-n N or --id SAMPLE_ID), or the path of a file (--record N)";
            return Err(Error::Sample(why.to_owned()).into());
        }
        (_, true) => {
            let samples = Samples::open(fs.clone(), subject)?;
            let position = options.pick.position(&samples)?;
            let beyond =
                || Error::Sample(format!("no sample {position}: there are {}, numbered from 0", samples.len()));
            let (path, ordinal) = samples.place(position).ok_or_else(beyond)?;
            let shown = match read_tail(&**fs, &path).ok().and_then(|tail| tail.footer.extent(ordinal).ok().flatten()) {
                Some(extent) => Shown::Between(extent.start, extent.end),
                None if samples.are_records() => match samples.get(position)?.bytes {
                    Some(bytes) => Shown::Between(bytes.start, bytes.end),
                    None => Shown::Record(ordinal),
                },
                None => Shown::Sample(ordinal),
            };
            (path, shown)
        }
    };
    let (found, info) = pick(&**fs, &path, &shown)?;
    if found.is_empty() {
        let what = match shown {
            Shown::Record(n) => format!("{} has no record {n}", path.display()),
            _ => format!("{}: the sample does not exist any more", path.display()),
        };
        return Err(Error::Sample(what).into());
    }
    let file = fs.open(&path)?;
    let mut damaged = false;
    for mut record in found {
        damaged |= matches!(record.what, What::Damage(_));
        if let (Shown::Between(begin, end), What::Damage(_)) = (&shown, &record.what) {
            (record.at, record.end) = (record.at.max(*begin), record.end.min(*end));
        }
        if !options.json {
            line(&record::record(&record))?;
        }
        for field in fields(&*file, &record, info.as_ref())? {
            show(options, &record, &field)?;
        }
    }
    Ok(damaged)
}

fn show(options: &Options, record: &Record, field: &Field) -> std::io::Result<()> {
    if !options.json {
        return record::dump(field).iter().try_for_each(|text| line(text));
    }
    json_line(&record::dump_json(record, field))
}

/// Returns the records to show, and the segment's header.
fn pick(fs: &dyn Fs, path: &Path, shown: &Shown) -> anyhow::Result<(Vec<Record>, Option<SegmentInfo>)> {
    let mut info = read_tail(fs, path).ok().map(|tail| tail.footer.info);
    let (mut found, mut belongs) = (Vec::new(), false);
    walk(fs, path, &mut |record| {
        if let What::Header(header) = &record.what {
            info.get_or_insert((**header).clone());
        }
        let (here, more) = match shown {
            Shown::Record(n) => (record.number == *n, record.number < *n),
            Shown::Between(begin, end) => (record.at < *end && record.end > *begin, record.end < *end),
            Shown::Sample(ordinal) => {
                belongs = match &record.what {
                    What::Head(head) => head.ordinal == *ordinal,
                    What::Pad | What::Tensor { .. } | What::Damage(_) => belongs,
                    _ => false,
                };
                (belongs, belongs || found.is_empty())
            }
        };
        if here {
            found.push(record);
        }
        more
    })?;
    Ok((found, info))
}
