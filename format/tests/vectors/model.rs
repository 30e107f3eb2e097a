//! Models of segments, and a simple writer for them: slow, directly from SPEC.md, with a hook for each record. It
//! records where everything is, so that an outcome can be determined without a decoder.

use super::json::{Json, error, hex};
use super::written::{Sample, Written, WrittenPart, codec_json, info_json, part_json};

pub const MAGIC: [u8; 4] = [0x0a, 0x23, 0xd7, 0xce];

/// Changes a payload before its checksum is computed.
pub type Edit = Box<dyn Fn(&mut Vec<u8>)>;

/// A value of a map.
#[derive(Clone, Debug)]
pub enum V {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Array(Vec<V>),
    Map(Vec<(String, V)>),
}

impl From<&str> for V {
    fn from(text: &str) -> V {
        V::Text(text.to_owned())
    }
}

/// Returns a map of these entries.
pub fn map<const N: usize>(entries: [(&str, V); N]) -> Vec<(String, V)> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Encodes the head of a CBOR value.
pub fn cbor_head(major: u8, n: u64) -> Vec<u8> {
    let bytes = n.to_be_bytes();
    let (low, tail) = match n {
        0..24 => (n as u8, &bytes[8..]),
        24..0x100 => (24, &bytes[7..]),
        0x100..0x1_0000 => (25, &bytes[6..]),
        0x1_0000..0x1_0000_0000 => (26, &bytes[4..]),
        _ => (27, &bytes[..]),
    };
    [&[major << 5 | low], tail].concat()
}

impl V {
    pub fn cbor(&self) -> Vec<u8> {
        match self {
            V::Null => vec![0xf6],
            V::Bool(value) => vec![0xf4 + u8::from(*value)],
            V::Int(n) if *n >= 0 => cbor_head(0, *n as u64),
            V::Int(n) => cbor_head(1, (-1 - *n) as u64),
            V::Float(x) => [&[0xfb], &x.to_bits().to_be_bytes()[..]].concat(),
            V::Text(text) => [&cbor_head(3, text.len() as u64), text.as_bytes()].concat(),
            V::Bytes(bytes) => [&cbor_head(2, bytes.len() as u64), &bytes[..]].concat(),
            V::Array(items) => [cbor_head(4, items.len() as u64), items.iter().flat_map(V::cbor).collect()].concat(),
            V::Map(entries) => {
                let pairs = entries.iter().flat_map(|(key, value)| [V::from(&key[..]).cbor(), value.cbor()].concat());
                [cbor_head(5, entries.len() as u64), pairs.collect()].concat()
            }
        }
    }

    pub fn json(&self) -> Json {
        let entry = |(key, value): &(String, V)| Json::List(vec![key[..].into(), value.json()]);
        match self {
            V::Null => Json::Null,
            V::Bool(value) => (*value).into(),
            V::Int(n) => (*n).into(),
            V::Float(x) => Json::Object(vec![("f64", format!("{:016x}", x.to_bits()).into())]),
            V::Text(text) => text[..].into(),
            V::Bytes(bytes) => Json::Object(vec![("bytes", hex(bytes))]),
            V::Array(items) => Json::Object(vec![("array", Json::List(items.iter().map(V::json).collect()))]),
            V::Map(entries) => Json::Object(vec![("map", Json::List(entries.iter().map(entry).collect()))]),
        }
    }
}

/// A dtype: code, item size, description.
#[derive(Clone, Debug, PartialEq)]
pub struct DType {
    pub code: u8,
    pub itemsize: u64,
    pub descr: Option<String>,
}

/// Names of the codes from 0 on, with their item sizes.
pub const DTYPES: [(&str, u64); 16] = [
    ("bytes", 1),
    ("bool", 1),
    ("u8", 1),
    ("u16", 2),
    ("u32", 4),
    ("u64", 8),
    ("i8", 1),
    ("i16", 2),
    ("i32", 4),
    ("i64", 8),
    ("f16", 2),
    ("bf16", 2),
    ("f32", 4),
    ("f64", 8),
    ("c64", 8),
    ("c128", 16),
];

/// Returns the dtype with this name.
pub fn dtype(name: &str) -> DType {
    let code = DTYPES.iter().position(|row| row.0 == name).unwrap();
    DType { code: code as u8, itemsize: DTYPES[code].1, descr: None }
}

/// Returns a NumPy-only dtype.
pub fn numpy(descr: &str, itemsize: u64) -> DType {
    DType { code: 255, itemsize, descr: Some(descr.to_owned()) }
}

/// Returns a dtype of a later version.
pub fn unknown(code: u8, itemsize: u64) -> DType {
    DType { code, itemsize, descr: None }
}

impl DType {
    fn is_known(&self) -> bool {
        self.code < 16 || self.code == 255
    }

    pub fn encode(&self) -> Vec<u8> {
        [vec![self.code], varint(self.itemsize), self.descr.as_deref().map_or(Vec::new(), text)].concat()
    }

    pub fn json(&self) -> Json {
        let name = match self.code {
            255 => Some("numpy"),
            code => DTYPES.get(usize::from(code)).map(|row| row.0),
        };
        let mut out = vec![("name", name.into()), ("itemsize", self.itemsize.into())];
        out.extend(self.descr.as_deref().map(|descr| ("descr", descr.into())));
        out.extend((!self.is_known()).then(|| ("code", self.code.into())));
        Json::Object(out)
    }
}

pub fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

pub fn text(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}

pub fn shape(shape: &[u64]) -> Vec<u8> {
    [vec![shape.len() as u8], shape.iter().flat_map(|axis| varint(*axis)).collect()].concat()
}

/// Returns one frame, valid or not.
pub fn raw_frame(flag: u32, payload: &[u8]) -> Vec<u8> {
    let word = flag << 29 | payload.len() as u32;
    let zeros = payload.len().wrapping_neg() % 4;
    [&MAGIC, &word.to_le_bytes()[..], payload, &[0; 3][..zeros]].concat()
}

/// Returns the payloads of the frames into which a record is split.
fn split(payload: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for at in (0..payload.len()).step_by(4) {
        if payload[at..].starts_with(&MAGIC) {
            parts.push(&payload[begin..at]);
            begin = at + 4;
        }
    }
    parts.push(&payload[begin..]);
    parts
}

/// Returns the frames of a record, and how often it was split.
pub fn record(payload: &[u8]) -> (Vec<u8>, u64) {
    let parts = split(payload);
    let last = parts.len() - 1;
    let flag = |n: usize| match (n, last) {
        (_, 0) => 0,
        (0, _) => 1,
        (n, last) if n == last => 3,
        _ => 2,
    };
    let frames = parts.iter().enumerate().flat_map(|(n, part)| raw_frame(flag(n), part)).collect();
    (frames, last as u64)
}

pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Description of a segment.
#[derive(Clone, Debug)]
pub struct Info {
    pub id: [u8; 16],
    pub born: u64,
    pub created: u64,
    pub first: u64,
    pub schema: Vec<(String, DType, Vec<u64>)>,
    pub provenance: Vec<(String, V)>,
}

impl Info {
    pub fn new<const N: usize>(schema: [(&str, DType, &[u64]); N]) -> Info {
        let schema = schema.into_iter().map(|(name, dtype, shape)| (name.to_owned(), dtype, shape.to_vec())).collect();
        Info {
            id: *b"vectors of 1.0 !",
            born: 3,
            created: 1_700_000_000_000,
            first: 40,
            schema,
            provenance: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.id.to_vec();
        for number in [self.born, self.created, self.first] {
            out.extend(number.to_le_bytes());
        }
        out.extend(varint(self.schema.len() as u64));
        for (name, dtype, axes) in &self.schema {
            out.extend([text(name), dtype.encode(), shape(axes)].concat());
        }
        let provenance = V::Map(self.provenance.clone()).cbor();
        [out, varint(provenance.len() as u64), provenance].concat()
    }

    pub fn json(&self) -> Json {
        let part = |(name, dtype, shape): &(String, DType, Vec<u64>)| {
            Json::Object(vec![("name", name[..].into()), ("dtype", dtype.json()), ("shape", shape.clone().into())])
        };
        info_json(&self.id, [self.born, self.created, self.first], self.schema.iter().map(part).collect(), {
            V::Map(self.provenance.clone()).json()
        })
    }
}

/// A part of a sample.
#[derive(Clone, Debug)]
pub struct Part {
    /// Dtype and shape if they differ from the schema's.
    pub own: Option<(DType, Vec<u64>)>,
    pub codec: u8,
    pub large: bool,
    /// The bytes in the file.
    pub stored: Vec<u8>,
    pub tensor: Vec<u8>,
    /// Whether a magic in a large part is escaped.
    pub escape: bool,
}

/// Returns a part with the schema's dtype and shape.
pub fn inline(tensor: &[u8]) -> Part {
    Part { own: None, codec: 0, large: false, stored: tensor.to_vec(), tensor: tensor.to_vec(), escape: true }
}

impl Part {
    pub fn large(self) -> Part {
        Part { large: true, ..self }
    }

    pub fn own(self, dtype: DType, shape: &[u64]) -> Part {
        Part { own: Some((dtype, shape.to_vec())), ..self }
    }

    pub fn stored(self, codec: u8, stored: &[u8]) -> Part {
        Part { codec, stored: stored.to_vec(), ..self }
    }
}

/// An entry between header and footer.
pub enum Entry {
    Sample {
        time: u64,
        meta: Vec<(String, V)>,
        parts: Vec<Part>,
    },
    /// A record of another type.
    Other(u8, Vec<u8>),
}

/// A segment and its errors.
pub struct Segment {
    pub info: Info,
    pub minor: u8,
    pub entries: Vec<Entry>,
    /// Fields that a later minor version adds to header and footer.
    pub extra: Vec<u8>,
    pub edit_header: Option<Edit>,
    pub edit_footer: Option<Edit>,
    /// For sample `.0`. The first four bytes are the checksum.
    pub edit_head: Option<(usize, Edit)>,
}

impl Segment {
    pub fn new(info: Info) -> Segment {
        let (extra, entries) = (Vec::new(), Vec::new());
        Segment { info, minor: 0, entries, extra, edit_header: None, edit_footer: None, edit_head: None }
    }

    /// Adds a sample without meta, 10 ms after the last one.
    pub fn sample(self, parts: impl Into<Vec<Part>>) -> Segment {
        self.sample_with(Vec::new(), parts)
    }

    pub fn sample_with(mut self, meta: Vec<(String, V)>, parts: impl Into<Vec<Part>>) -> Segment {
        let time = 10 * (1 + self.entries.len() as u64);
        self.entries.push(Entry::Sample { time, meta, parts: parts.into() });
        self
    }

    /// Sets the time of the last sample, in ms after *created*.
    pub fn time(mut self, ms: u64) -> Segment {
        if let Some(Entry::Sample { time, .. }) = self.entries.last_mut() {
            *time = ms;
        }
        self
    }

    pub fn other(mut self, kind: u8, body: &[u8]) -> Segment {
        self.entries.push(Entry::Other(kind, body.to_vec()));
        self
    }

    pub fn edit_head(mut self, n: usize, edit: impl Fn(&mut Vec<u8>) + 'static) -> Segment {
        self.edit_head = Some((n, Box::new(edit)));
        self
    }

    pub fn edit_header(mut self, edit: impl Fn(&mut Vec<u8>) + 'static) -> Segment {
        self.edit_header = Some(Box::new(edit));
        self
    }

    pub fn edit_footer(mut self, edit: impl Fn(&mut Vec<u8>) + 'static) -> Segment {
        self.edit_footer = Some(Box::new(edit));
        self
    }

    pub fn write(self) -> Written {
        let mut out = Vec::new();
        let mut header = [b"RINGREEL", &[1, self.minor, 0, 0][..], &[0; 4]].concat();
        header.extend([self.info.encode(), self.extra.clone()].concat());
        self.edit_header.iter().for_each(|edit| edit(&mut header));
        if header.len() >= 16 {
            let crc = crc32(&[&header[..12], &header[16..]].concat());
            header[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        out.extend(record(&header).0);
        let header_end = out.len() as u64;
        let (mut samples, mut others) = (Vec::<Sample>::new(), Vec::new());
        for entry in &self.entries {
            match entry {
                Entry::Sample { time, meta, parts } => {
                    let sample = self.write_sample(&mut out, samples.len(), *time, meta, parts);
                    samples.push(sample);
                }
                Entry::Other(kind, body) => {
                    others.push(out.len() as u64);
                    let payload = [&[0, 0, 0, 0, *kind], &body[..]].concat();
                    self.put_bound(&mut out, payload);
                }
            }
        }
        let heads_crc = crc32(&samples.iter().flat_map(|sample| sample.crc.to_le_bytes()).collect::<Vec<_>>());
        let mut footer = vec![0, 0, 0, 0, b'F', 1, self.minor, 0];
        footer.extend((samples.len() as u64).to_le_bytes());
        footer.extend([heads_crc.to_le_bytes(), [0; 4]].concat());
        footer.extend(samples.iter().flat_map(|sample| sample.at.to_le_bytes()));
        footer.extend([self.info.encode(), self.extra.clone()].concat());
        self.edit_footer.iter().for_each(|edit| edit(&mut footer));
        let footer_at = out.len() as u64;
        let check = self.put_bound(&mut out, footer);
        let trailer = out.len() as u64;
        out.extend(trailer_of(footer_at));
        Written {
            info: self.info,
            minor: self.minor,
            bytes: out,
            header_end,
            samples,
            others,
            footer: footer_at,
            trailer,
            heads_crc,
            check,
        }
    }

    /// Writes a record whose checksum is bound to its place. Returns the checksum.
    fn put_bound(&self, out: &mut Vec<u8>, mut payload: Vec<u8>) -> u32 {
        let crc = bound(&self.info.id, out.len() as u64, &mut payload);
        out.extend(record(&payload).0);
        crc
    }

    fn write_sample(&self, out: &mut Vec<u8>, n: usize, time: u64, meta: &[(String, V)], parts: &[Part]) -> Sample {
        let at = out.len() as u64;
        let mut head = [&[0, 0, 0, 0, b'S'], &varint(n as u64)[..], &varint(time)].concat();
        let encoded = if meta.is_empty() { Vec::new() } else { V::Map(meta.to_vec()).cbor() };
        head.extend([varint(encoded.len() as u64), encoded].concat());
        for part in parts {
            let splits = if part.large && part.escape { record(&part.stored).1 } else { 0 };
            let flags = [part.own.is_some(), part.large, part.codec & 1 > 0, part.codec & 2 > 0, splits > 0];
            head.push((0..5).map(|bit| u8::from(flags[bit]) << bit).sum());
            if let Some((dtype, axes)) = &part.own {
                head.extend([dtype.encode(), shape(axes)].concat());
            }
            if part.codec > 0 {
                head.extend(varint(part.stored.len() as u64));
            }
            if part.large {
                head.extend(crc32(&part.stored).to_le_bytes());
                head.extend(if splits > 0 { varint(splits) } else { Vec::new() });
            } else {
                head.extend(&part.stored);
            }
        }
        self.edit_head.iter().filter(|edit| edit.0 == n).for_each(|edit| edit.1(&mut head));
        let crc = self.put_bound(out, head);
        let head_end = out.len() as u64;
        let parts =
            parts.iter().zip(&self.info.schema).map(|(part, named)| self.write_part(out, part, named)).collect();
        let unix_ms = self.info.created.saturating_add(time);
        let meta = V::Map(meta.to_vec()).json();
        Sample { at, head_end, end: out.len() as u64, ordinal: n as u64, unix_ms, crc, meta, parts }
    }

    fn write_part(&self, out: &mut Vec<u8>, part: &Part, named: &(String, DType, Vec<u64>)) -> WrittenPart {
        let pad = out.len() as u64;
        let (mut at, mut splits) = (pad, Vec::new());
        if part.large {
            if !(out.len() + 8).is_multiple_of(64) {
                let zeros = (out.len() + 16).wrapping_neg() % 64;
                out.extend(raw_frame(0, &[0; 64][..zeros]));
            }
            at = out.len() as u64;
            let (frames, count) = if part.escape { record(&part.stored) } else { (raw_frame(0, &part.stored), 0) };
            out.extend(frames);
            splits.push(count);
        }
        let (dtype, axes) = part.own.clone().unwrap_or((named.1.clone(), named.2.clone()));
        let result = match part.codec {
            _ if !dtype.is_known() => Err(error("UnknownDType", None)),
            2 | 3 => Err(error("UnknownCodec", None)),
            _ => Ok(crc32(&part.tensor)),
        };
        let codec = codec_json(part.codec);
        let json = part_json(
            &named.0,
            dtype.json(),
            &axes,
            codec,
            part.large,
            part.stored.len() as u64,
            splits,
            result.clone(),
        );
        WrittenPart { pad, at, end: out.len() as u64, result, json }
    }
}

/// Sets the checksum of a record at file offset `at` in its payload. Returns it.
pub fn bound(id: &[u8; 16], at: u64, payload: &mut [u8]) -> u32 {
    let crc = crc32(&[id, &at.to_le_bytes()[..], &payload[4..]].concat());
    payload[..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

pub fn trailer_of(footer: u64) -> Vec<u8> {
    trailer_with(footer, 0)
}

pub fn trailer_with(footer: u64, salt: u32) -> Vec<u8> {
    let fields = [&footer.to_le_bytes()[..], &salt.to_le_bytes()].concat();
    let crc = crc32(&fields).to_le_bytes();
    raw_frame(0, &[&fields[..], &crc, b"REELTAIL"].concat())
}
