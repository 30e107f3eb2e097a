//! A segment of very many samples, whose sample table is as large as other files.

use ringreel::format::DType;
use ringreel::{Config, Error, Generator, NamedPart, Reader};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::ring::{Action, HookFs, config, never, scratch};

const SAMPLES: u64 = 20_000;

fn filled(dir: &Path, more: &str) -> (Config, PathBuf) {
    let config = config(dir, SAMPLES, &format!("SEGMENT_SAMPLES: {SAMPLES}\n{more}"));
    let mut generator = Generator::open(&config).unwrap();
    let data: Vec<u8> = (0..SAMPLES).flat_map(u64::to_le_bytes).collect();
    generator.write_batch(&[NamedPart::new("data", DType::U64, &[], &data)], SAMPLES as usize, &never).unwrap();
    generator.finish(true, &never).unwrap();
    let segment = fs::read_dir(config.ring.join("read.1")).unwrap().next().unwrap().unwrap().path();
    (config, segment)
}

#[test]
fn sample_tables_are_mapped_or_read_like_their_samples() {
    for (read, private, want) in [("mmap", false, [2, 1]), ("mmap", true, [1, 2]), ("pread", false, [0, 3])] {
        let (dir, fs) = (scratch(), HookFs::default());
        let (config, segment) = filled(dir.path(), &format!("READ: {read}"));
        let reader = Reader::open_on(Arc::new(fs.clone()), &config).unwrap();
        let reader = if private { reader.with_private_maps() } else { reader };
        let manifest = reader.newest().unwrap();
        let made = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let calls = made.clone();
        fs.hook(move |_, op, path| {
            if let Some(n) = ["map", "read"].iter().position(|known| *known == op).filter(|_| path == segment) {
                calls[n].fetch_add(1, Ordering::SeqCst);
            }
            Action::Pass
        });
        for position in [0, 12_345, SAMPLES - 1] {
            let sample = reader.sample(&manifest, position).unwrap();
            assert_eq!(sample.parts[0].data().unwrap()[..], position.to_le_bytes());
            if position == 0 {
                // One read each for the end of the file, the table and the sample.
                assert_eq!(made.each_ref().map(|calls| calls.load(Ordering::SeqCst)), want, "{read}, {private}");
            }
        }
    }
}

#[test]
fn sample_tables_that_change_under_a_reader_are_errors() {
    for read in ["mmap", "pread"] {
        let dir = scratch();
        let (config, segment) = filled(dir.path(), &format!("READ: {read}"));
        let reader = Reader::open(&config).unwrap();
        let manifest = reader.newest().unwrap();
        reader.sample(&manifest, 5).unwrap();
        let whole = fs::read(&segment).unwrap();
        let file = File::options().write(true).open(&segment).unwrap();
        file.set_len(whole.len() as u64 - 100_000).unwrap();
        for again in 0..2 {
            // The length is unchanged, but the table is all zeros now.
            for position in [SAMPLES - 1, 5] {
                let error = reader.sample(&manifest, position).unwrap_err();
                assert!(matches!(error, Error::Damaged { .. }), "{again}: {error}");
            }
            assert!(reader.batch(&manifest, 0..SAMPLES).is_err());
            file.set_len(whole.len() as u64).unwrap();
        }
    }
}
