//! Statistics of some samples: their parts, how they are stored, and the ranges of their values.

use super::issue::Issue;
use super::samples::Samples;

use ringreel::error::{Error, Result};
use ringreel::value_stats::Range;
use ringreel_format::{Codec, DType, Shape};
use serde::Serialize;
use std::collections::HashMap;

/// No further samples are read after this number of bytes.
const BYTES: u64 = 512 << 20;
/// Most dtypes and shapes of one part that are listed.
const KINDS: usize = 8;

/// The dtype and shape of a part in some samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kind {
    /// Type of its elements.
    pub dtype: String,
    /// Its shape.
    pub shape: Shape,
    /// Number of samples with this dtype and shape.
    pub samples: u64,
}

/// One part, in all examined samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartStats {
    /// Its name.
    pub name: String,
    /// Its dtypes and shapes, the most frequent first, at most eight.
    pub kinds: Vec<Kind>,
    /// Whether there are more.
    pub more_kinds: bool,
    /// Stored bytes.
    pub stored: u64,
    /// Decoded bytes.
    pub decoded: u64,
    /// Number of samples that have the part.
    pub samples: u64,
    /// Number of samples in which the part is compressed.
    pub compressed: u64,
    /// The range of its values; `None` if its elements are not numbers.
    pub range: Option<Range>,
}

/// Statistics of some samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SampleStats {
    /// Number of examined samples.
    pub looked_at: u64,
    /// Number of all samples.
    pub samples: u64,
    /// Their generation, if they belong to one.
    pub generation: Option<u64>,
    /// Number of examined samples that could not be read.
    pub unreadable: u64,
    /// Why the first of these could not be read.
    pub why: Option<String>,
    /// Their parts.
    pub parts: Vec<PartStats>,
}

impl SampleStats {
    /// Returns the issues of the examined samples: unreadable samples, and parts with elements that are not finite.
    pub(super) fn issues(&self) -> impl Iterator<Item = Issue> + '_ {
        let (looked_at, unreadable) = (self.looked_at, self.unreadable);
        let unread = self.why.clone().map(|why| Issue::Unreadable { looked_at, unreadable, why });
        let ranges = self.parts.iter().filter_map(|part| Some((part.name.clone(), part.range?)));
        let not_finite = ranges.filter(|(_, values)| values.nan + values.infinite > 0);
        unread.into_iter().chain(not_finite.map(|(part, values)| Issue::NotFinite { part, values }))
    }
}

/// Reads at most `most` samples, spread evenly; fewer if they are large. Samples whose directory is reclaimed meanwhile do
/// not count.
///
/// # Errors
/// The filesystem's errors, except for missing files.
pub fn glance(samples: &Samples, most: u64) -> Result<SampleStats> {
    let len = samples.len();
    let mut glance = SampleStats { samples: len, generation: samples.generation(), ..SampleStats::default() };
    let (mut kinds, mut bytes) = (HashMap::<(usize, DType, Shape), u64>::new(), 0);
    for n in 0..len.min(most) {
        if bytes > BYTES {
            break;
        }
        let position = (u128::from(n) * u128::from(len) / u128::from(len.min(most))) as u64;
        let found = samples.get(position).and_then(|item| Ok((item, samples.head(position)?)));
        let (item, head) = match found {
            Ok(found) => found,
            Err(Error::Fs { source }) if source.is_gone() && !samples.is_lost(&source) => continue,
            Err(Error::Fs { source }) if !source.is_gone() => return Err(source.into()),
            Err(error) => {
                glance.looked_at += 1;
                glance.unreadable += 1;
                glance.why.get_or_insert_with(|| error.to_string());
                continue;
            }
        };
        glance.looked_at += 1;
        glance.parts.resize_with(glance.parts.len().max(item.parts.len()), PartStats::default);
        for (n, part) in item.parts.iter().enumerate() {
            let told = &mut glance.parts[n];
            if told.name.is_empty() {
                told.name.clone_from(&part.name);
            }
            let stored = head.as_ref().and_then(|head| head.parts.get(n));
            told.samples += 1;
            told.decoded = told.decoded.saturating_add(part.len());
            told.stored = told.stored.saturating_add(stored.map_or(part.len(), |stored| stored.stored_len));
            told.compressed += u64::from(stored.is_some_and(|stored| stored.codec != Codec::Plain));
            bytes = bytes.saturating_add(part.len());
            *kinds.entry((n, part.dtype.clone(), part.shape.clone())).or_default() += 1;
            if let Some(range) = part.data().ok().and_then(|data| Range::of(&part.dtype, data)) {
                told.range = Some(told.range.unwrap_or_default().with(range));
            }
        }
    }
    for ((n, dtype, shape), samples) in kinds {
        glance.parts[n].kinds.push(Kind { dtype: dtype.to_string(), shape, samples });
    }
    for part in &mut glance.parts {
        part.kinds.sort_by(|a, b| (b.samples, &a.dtype, &a.shape).cmp(&(a.samples, &b.dtype, &b.shape)));
        part.more_kinds = part.kinds.len() > KINDS;
        part.kinds.truncate(KINDS);
    }
    Ok(glance)
}
