//! Whether a file is in memory, and which end of a sample a reader begins at.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use ringreel::Error;
use ringreel::format::{
    DType, FormatError, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter,
    WriteOptions,
};
use ringreel::fs::Posix;
use ringreel::segment::reader::{Access, SegmentReader};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PART: u64 = 3 << 20;

/// A segment of one sample, whose two large parts are both damaged.
fn segment() -> Vec<u8> {
    let schema = Schema::new([("data", DType::U8, vec![PART]), ("label", DType::U8, vec![PART])]).unwrap();
    let provenance = Meta::new();
    let info = SegmentInfo { id: SegmentId([7; 16]), born: 1, created_unix_ms: 0, first_number: 0, schema, provenance };
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default()).unwrap();
    let parts = [1u8, 2].map(|byte| vec![byte; PART as usize]);
    let parts = [0, 1].map(|n| PartRef::new(DType::U8, &[PART], &parts[n]));
    writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 }).unwrap();
    writer.finish(&mut file).unwrap();
    for byte in [1, 2] {
        let at = file.windows(1 << 20).position(|window| window.iter().all(|it| *it == byte)).unwrap();
        file[at + 5] ^= 1;
    }
    file
}

/// What is read of the first byte without waiting for a disk.
fn read_at_once(file: &File) -> rustix::io::Result<usize> {
    preadv2(file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT)
}

/// Has the kernel drop what it holds of a file. False where it does not, or does not say.
fn forgotten(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    let drop = || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop();
    let is_gone = read_at_once(&file) == Err(Errno::AGAIN);
    // Asked for, it is fetched.
    file.read_exact_at(&mut [0], 0).unwrap();
    let is_back = read_at_once(&file) == Ok(1);
    drop();
    is_gone && is_back
}

/// Which part is told of by the error that the damaged sample gives.
fn told_of(path: &Path, access: Access) -> &'static str {
    let reader = SegmentReader::open(&Posix, path, access).unwrap();
    match reader.sample(0, ReadOptions::default()).unwrap_err() {
        Error::Format { source: FormatError::Checksum { at, .. }, .. } => {
            if at < PART {
                "data"
            } else {
                "label"
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_sample_that_has_to_be_fetched_is_looked_at_from_its_beginning_and_one_in_memory_from_its_end() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("segment.rec");
    std::fs::write(&path, segment()).unwrap();
    // What was read into memory of one's own is there, wherever it came from.
    assert_eq!(told_of(&path, Access::Copy), "label");
    if !forgotten(&path) {
        let why = b"SKIPPED: samples that have to be fetched: this filesystem does not tell what is in memory\n";
        return std::io::stderr().write_all(why).unwrap();
    }
    for access in [Access::Shared, Access::Private] {
        assert!(forgotten(&path));
        assert_eq!(told_of(&path, access), "data", "{access:?}");
        std::fs::read(&path).unwrap();
        assert_eq!(told_of(&path, access), "label", "{access:?}");
    }
}
