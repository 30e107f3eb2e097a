//! `ringreel preview`

use super::output::{failed, json_line, plain_path};
use super::terminal::{self, Graphics};
use crate::drawing::terminal::{blocks, kitty, sixel};
use crate::drawing::{Axes, MOST_SAMPLES, Sheet, SheetOptions, WIDTHS, contact_sheet};
use clap::{Args, ValueEnum};
use image::RgbImage;
use ringreel::error::{Error, FsError};
use ringreel::fs::{Fs, Posix};
use ringreel::layout::GenerationDir;
use ringreel_ops::inspect::Subject;
use ringreel_ops::inspect::samples::Samples;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `ringreel preview`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel preview demo.ring                            show slices of six samples in the terminal
  ringreel preview demo.ring -o sheet.png --samples 12  write a picture of 12 samples
  ringreel preview demo.ring --generation 7 --part t1   show one part of an older generation
  ringreel preview train.rec -o train.jpg               show the images in any RecordIO file

A volume is drawn as its three middle slices, with labels as a colour overlay.
Exit status: 0 success, 1 damage was found (it is marked in the picture), 2 nothing can be drawn.")]
pub struct Options {
    /// Path of a ring, a generation's directory, or a file
    path: PathBuf,
    /// Write the picture to this .png or .jpg file
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Draw samples of generation N [default: the newest]
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Number of samples, spread evenly over the generation or file
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=MOST_SAMPLES as i64))]
    samples: u16,
    /// Width of the picture [default: 1200, or the terminal's width]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(*WIDTHS.start() as i64..=*WIDTHS.end() as i64))]
    width: Option<u32>,
    /// Draw only this part [default: all parts that can be drawn]
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// Draw this part as a colour overlay [default: the part that looks like labels]
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Axis order of volumes
    #[arg(long, value_name = "ORDER", value_enum, default_value = "xyz")]
    axes: AxesName,
    /// Graphics protocol for the terminal
    #[arg(long = "as", value_name = "PROTOCOL", value_enum, default_value = "auto", conflicts_with = "out")]
    shown: As,
    /// With -o: print one JSON object that describes the picture
    #[arg(long, requires = "out")]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum As {
    /// The best protocol of the terminal
    Auto,
    /// Kitty graphics
    Kitty,
    /// Sixel graphics
    Sixel,
    /// Coloured half blocks, for any terminal with colours
    Blocks,
}

#[derive(Clone, Copy, ValueEnum)]
enum AxesName {
    /// Right, front, up, as in NIfTI
    Xyz,
    /// Outermost axis first, as in a stack of images
    Zyx,
}

/// Draws the samples. Returns 1 if a sample is damaged.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    match draw(options) {
        Err(error) if super::output::is_broken_pipe(&error) => Err(error),
        Err(error) => Ok(failed(&error, 2)),
        done => done,
    }
}

fn draw(options: &Options) -> anyhow::Result<i32> {
    let graphics = match (&options.out, options.shown) {
        (Some(path), _) => {
            is_a_picture(path)?;
            None
        }
        (None, As::Kitty) => Some(Graphics::Kitty),
        (None, As::Sixel) => Some(Graphics::Sixel),
        (None, As::Blocks) => Some(Graphics::Blocks),
        (None, As::Auto) => Some(terminal::graphics()?),
    };
    let fs: Arc<dyn Fs> = Arc::new(Posix);
    let mut subject = Subject::at(&*fs, &options.path)?;
    let fs = subject.fenced(&fs);
    if let Some(n) = options.generation {
        subject = generation(&*fs, subject, n)?;
    }
    let samples = Samples::open(fs, &subject)?;
    let mut wanted = SheetOptions::new(title(&subject, &samples));
    wanted.samples = options.samples.into();
    wanted.part.clone_from(&options.part);
    wanted.label.clone_from(&options.label);
    wanted.axes = match options.axes {
        AxesName::Xyz => Axes::Xyz,
        AxesName::Zyx => Axes::Zyx,
    };
    match graphics {
        Some(Graphics::Blocks) => {
            wanted.width = options.width.unwrap_or_else(terminal::columns).clamp(*WIDTHS.start(), *WIDTHS.end());
            wanted.columns = Some(1);
        }
        Some(_) => wanted.width = options.width.unwrap_or_else(terminal::pixels),
        None => wanted.width = options.width.unwrap_or(wanted.width),
    }
    let sheet = contact_sheet(&samples, &wanted)?;
    for note in &sheet.notes {
        tracing::warn!("{}", plain_path(Path::new(note)));
    }
    show(options, graphics, &sheet, &samples)?;
    Ok(i32::from(sheet.damaged() > 0 || !samples.notes().is_empty()))
}

fn show(options: &Options, graphics: Option<Graphics>, sheet: &Sheet, samples: &Samples) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match graphics {
        Some(Graphics::Kitty) => out.write_all(kitty(&sheet.image())?.as_bytes())?,
        Some(Graphics::Sixel) => out.write_all(sixel(&sheet.image()).as_bytes())?,
        Some(Graphics::Blocks) => in_blocks(sheet, &mut out)?,
        None => {
            let Some(path) = &options.out else { return Ok(()) };
            let picture = sheet.image();
            save(&picture, path)?;
            drop(out);
            if options.json {
                return Ok(json_line(&told(sheet, samples, path, &picture))?);
            }
            tracing::info!("{}: {} x {} pixels", plain_path(path), picture.width(), picture.height());
            return Ok(());
        }
    }
    Ok(out.flush()?)
}

/// Draws half blocks. Captions are text of the terminal, because letters in the picture would be a few blocks.
fn in_blocks(sheet: &Sheet, out: &mut impl Write) -> std::io::Result<()> {
    for tile in &sheet.tiles {
        let generator = tile.generator.as_deref().unwrap_or_default();
        writeln!(out, "{}  {}", tile.caption(), plain_path(Path::new(generator)))?;
        if let Some(why) = &tile.damage {
            writeln!(out, "  DAMAGED: {}", plain_path(Path::new(why)))?;
        }
        for line in tile.picture.iter().flat_map(blocks) {
            writeln!(out, "{line}")?;
        }
        for text in &tile.texts {
            writeln!(out, "  {}", plain_path(Path::new(text)))?;
        }
    }
    Ok(())
}

fn told(sheet: &Sheet, samples: &Samples, path: &Path, picture: &RgbImage) -> serde_json::Value {
    let tiles = sheet.tiles.iter().map(|tile| {
        json!({
            "position": tile.position, "id": tile.id.map(|id| id.to_string()), "generator": tile.generator,
            "drawn": tile.picture.is_some(), "damage": tile.damage,
        })
    });
    json!({
        "picture": path.to_string_lossy(), "width": picture.width(), "height": picture.height(), "generation": samples.generation(),
        "there": samples.len(), "samples": tiles.collect::<Vec<_>>(), "damaged": sheet.damaged(), "notes": sheet.notes,
    })
}

/// Returns the title of the sheet.
fn title(subject: &Subject, samples: &Samples) -> String {
    let name = |path: &Path| plain_path(Path::new(path.file_name().unwrap_or(path.as_os_str())));
    let what = if samples.are_records() { "records" } else { "samples" };
    let of = match subject {
        Subject::Ring(layout) | Subject::Generation(layout, _) => name(layout.root()),
        Subject::File(path) => name(path),
    };
    let generation = samples.generation().map_or(String::new(), |n| format!("   generation {n}"));
    format!("{of}{generation}   {} {what}", samples.len())
}

fn generation(fs: &dyn Fs, subject: Subject, n: u64) -> anyhow::Result<Subject> {
    let Subject::Ring(layout) = subject else {
        anyhow::bail!("--generation requires the path of a ring");
    };
    let there = |path: PathBuf| fs.exists(&path);
    let dir = match (there(layout.read(n))?, there(layout.write(n))?) {
        (true, _) => GenerationDir::Read(n),
        (_, true) => GenerationDir::Write(n),
        _ => anyhow::bail!("{} has no generation {n}: `ringreel status` lists them", layout.root().display()),
    };
    Ok(Subject::Generation(layout, dir))
}

fn is_a_picture(path: &Path) -> anyhow::Result<bool> {
    match path.extension().and_then(|end| end.to_str()).map(str::to_lowercase).as_deref() {
        Some("png") => Ok(true),
        Some("jpg" | "jpeg") => Ok(false),
        _ => anyhow::bail!("{}: the file name must end in .png or .jpg", plain_path(path)),
    }
}

fn save(picture: &RgbImage, path: &Path) -> anyhow::Result<()> {
    let bytes = if is_a_picture(path)? {
        crate::drawing::terminal::png(picture)?
    } else {
        let mut bytes = Vec::new();
        picture.write_with_encoder(image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 90))?;
        bytes
    };
    std::fs::write(path, bytes).map_err(|error| Error::from(FsError::new("write", path, error)))?;
    Ok(())
}
