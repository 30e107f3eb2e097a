//! A part of several records is written and read in little more memory than its size. Runs alone in its process,
//! because it measures the process's peak.

use ringreel::format::{
    DType, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, WriteOptions, frame,
};
use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::segment::reader::{Access, SegmentReader};
use ringreel::segment::writer::{StagingOptions, StagingWriter};
use ringreel_ops::inspect::verify_file::check_whole;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use testkit::process::in_own_process;

const MIB: u64 = 1 << 20;
const LEN: u64 = 600 * MIB;
const ALLOWED: u64 = 64 * MIB;

/// The peak resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A sink that compares the bytes written to it with a file.
struct Same(BufReader<File>);

impl Write for Same {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let there = self.0.fill_buf()?;
        let len = bytes.len().min(there.len());
        assert!(bytes[..len] == there[..len] && (len > 0 || bytes.is_empty()), "other bytes");
        self.0.consume(len);
        Ok(len)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that differ from page to page, with the RecordIO magic number at each of `magics`.
fn tensor(magics: &[u64]) -> Vec<u8> {
    let page: Vec<u8> = (0..4096u32).map(|n| (n * 7 % 251) as u8).collect();
    let mut data = vec![0; LEN as usize];
    for (n, out) in data.chunks_exact_mut(4096).enumerate() {
        out.copy_from_slice(&page);
        out[..8].copy_from_slice(&(n as u64 + 1).to_le_bytes());
    }
    for at in magics {
        data[*at as usize..][..4].copy_from_slice(&frame::MAGIC.to_le_bytes());
    }
    data
}

#[test]
fn part_of_600_mib_takes_less_than_64_mib_beyond_itself() {
    in_own_process(&testkit::test_name!("part_of_600_mib_takes_less_than_64_mib_beyond_itself"), body);
}

fn body() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let fs = Arc::new(Posix);
    let layout = Layout::new(dir.path());
    let before = peak();
    let unsplit: &[u64] = &[];
    // At the beginning, across the border of the first two records, and in the last record.
    let split: &[u64] = &[0, 4, 256 * MIB - 4, 256 * MIB, 599 * MIB + 8];
    for (n, magics) in [unsplit, split].into_iter().enumerate() {
        let schema = Schema::new([("data", DType::U8, vec![LEN]), ("label", DType::U8, vec![2000])]).unwrap();
        let info = SegmentInfo {
            id: SegmentId([n as u8; 16]),
            born: 1,
            created_unix_ms: 0,
            first_number: 0,
            schema,
            provenance: Meta::new(),
        };
        let options = StagingOptions {
            write: WriteOptions::default(),
            buffer: 1 << 20,
            sync: false,
            sync_dir: false,
            settled: Arc::default(),
            dir_syncs: ringreel::fs::atomic_publish::DirSyncs::default(),
            memory: Arc::default(),
        };
        let mut writer = StagingWriter::begin(fs.clone(), &layout, "owner", info.clone(), &options).unwrap();
        let data = tensor(magics);
        let crc = crc32fast::hash(&data);
        let label = [9; 2000];
        let parts = [PartRef::new(DType::U8, &[LEN], &data), PartRef::new(DType::U8, &[2000], &label)];
        let sample = SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 0 };
        writer.sample(&sample).unwrap();
        let (_, path) = writer.seal().unwrap();
        // Written in order, the segment has the same bytes.
        let mut same = Same(BufReader::with_capacity(MIB as usize, File::open(&path).unwrap()));
        let mut writer = SegmentWriter::begin(&mut same, info, WriteOptions::default()).unwrap();
        writer.sample(&mut same, &sample).unwrap();
        writer.finish(&mut same).unwrap();
        assert!(same.0.fill_buf().unwrap().is_empty());
        drop(data);
        for access in [Access::Shared, Access::Private, Access::Copy] {
            let reader = SegmentReader::open(&*fs, &path, access).unwrap();
            let sample = reader.sample(0, ReadOptions::default()).unwrap();
            let data = sample.parts[0].data().unwrap();
            assert_eq!((data.len() as u64, crc32fast::hash(data)), (LEN, crc), "{access:?}");
            assert_eq!(data.as_ptr() as usize % 64, 0);
            assert_eq!(sample.parts[1].data().unwrap()[..], label);
        }
        check_whole(&*fs, &path).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    let beyond = peak() - before - LEN;
    println!("a part of 600 MiB: at most {:.1} MiB beyond itself", beyond as f64 / MIB as f64);
    assert!(beyond < ALLOWED, "{beyond} bytes");
}
