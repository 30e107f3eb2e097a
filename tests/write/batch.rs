//! Batches of samples, written, stacked and borrowed, equal single samples.

use ringreel::format::{DType, Meta};
use ringreel::fs::Posix;
use ringreel::read::batch::{Batch, BorrowedSample};
use ringreel::{Config, Error, Generator, NamedPart, Reader};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::ring::{self, Action, EIO, ESTALE, HookFs, assert_delivered_once, config, never, scratch, write};

/// Parts in the head (`data`) and in separate records (`large`).
const LARGE: usize = 3000;

fn two_parts(dir: &Path, more: &str) -> Config {
    let config = config(dir, 100, &format!("SEGMENT_SAMPLES: 40\n{more}"));
    Config { sample: Some(vec!["data".to_owned(), "large".to_owned()]), ..config }
}

fn data_of(samples: std::ops::Range<u64>) -> (Vec<u8>, Vec<u8>) {
    let data = samples.clone().flat_map(u64::to_le_bytes).collect();
    (data, samples.flat_map(|n| (0..LARGE).map(move |at| (n as usize * 31 + at) as u8)).collect())
}

fn write_all(generator: &mut Generator, samples: std::ops::Range<u64>) -> Vec<String> {
    let (count, (data, large)) = ((samples.end - samples.start) as usize, data_of(samples));
    let shape = [LARGE as u64];
    // In another order than in SAMPLE.
    let parts = [NamedPart::new("large", DType::U8, &shape, &large), NamedPart::new("data", DType::U64, &[], &data)];
    generator.write_batch(&parts, count, &never).unwrap().iter().map(ToString::to_string).collect()
}

fn filled(config: &Config) -> Vec<String> {
    let mut generator = Generator::open(config).unwrap();
    let mut ids = write_all(&mut generator, 0..70);
    ids.extend(write_all(&mut generator, 70..70));
    ids.extend(write_all(&mut generator, 70..100));
    assert_eq!(generator.written(), 100);
    ids.extend(generator.flush(&never).unwrap().iter().map(ToString::to_string));
    generator.finish(true, &never).unwrap();
    ids
}

#[test]
fn batch_equals_its_samples_read_one_by_one() {
    for read in ["mmap", "pread"] {
        let dir = scratch();
        let config = two_parts(dir.path(), &format!("READ: {read}"));
        let ids = filled(&config);
        assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (100, 100));
        for reader in [Reader::open(&config).unwrap(), Reader::open(&config).unwrap().with_private_maps()] {
            let manifest = reader.newest().unwrap();
            // In order over several segments, backwards, and with repetitions.
            let choices: [Vec<u64>; 4] =
                [(0..100).collect(), (0..100).rev().collect(), vec![5, 5, 6, 39, 40, 41, 99, 0], vec![]];
            for positions in choices {
                let batch = reader.batch(&manifest, positions.iter().copied()).unwrap();
                assert_eq!(batch.ids.len(), positions.len());
                for (n, position) in positions.iter().enumerate() {
                    let sample = reader.sample(&manifest, *position).unwrap();
                    assert_eq!(batch.ids[n], sample.id);
                    for (stacked, part) in batch.parts.iter().zip(&sample.parts) {
                        assert_eq!((&stacked.name, &stacked.dtype), (&part.name, &part.dtype));
                        assert_eq!(stacked.shape.as_deref(), Some(&part.shape[..]));
                        let len = part.len() as usize;
                        assert_eq!(stacked.data[n * len..(n + 1) * len], part.data().unwrap()[..]);
                    }
                }
            }
            let error = reader.batch(&manifest, [3, 100]).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { position: 100, .. }), "{error}");
            // Also far behind the samples that are known in advance.
            let error = reader.batch(&manifest, (0..32).rev().chain([u64::MAX, 3])).unwrap_err();
            assert!(matches!(error, Error::OutOfRange { position: u64::MAX, .. }), "{error}");
        }
        let (data, _) = data_of(0..100);
        let reader = Reader::open(&config).unwrap();
        let mut read: Vec<_> = reader.batch(&reader.newest().unwrap(), 0..100).unwrap().parts[0].data.to_vec();
        let mut want = data;
        read.sort_unstable();
        want.sort_unstable();
        assert_eq!(read, want, "the batch differs from what was written");
    }
}

#[test]
fn mismatched_batch_is_refused_before_any_write() {
    let dir = scratch();
    let mut generator = Generator::open(&config(dir.path(), 10, "SEGMENT_SAMPLES: 10")).unwrap();
    let bytes = [0; 24];
    for (name, shape, count) in [("data", &[1][..], 2), ("data", &[3], 2), ("other", &[1], 3), ("data", &[u64::MAX], 3)]
    {
        let parts = [NamedPart::new(name, DType::U64, shape, &bytes)];
        let error = generator.write_batch(&parts, count, &never).unwrap_err();
        assert!(matches!(error, Error::Sample(_)) && error.to_string().contains("data"), "{error}");
    }
    assert_eq!(generator.written(), 0);
}

/// Byte strings of several lengths, and a compressed part, which cannot be borrowed.
#[test]
fn byte_strings_stack_with_any_length_other_parts_do_not() {
    let dir = scratch();
    let config = config(dir.path(), 6, "SEGMENT_SAMPLES: 6\nCOMPRESS: 1");
    let config = Config { sample: Some(vec!["text".to_owned(), "data".to_owned()]), ..config };
    let mut generator = Generator::open(&config).unwrap();
    for n in 0..6u64 {
        let (text, data) = (vec![b'x'; 100 + 200 * (n as usize / 2)], vec![n as u8; if n < 4 { 2 } else { 4 }]);
        let (len, shape) = ([text.len() as u64], [data.len() as u64]);
        let parts =
            [NamedPart::new("text", DType::Bytes, &len, &text), NamedPart::new("data", DType::U8, &shape, &data)];
        generator.write(&parts, &Meta::new(), &never).unwrap();
    }
    generator.finish(true, &never).unwrap();
    let reader = Reader::open(&config).unwrap();
    let manifest = reader.newest().unwrap();
    let Batch { parts, .. } = reader.batch(&manifest, 0..4).unwrap();
    assert_eq!((parts[0].shape.clone(), &parts[0].ends[..]), (None, &[100, 200, 500, 800][..]));
    assert_eq!((parts[1].shape.as_deref(), &parts[1].data[..]), (Some(&[2][..]), &[0, 0, 1, 1, 2, 2, 3, 3][..]));
    let error = reader.batch(&manifest, 0..6).unwrap_err().to_string();
    assert!(error.contains("\"data\"") && error.contains("position 4"), "{error}");
}

fn segments(config: &Config) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(config.ring.join("read.1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn damaged_files_give_batches_the_errors_of_single_reads() {
    for read in ["mmap", "pread"] {
        let dir = scratch();
        let config = two_parts(dir.path(), &format!("READ: {read}\nVERIFY: always"));
        filled(&config);
        let reader = Reader::open(&config).unwrap();
        let manifest = reader.newest().unwrap();
        let whole = reader.batch(&manifest, 0..100).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&segments(&config)[0]).unwrap();
        let (_, large) = data_of(7..8);
        let bytes = std::fs::read(&segments(&config)[0]).unwrap();
        let at = bytes.windows(LARGE).position(|window| window == large).unwrap() as u64 + 100;
        let flipped = bytes[at as usize] ^ 1;
        file.write_all_at(&[flipped], at).unwrap();
        let position = (0..100).find(|n| reader.sample(&manifest, *n).is_err()).unwrap();
        let error = reader.batch(&manifest, 0..100).unwrap_err();
        assert!(matches!(&error, Error::Damaged { position: at, .. } if *at == position), "{error}");
        file.write_all_at(&[flipped ^ 1], at).unwrap();
        assert_eq!(reader.batch(&manifest, 0..100).unwrap(), whole);
        for len in [bytes.len() as u64 - 1, 8192] {
            file.set_len(len).unwrap();
            let error = reader.batch(&manifest, 0..100).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{len}: {error}");
        }
    }
}

/// Positions of 100 samples, in no particular order.
fn scattered() -> impl Iterator<Item = u64> + Clone {
    (0..100).map(|n| n * 37 % 100)
}

#[test]
fn batch_order_does_not_change_the_number_of_calls() {
    for (read, reads) in [("mmap", 0), ("pread", 100)] {
        let (dir, fs) = (scratch(), HookFs::on(Posix));
        let config = two_parts(dir.path(), &format!("READ: {read}"));
        filled(&config);
        let reader = Reader::open_on(Arc::new(fs.clone()), &config).unwrap();
        let manifest = reader.newest().unwrap();
        reader.batch(&manifest, 0..100).unwrap();
        let asked = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let calls = asked.clone();
        fs.hook(move |_, op, _| {
            let n = ["size", "read"].iter().position(|known| *known == op).unwrap_or(2);
            calls[n].fetch_add(1, Ordering::SeqCst);
            Action::Pass
        });
        let batch = reader.batch(&manifest, scattered()).unwrap();
        assert_eq!(batch.ids.len(), 100);
        // The length of each of the three segments, before and after.
        assert_eq!(asked.each_ref().map(|calls| calls.load(Ordering::SeqCst)), [6, reads, 0], "{read}");
    }
}

#[test]
fn borrowed_bytes_of_a_truncated_segment_end_in_an_error() {
    for (read, gives_up) in [("mmap", false), ("mmap", true), ("pread", false), ("pread", true)] {
        let dir = scratch();
        let config = two_parts(dir.path(), &format!("READ: {read}"));
        filled(&config);
        let reader = Reader::open(&config).unwrap();
        let manifest = reader.newest().unwrap();
        let (path, mut visited) = (segments(&config)[0].clone(), 0);
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let error = reader.visit(&manifest, [3, 50, 7, 60], |_| {
            visited += 1;
            if visited < 4 {
                return Ok(());
            }
            let len = file.metadata().unwrap().len();
            file.set_len(len - 1).unwrap(); // behind the bytes that were read
            if gives_up { Err(Error::Sample("enough".to_owned())) } else { Ok(()) }
        });
        let error = error.unwrap_err();
        assert!(matches!(&error, Error::Damaged { position: 3, path: found, .. } if *found == path), "{error}");
    }
}

#[test]
fn batch_is_reread_if_a_handle_becomes_stale() {
    let (dir, fs) = (scratch(), HookFs::on(Posix));
    let config = two_parts(dir.path(), "READ: pread");
    filled(&config);
    let reader = Reader::open_on(Arc::new(fs.clone()), &config).unwrap();
    let manifest = reader.newest().unwrap();
    let whole = reader.batch(&manifest, scattered()).unwrap();
    for (op, nth) in [("read", 1), ("read", 50), ("size", 1), ("size", 5)] {
        let calls = AtomicUsize::new(0);
        fs.hook(move |_, called, _| {
            let hit = called == op && calls.fetch_add(1, Ordering::SeqCst) == nth;
            if hit { Action::Refuse(ESTALE) } else { Action::Pass }
        });
        assert!(reader.batch(&manifest, scattered()).unwrap() == whole, "{op} {nth}");
    }
    assert_eq!(reader.damaged(), 0);
}

#[test]
fn batch_may_span_more_segments_than_are_held_open() {
    let dir = scratch();
    let config = config(dir.path(), 600, "SEGMENT_SAMPLES: 2\nREAD: mmap");
    let mut generator = Generator::open(&config).unwrap();
    (0..600).for_each(|n| drop(write(&mut generator, n).unwrap()));
    generator.finish(true, &never).unwrap();
    let reader = Reader::open(&config).unwrap();
    let manifest = reader.newest().unwrap();
    let positions: Vec<u64> = (0..600).map(|n| n * 7 % 600).collect();
    let batch = reader.batch(&manifest, positions.iter().copied()).unwrap();
    let read: Vec<u64> = batch.parts[0].data.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect();
    let one_by_one = |position: &u64| {
        let sample = reader.sample(&manifest, *position).unwrap();
        u64::from_le_bytes(*sample.parts[0].data().unwrap().first_chunk().unwrap())
    };
    assert_eq!(read, positions.iter().map(one_by_one).collect::<Vec<_>>());
    // In any order, it holds only a few more files open than a reader does.
    let open = || {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.filter(|path| path.starts_with(dir.path())).count()
    };
    // The segments that it holds open, and then others, which replace them.
    reader.batch(&manifest, 0..256).unwrap();
    let mut most = 0;
    let order = (0..128).chain(256..384).step_by(2);
    reader
        .visit(&manifest, order, |_| {
            most = most.max(open());
            Ok(())
        })
        .unwrap();
    assert!((128..150).contains(&most), "{most}");
}

#[test]
fn checksums_are_compared_on_the_first_read_only() {
    let dir = scratch();
    let config = two_parts(dir.path(), "READ: pread\nVERIFY: first");
    filled(&config);
    let reader = Reader::open(&config).unwrap();
    let manifest = reader.newest().unwrap();
    reader.batch(&manifest, 0..40).unwrap();
    // Samples of the first two segments, of which the first one was read.
    segments(&config)[..2].iter().for_each(|path| damage_all(path));
    assert!(reader.batch(&manifest, 0..40).is_ok() && reader.sample(&manifest, 3).is_ok());
    assert!(reader.batch(&manifest, 40..80).is_err() && reader.sample(&manifest, 43).is_err());
}

/// Changes a byte in each large part of a segment.
fn damage_all(path: &Path) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    for n in 0..100 {
        let (_, large) = data_of(n..n + 1);
        if let Some(at) = bytes.windows(LARGE).position(|window| window == large) {
            file.write_all_at(&[!large[5]], at as u64 + 5).unwrap();
        }
    }
}

#[test]
fn samples_skipped_by_a_visit_are_verified_when_read() {
    let dir = scratch();
    let config = two_parts(dir.path(), "READ: pread\nVERIFY: first");
    filled(&config);
    let reader = Reader::open(&config).unwrap();
    let manifest = reader.newest().unwrap();
    let enough =
        |lent: &BorrowedSample<'_>| if lent.position < 5 { Ok(()) } else { Err(Error::Sample("enough".to_owned())) };
    assert!(reader.visit(&manifest, 2..40, enough).is_err());
    damage_all(&segments(&config)[0]);
    let is_right = |position: &u64| reader.sample(&manifest, *position).is_ok();
    assert_eq!((0..40).filter(is_right).collect::<Vec<_>>(), [2, 3, 4, 5]);
}

/// The check would cost more than reading a small sample.
#[test]
fn small_samples_inside_a_segment_make_no_calls() {
    let dir = scratch();
    let fs = Arc::new(HookFs::on(Posix));
    let config = Config { poll: Some(Duration::from_secs(60)), ..config(dir.path(), 4000, "SEGMENT_SAMPLES: 4000") };
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    (0..10).for_each(|n| drop(write(&mut generator, n).unwrap()));
    fs.hook(|_, _, _| Action::Pass);
    (10..1000).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let calls = fs.calls();
    assert!(calls < 50, "{calls} calls for 990 samples");
}

#[test]
fn generators_without_an_index_retry_at_every_sample() {
    let dir = scratch();
    let fs = Arc::new(HookFs::on(Posix));
    let config = Config { poll: Some(Duration::from_secs(60)), ..config(dir.path(), 4, "SEGMENT_SAMPLES: 4") };
    // A manager appears to be alive, so generators leave promotion to it.
    ring::a_manager_seems_to_live(&config);
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    let hurry = || true;
    let put = |generator: &mut Generator, n: u64| {
        let data = n.to_le_bytes();
        generator.write(&[NamedPart::new("data", DType::U64, &[1], &data)], &Meta::new(), &hurry)
    };
    // The second segment has no index; the third one is open.
    (0..9).for_each(|n| drop(put(&mut generator, n).unwrap()));
    fs.hook(|_, _, _| Action::Pass);
    put(&mut generator, 9).unwrap();
    assert!(fs.calls() > 0);
}

/// When a batch ends early, the next call returns the finished ids.
#[test]
fn batch_that_ends_early_loses_no_id() {
    let dir = scratch();
    let config = config(dir.path(), 200, "SEGMENT_SAMPLES: 10");
    // `stop` is polled only after some time.
    let fs = Arc::new(HookFs::on(Posix));
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    fs.hook(|_, op, _| {
        if op == "rename" {
            std::thread::sleep(Duration::from_millis(60));
        }
        Action::Pass
    });
    let (data, shape) = (vec![0; 100 * 8], [1]);
    let parts = [NamedPart::new("data", DType::U64, &shape, &data)];
    let error = generator.write_batch(&parts, 100, &|| true).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    let written = generator.written();
    assert!((10..100).contains(&written), "{written}");
    let told = generator.flush(&never).unwrap();
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len() as u64, written);
}

/// A file that cannot be closed loses its samples: a batch ends there if it loses more than its last sample.
#[test]
fn batches_stop_at_samples_that_were_lost_with_their_file() {
    let dir = scratch();
    let fs = Arc::new(HookFs::on(Posix));
    let config = config(dir.path(), 200, "SEGMENT_SAMPLES: 10");
    let mut generator = Generator::open_on(fs.clone(), &config).unwrap();
    let (data, shape) = (vec![0; 40 * 8], [1]);
    let parts = [NamedPart::new("data", DType::U64, &shape, &data)];
    let closed = AtomicUsize::new(0);
    fs.hook(move |_, op, path| {
        let is_third =
            op == "close" && path.to_string_lossy().contains(".part") && closed.fetch_add(1, Ordering::SeqCst) == 2;
        if is_third { Action::LoseReply(EIO) } else { Action::Pass }
    });
    let error = generator.write_batch(&parts, 40, &never).unwrap_err();
    assert_eq!(generator.written(), 20, "{error}");
    fs.unhook();
    let rest = [NamedPart::new("data", DType::U64, &shape, &data[20 * 8..])];
    let told = generator.write_batch(&rest, 20, &never).unwrap();
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), 40);
    generator.finish(true, &never).unwrap();
    assert_delivered_once(&config.ring, &told, "a batch that was continued where it ended");
}
