//! Samples beyond 4 GiB in a segment (a sparse file) can be read.

use ringreel::format::{
    DType, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, WriteOptions,
};
use ringreel::fs::Posix;
use ringreel::segment::reader::{Access, SegmentReader};
use ringreel_ops::inspect::verify_file::check_whole;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use testkit::process::in_own_process;

/// A file that stores zeros as holes.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const HOLE: usize = 1 << 20;
        if bytes.len() < HOLE {
            return self.0.write(bytes);
        }
        self.0.seek(SeekFrom::Current(bytes.len() as i64))?; // all large parts of this test are zeros
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn samples_beyond_4_gib_are_read() {
    in_own_process(&testkit::test_name!("samples_beyond_4_gib_are_read"), body);
}

fn body() {
    const LEN: u64 = 900 << 20;
    const COUNT: u64 = 6;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("000000.rec");
    let schema = Schema::new([("zeros", DType::U8, vec![LEN]), ("label", DType::U64, vec![500])]).unwrap();
    let info = SegmentInfo {
        id: SegmentId([3; 16]),
        born: 1,
        created_unix_ms: 0,
        first_number: 0,
        schema,
        provenance: Meta::new(),
    };
    let zeros = vec![0; LEN as usize];
    let label = |n: u64| (0..500).flat_map(|k| (n << 32 | k).to_le_bytes()).collect::<Vec<_>>();
    let mut file = Sparse(File::create(&path).unwrap());
    let mut writer = SegmentWriter::begin(&mut file, info, WriteOptions::default()).unwrap();
    for n in 0..COUNT {
        let label = label(n);
        let parts = [PartRef::new(DType::U8, &[LEN], &zeros), PartRef::new(DType::U64, &[500], &label)];
        writer.sample(&mut file, &SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 }).unwrap();
    }
    let sealed = writer.finish(&mut file).unwrap();
    assert!(sealed.len > 5 << 30 && std::fs::metadata(&path).unwrap().len() == sealed.len);
    for access in [Access::Shared, Access::Private, Access::Copy] {
        let reader = SegmentReader::open(&Posix, &path, access).unwrap();
        let offsets = reader.tail().footer.offsets().collect::<Vec<_>>();
        assert!(offsets[5] > 4 << 30);
        let sample = reader.sample(5, ReadOptions::default()).unwrap();
        assert_eq!(sample.parts[0].data().unwrap().len() as u64, LEN);
        assert_eq!(sample.parts[1].data().unwrap()[..], label(5)[..], "{access:?}");
    }
    assert_eq!(check_whole(&Posix, &path).unwrap().footer.count, COUNT);
    println!("a segment of {} bytes: samples beyond 4 GiB are read", sealed.len);
}
