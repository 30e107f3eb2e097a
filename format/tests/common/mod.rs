//! Segments for tests.

use ringreel_format::{
    DType, Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, WriteOptions, frame,
    input::SliceInput, segment::walk,
};

/// Most bytes that a compressed part may decode to.
pub const MAX_PART: u64 = 1 << 30;

pub fn check(file: &[u8]) -> ringreel_format::Result<ringreel_format::Footer> {
    walk::check(SliceInput::new(file, 0), MAX_PART)
}

pub fn info(schema: Schema) -> SegmentInfo {
    let mut provenance = Meta::new();
    provenance.set("generator", "node1-42-abcdef");
    SegmentInfo {
        id: SegmentId(*b"0123456789abcdef"),
        born: 3,
        created_unix_ms: 1_000,
        first_number: 5,
        schema,
        provenance,
    }
}

/// Returns bytes that are easy to distinguish, with an occasional magic at a multiple of four.
pub fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let words = (0..len.div_ceil(4)).map(|_| if next() % 97 == 0 { frame::MAGIC } else { next() });
    words.flat_map(u32::to_le_bytes).take(len).collect()
}

pub fn write(samples: &[(Vec<u8>, Vec<u8>)], options: WriteOptions) -> Vec<u8> {
    let schema = Schema::new([("data", DType::U8, vec![samples[0].0.len() as u64]), ("label", DType::Bytes, vec![0])]);
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema.unwrap()), options).unwrap();
    for (n, (data, label)) in samples.iter().enumerate() {
        let mut meta = Meta::new();
        meta.set("seed", n as u64);
        let (d, l) = ([data.len() as u64], [label.len() as u64]);
        let parts = [PartRef::new(DType::U8, &d, data), PartRef::new(DType::Bytes, &l, label)];
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &meta, unix_ms: 1_000 + n as u64 }).unwrap();
    }
    let sealed = writer.finish(&mut file).unwrap();
    assert_eq!((sealed.len, sealed.samples), (file.len() as u64, samples.len() as u64));
    file
}
