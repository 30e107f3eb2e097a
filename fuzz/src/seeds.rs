//! Initial input: small segments of every kind, and the parts of a segment for the targets of parts.

use crate::source::Noise;
use byteorder::{ByteOrder, LE};
use bytes::Bytes;
use ringreel_format::frame::{read_record, read_strict};
use ringreel_format::{
    DType, Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, SegmentSlice, SegmentWriter, Value, WriteOptions,
};

/// Small valid segments: no parts, inline, large, split and compressed parts; shapes per sample; dtypes of NumPy and of
/// later versions; every kind of meta; a part that decodes to 8 MiB.
pub fn segments() -> Vec<Vec<u8>> {
    let schema = |parts: &[(&'static str, DType, &[u64])]| {
        Schema::new(parts.iter().map(|(name, dtype, shape)| (*name, dtype.clone(), shape.to_vec()))).unwrap()
    };
    let one = schema(&[("data", DType::U8, &[6])]);
    let two = schema(&[("data", DType::F32, &[4, 5]), ("label", DType::Bytes, &[7])]);
    let numpy = DType::Numpy { descr: "<M8[ns]".into(), itemsize: 8 };
    let later = DType::Unknown { code: 99, itemsize: 3 };
    let odd = schema(&[("time", numpy.clone(), &[2]), ("later", later.clone(), &[4])]);
    let inline = WriteOptions::default();
    let large = WriteOptions { inline_max: 0, ..WriteOptions::default() };
    let zstd = WriteOptions { compress: vec![Some(1), Some(3)], inline_max: 20 };
    let (magics, zeros) = (Noise::new(1).magics(80), vec![0; 80]);
    let small: &[u8] = &[1, 2, 3, 4, 5, 6];
    let pairs = |data: &'static [u64], bytes: &[u8], label: &[u8]| {
        let (data, bytes, label) = (data.to_vec(), bytes.to_vec(), label.to_vec());
        vec![(DType::F32, data, bytes), (DType::Bytes, vec![label.len() as u64], label)]
    };
    vec![
        write(&schema(&[]), &inline, &[]),
        write(&schema(&[]), &inline, &[vec![], vec![]]),
        write(&one, &inline, &[vec![(DType::U8, vec![6], small.to_vec())]]),
        write(&two, &inline, &[pairs(&[4, 5], &magics, b"7 bytes"), pairs(&[0, 3], &[], b"")]),
        write(&two, &large, &[pairs(&[4, 5], &magics, b"7 bytes"), pairs(&[20], &zeros, b"x"), pairs(&[0], &[], b"")]),
        write(&two, &zstd, &[pairs(&[4, 5], &zeros, b"7 bytes"), pairs(&[4, 5], &magics, &[b'a'; 90])]),
        write(&odd, &large, &[vec![(numpy, vec![2], vec![8; 16]), (later, vec![4], vec![9; 12])]]),
        write(&two, &zstd, &[pairs(&[1 << 21], &vec![0; 8 << 20], b"more than the targets read")]),
    ]
}

/// A segment of 4,096 parts with 64 axes each, the maximum.
pub fn widest() -> Vec<u8> {
    let names: Vec<String> = (0..4096).map(|n| format!("part {n}")).collect();
    let schema = Schema::new(names.iter().map(|name| (&name[..], DType::U8, vec![1; 64]))).unwrap();
    let parts: Parts = names.iter().map(|_| (DType::U8, vec![1; 64], vec![7])).collect();
    write(&schema, &WriteOptions::default(), &[parts.clone(), parts])
}

type Parts = Vec<(DType, Vec<u64>, Vec<u8>)>;

fn write(schema: &Schema, options: &WriteOptions, samples: &[Parts]) -> Vec<u8> {
    let mut provenance = Meta::new();
    provenance.set("generator", "node1-42-abcdef");
    let (schema, id) = (schema.clone(), SegmentId(*b"0123456789abcdef"));
    let info = SegmentInfo { id, born: 3, created_unix_ms: 1000, first_number: 5, schema, provenance };
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info, options.clone()).unwrap();
    for (n, parts) in samples.iter().enumerate() {
        let parts: Vec<_> = parts.iter().map(|(dtype, shape, data)| PartRef::new(dtype.clone(), shape, data)).collect();
        let meta = if n == 0 { every_kind_of_meta() } else { Meta::new() };
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &meta, unix_ms: 1250 + n as u64 }).unwrap();
    }
    writer.finish(&mut file).unwrap();
    file
}

fn every_kind_of_meta() -> Meta {
    let mut inner = Meta::new();
    inner.set("π", Value::Float(3.25));
    let mut meta = Meta::new();
    meta.set("seed", u64::MAX);
    meta.set("n", Value::Int(-300));
    meta.set("list", Value::Array(vec![Value::Null, Value::Bool(true), Value::Bytes(vec![1, 2])]));
    meta.set("map", Value::Map(inner));
    meta.set("text", "a text of more than twenty-three bytes");
    meta
}

/// The parts of a segment that can be read by position, as input for the targets `head`, `footer` and `meta`.
pub fn parts_of(file: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let Ok(segment) = SegmentSlice::open(Bytes::copy_from_slice(file)) else { return Vec::new() };
    let (footer, mut found) = (segment.footer(), Vec::new());
    let Ok(header) = footer.info.encode_header() else { return found };
    let info = &header[16..];
    let mut fixed = [0; 4];
    let place = |at: u64| u16::try_from(at / 4).unwrap_or(u16::MAX);
    if let Ok(len) = u16::try_from(info.len()) {
        for record in footer.offsets().filter_map(|at| Some((at, read_strict(file, at as usize, 0).ok()?))) {
            LE::write_u16(&mut fixed, len);
            LE::write_u16(&mut fixed[2..], place(record.0));
            found.push(("head", [&fixed, info, record.1.payload.get(4..).unwrap_or_default()].concat()));
        }
    }
    if let Ok(record) = read_record(file, footer.at as usize, 0) {
        found.push(("footer", [&place(footer.at).to_le_bytes(), &record.payload[4..]].concat()));
    }
    let metas = (0..footer.count).filter_map(|ordinal| segment.sample(ordinal).ok()?.meta.encode().ok());
    found.extend(metas.filter(|meta| meta.len() > 1).map(|meta| ("meta", meta)));
    found
}
