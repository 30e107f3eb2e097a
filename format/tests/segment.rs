//! Segments, written and read back, intact and damaged.

use super::common::{check, info, noise, write};
use bytes::Bytes;
use ringreel_format::{
    DType, Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, SegmentSlice, SegmentWriter, WriteOptions, frame,
};

#[test]
fn samples_round_trip_exactly_and_aligned() {
    let samples: Vec<_> = (0..20).map(|n| (noise(n * 500, n as u32), noise(n * 37, 99 + n as u32))).collect();
    let zstd = WriteOptions { compress: vec![Some(3), Some(1)], ..Default::default() };
    let all_large = WriteOptions { inline_max: 0, ..Default::default() };
    for options in [WriteOptions::default(), zstd, all_large] {
        let plain = options.compress.is_empty();
        let file = Bytes::from(write(&samples, options));
        let segment = SegmentSlice::open(file.clone()).unwrap();
        assert_eq!(segment.footer().count, 20);
        for (n, (data, label)) in samples.iter().enumerate() {
            let sample = segment.sample(n as u64).unwrap();
            assert_eq!(sample.parts[0].data().unwrap(), data);
            assert_eq!(sample.parts[1].data().unwrap(), label);
            assert_eq!((sample.unix_ms, sample.meta.get("seed")), (1_000 + n as u64, Some(&(n as u64).into())));
            let place = (sample.parts[0].data().unwrap().as_ptr() as usize).wrapping_sub(file.as_ptr() as usize);
            if plain && data.len() > 1024 && frame::split_points(data).next().is_none() {
                assert_eq!(place % 64, 0, "sample {n}");
            }
        }
        assert_eq!(check(&file).unwrap().count, 20);
    }
}

#[test]
fn decompressed_parts_are_aligned_like_stored_ones() {
    let lengths = [400_usize, 1_000, 5_000, 200_000, 3 << 20, (3 << 20) + 7];
    let samples: Vec<_> = lengths.iter().map(|len| (vec![7; *len], vec![9; len / 3])).collect();
    let segment = write(&samples, WriteOptions { compress: vec![Some(1), Some(-5)], ..Default::default() });
    let segment = SegmentSlice::open(segment.into()).unwrap();
    let held: Vec<_> = (0..samples.len() as u64).map(|n| segment.sample(n).unwrap()).collect(); // at many addresses
    for (sample, (data, label)) in held.iter().zip(&samples) {
        for (part, want) in sample.parts.iter().zip([data, label]) {
            let found = part.data().unwrap();
            assert_eq!(
                (found.as_ptr() as usize % 64, found),
                (0, &Bytes::copy_from_slice(want)),
                "{} bytes",
                want.len()
            );
        }
    }
}

/// Returns the bytes of a whole segment beyond its payload, per sample, for `count` samples of one part of `len`
/// bytes.
fn overhead(len: usize, count: u64) -> f64 {
    let schema = Schema::new([("data", DType::U8, vec![len as u64])]).unwrap();
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema), WriteOptions::default()).unwrap();
    let data = vec![7; len];
    for n in 0..count {
        let shape = [len as u64];
        let parts = [PartRef::new(DType::U8, &shape, &data)];
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 1_000 + n }).unwrap();
    }
    writer.finish(&mut file).unwrap();
    (file.len() as u64 - count * len as u64) as f64 / count as f64
}

#[test]
fn overhead_is_at_most_32_bytes_a_sample_or_256_a_16_mib_part() {
    let (small, large) = (overhead(100, 20_000), overhead(16 << 20, 4));
    println!("beyond the payload: {small:.1} bytes for a sample of 100 bytes, {large:.1} for a part of 16 MiB");
    assert!(small <= 32.0 && large <= 256.0, "{small}, {large}");
}

#[test]
fn scalars_empty_tensors_and_other_shapes_round_trip() {
    let schema = Schema::new([("x", DType::F32, vec![])]).unwrap();
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema), WriteOptions::default()).unwrap();
    let numpy = DType::Numpy { descr: "<M8[ns]".into(), itemsize: 8 };
    let cases: [(DType, &[u64], &[u8]); 4] = [
        (DType::F32, &[], &[1, 2, 3, 4]),
        (DType::F32, &[0, 5], &[]),
        (DType::C128, &[1], &[9; 16]),
        (numpy, &[2], &[8; 16]),
    ];
    for (dtype, shape, data) in &cases {
        let parts = [PartRef::new(dtype.clone(), shape, data)];
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 }).unwrap();
    }
    writer.finish(&mut file).unwrap();
    let segment = SegmentSlice::open(file.into()).unwrap();
    for (n, (dtype, shape, data)) in cases.iter().enumerate() {
        let part = &segment.sample(n as u64).unwrap().parts[0];
        assert_eq!((&part.dtype, &part.shape[..], &part.data().unwrap()[..]), (dtype, *shape, *data));
    }
}

#[test]
fn invalid_samples_are_refused_without_changing_the_segment() {
    let schema = Schema::new([("x", DType::U8, vec![4])]).unwrap();
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema), WriteOptions::default()).unwrap();
    let before = file.len();
    let meta = Meta::new();
    let four = PartRef::new(DType::U8, &[4], &[0; 4]);
    let short = PartRef::new(DType::U8, &[4], &[0; 3]);
    for parts in [vec![], vec![four.clone(), four.clone()], vec![short]] {
        assert!(writer.sample(&mut file, &SampleRef { parts: &parts, meta: &meta, unix_ms: 0 }).is_err());
    }
    assert_eq!(file.len(), before);
    writer.sample(&mut file, &SampleRef { parts: &[four], meta: &meta, unix_ms: 0 }).unwrap();
    writer.finish(&mut file).unwrap();
    check(&file).unwrap();
}

/// Returns the whole segment in section 17 of SPEC.md.
fn segment_of_the_specification() -> Vec<u8> {
    let spec = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/SPEC.md")).unwrap();
    let section = spec.split("## 17 ").nth(1).unwrap();
    let is_row = |line: &&str| line.starts_with("    0") && line.len() > 10;
    let digits = section.lines().filter(is_row).flat_map(|line| line[10..].bytes().filter(u8::is_ascii_hexdigit));
    let digits: Vec<u8> = digits.collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn writer_produces_the_segment_of_the_specification() {
    let schema = Schema::new([("data", DType::U8, vec![2, 3])]).unwrap();
    let created_unix_ms = 1_700_000_000_000;
    let id = SegmentId([7; 16]);
    let info = SegmentInfo { id, born: 1, created_unix_ms, first_number: 0, schema, provenance: Meta::new() };
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default()).unwrap();
    let parts = [PartRef::new(DType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6])];
    let sample = SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: created_unix_ms + 250 };
    writer.sample(&mut file, &sample).unwrap();
    writer.finish(&mut file).unwrap();
    let rows = file.chunks(16).enumerate().map(|(n, row)| {
        let words = row.chunks(2).map(|w| w.iter().map(|b| format!("{b:02x}")).collect::<String>());
        format!("    {:04x}  {}", n * 16, words.collect::<Vec<_>>().join(" "))
    });
    assert_eq!(segment_of_the_specification(), file, "section 17 should be:\n{}", rows.collect::<Vec<_>>().join("\n"));
}
