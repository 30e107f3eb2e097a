//! Files that are made to be expensive to read. The time and memory for each is proportional to its size.

use super::common::info;
use ringreel_format::frame::{self, MAGIC};
use ringreel_format::input::{Input, StreamInput};
use ringreel_format::recordio::{RecordReader, ResyncItem, ResyncReader};
use ringreel_format::segment::head::{Codec, PartHead};
use ringreel_format::segment::part::decode_part;
use ringreel_format::{
    DType, FormatError, Meta, PartRef, PartSchema, ReadOptions, Salvage, SalvageItem, SampleRef, Schema, SegmentSlice,
    SegmentWriter, WriteOptions,
};
use std::time::{Duration, Instant};

/// A hundred times the time that each of these takes, and a hundredth of what it would take if it were not
/// proportional.
const ENOUGH: Duration = Duration::from_secs(60);

fn frame_header(flag: u32, len: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4..].copy_from_slice(&(flag << 29 | len).to_le_bytes());
    bytes
}

#[test]
fn resync_time_is_proportional_to_file_size() {
    let claim = 8 << 20;
    let file = frame_header(0, claim - 8).repeat(2 * claim as usize / 8);
    let started = Instant::now();
    let (mut reader, mut pos) = (ResyncReader::new(&file[..]), 0);
    while let Some(found) = reader.next().unwrap() {
        pos = match found {
            ResyncItem::Record(record) => record.end,
            ResyncItem::Skipped(region) => region.end,
        };
    }
    assert_eq!(pos, file.len() as u64);
    assert!(started.elapsed() < ENOUGH, "{:?}", started.elapsed());
}

/// Creates heads with correct checksums, of 4096 large parts each, whose first frames all lead to one common tail.
fn common_tail(samples: u64, tail: usize) -> Vec<u8> {
    let names = (0..4096).map(|n| format!("p{n}")).collect::<Vec<_>>();
    let schema = Schema::new(names.iter().map(|name| (name.as_str(), DType::Bytes, vec![0]))).unwrap();
    let info = info(schema);
    let id = info.id;
    let (mut file, mut firsts) = (Vec::new(), Vec::new());
    SegmentWriter::begin(&mut file, info, WriteOptions::default()).unwrap();
    for n in 0..samples {
        let mut head = vec![0, 0, 0, 0, b'S', n as u8, 0, 0];
        head.extend([2, 9, 9, 9, 9].repeat(4096)); // large, without bytes, with any checksum
        let mut crc = crc32fast::Hasher::new();
        crc.update(&id.0);
        crc.update(&(file.len() as u64).to_le_bytes());
        crc.update(&head[4..]);
        head[..4].copy_from_slice(&crc.finalize().to_le_bytes());
        frame::write_record(&mut file, &head).unwrap();
        for _ in 0..4096 {
            let pos = file.len() as u64;
            if !(pos + 8).is_multiple_of(64) {
                let pad = (pos + 16).wrapping_neg() % 64;
                file.extend(frame_header(0, pad as u32));
                file.extend(vec![0; pad as usize]);
            }
            firsts.push(file.len());
            file.extend([0; 8]);
        }
    }
    let at = file.len();
    for first in firsts {
        file[first..first + 8].copy_from_slice(&frame_header(1, (at - first - 8) as u32));
    }
    file.extend(frame_header(2, 0).repeat(tail));
    file
}

#[test]
fn salvage_time_is_proportional_to_file_size() {
    let file = common_tail(16, 1 << 19);
    let started = Instant::now();
    assert!(Salvage::new(file.into(), ReadOptions::default()).count() > 16);
    assert!(started.elapsed() < ENOUGH, "{:?}", started.elapsed());
}

#[test]
fn parts_that_claim_a_terabyte_are_refused() {
    // A zstd frame of raw blocks, 17 MiB in total, that does not declare its size.
    let mut stored = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let (blocks, size) = (17 * 8, 128u32 << 10);
    for n in 0..blocks {
        let last = u32::from(n == blocks - 1);
        stored.extend_from_slice(&(size << 3 | last).to_le_bytes()[..3]);
        stored.extend(vec![n as u8; size as usize]);
    }
    let mut head = PartHead::default();
    (head.dtype, head.shape, head.codec, head.stored_len) =
        (DType::U8, vec![1 << 40], Codec::Zstd, stored.len() as u64);
    let decoded = decode_part(stored.clone().into(), head.clone(), "a", 0, ReadOptions::default());
    assert!(matches!(decoded, Err(FormatError::Decompress { .. })), "{decoded:?}");
    head.shape = vec![17 << 20];
    assert!(decode_part(stored.into(), head, "a", 0, ReadOptions::default()).is_ok());
}

#[test]
fn memory_for_a_salvaged_sample_is_limited() {
    let names = ["a", "b", "c"];
    let schema = Schema::new(names.map(|name| (name, DType::U8, vec![1 << 20]))).unwrap();
    let (mut file, zeros) = (Vec::new(), vec![0; 1 << 20]);
    let options = WriteOptions { compress: vec![Some(1); 3], ..WriteOptions::default() };
    let mut writer = SegmentWriter::begin(&mut file, info(schema), options).unwrap();
    let parts = names.map(|_| PartRef::new(DType::U8, &[1 << 20], &zeros));
    writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 }).unwrap();
    let salvaged =
        |max_part| match Salvage::new(file.clone().into(), ReadOptions { max_part, ..ReadOptions::default() }).next() {
            Some(SalvageItem::Sample(sample)) => sample.parts.iter().map(Result::is_ok).collect::<Vec<_>>(),
            other => unreachable!("{other:?}"),
        };
    assert_eq!(salvaged(3 << 20), [true, true, true]);
    assert_eq!(salvaged(2 << 20), [true, true, false]);
    assert_eq!(salvaged(1000), [false, false, false]);
}

#[test]
fn stream_input_does_not_exceed_its_memory_limit() {
    let mut file = frame_header(0, 3 << 20).to_vec();
    file.resize((3 << 20) + 8, 0);
    let within = |most| {
        RecordReader::with_input(StreamInput::new(&file[..], 0).at_most(most)).next().map(|found| found.is_some())
    };
    assert!(within(4 << 20).unwrap());
    let mut damaged = StreamInput::new(&file[..1000], 0).at_most(1 << 20);
    assert_eq!(damaged.peek(3 << 20).unwrap().len(), 1000, "a record that only claims its length is truncated");
    assert!(matches!(within(2 << 20), Err(FormatError::Io(why)) if why.kind() == std::io::ErrorKind::OutOfMemory));
}

#[test]
fn writer_refuses_what_readers_would_refuse() {
    let long = DType::Numpy { descr: "x".repeat(70_000), itemsize: 1 };
    assert!(Schema::new([("a", long.clone(), vec![1])]).is_err());
    let literal = Schema { parts: vec![PartSchema { name: String::new(), dtype: DType::U8, shape: vec![1] }] };
    let mut file = Vec::new();
    assert!(SegmentWriter::begin(&mut file, info(literal), WriteOptions::default()).is_err());
    assert!(file.is_empty());
    let schema = Schema::new([("a", DType::U8, vec![3])]).unwrap();
    let mut writer = SegmentWriter::begin(&mut file, info(schema), WriteOptions::default()).unwrap();
    let known =
        [(long, 3), (DType::Unknown { code: 2, itemsize: 3 }, 1), (DType::Unknown { code: 255, itemsize: 1 }, 3)];
    for (dtype, axis) in known {
        let (shape, meta) = ([axis], Meta::new());
        let parts = [PartRef::new(dtype, &shape, &[1, 2, 3])];
        assert!(writer.sample(&mut file, &SampleRef { parts: &parts, meta: &meta, unix_ms: 0 }).is_err());
    }
    writer.finish(&mut file).unwrap();
    assert_eq!(SegmentSlice::open(file.into()).unwrap().footer().count, 0);
}

#[test]
fn large_maps_keep_the_last_value_of_each_key() {
    let started = Instant::now();
    let entries = (0..60_000u64).map(|n| (format!("{}", n % 50_000), n.into()));
    let meta = entries.collect::<Meta>();
    assert_eq!(
        (meta.len(), meta.get("7"), meta.get("49999")),
        (50_000, Some(&50_007u64.into()), Some(&49_999u64.into()))
    );
    assert_eq!(Meta::decode(&meta.encode().unwrap(), 0).unwrap(), meta);
    assert!(started.elapsed() < ENOUGH);
}
