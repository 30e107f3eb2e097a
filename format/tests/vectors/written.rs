//! A written segment: where everything is, and the outcomes that follow from that.

use super::json::{Json, hex, hex8, stretch};
use super::model::Info;

/// `numbers`: born, created, first number.
pub fn info_json(id: &[u8], numbers: [u64; 3], schema: Vec<Json>, provenance: Json) -> Json {
    Json::Object(vec![
        ("id", hex(id)),
        ("born", numbers[0].into()),
        ("created_unix_ms", numbers[1].into()),
        ("first_number", numbers[2].into()),
        ("schema", schema.into()),
        ("provenance", provenance),
    ])
}

pub fn codec_json(codec: u8) -> Json {
    match codec {
        0 => "plain".into(),
        1 => "zstd".into(),
        other => other.into(),
    }
}

#[allow(clippy::too_many_arguments)] // it is a table's row
pub fn part_json(
    name: &str,
    dtype: Json,
    shape: &[u64],
    codec: Json,
    large: bool,
    stored_len: u64,
    splits: Vec<u64>,
    result: Result<u32, Json>,
) -> Json {
    Json::Object(vec![
        ("name", name.into()),
        ("dtype", dtype),
        ("shape", shape.to_vec().into()),
        ("codec", codec),
        ("large", large.into()),
        ("stored_len", stored_len.into()),
        ("splits", splits.into()),
        result.map_or_else(|error| ("error", error), |crc| ("crc32", hex8(crc))),
    ])
}

/// `frames`: where head and sample begin, and where the sample ends.
pub fn sample_json(at: u64, end: u64, ordinal: u64, unix_ms: u64, crc: u32, meta: Json, parts: Vec<Json>) -> Json {
    Json::Object(vec![
        ("at", at.into()),
        ("end", end.into()),
        ("ordinal", ordinal.into()),
        ("unix_ms", unix_ms.into()),
        ("crc32", hex8(crc)),
        ("meta", meta),
        ("parts", parts.into()),
    ])
}

pub fn segment_json(minor: u8, info: Json, samples: Vec<Json>, footer: (u64, u64, u32, u32)) -> Json {
    let (at, count, heads_crc, check) = footer;
    let footer =
        vec![("at", at.into()), ("count", count.into()), ("heads_crc32", hex8(heads_crc)), ("check", hex8(check))];
    Json::Object(vec![
        ("kind", "segment".into()),
        ("version", format!("1.{minor}").into()),
        ("info", info),
        ("samples", samples.into()),
        ("footer", Json::Object(footer)),
    ])
}

/// A written part. `pad` is the end of the record before it; there is a pad if `at` differs from it.
pub struct WrittenPart {
    pub pad: u64,
    pub at: u64,
    pub end: u64,
    pub result: Result<u32, Json>,
    pub json: Json,
}

/// A written sample.
pub struct Sample {
    pub at: u64,
    pub head_end: u64,
    pub end: u64,
    pub ordinal: u64,
    pub unix_ms: u64,
    pub crc: u32,
    pub meta: Json,
    pub parts: Vec<WrittenPart>,
}

/// A written segment, and the file offsets of everything in it.
pub struct Written {
    pub info: Info,
    pub minor: u8,
    pub bytes: Vec<u8>,
    pub header_end: u64,
    pub samples: Vec<Sample>,
    pub others: Vec<u64>,
    pub footer: u64,
    pub trailer: u64,
    pub heads_crc: u32,
    pub check: u32,
}

impl Written {
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the outcome of the whole segment.
    pub fn outcome(&self) -> Json {
        let sample = |sample: &Sample| {
            let parts = sample.parts.iter().map(|part| part.json.clone()).collect();
            sample_json(sample.at, sample.end, sample.ordinal, sample.unix_ms, sample.crc, sample.meta.clone(), parts)
        };
        let footer = (self.footer, self.samples.len() as u64, self.heads_crc, self.check);
        segment_json(self.minor, self.info.json(), self.samples.iter().map(sample).collect(), footer)
    }

    /// Returns the bytes, with those from `at` on replaced.
    pub fn patch(&self, at: u64, with: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at as usize..][..with.len()].copy_from_slice(with);
        bytes
    }

    /// Returns the bytes with one byte xored.
    pub fn flip(&self, at: u64, bits: u8) -> Vec<u8> {
        self.patch(at, &[self.bytes[at as usize] ^ bits])
    }

    /// Returns what salvage finds if nothing is lost.
    pub fn salvage(&self) -> Salvage {
        let crc = |part: &WrittenPart| match &part.result {
            Ok(crc) => hex8(*crc),
            Err(Json::Object(fields)) => fields[0].1.clone(),
            Err(other) => other.clone(),
        };
        let sample = |sample: &Sample| (sample.ordinal, sample.at, sample.parts.iter().map(crc).collect());
        Salvage { samples: self.samples.iter().map(sample).collect(), skipped: Vec::new() }
    }

    /// Returns what salvage finds if everything from `begin` on is lost.
    pub fn lost_from(&self, begin: u64, end: u64, why: &str) -> Salvage {
        let mut salvage = self.salvage();
        salvage.samples.retain(|sample| sample.1 < begin);
        salvage.skip(begin, end, why)
    }
}

/// Expected result of salvage: (ordinal, offset, checksums or names of errors), and skipped regions.
#[derive(Clone)]
pub struct Salvage {
    pub samples: Vec<(u64, u64, Vec<Json>)>,
    skipped: Vec<Json>,
}

impl Salvage {
    /// Returns only this region.
    pub fn nothing(end: u64, why: &str) -> Salvage {
        Salvage { samples: Vec::new(), skipped: vec![stretch(0, end, why)] }
    }

    /// Removes all regions.
    pub fn unskipped(mut self) -> Salvage {
        self.skipped.clear();
        self
    }

    /// Removes the sample that began at `at`.
    pub fn without(mut self, at: u64) -> Salvage {
        self.samples.retain(|sample| sample.1 != at);
        self
    }

    /// Sets an error in part `part` of the `n`th remaining sample.
    pub fn part(mut self, n: usize, part: usize, why: &str) -> Salvage {
        self.samples[n].2[part] = why.into();
        self
    }

    pub fn skip(mut self, begin: u64, end: u64, why: &str) -> Salvage {
        self.skipped.push(stretch(begin, end, why));
        self
    }

    pub fn json(self) -> Json {
        let sample = |(ordinal, at, parts): (u64, u64, Vec<Json>)| {
            Json::Object(vec![("ordinal", ordinal.into()), ("at", at.into()), ("parts", parts.into())])
        };
        let samples = self.samples.into_iter().map(sample).collect::<Vec<_>>();
        Json::Object(vec![("samples", samples.into()), ("skipped", self.skipped.into())])
    }
}
