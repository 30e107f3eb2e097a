//! Splits of plain `.rec` files: compared with a slow and simple model, over damage, and for every number of splits.

mod memory;
mod model;
mod random;

use memory::MemFs;
use model::{MAGIC, Piece, Why, owner, strict, whole};
use random::{Random, file, index};
use ringreel::Error;
use ringreel::format::FormatError;
use ringreel::read::shard::Share;
use ringreel_recordio::input_split::{InputSplit, OnDamage, Position, RecordSpan, SplitBy, SplitItem, SplitOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

// ---- The contents of splits.

const STRICT: SplitOptions = SplitOptions { by: SplitBy::Bytes, on_damage: OnDamage::Fail, use_index: true };
const SKIP: SplitOptions = SplitOptions { on_damage: OnDamage::Skip, ..STRICT };
const COUNT: SplitOptions = SplitOptions { by: SplitBy::Records, ..STRICT };
const COUNT_SKIP: SplitOptions = SplitOptions { by: SplitBy::Records, ..SKIP };

/// Returns everything that a split yields, and its errors. A split without an end is a failure.
fn drain(split: &mut InputSplit) -> (Vec<Piece>, Vec<Error>) {
    let (mut pieces, mut errors, mut payload) = (Vec::new(), Vec::new(), vec![1; 3]);
    for _ in 0..100_000 {
        match split.next_into(&mut payload) {
            Ok(None) => {
                assert!(split.next_into(&mut payload).unwrap().is_none() && payload.is_empty());
                return (pieces, errors);
            }
            Ok(Some(SplitItem::Record(RecordSpan { file, at, end, .. }))) => {
                pieces.push((file, at as usize, end as usize, Some(payload.clone())));
            }
            Ok(Some(SplitItem::Skipped { file, region })) => {
                assert!(payload.is_empty());
                pieces.push((file, region.begin as usize, region.end as usize, None));
            }
            Err(error) => errors.push(error),
        }
    }
    panic!("no end");
}

fn records(pieces: &[Piece]) -> Vec<Piece> {
    pieces.iter().filter(|piece| piece.3.is_some()).cloned().collect()
}

/// Merges adjacent damaged regions.
fn merged(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        match out.last_mut() {
            Some(last) if last.3.is_none() && piece.3.is_none() && last.0 == piece.0 && last.2 == piece.1 => {
                last.2 = piece.2;
            }
            _ => out.push(piece),
        }
    }
    out
}

/// Calls `check` with `sets` sets of random files and every number of splits from 1 to 64.
fn for_each_set(sets: u64, seed: u64, check: impl Fn(&mut Random, &[Vec<u8>])) {
    for set in 0..sets {
        let mut random = Random(seed + 977 * set);
        (0..9).for_each(|_| _ = random.next());
        let mut files = random.files();
        if files.is_empty() {
            files = vec![Vec::new()];
        }
        check(&mut random, &files);
    }
}

#[test]
fn byte_splits_hold_each_record_once_by_its_first_byte() {
    for_each_set(40, 1, |_, files| {
        let (fs, paths) = MemFs::of(files);
        let want = whole(files);
        assert!(want.iter().all(|piece| piece.3.is_some()));
        for world in 1..=64 {
            let mut all = Vec::new();
            for rank in 0..world {
                let mut split = fs.split(&paths, rank, world, STRICT).unwrap();
                let (pieces, errors) = drain(&mut split);
                assert!(errors.is_empty(), "{errors:?}");
                assert!(pieces.iter().all(|piece| owner(files, piece.0, piece.1, world) == rank), "{rank}/{world}");
                assert_eq!(split.total_bytes() as usize, files.iter().map(Vec::len).sum::<usize>());
                assert_eq!(split.passed().regions, 0);
                all.extend(pieces);
            }
            assert!(all == want, "{world} splits");
        }
    });
}

#[test]
fn record_splits_are_contiguous_and_equal_within_one() {
    for_each_set(30, 2, |random, files| {
        let (fs, paths) = MemFs::of(files);
        let want = whole(files);
        // Some files have an index, some an empty one, some no index.
        for (path, file) in paths.iter().zip(files) {
            match random.below(3) {
                0 => fs.put(&path.with_extension("idx"), &index(file)),
                1 => fs.put(&path.with_extension("idx"), b""),
                _ => {}
            }
        }
        for world in 1..=64 {
            let options = [COUNT, COUNT_SKIP, SplitOptions { use_index: false, ..COUNT }][world as usize % 3];
            let mut all = Vec::new();
            for rank in 0..world {
                let mut split = fs.split(&paths, rank, world, options).unwrap();
                let (pieces, errors) = drain(&mut split);
                assert!(errors.is_empty(), "{errors:?}");
                assert_eq!(split.records(), Some(pieces.len() as u64));
                let least = want.len() / world as usize;
                assert!(pieces.len() == least || pieces.len() == least + 1, "{rank}/{world}: {}", pieces.len());
                all.extend(pieces);
            }
            assert!(all == want, "{world} splits");
        }
    });
}

#[test]
fn many_small_records_are_counted_in_little_memory() {
    let mut random = Random(5);
    let payloads: Vec<_> = (0..20_011).map(|_| random.payload(12)).collect();
    let (fs, paths) = MemFs::of(&[file(&payloads[..7]), file(&payloads[7..])]);
    for options in [COUNT, COUNT_SKIP] {
        for world in [1, 2, 7, 64] {
            let mut from = 0;
            for rank in 0..world {
                let mine = drain(&mut fs.split(&paths, rank, world, options).unwrap()).0;
                let to = payloads.len() * (rank as usize + 1) / world as usize;
                let same = mine.iter().map(|piece| piece.3.as_ref().unwrap()).eq(&payloads[from..to]);
                assert!(same, "{rank}/{world}");
                from = to;
            }
        }
    }
}

/// Damages a file: flips, zeros, garbage, holes, insertions, truncation.
fn damage(random: &mut Random, file: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        if file.is_empty() {
            return;
        }
        let at = random.below(file.len());
        let to = file.len().min(at + 1 + random.below(200));
        match random.below(9) {
            0 | 1 => file[at] ^= 1 << random.below(8),
            2 => file[at..to].fill(0),
            3 => file[at..to].iter_mut().for_each(|byte| *byte = random.next() as u8),
            4 => drop(file.drain(at..to)),
            5 => file.insert(at, 7),
            6 => file.truncate(at),
            7 => file.extend(vec![0; random.below(300)]),
            _ => file.splice(at..at, MAGIC).for_each(drop),
        }
    }
}

#[test]
fn damaged_files_give_equal_results_for_any_number_of_splits() {
    let judged = AtomicU64::new(0);
    for_each_set(120, 3, |random, files| {
        let mut files = files.to_vec();
        files.iter_mut().for_each(|file| damage(random, file));
        let words = files.iter().flat_map(|file| (0..file.len()).step_by(4).map(move |at| (file, at)));
        let foreign = words.filter(|(file, at)| matches!(strict(file, *at), Err(Why::Foreign(..)))).count();
        if foreign > 0 {
            return; // a damaged length happens to fit; a test below covers this
        }
        judged.fetch_add(1, Ordering::SeqCst);
        let (fs, paths) = MemFs::of(&files);
        let want = whole(&files);
        let good = records(&want);
        for world in (1..=64).filter(|world| *world < 9 || world % 5 == 0) {
            for options in [SKIP, COUNT_SKIP] {
                let mut all = Vec::new();
                for rank in 0..world {
                    let mut split = fs.split(&paths, rank, world, options).unwrap();
                    let (pieces, errors) = drain(&mut split);
                    assert!(errors.is_empty(), "{errors:?}");
                    let skipped: Vec<_> = pieces.iter().filter(|piece| piece.3.is_none()).collect();
                    assert_eq!(split.passed().regions as usize, skipped.len());
                    assert_eq!(
                        split.passed().bytes as usize,
                        skipped.iter().map(|piece| piece.2 - piece.1).sum::<usize>()
                    );
                    let mine = records(&pieces);
                    if options.by == SplitBy::Records {
                        assert_eq!(split.records(), Some(mine.len() as u64));
                        assert!((mine.len() as u64).abs_diff(good.len() as u64 / world) <= 1);
                    } else {
                        assert!(mine.iter().all(|piece| owner(&files, piece.0, piece.1, world) == rank));
                    }
                    all.extend(pieces);
                }
                assert_eq!(merged(all), want, "{world} splits, {options:?}");
            }
            let mut all = Vec::new();
            for rank in 0..world {
                let (pieces, errors) = drain(&mut fs.split(&paths, rank, world, STRICT).unwrap());
                let skipped = drain(&mut fs.split(&paths, rank, world, SKIP).unwrap()).0.len() - pieces.len();
                assert_eq!(errors.len(), skipped, "one error per damaged region: {errors:?}");
                all.extend(pieces);
            }
            assert!(all == good, "strict, {world} splits");
        }
    });
    assert!(judged.into_inner() > 60);
}

#[test]
fn indexes_with_damaged_cuts_still_make_splits() {
    let mut random = Random(77);
    let undamaged = [random.file(60, 90), random.file(60, 90), random.file(60, 90)];
    let mut files = undamaged.clone();
    let end = files[0].len();
    files[0][100..1500].fill(0);
    files[1][end / 2..end / 2 + 7].fill(0);
    let end = files[2].len();
    files[2][end - 700..].fill(0);
    let (fs, paths) = MemFs::of(&files);
    paths.iter().zip(&undamaged).for_each(|(path, file)| fs.put(&path.with_extension("idx"), &index(file)));
    let mut refused = 0;
    for world in 1..=64 {
        let mut all = Vec::new();
        for rank in 0..world {
            let (pieces, errors) = drain(&mut fs.split(&paths, rank, world, COUNT_SKIP).unwrap());
            assert!(errors.is_empty(), "{errors:?}");
            all.extend(pieces);
            refused += usize::from(fs.split(&paths, rank, world, COUNT).is_err());
        }
        assert_eq!(merged(all), whole(&files), "{world} splits");
    }
    assert!(refused > 100, "{refused}");
}

/// Returns the file, the name of the error, and its offset.
fn said(error: &Error) -> (String, &'static str, u64) {
    match error {
        Error::Format { path, source } => {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), source.name(), source.at().unwrap())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_damage_is_one_error_with_path_byte_and_region() {
    let three = file(&["one", "second", "third record"]); // at 0, 12, 28; 48 bytes
    assert_eq!(three.len(), 48);
    let cut = |n: usize| three[..n].to_vec();
    let with = |more: &[u8]| [&three[..], more].concat();
    let mut flipped = three.clone();
    flipped[12] ^= 1;
    let mut dirty = three.clone();
    dirty[11] = 1;
    // Description, bytes, number of intact records, error and its offset, region.
    type Case = (&'static str, Vec<u8>, usize, &'static str, u64, Range<usize>);
    let cases: Vec<Case> = vec![
        ("a tail of zeros", with(&[0; 4096]), 3, "BadMagic", 48, 48..48 + 4096),
        ("a tail of zeros, unaligned", with(&[0; 1021]), 3, "BadMagic", 48, 48..48 + 1021),
        ("a size that is not a multiple of 4", with(&[0; 3]), 3, "Truncated", 48, 48..51),
        ("a magic in the last word", with(&MAGIC), 3, "Truncated", 48, 48..52),
        ("three quarters of a magic", with(&MAGIC[..3]), 3, "Truncated", 48, 48..51),
        ("cut in a payload", cut(40), 2, "Truncated", 28, 28..40),
        ("cut in the padding", cut(11), 0, "Truncated", 0, 0..11),
        ("cut in a header", cut(31), 2, "Truncated", 28, 28..31),
        ("a header that was flipped", flipped, 2, "BadMagic", 12, 12..28),
        ("padding that is not zero", dirty, 2, "DirtyPadding", 11, 0..12),
        ("only zeros", vec![0; 333], 0, "BadMagic", 0, 0..333),
        ("one byte", vec![1], 0, "Truncated", 0, 0..1),
        ("a last part alone", with(&[10, 35, 215, 206, 0, 0, 0, 0x60]), 3, "BadFlag", 48, 48..56),
        ("a first part alone", with(&[10, 35, 215, 206, 0, 0, 0, 0x20]), 3, "Truncated", 56, 48..56),
        ("an invalid flag", with(&[10, 35, 215, 206, 0, 0, 0, 0x80]), 3, "BadFlag", 48, 48..56),
        ("a length beyond the end", with(&[10, 35, 215, 206, 255, 255, 255, 0x1f]), 3, "Truncated", 48, 48..56),
    ];
    for (what, bytes, left, name, at, region) in cases {
        let files = [file(&["before"]), Vec::new(), bytes, file(&["behind"])];
        let (fs, paths) = MemFs::of(&files);
        for world in 1..=64 {
            let (mut strict, mut skipping) = ((Vec::new(), Vec::new()), Vec::new());
            for rank in 0..world {
                let (pieces, errors) = drain(&mut fs.split(&paths, rank, world, STRICT).unwrap());
                strict.0.extend(pieces);
                strict.1.extend(errors);
                let (pieces, errors) = drain(&mut fs.split(&paths, rank, world, SKIP).unwrap());
                assert!(errors.is_empty(), "{what}");
                skipping.extend(pieces);
            }
            assert_eq!(strict.0.len(), left + 2, "{what}, {world} splits");
            let errors: Vec<_> = strict.1.iter().map(said).collect();
            assert_eq!(errors, [("2.rec".to_owned(), name, at)], "{what}, {world} splits");
            assert_eq!(records(&skipping), strict.0, "{what}");
            let regions: Vec<_> = skipping.iter().filter(|piece| piece.3.is_none()).collect();
            assert_eq!(regions, [&(2, region.start, region.end, None)], "{what}, {world} splits");
        }
        // By records, damage in headers is found when the splits are made; with an index, when it is read.
        if name != "DirtyPadding" {
            let error = fs.split(&paths, 3, 5, COUNT).err().unwrap();
            assert_eq!(said(&error), ("2.rec".to_owned(), name, at), "{what}");
        }
        let counted: usize =
            (0..5).map(|rank| drain(&mut fs.split(&paths, rank, 5, COUNT_SKIP).unwrap()).0.len()).sum();
        assert_eq!(counted, left + 3, "{what}");
    }
}

#[test]
fn empty_input_gives_an_empty_split() {
    for files in [vec![Vec::new()], vec![Vec::new(); 4]] {
        let (fs, paths) = MemFs::of(&files);
        fs.put(Path::new("/d/0.idx"), b"");
        for world in [1, 2, 64] {
            for rank in 0..world {
                for options in [STRICT, SKIP, COUNT, COUNT_SKIP] {
                    let mut split = fs.split(&paths, rank, world, options).unwrap();
                    assert!(drain(&mut split).0.is_empty());
                    split.before_first();
                    assert!(split.next().unwrap().is_none());
                }
            }
        }
    }
    let (fs, paths) = MemFs::of(&[file(&["a"])]);
    for (rank, world) in [(0, 0), (1, 1), (7, 3)] {
        assert!(matches!(fs.split(&paths, rank, world, STRICT), Err(Error::Sample(why)) if why.contains("rank")));
    }
}

#[test]
fn record_may_span_several_read_windows() {
    let mut random = Random(11);
    // Three windows of noise with magics, split records on both sides of each cut, followed by small records.
    let huge: Vec<u8> =
        (0..800_000 + 3).map(|n| if n % 9973 < 4 { MAGIC[n % 9973] } else { random.next() as u8 }).collect();
    let plain = vec![3; 600_001];
    let files = [file(&[&huge[..], b"x", &plain, &MAGIC.repeat(3), b""]), file(&[&MAGIC[..], &huge, b"end"])];
    let want = whole(&files);
    let (fs, paths) = MemFs::of(&files);
    for world in [1, 2, 3, 7, 16, 64] {
        for options in [STRICT, COUNT, COUNT_SKIP] {
            let all: Vec<_> =
                (0..world).flat_map(|rank| drain(&mut fs.split(&paths, rank, world, options).unwrap()).0).collect();
            assert!(all == want, "{world} splits, {options:?}");
        }
    }
}

#[test]
fn buffers_grow_by_an_eighth_and_distrust_lengths() {
    let record = vec![1; 3_000_000];
    let mut files = [file(&[&record[..], b"x"])];
    let (fs, paths) = MemFs::of(&files);
    let mut payload = Vec::new();
    let mut split = fs.split(&paths, 0, 1, STRICT).unwrap();
    split.next_into(&mut payload).unwrap();
    assert!(payload == record && payload.capacity() <= record.len() * 9 / 8 + (256 << 10), "{}", payload.capacity());
    let before = payload.as_ptr();
    split.next_into(&mut payload).unwrap();
    assert!(payload == b"x" && payload.as_ptr() == before, "the buffer is reused");
    // A length of 4 MiB over many small records ends at the first magic number inside.
    files[0] = file(&vec![[5; 100]; 40_000]);
    files[0][4..8].copy_from_slice(&0x0040_0000u32.to_le_bytes());
    let (fs, paths) = MemFs::of(&files);
    let mut payload = Vec::new();
    let error = fs.split(&paths, 0, 1, STRICT).unwrap().next_into(&mut payload).unwrap_err();
    assert_eq!(said(&error), ("0.rec".to_owned(), "UnescapedMagic", 108));
    assert!(payload.is_empty() && payload.capacity() <= 512 << 10, "{}", payload.capacity());
}

#[test]
fn split_reads_only_its_share_of_a_file() {
    let mut random = Random(17);
    let files = [random.file(4000, 3000), random.file(3000, 3000)];
    let total: usize = files.iter().map(Vec::len).sum();
    for options in [STRICT, SKIP] {
        for world in [2, 10, 64] {
            for rank in 0..world {
                let (fs, paths) = MemFs::of(&files);
                drain(&mut fs.split(&paths, rank, world, options).unwrap());
                let read = fs.read.load(Ordering::SeqCst) as usize;
                // The record that the front cuts, the one that extends beyond the end, and some steps back.
                let most = total / world as usize * 11 / 10 + 4 * 4096 + 2 * 3008 + 4;
                assert!(read <= most, "{rank}/{world}: {read} of {most}");
            }
        }
    }
    // In a huge tail of zeros, only the first split that reaches it searches for a record.
    let files = [[file(&vec!["record"; 100]), vec![0; 8_000_000]].concat()];
    let (fs, paths) = MemFs::of(&files);
    (0..64).for_each(|rank| drop(drain(&mut fs.split(&paths, rank, 64, SKIP).unwrap())));
    assert!(fs.read.load(Ordering::SeqCst) < 20_000_000, "{}", fs.read.load(Ordering::SeqCst));
    // Every second word appears to begin a record, each with a length that leads to another offset.
    let mut hostile = Vec::new();
    (0..40_000).for_each(|_| hostile.extend([MAGIC, [random.next() as u8, random.next() as u8, 3, 0]].concat()));
    let (fs, paths) = MemFs::of(&[hostile.clone()]);
    drain(&mut fs.split(&paths, 0, 1, SKIP).unwrap());
    assert!(fs.read.load(Ordering::SeqCst) < 6 * hostile.len() as u64, "{}", fs.read.load(Ordering::SeqCst));
    // With large records, only headers are read.
    let files = [file(&vec![vec![1; 1_000_000]; 20])];
    let (fs, paths) = MemFs::of(&files);
    assert_eq!(fs.split(&paths, 1, 4, COUNT).unwrap().records(), Some(5));
    assert!(fs.read.load(Ordering::SeqCst) < 60 * 4096, "{}", fs.read.load(Ordering::SeqCst));
}

/// A writer that never escapes, like MXNet's protobuf variants.
fn unescaped(payload: &[u8]) -> Vec<u8> {
    let mut out = [&MAGIC[..], &(payload.len() as u32).to_le_bytes(), payload].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

#[test]
fn foreign_recordio_dialects_are_refused_by_name() {
    let inner = file(&["never", "a record"]);
    let nested = unescaped(&[b"12345678", &inner[..]].concat());
    let mut joined = [&MAGIC[..], &(1u32 << 29 | 5).to_le_bytes(), b"hello\0\0\0"].concat();
    joined.extend([&MAGIC[..], &(3u32 << 29 | 3).to_le_bytes(), b" yo\0"].concat());
    let end = unescaped(&MAGIC);
    for (bytes, name, at) in
        [(nested, "UnescapedMagic", 12 + 16), (joined, "UnalignedPart", 12), (end, "UnescapedMagic", 12 + 8)]
    {
        for tail in [file(&["behind"]), Vec::new()] {
            let files = [[file(&["one"]), bytes.clone(), tail.clone()].concat()];
            let (fs, paths) = MemFs::of(&files);
            let left: Vec<_> = [&b"one"[..], b"behind"][..if tail.is_empty() { 1 } else { 2 }].to_vec();
            for options in [STRICT, SKIP, COUNT, COUNT_SKIP] {
                let Ok(mut split) = fs.split(&paths, 0, 1, options) else {
                    assert!(options.by == SplitBy::Records && name == "UnalignedPart"); // refused during counting
                    continue;
                };
                let (pieces, errors) = drain(&mut split);
                assert_eq!(errors.iter().map(said).collect::<Vec<_>>(), [("0.rec".to_owned(), name, at)]);
                assert!(errors[0].to_string().contains(if at == 12 { "SageMaker" } else { "never escapes" }));
                assert_eq!(
                    pieces.iter().map(|piece| piece.3.clone().unwrap()).collect::<Vec<_>>(),
                    left,
                    "{options:?}"
                );
            }
            // For any number of splits, one of the ranks reports it.
            for world in 1..=64 {
                let told = (0..world).any(|rank| {
                    let errors = drain(&mut fs.split(&paths, rank, world, STRICT).unwrap()).1;
                    errors.iter().map(said).any(|said| said.1 == name)
                });
                assert!(told, "{world} splits");
            }
        }
    }
}

#[test]
fn mismatched_indexes_are_errors_with_their_line() {
    let rec = file(&["one", "second", "third record"]); // at 0, 12, 28; 48 bytes
    let long = [b"0\t0\n".to_vec(), vec![b'7'; 70_000]].concat();
    let made: [(&[u8], u64, &str); 12] = [
        (b"0\t0\nnonsense\n2\t28\n", 2, "is not key, TAB, offset"),
        (b"0\t0\n1\t12\n2\t\n", 3, "not a number"),
        (b"0\t0\n\n1\t12\n", 2, "is not key"),
        (b"0\t0\n1\t12\n2\t48\n", 3, "beyond the end"),
        (b"0\t0\n1\t12\n2\t41\n", 3, "beyond the end"),
        (b"0\t0\n1\t18446744073709551615\n", 2, "beyond the end"),
        (b"0\t0\n1\t28\n2\t12\n", 3, "does not ascend"),
        (b"0\t0\n1\t12\n2\t12\n", 3, "does not ascend"),
        (b"0\t12\n1\t28\n", 1, "is not the first record's"),
        (b"0\t0\n1\t13\n", 2, "not a multiple of 4"),
        (b"0\t0\n1\t\xff\n", 2, "is not UTF-8"),
        (&long, 2, "longer than"),
    ];
    let (fs, paths) = MemFs::of(&[rec.clone(), rec.clone()]);
    let idx = Path::new("/d/1.idx");
    let line_of = |error: &Error| match error {
        Error::Format { path, source: FormatError::BadLine { line, what, .. } } if path == idx => {
            (*line, what.to_string())
        }
        other => panic!("{other:?}"),
    };
    for (text, line, what) in made {
        fs.put(idx, text);
        for (rank, world) in [(0, 1), (0, 5), (4, 5)] {
            for options in [COUNT, COUNT_SKIP] {
                let (found, said) = line_of(&fs.split(&paths, rank, world, options).err().unwrap());
                assert!(found == line && said.contains(what), "{}: {found}: {said}", String::from_utf8_lossy(text));
            }
            let ignoring = SplitOptions { use_index: false, ..COUNT };
            assert!(fs.split(&paths, rank, world, ignoring).is_ok());
        }
    }
    // The index is consistent, but does not match the records: found at a line that is used for a cut, or during
    // reading.
    let met: [(&[u8], u64, &str); 5] = [
        (b"0\t0\n1\t16\n2\t28\n", 2, "is not "),
        (b"0\t0\n2\t28\n", 2, "is not that of the next record"),
        (b"0\t0\n1\t12\n", 3, "is missing"),
        (b"0\t0\n1\t12\n2\t28\n3\t40\n", 4, "is not where a record begins"),
        (b"0\t0\n", 2, "is missing"),
    ];
    for (text, line, what) in met {
        fs.put(idx, text);
        for world in 1..=8 {
            let (mut errors, mut pieces) = (Vec::new(), Vec::new());
            for rank in 0..world {
                match fs.split(&paths, rank, world, COUNT) {
                    Ok(mut split) => {
                        let (more, wrong) = drain(&mut split);
                        pieces.extend(more);
                        errors.extend(wrong);
                    }
                    Err(error) => errors.push(error),
                }
            }
            assert!(!errors.is_empty());
            for error in &errors {
                let (found, said) = line_of(error);
                assert!(found == line && said.contains(what), "{world}: {found}: {said}");
            }
            let real = whole(&[rec.clone(), rec.clone()]);
            assert!(pieces.iter().all(|piece| real.contains(piece)), "no record is invented");
            assert!(world > 1 || pieces == real, "reading continues without the index after the error");
        }
    }
    // A cut that the index puts inside a record is refused by both of its ranks before they read.
    fs.put(idx, b"0\t0\n1\t16\n2\t28\n");
    let made: Vec<_> = (0..6).map(|rank| fs.split(&paths, rank, 6, COUNT).is_ok()).collect();
    assert_eq!(made, [true, true, true, false, false, true]);
    // If damage is skipped, index lines of damaged records are not an error.
    let mut damaged = rec.clone();
    damaged[12] = 0;
    fs.put(Path::new("/d/1.rec"), &damaged);
    fs.put(idx, &index(&rec));
    for options in [COUNT, COUNT_SKIP] {
        let (pieces, errors) = drain(&mut fs.split(&paths, 0, 1, options).unwrap());
        assert_eq!((records(&pieces).len(), errors.len()), (5, usize::from(options.on_damage == OnDamage::Fail)));
    }
}

#[test]
fn readers_resume_at_each_position() {
    let mut random = Random(23);
    let mut files = [random.file(12, 300), random.file(9, 300)];
    files[0].splice(200..220, [0; 8]).for_each(drop);
    let (fs, paths) = MemFs::of(&files);
    fs.put(Path::new("/d/1.idx"), &index(&files[1]));
    for options in [SKIP, COUNT_SKIP] {
        for (rank, world) in [(0, 1), (1, 3), (2, 3), (0, 50)] {
            let all = drain(&mut fs.split(&paths, rank, world, options).unwrap()).0;
            let mut split = fs.split(&paths, rank, world, options).unwrap();
            let mut payload = Vec::new();
            for n in 0..=all.len() {
                let mut other = fs.split(&paths, rank, world, options).unwrap();
                other.seek(split.position()).unwrap();
                assert_eq!(drain(&mut other).0, all[n..]);
                let rest: Vec<_> = split.prefetch(2, 300).unwrap().collect::<Vec<_>>();
                assert_eq!(
                    rest.iter().map(|chunk| chunk.as_ref().unwrap().items().len()).sum::<usize>(),
                    all.len() - n
                );
                split.next_into(&mut payload).unwrap();
            }
            split.before_first();
            assert_eq!(drain(&mut split).0, all);
        }
    }
    let mut split = fs.split(&paths, 1, 3, STRICT).unwrap();
    for (file, at) in [(0, 0), (0, u64::MAX), (1, 2), (2, 0), (9, 0)] {
        assert!(matches!(split.seek(Position { file, at }), Err(Error::Sample(_))), "{file}, {at}");
    }
}

#[test]
fn failed_reads_are_reported_and_retried_by_the_next_call() {
    let mut random = Random(31);
    // The index of the second file is read in several pieces, one of them while its damage is skipped.
    let mut files = [random.file(40, 900), random.file(12_000, 9)];
    let second = index(&files[1]);
    files[0].splice(300..333, [0; 70]).for_each(drop);
    let line = second[..64 << 10].iter().filter(|byte| **byte == b'\n').count();
    let at = |line: usize| whole(&files[1..])[line].1;
    let damaged = at(line - 200)..at(line + 200);
    files[1][damaged].fill(0);
    let (fs, paths) = MemFs::of(&files);
    fs.put(Path::new("/d/1.idx"), &second);
    for (options, rank) in [(SKIP, 0), (SKIP, 1), (COUNT_SKIP, 0), (COUNT_SKIP, 1)] {
        let want = drain(&mut fs.split(&paths, rank, 2, options).unwrap()).0;
        for n in 1..60 {
            let mut split = fs.split(&paths, rank, 2, options).unwrap();
            fs.fail_in.store(n, Ordering::SeqCst);
            let (pieces, errors) = drain(&mut split);
            let failed = usize::from(fs.fail_in.swap(0, Ordering::SeqCst) == 0);
            assert!(errors.len() == failed && errors.iter().all(Error::is_retryable), "{errors:?}");
            assert_eq!(pieces, want, "read {n} fails");
        }
    }
}

#[test]
fn file_with_a_changed_length_is_refused_at_open() {
    let (fs, paths) = MemFs::of(&[file(&["one"]), file(&["two", "three"])]);
    let mut split = fs.split(&paths, 0, 1, STRICT).unwrap();
    fs.put(&paths[1], &file(&["two"]));
    assert_eq!(&split.next().unwrap().unwrap().1, b"one");
    let error = split.next().unwrap_err();
    assert!(error.to_string().contains("its length changed"), "{error}");
}

#[test]
fn chunks_contain_the_same_records_followed_by_errors() {
    let mut random = Random(41);
    let mut files = [random.file(30, 500), random.file(30, 500)];
    let at = whole(&files)[12].1;
    files[0][at] = 0;
    let (fs, paths) = MemFs::of(&files);
    let want = drain(&mut fs.split(&paths, 0, 1, STRICT).unwrap()).0;
    for bytes in [0, 1, 300, 5000, 1 << 20] {
        let (mut seen, mut errors) = (Vec::new(), Vec::new());
        for chunk in fs.split(&paths, 0, 1, STRICT).unwrap().prefetch(3, bytes).unwrap() {
            match chunk {
                Ok(chunk) => {
                    assert!(bytes > 1 || chunk.items().len() == 1);
                    let records = chunk.records();
                    seen.extend(records.map(|(at, of)| (at.file, at.at as usize, at.end as usize, Some(of.to_vec()))));
                }
                Err(error) => errors.push((seen.len(), said(&error).2)),
            }
        }
        assert_eq!(seen, want);
        assert_eq!(errors, [(12, at as u64)]);
    }
}

#[test]
fn specification_example_is_written_and_read() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../format/RECORDIO.md")).unwrap();
    let example = text.split("## 8 ").nth(1).unwrap();
    let lines = example.lines().filter_map(|line| line.strip_prefix("    00").map(|line| &line[4..]));
    let hex: String = lines.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())).collect();
    let bytes: Vec<_> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let records = [&b"one"[..], b"cut \x0a\x23\xd7\xce here", b"not\x0a\x23\xd7\xce here", b""];
    assert_eq!(bytes, file(&records));
    let index: Vec<_> = example.lines().filter_map(|line| line.strip_prefix("    k")).collect();
    let offsets: Vec<usize> =
        index.iter().map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
    let (fs, paths) = MemFs::of(&[bytes]);
    let pieces = drain(&mut fs.split(&paths, 0, 1, STRICT).unwrap()).0;
    assert_eq!(pieces.iter().map(|piece| piece.1).collect::<Vec<_>>(), offsets);
    assert_eq!(pieces.iter().map(|piece| piece.3.clone().unwrap()).collect::<Vec<_>>(), records);
    let shares = |options| [0, 1].map(|rank| drain(&mut fs.split(&paths, rank, 2, options).unwrap()).0.len());
    assert_eq!((shares(STRICT), shares(COUNT)), ([2, 2], [2, 2]));
}

#[test]
fn directories_links_and_order_on_a_real_filesystem() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let open = |paths: &[PathBuf]| InputSplit::open(paths, Share::ALL, COUNT);
    let refused = |paths: &[PathBuf]| open(paths).err().unwrap().to_string();
    std::fs::create_dir(at("d")).unwrap();
    assert!(refused(&[]).contains("no file to read"));
    assert!(refused(&[at("d")]).contains("has no .rec files"));
    assert!(refused(&[at("missing.rec")]).contains("missing.rec"));
    for (name, record) in [("d/b.rec", "b"), ("d/a.rec", "a"), ("d/a.txt", "no"), ("d/B.rec", "B"), ("e.rec", "e")] {
        std::fs::write(at(name), file(&[record])).unwrap();
    }
    std::fs::write(at("d/a.idx"), "0\t0\n").unwrap();
    let read = |paths: &[PathBuf]| {
        let mut split = open(paths).unwrap();
        let records: Vec<_> = drain(&mut split).0.into_iter().map(|piece| piece.3.unwrap()[0]).collect();
        assert!(split.paths().is_sorted() && split.path(0) == split.paths().next());
        String::from_utf8(records).unwrap()
    };
    assert_eq!(read(&[at("e.rec"), at("d")]), "Babe");
    for twice in [vec![at("d"), at("d/a.rec")], vec![at("e.rec"), at("e.rec")], vec![at("e.rec"), at("d/../e.rec")]] {
        assert!(refused(&twice).contains("the same file"));
    }
    // A link is followed, and the index beside its target is used; so the same file can be given twice.
    std::os::unix::fs::symlink(at("d/a.rec"), at("z.rec")).unwrap();
    assert_eq!(read(&[at("z.rec"), at("e.rec")]), "ea");
    assert!(refused(&[at("z.rec"), at("d")]).contains("the same file"));
    std::fs::write(at("d/a.idx"), "0\t4\n").unwrap();
    assert!(refused(&[at("z.rec")]).contains("a.idx: line 1"));
    std::os::unix::fs::symlink(at("nowhere"), at("y.rec")).unwrap();
    assert!(refused(&[at("y.rec")]).contains("y.rec"));
}
