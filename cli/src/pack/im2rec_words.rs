//! The arguments of MXNet's C++ `im2rec`: `LIST ROOT OUT.rec key=value ...`.

use crate::convert::output::with_end;
use crate::convert::pack::im2rec::{Labels, Share};
use crate::convert::pack::image::{self, Color};
use ringreel::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The keys of `im2rec.cc` of MXNet 1.9.1.
const KEYS: &str = "color, resize, label_width, pack_label, nsplit, part, center_crop, quality, encoding, inter_method, \
                    unchanged";

/// What the words after `OUT.rec` say.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    color: i8,
    resize: i64,
    label_width: usize,
    pack_label: bool,
    nsplit: u64,
    part: u64,
    center_crop: bool,
    quality: u8,
    encoding: String,
    inter_method: u8,
    unchanged: bool,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            color: 1,
            resize: -1,
            label_width: 1,
            pack_label: false,
            nsplit: 1,
            part: 0,
            center_crop: false,
            quality: 95,
            encoding: ".jpg".to_owned(),
            inter_method: 1,
            unchanged: false,
        }
    }
}

impl Words {
    /// Reads `key=value` words. The last one of a key counts.
    ///
    /// # Errors
    /// An unknown key; a value that `im2rec` refuses, or that is not supported here.
    pub fn parse(words: &[PathBuf]) -> Result<Words> {
        let mut all = Words::default();
        for word in words {
            let word = word.to_string_lossy();
            let Some((key, value)) = word.split_once('=') else {
                return Err(refused(format!("{word:?} after OUT.rec is not key=value")));
            };
            match key {
                "color" => all.color = number(key, value)?,
                "resize" => all.resize = number(key, value)?,
                "label_width" => all.label_width = number(key, value)?,
                "pack_label" => all.pack_label = flag(key, value)?,
                "nsplit" => all.nsplit = number(key, value)?,
                "part" => all.part = number(key, value)?,
                "center_crop" => all.center_crop = flag(key, value)?,
                "quality" => all.quality = number(key, value)?,
                "encoding" => all.encoding = value.to_owned(),
                "inter_method" => all.inter_method = number(key, value)?,
                "unchanged" => all.unchanged = flag(key, value)?,
                _ => return Err(refused(format!("{key}=: unknown; the keys are {KEYS}"))),
            }
        }
        all.check()?;
        Ok(all)
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(refused(what.to_owned()));
        if !(-1..=1).contains(&self.color) {
            return wrong("color= is -1, 0 or 1");
        }
        if ![".jpg", ".png"].contains(&self.encoding.as_str()) {
            return wrong("encoding= is .jpg or .png");
        }
        if self.resize > i64::from(u32::MAX) {
            return wrong("resize= is too large");
        }
        if self.label_width == 0 || self.pack_label && self.label_width < 2 {
            return wrong("label_width= is at least 1, and at least 2 with pack_label=1");
        }
        if self.part >= self.nsplit {
            return wrong("part= is from 0 to nsplit - 1");
        }
        if self.inter_method != 1 && !self.unchanged && self.resize > 0 {
            return wrong("inter_method= is 1 (bilinear): the others are not supported");
        }
        Ok(())
    }

    /// What is done with each image. As in `im2rec`, `center_crop` has no effect without `resize`, and PNG files are
    /// compressed at level 3 where the quality is one of JPEG.
    pub fn image(&self) -> image::Options {
        let is_png = self.encoding == ".png";
        image::Options {
            pass_through: self.unchanged,
            resize: u32::try_from(self.resize).unwrap_or(0),
            center_crop: self.center_crop && self.resize > 0,
            quality: if is_png && self.quality > 9 { 3 } else { self.quality },
            png: is_png,
            color: match self.color {
                0 => Color::Gray,
                1 => Color::Rgb,
                _ => Color::Unchanged,
            },
        }
    }

    /// How many labels a line of the list has, and which of them are stored.
    pub fn labels(&self) -> Labels {
        Labels::Exactly { count: self.label_width, all: self.pack_label }
    }

    /// The part of the list that is packed.
    pub fn share(&self) -> Share {
        Share { part: self.part, of: self.nsplit }
    }

    /// The file to write: `OUT.rec`, or `OUT.part000.rec` with `nsplit`.
    pub fn output(&self, out: &Path) -> PathBuf {
        let stem =
            if out.extension().is_some_and(|end| end == "rec") { out.with_extension("") } else { out.to_owned() };
        match self.nsplit {
            1 => with_end(&stem, ".rec"),
            _ => with_end(&stem, &format!(".part{:03}.rec", self.part)),
        }
    }
}

fn refused(why: String) -> Error {
    Error::Sample(why)
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refused(format!("{key}={value}: this is not a number that {key} can be")))
}

fn flag(key: &str, value: &str) -> Result<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(refused(format!("{key}={value}: expected 0 or 1"))),
    }
}
