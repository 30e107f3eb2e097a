//! Each limit of the format from both sides: values within it are written and read back, values beyond it are refused
//! by the writer and by the reader.

use super::common::{check, info, noise};
use bytes::Bytes;
use ringreel_format::dtype::{MAX_NAME, MAX_NDIM, MAX_PARTS};
use ringreel_format::frame::{FrameHeader, MAGIC, MAX_LEN, Sequence, framed_len, padding, read_record};
use ringreel_format::input::SliceInput;
use ringreel_format::meta::{MAX_DEPTH, MAX_META, MAX_VALUES};
use ringreel_format::segment::head::PartPlace;
use ringreel_format::segment::part::{Part, decode_part, gather, stored_in};
use ringreel_format::segment::walk::{self, SegmentWalk};
use ringreel_format::{
    DType, Footer, FormatError, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentInfo, SegmentSlice,
    SegmentWriter, Value, WriteOptions,
};
use std::io::ErrorKind;

/// Returns whether a segment with this schema can be written and has the same schema when it is read.
fn round_trips(schema: &Schema) -> bool {
    let mut file = Vec::new();
    let Ok(mut writer) = SegmentWriter::begin(&mut file, info(schema.clone()), WriteOptions::default()) else {
        return false;
    };
    writer.finish(&mut file).unwrap();
    SegmentSlice::open(file.clone().into()).unwrap().footer().info.schema == *schema
        && check(&file).unwrap().info.schema == *schema
}

#[test]
fn schema_is_accepted_up_to_its_limits() {
    let part = |name: &str, dtype, axes| Schema::new([(name, dtype, vec![1; axes])]);
    let name = |len: u64| "n".repeat(len as usize);
    let parts = |count: u64| {
        let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        Schema::new(names.iter().map(|name| (name.as_str(), DType::U8, vec![])))
    };
    let numpy = |len: u64| DType::Numpy { descr: name(len), itemsize: 3 };
    for good in [
        parts(MAX_PARTS),
        part(&name(MAX_NAME), DType::U8, 1),
        part("x", DType::F64, MAX_NDIM),
        part("x", numpy(MAX_NAME), 1),
        part("x", DType::Unknown { code: 16, itemsize: 3 }, 1),
        part("x", DType::Unknown { code: 254, itemsize: u32::MAX }, 1),
        Schema::new([("x", DType::U8, vec![i64::MAX as u64])]),
    ] {
        assert!(round_trips(&good.unwrap()));
    }
    for bad in [
        parts(MAX_PARTS + 1),
        part(&name(MAX_NAME + 1), DType::U8, 1),
        part("", DType::U8, 1),
        Schema::new([("x", DType::U8, vec![]), ("x", DType::U8, vec![])]),
        part("x", DType::F64, MAX_NDIM + 1),
        part("x", numpy(MAX_NAME + 1), 1),
        part("x", DType::Unknown { code: 255, itemsize: 3 }, 1),
        part("x", DType::Unknown { code: 15, itemsize: 3 }, 1),
        Schema::new([("x", DType::U8, vec![i64::MAX as u64 + 1])]),
        Schema::new([("x", DType::U16, vec![1 << 62])]),
    ] {
        assert!(bad.is_err());
    }
}

#[test]
fn each_dtype_has_one_name_and_one_size() {
    let known = "bytes 1, bool 1, u8 1, u16 2, u32 4, u64 8, i8 1, i16 2, i32 4, i64 8, f16 2, bf16 2, f32 4, f64 8, c64 8, c128 16";
    let mut seen = Vec::new();
    for (name, size) in known.split(", ").map(|row| row.split_once(' ').unwrap()) {
        let dtype = DType::from_name(name).unwrap();
        assert_eq!((dtype.to_string(), dtype.itemsize().to_string()), (name.to_owned(), size.to_owned()));
        assert!(!seen.contains(&dtype) && round_trips(&Schema::new([("x", dtype.clone(), vec![2])]).unwrap()));
        seen.push(dtype);
    }
    let numpys = "uint8 u8, uint16 u16, uint32 u32, uint64 u64, int8 i8, int16 i16, int32 i32, int64 i64, float16 f16, bfloat16 bf16, \
                  float32 f32, float64 f64, complex64 c64, complex128 c128";
    for (long, short) in numpys.split(", ").map(|row| row.split_once(' ').unwrap()) {
        assert_eq!(DType::from_name(long).unwrap().to_string(), short);
    }
    assert_eq!((DType::from_name("float8"), DType::from_name("")), (None, None));
    assert_eq!(DType::Numpy { descr: "<M8[ns]".into(), itemsize: 8 }.to_string(), "numpy:<M8[ns]");
    assert_eq!(DType::Unknown { code: 0x2a, itemsize: 8 }.to_string(), "unknown:0x2a");
}

fn meta(value: Value) -> Meta {
    [("a".to_owned(), value)].into_iter().collect()
}

/// Returns a value nested in this many arrays or maps.
fn nested(levels: usize, maps: bool) -> Value {
    (0..levels).fold(Value::Null, |value, _| if maps { Value::Map(meta(value)) } else { Value::Array(vec![value]) })
}

#[test]
fn meta_numbers_have_only_their_shortest_form() {
    // RFC 8949, appendix A, by analogy.
    for (n, bytes) in [
        (0, &[0x00][..]),
        (23, &[0x17]),
        (24, &[0x18, 24]),
        (255, &[0x18, 255]),
        (256, &[0x19, 1, 0]),
        (65_535, &[0x19, 255, 255]),
        (65_536, &[0x1a, 0, 1, 0, 0]),
        (u32::MAX.into(), &[0x1a, 255, 255, 255, 255]),
        (1 << 32, &[0x1b, 0, 0, 0, 1, 0, 0, 0, 0]),
        (u64::MAX.into(), &[0x1b, 255, 255, 255, 255, 255, 255, 255, 255]),
        (-1, &[0x20]),
        (-24, &[0x37]),
        (-25, &[0x38, 24]),
        (-1 - i128::from(u64::MAX), &[0x3b, 255, 255, 255, 255, 255, 255, 255, 255]),
    ] {
        let meta = meta(Value::Int(n));
        let encoded = meta.encode().unwrap();
        assert_eq!((&encoded[..3], &encoded[3..]), (&[0xa1, 0x61, b'a'][..], bytes), "{n}");
        assert_eq!(Meta::decode(&encoded, 0).unwrap(), meta);
    }
    for n in [i128::from(u64::MAX) + 1, -2 - i128::from(u64::MAX)] {
        assert!(meta(Value::Int(n)).encode().is_err(), "{n}");
    }
    for long in [&[0x18, 23][..], &[0x19, 0, 255], &[0x1a, 0, 0, 255, 255], &[0x1b, 0, 0, 0, 0, 255, 255, 255, 255]] {
        let bytes = [&[0xa1, 0x61, b'a'], long].concat();
        assert!(Meta::decode(&bytes, 0).is_err(), "{long:x?} is not the shortest form");
    }
}

#[test]
fn every_kind_of_meta_value_round_trips() {
    let values = [
        Value::Null,
        true.into(),
        false.into(),
        (-7i64).into(),
        (1.5f64).into(),
        "text".into(),
        String::new().into(),
        Value::Bytes(vec![0, 255]),
        Value::Array(vec![]),
        Value::Map(Meta::new()),
    ];
    for (n, value) in values.iter().enumerate() {
        let one = meta(value.clone());
        let again = Meta::decode(&one.encode().unwrap(), 0).unwrap();
        let same: Vec<usize> = (0..values.len()).filter(|k| again.get("a") == Some(&values[*k])).collect();
        assert_eq!((same, again.len(), again.is_empty()), (vec![n], 1, false), "{value:?}");
    }
    assert!(Meta::new().is_empty() && meta("t".into()).text("a") == Some("t") && meta(1u64.into()).text("a").is_none());
    for bad in [&[0xa1, 0x61, b'a', 0xf7][..], &[0xa1, 0x61, b'a', 0xf9, 0, 0], &[0xa1, 0x41, b'a', 0xf6]] {
        assert!(Meta::decode(bad, 0).is_err(), "{bad:x?}");
    }
}

#[test]
fn meta_is_accepted_up_to_its_depth_and_size_limits() {
    for maps in [false, true] {
        let deepest = meta(nested(MAX_DEPTH - 1, maps));
        assert_eq!(Meta::decode(&deepest.encode().unwrap(), 0).unwrap(), deepest);
        assert!(matches!(meta(nested(MAX_DEPTH, maps)).encode(), Err(FormatError::TooLarge { .. })));
    }
    let deeper = [&[0xa1, 0x61, b'a'][..], &[0x81; MAX_DEPTH], &[0xf6]].concat();
    assert!(matches!(Meta::decode(&deeper, 0), Err(FormatError::TooLarge { value: 17, .. })));

    // The array itself counts as a value.
    let many = |values: usize| meta(Value::Array(vec![Value::Null; values - 1]));
    let most = many(MAX_VALUES);
    assert_eq!(Meta::decode(&most.encode().unwrap(), 0).unwrap(), most);
    let more = FormatError::TooLarge { what: "values of meta", value: MAX_VALUES as u64 + 1, limit: MAX_VALUES as u64 };
    assert_eq!(many(MAX_VALUES + 1).encode().unwrap_err().to_string(), more.to_string());
    let bytes = [&[0xa1, 0x61, b'a', 0x9a, 0, 1, 0, 0][..], &vec![0xf6; MAX_VALUES]].concat();
    assert_eq!(Meta::decode(&bytes, 0).unwrap_err().to_string(), more.to_string());

    let long = |len: u64| meta("x".repeat(len as usize - 8).into()).encode(); // a1 61 61 7a and four bytes of length
    assert_eq!(long(MAX_META).unwrap().len() as u64, MAX_META);
    assert!(matches!(long(MAX_META + 1), Err(FormatError::TooLarge { .. })));

    let provenance = meta("x".repeat(MAX_META as usize - 8).into());
    let info = SegmentInfo { provenance: provenance.clone(), ..info(Schema::default()) };
    let mut file = Vec::new();
    SegmentWriter::begin(&mut file, info, WriteOptions::default()).unwrap().finish(&mut file).unwrap();
    assert!(check(&file).unwrap().info.provenance == provenance);
}

#[test]
fn record_length_limit_holds_for_split_records() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    assert_eq!((framed_len(5, 0), framed_len(5, 2), framed_len(8, 1)), (16, 24, 20));
    let frame = |flag, len| FrameHeader { flag, len };
    let whole = |frames: &[FrameHeader]| {
        let mut sequence = Sequence::default();
        frames.iter().try_for_each(|frame| sequence.take(*frame, 0)).ok()?;
        Some((sequence.is_complete(), sequence.splits(), sequence.payload_len()))
    };
    let half = 1 << 28;
    assert_eq!(whole(&[frame(0, MAX_LEN)]), Some((true, 0, MAX_LEN)));
    assert_eq!(whole(&[frame(1, half), frame(3, MAX_LEN - half - 4)]), Some((true, 1, MAX_LEN)));
    assert_eq!(whole(&[frame(1, half), frame(2, 4), frame(3, 1)]), Some((true, 2, half + 13)));
    assert_eq!(whole(&[frame(1, 8)]), Some((false, 0, 8)));
    assert_eq!(whole(&[frame(1, half), frame(3, MAX_LEN - half - 3)]), None);
    assert_eq!(frame(0, 5).framed_len(), 16);
}

/// Returns a segment of one sample with these parts of dtype bytes.
fn one_sample(parts: &[&[u8]], options: WriteOptions) -> Vec<u8> {
    let names: Vec<String> = (0..parts.len()).map(|n| n.to_string()).collect();
    let schema = Schema::new(names.iter().map(|name| (name.as_str(), DType::Bytes, vec![0]))).unwrap();
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema), options).unwrap();
    let shapes: Vec<[u64; 1]> = parts.iter().map(|part| [part.len() as u64]).collect();
    let refs: Vec<_> = parts.iter().zip(&shapes).map(|(part, shape)| PartRef::new(DType::Bytes, shape, part)).collect();
    let before = (writer.position(), writer.samples());
    assert_eq!(before, (file.len() as u64, 0));
    let meta = Meta::new();
    let sample = SampleRef { parts: &refs, meta: &meta, unix_ms: 1_000 };
    writer.sample(&mut file, &sample).unwrap();
    assert_eq!((writer.position(), writer.samples(), writer.info().born), (file.len() as u64, 1, 3));
    let (took, estimate) = (file.len() as u64 - before.0, SegmentWriter::estimate(&sample));
    let most = parts.iter().map(|part| part.len() as u64 + 280).sum::<u64>() + 64;
    assert!(took <= estimate && estimate <= most, "{took} bytes, estimated {estimate}");
    writer.finish(&mut file).unwrap();
    file
}

#[test]
fn parts_up_to_inline_max_are_stored_in_the_head() {
    assert_eq!(WriteOptions::default().inline_max, 1024);
    let (small, large) = (vec![7; 1024], vec![7; 1025]);
    let file = one_sample(&[&small, &large, &[]], WriteOptions::default());
    let mut walk = SegmentWalk::new(&file[..], 0).unwrap();
    assert!(walk.footer().is_none() && walk.info().born == 3);
    let sample = walk.next().unwrap().unwrap();
    let inline: Vec<bool> = sample.head.parts.iter().map(|part| matches!(part.place, PartPlace::Inline(_))).collect();
    assert_eq!(inline, [true, false, true]);
    assert_eq!([0, 1, 2].map(|n| sample.stored(n).to_vec()), [small, large, vec![]]);
    assert!(walk.next().unwrap().is_none() && walk.footer().unwrap().count == 1 && walk.next().unwrap().is_none());
}

#[test]
fn compressed_parts_are_read_up_to_max_part() {
    let zeros = vec![0; 100_000];
    let options = WriteOptions { compress: vec![Some(3)], inline_max: 8 };
    let file = Bytes::from(one_sample(&[&zeros], options));
    let segment = SegmentSlice::open(file.clone()).unwrap();
    let extent = segment.footer().extent(0).unwrap().unwrap();
    let read = |max_part| {
        let bytes = file.slice(extent.start as usize..extent.end as usize);
        let options = ReadOptions { max_part, ..ReadOptions::default() };
        ringreel_format::Sample::decode(&bytes, extent.start, &segment.footer().info, options)
    };
    assert_eq!(read(100_000).unwrap().parts[0].data().unwrap().len(), 100_000);
    assert!(matches!(read(99_999), Err(FormatError::TooLarge { value: 100_000, limit: 99_999, .. })));
    assert_eq!(ReadOptions::default().max_part, 1 << 40);
    assert!(segment.sample(1).is_err());

    // `check` decodes the part; `check_stored` does not.
    assert!(walk::check(SliceInput::new(&file, 0), 100_000).is_ok());
    assert!(matches!(walk::check(SliceInput::new(&file, 0), 99_999), Err(FormatError::TooLarge { .. })));
    assert!(walk::check_stored(SliceInput::new(&file, 0)).is_ok());

    // A ratio beyond that of zstd is refused before decoding.
    let mut walk = SegmentWalk::new(&file[..], 1 << 40).unwrap();
    let mut head = walk.next().unwrap().unwrap().head.parts[0].clone();
    head.shape = vec![(head.stored_len << 16) + 1];
    let error = decode_part(
        file.slice(..head.stored_len as usize),
        head,
        "x",
        0,
        ReadOptions { verify: false, ..ReadOptions::default() },
    );
    assert!(error.unwrap_err().to_string().contains("cannot decode to"));
}

#[test]
fn part_length_must_match_dtype_and_shape() {
    let part = Part::new(DType::U16, vec![2, 3], Bytes::from(vec![1; 12])).unwrap();
    assert_eq!((part.len(), part.is_empty(), part.file_offset), (12, false, None));
    assert!(Part::new(DType::U16, vec![2, 3], Bytes::from(vec![1; 11])).is_err());
    assert!(part.with_data(Bytes::from(vec![1; 13])).is_err());
    assert_eq!(part.with_data(Bytes::from(vec![2; 12])).unwrap().data().unwrap()[..], [2; 12]);
    assert!(Part::new(DType::U16, vec![0, 3], Bytes::new()).unwrap().is_empty());
}

#[test]
fn only_contiguous_uncompressed_large_parts_have_file_offsets() {
    let (plain, split) = (vec![7; 3000], noise(8192, 5));
    assert!(ringreel_format::frame::split_points(&split).next().is_some());
    let options = WriteOptions { compress: vec![None, None, Some(3), None], ..WriteOptions::default() };
    let file = one_sample(&[&plain, &split, &[7; 90_000], &[7; 10]], options);
    let sample = SegmentSlice::open(file.clone().into()).unwrap().sample(0).unwrap();
    let places: Vec<bool> = sample.parts.iter().map(|part| part.file_offset.is_some()).collect();
    assert_eq!(places, [true, false, false, false]);
    let at = sample.parts[0].file_offset.unwrap() as usize;
    assert_eq!((at % 64, &file[at..at + 3000]), (0, &plain[..]));
}

#[test]
fn gather_reads_a_large_part_and_detects_damage() {
    for (data, splits) in [(vec![7; 3001], false), (noise(8191, 5), true)] {
        let file = Bytes::from(one_sample(&[&data], WriteOptions::default()));
        let mut walk = SegmentWalk::new(&file[..], 0).unwrap();
        let head = walk.next().unwrap().unwrap().head.parts[0].clone();
        let PartPlace::Large { records, .. } = &head.place else { unreachable!() };
        assert_eq!(records.splits() > 0, splits);
        let gathered = |file: &[u8]| {
            let mut out = vec![0; data.len()];
            let mut read_at = |out: &mut [u8], at: u64| {
                out.copy_from_slice(file.get(at as usize..at as usize + out.len()).ok_or(ErrorKind::UnexpectedEof)?);
                Ok(())
            };
            gather(&head, &mut out, &mut read_at).map(|()| out)
        };
        assert!(gathered(&file).unwrap() == data && stored_in(&file, 0, records).unwrap() == data);
        // The bytes of a sample may begin anywhere in the file.
        let base = records.frames().start - 4;
        assert_eq!(stored_in(&file.slice(base as usize..), base, records).unwrap(), data);
        assert!(stored_in(&file.slice(base as usize + 8..), base + 8, records).is_err());
        // Magic, flag, length and padding must match the head.
        let (begin, end) = (records.frames().start as usize, records.frames().end as usize);
        for (at, flip) in [(begin, 1), (begin + 7, 0x20), (begin + 4, 4), (begin + 4, 1), (end - 1, 1)] {
            let mut damaged = file.to_vec();
            damaged[at] ^= flip;
            assert!(gathered(&damaged).is_err(), "byte {at} ^ {flip}");
        }
        assert!(gathered(&file[..end - 1]).is_err());
    }
}

#[test]
fn records_with_a_wrong_length_are_refused() {
    let data = [&[7; 3000][..], &MAGIC.to_le_bytes(), &[9; 3000]].concat();
    let file = one_sample(&[&data], WriteOptions::default());
    let mut walk = SegmentWalk::new(&file[..], 0).unwrap();
    let head = walk.next().unwrap().unwrap().head.parts[0].clone();
    let PartPlace::Large { records, .. } = &head.place else { unreachable!() };
    // Two frames of 8 + 3000 bytes become one of 8 + 6008: four bytes more than the part has.
    let begin = records.frames().start as usize;
    let mut damaged = file.clone();
    damaged[begin + 4..begin + 8].copy_from_slice(&6008u32.to_le_bytes());
    damaged[begin + 3008] ^= 1;
    let mut out = vec![0; data.len()];
    let mut read_at = |out: &mut [u8], at: u64| {
        out.copy_from_slice(&damaged[at as usize..at as usize + out.len()]);
        Ok(())
    };
    assert!(gather(&head, &mut out, &mut read_at).is_err());
    assert!(stored_in(&damaged.clone().into(), 0, records).is_err() && stored_in(&file.into(), 0, records).is_ok());
}

#[test]
fn offsets_that_do_not_ascend_are_refused() {
    let file = Bytes::from(super::common::write(
        &[(vec![1; 8], vec![2; 8]), (vec![3; 8], vec![4; 8])],
        WriteOptions::default(),
    ));
    let footer = SegmentSlice::open(file.clone()).unwrap().footer().clone();
    let (at, offsets) = (footer.at, footer.offsets().collect::<Vec<_>>());
    let payload = read_record(&file, at as usize, 0).unwrap().payload.into_owned();
    // A footer with another table and a correct checksum.
    let extents = |first: u64, second: u64| {
        let mut payload = payload.clone();
        payload[24..32].copy_from_slice(&first.to_le_bytes());
        payload[32..40].copy_from_slice(&second.to_le_bytes());
        let bound = [&footer.info.id.0[..], &at.to_le_bytes(), &payload[4..]].concat();
        payload[..4].copy_from_slice(&crc32fast::hash(&bound).to_le_bytes());
        let footer = Footer::decode(&payload.into(), at).unwrap();
        assert_eq!(footer.extent(2).unwrap(), None);
        [0, 1].map(|n| footer.extent(n).ok().flatten())
    };
    let (first, second) = (offsets[0], offsets[1]);
    assert_eq!(extents(first, second), [Some(first..second), Some(second..at)]);
    assert_eq!(extents(second, first), [None, Some(first..at)]);
    assert_eq!(extents(first, first), [None, Some(first..at)]);
    assert_eq!(extents(first, at), [Some(first..at), None]);
    assert_eq!(extents(first, at + 4), [None, None]);
    assert_eq!(extents(first + 1, second + 2), [None, None]);
}
