//! Segments of large samples, whose heads are written after their parts: whichever call to the file fails, the sample
//! can be written again, and the file has the same bytes as one that was written in order.

use ringreel::format::frame::MAGIC;
use ringreel::format::{DType, Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, SegmentWriter, WriteOptions};
use ringreel::fs::Fs;
use ringreel::layout::Layout;
use ringreel::segment::writer::{StagingOptions, StagingWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use testkit::disk::{Disk, Lie};
#[allow(dead_code)]
use testkit::ring::{Action, EINTR, EIO, HookFs};

const ENOSPC: i32 = 28;
/// Half of the size from which a thread computes a sample's checksums.
const HALF: usize = 1 << 22;

/// The parts of one sample.
type Parts = Vec<Vec<u8>>;

fn part(len: usize, magic: Option<usize>) -> Vec<u8> {
    let mut data: Vec<u8> = (0..len).map(|n| (n * 31 + n / 251) as u8 | 1).collect();
    if let Some(at) = magic {
        data[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
    }
    data
}

/// Samples that exceed the buffer, fit in it, or contain magic numbers, with small ones between them.
fn samples() -> Vec<Parts> {
    let small = vec![part(100, None); 4];
    let clean = vec![part(2 * HALF, None), part(7, None), part(5000, None), part(HALF + 3, None)];
    let split = vec![part(2 * HALF, None), part(7, None), part(5000, None), part(HALF + 8, Some(HALF))];
    let buffered = vec![part(HALF * 4 / 7, None); 4];
    let buffered_split =
        vec![part(HALF * 4 / 7, None), part(HALF * 4 / 7, None), part(HALF * 4 / 7, Some(0)), part(HALF * 4 / 7, None)];
    vec![small.clone(), clean, small.clone(), split, buffered, small.clone(), buffered_split, small]
}

fn info() -> SegmentInfo {
    let schema = Schema::new(["a", "b", "c", "d"].map(|name| (name, DType::U8, vec![100]))).unwrap();
    let (id, provenance) = (SegmentId([7; 16]), Meta::new());
    SegmentInfo { id, born: 1, created_unix_ms: 0, first_number: 0, schema, provenance }
}

fn given<T>(parts: &Parts, to: impl FnOnce(&SampleRef<'_>) -> T) -> T {
    let shapes: Vec<_> = parts.iter().map(|part| [part.len() as u64]).collect();
    let parts: Vec<_> = parts.iter().zip(&shapes).map(|(data, shape)| PartRef::new(DType::U8, shape, data)).collect();
    to(&SampleRef { parts: &parts, meta: &Meta::new(), unix_ms: 5 })
}

/// The bytes of the file if it is written in order.
fn in_order(samples: &[Parts]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(), WriteOptions::default()).unwrap();
    samples.iter().for_each(|parts| given(parts, |sample| writer.sample(&mut file, sample)).unwrap());
    writer.finish(&mut file).unwrap();
    file
}

struct Scene {
    fs: HookFs,
    disk: Disk,
    buffer: usize,
}

impl Scene {
    fn new(buffer: usize) -> Scene {
        let disk = Disk::new(Lie::None);
        Scene { fs: HookFs::on(disk.clone()), disk, buffer }
    }

    fn begin(&self) -> StagingWriter {
        let options = StagingOptions {
            write: WriteOptions::default(),
            buffer: self.buffer,
            sync: true,
            sync_dir: false,
            settled: Arc::default(),
            dir_syncs: ringreel::fs::atomic_publish::DirSyncs::default(),
            memory: Arc::default(),
        };
        let layout = Layout::new(Path::new("/ring"));
        self.disk.ensure_dir(Path::new("/ring")).unwrap();
        StagingWriter::begin(Arc::new(self.fs.clone()), &layout, "owner", info(), &options).unwrap()
    }

    fn read(&self, path: &Path) -> Vec<u8> {
        self.disk.read(path, 1 << 30).unwrap()
    }
}

/// Writes all samples, and retries failed ones. None: the file had to be discarded.
fn written(writer: &mut StagingWriter, samples: &[Parts]) -> Option<PathBuf> {
    for parts in samples {
        let before = (writer.samples(), writer.bytes());
        while let Err(error) = given(parts, |sample| writer.sample(sample)) {
            assert_eq!((writer.samples(), writer.bytes()), before, "{error}");
            if writer.must_discard() {
                return None;
            }
        }
    }
    loop {
        match writer.seal() {
            Ok((_, path)) => return Some(path),
            Err(_) if writer.must_discard() => return None,
            Err(_) => {}
        }
    }
}

/// The calls to the segment's file, in order.
fn calls(samples: &[Parts], buffer: usize) -> Vec<String> {
    let (scene, calls) = (Scene::new(buffer), Arc::new(Mutex::new(Vec::new())));
    let mut writer = scene.begin();
    let noted = calls.clone();
    scene.fs.hook(move |_, op, _| {
        noted.lock().unwrap().push(op.to_owned());
        Action::Pass
    });
    let path = written(&mut writer, samples).unwrap();
    assert!(scene.read(&path) == in_order(samples), "with a buffer of {buffer}");
    let calls = calls.lock().unwrap();
    calls.clone()
}

#[test]
fn head_is_overwritten_in_the_file_or_in_the_buffer() {
    let samples = samples(); // after a split sample, the next one is written in order
    for (buffer, over, cuts) in [(1000, 1, 2), (HALF, 1, 2), (4 * HALF, 0, 2), (100 * HALF, 0, 2)] {
        let calls = calls(&samples, buffer);
        let count = |op: &str| calls.iter().filter(|call| *call == op).count();
        assert_eq!((count("write_over"), count("cut")), (over, cuts), "a buffer of {buffer}: {calls:?}");
    }
}

#[test]
fn samples_survive_any_failing_call_with_the_same_bytes() {
    let samples = samples();
    let want = in_order(&samples);
    for buffer in [1000, HALF] {
        let calls = calls(&samples, buffer);
        for (n, call) in calls.iter().enumerate() {
            for (fault, many) in [("refused", 1), ("refused", 3), ("reply lost", 1), ("short", 1), ("interrupted", 1)] {
                let scene = Scene::new(buffer);
                let mut writer = scene.begin();
                scene.fs.hook(move |at, _, _| match fault {
                    _ if !(n..n + many).contains(&at) => Action::Pass,
                    "refused" => Action::Refuse(ENOSPC),
                    "reply lost" => Action::LoseReply(EIO),
                    "interrupted" => Action::Refuse(EINTR),
                    _ => Action::Short,
                });
                let what = format!("a buffer of {buffer}: {fault}, {many} calls from {n} on: {call}");
                match written(&mut writer, &samples) {
                    Some(path) => assert!(scene.read(&path) == want, "{what}: other bytes"),
                    // The file's contents are unknown if it could not be truncated, synced or closed.
                    None => {
                        assert!(many > 1 || ["cut", "sync", "close"].contains(&call.as_str()), "{what}: discarded")
                    }
                }
            }
        }
    }
}
