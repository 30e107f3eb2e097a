//! Large parts that are checked while they are written: the segment has the same bytes as one written in order, and
//! an unfinished segment shows no sample without its head.

use super::common::info;
use ringreel_format::{
    DType, FormatError, Meta, PartRef, Result, Salvage, SalvageItem, SampleRef, Schema, SegmentWriter, Sink, Value,
    WriteOptions, frame::MAGIC,
};
use std::io::{self, Write};

/// Half of the size from which on a thread computes a sample's checksums.
const HALF: usize = 1 << 22;

/// A sink that counts its changes, and fails at one call.
#[derive(Clone, Default)]
struct Watched {
    bytes: Vec<u8>,
    over: Vec<u64>,
    /// Its contents before it was last overwritten.
    before: Vec<u8>,
    cuts: usize,
    calls: usize,
    fails_at: Option<usize>,
}

impl Watched {
    /// Half of a failing call takes effect.
    fn call(&mut self, len: usize) -> (usize, io::Result<()>) {
        self.calls += 1;
        let fails = self.fails_at == Some(self.calls);
        if fails { (len / 2, Err(io::ErrorKind::StorageFull.into())) } else { (len, Ok(())) }
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (len, done) = self.call(bytes.len());
        self.bytes.extend_from_slice(&bytes[..len]);
        done.map(|()| len)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Watched {
    fn write_over(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (len, done) = self.call(bytes.len());
        self.over.push(at);
        self.before.clone_from(&self.bytes);
        self.bytes.write_over(at, &bytes[..len])?;
        done
    }
    fn cut(&mut self, len: u64) -> io::Result<()> {
        let (_, done) = self.call(0);
        self.cuts += 1;
        done?;
        self.bytes.cut(len)
    }
}

/// Bytes without a magic.
fn plain(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + n / 251 + seed) as u8 | 1).collect()
}

fn with_magic(mut data: Vec<u8>, at: usize) -> Vec<u8> {
    data[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
    data
}

/// Returns `data` with its last four bytes changed so that its CRC-32 is the magic: the checksum is linear in them.
fn with_magic_as_crc(mut data: Vec<u8>) -> Vec<u8> {
    let end = data.len() - 4;
    let mut crc = |word: u32| {
        data[end..].copy_from_slice(&word.to_le_bytes());
        crc32fast::hash(&data)
    };
    let zero = crc(0);
    // Rows (changed checksum bits, changed data bits), each with a distinct highest bit.
    let mut rows: Vec<(u32, u32)> = Vec::new();
    let reduce = |rows: &[(u32, u32)], start: (u32, u32)| {
        rows.iter().fold(start, |(left, bits), row| {
            if left & (1 << row.0.ilog2()) != 0 { (left ^ row.0, bits ^ row.1) } else { (left, bits) }
        })
    };
    for bit in 0..32 {
        let row = reduce(&rows, (crc(1 << bit) ^ zero, 1 << bit));
        rows.push(row);
        rows.sort_by_key(|row| std::cmp::Reverse(row.0));
    }
    let (left, word) = reduce(&rows, (zero ^ MAGIC, 0));
    assert_eq!((left, crc(word)), (0, MAGIC));
    data
}

/// A sample: its parts and its meta.
type Sample = (Vec<Vec<u8>>, Meta);

fn sample(parts: Vec<Vec<u8>>) -> Sample {
    (parts, Meta::new())
}

/// Begins a segment. The parts of its schema have `2 * HALF` bytes; parts of other sizes have their own shapes.
fn begin(sink: &mut Watched, parts: usize, compress: bool) -> SegmentWriter {
    let names = ["a", "b", "c", "d", "e"][..parts].iter().map(|name| (*name, DType::U8, vec![2 * HALF as u64]));
    let options = WriteOptions { compress: vec![compress.then_some(1); parts], ..WriteOptions::default() };
    SegmentWriter::begin(sink, info(Schema::new(names).unwrap()), options).unwrap()
}

fn put((parts, meta): &Sample, write: impl FnOnce(&SampleRef<'_>) -> Result<()>) -> Result<()> {
    let shapes: Vec<_> = parts.iter().map(|part| [part.len() as u64]).collect();
    let parts: Vec<_> = parts.iter().zip(&shapes).map(|(data, shape)| PartRef::new(DType::U8, shape, data)).collect();
    write(&SampleRef { parts: &parts, meta, unix_ms: 1_234 })
}

/// Returns the segment of these samples, written in order.
fn in_order(samples: &[Sample], compress: bool) -> Vec<u8> {
    let mut sink = Watched::default();
    let mut writer = begin(&mut sink, samples[0].0.len(), compress);
    samples.iter().for_each(|sample| put(sample, |sample| writer.sample(&mut sink, sample)).unwrap());
    writer.finish(&mut sink).unwrap();
    assert_eq!((sink.over.len(), sink.cuts), (0, 0));
    super::common::check(&sink.bytes).unwrap();
    sink.bytes
}

/// Returns the sink after the same samples were written with heads last.
fn heads_last(samples: &[Sample], compress: bool) -> Watched {
    let mut sink = Watched::default();
    let mut writer = begin(&mut sink, samples[0].0.len(), compress);
    samples.iter().for_each(|sample| put(sample, |sample| writer.sample_over(&mut sink, sample)).unwrap());
    writer.finish(&mut sink).unwrap();
    sink
}

/// Checks a sample alone, and with others before and after it.
fn assert_same(what: &str, one: Sample, compress: bool, over: usize, cuts: usize) {
    let small = sample(one.0.iter().map(|_| plain(100, 3)).collect());
    for (before, behind) in [(0, 0), (1, 2)] {
        let mut samples = vec![small.clone(); before];
        samples.push(one.clone());
        samples.extend(vec![small.clone(); behind]);
        let sink = heads_last(&samples, compress);
        assert!(sink.bytes == in_order(&samples, compress), "{what}: other bytes");
        assert_eq!((sink.over.len(), sink.cuts), (over, cuts), "{what}: written over, cut");
    }
}

#[test]
fn heads_last_gives_the_same_bytes_without_a_magic() {
    let large = plain(2 * HALF, 0);
    let mut meta = Meta::new();
    meta.set("seed", 7u64);
    for (what, one) in [
        ("one part", sample(vec![large.clone()])),
        ("another length", sample(vec![plain(2 * HALF + 3, 1)])),
        ("with meta", (vec![large.clone()], meta)),
        ("two parts", sample(vec![plain(HALF + 1, 2), plain(HALF, 3)])),
        (
            "many parts, with small ones in between",
            sample(vec![plain(5, 0), plain(2 * HALF, 1), vec![], plain(3000, 4), plain(1024, 1)]),
        ),
    ] {
        assert_same(what, one, false, 1, 0);
    }
    // Below the size from which on a thread is used.
    assert_same("little", sample(vec![plain(2 * HALF - 1, 1)]), false, 0, 0);
}

#[test]
fn heads_last_gives_the_same_bytes_for_compressed_parts() {
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8 | 1
    })
    .take(3 * HALF)
    .collect();
    assert_same("compressed", sample(vec![noise.clone(), plain(2 * HALF, 0)]), true, 1, 0);
    // Little is left of it after compression.
    assert_same("compressed away", sample(vec![vec![1; 2 * HALF], vec![2; 100]]), true, 0, 0);
}

#[test]
fn heads_last_gives_the_same_bytes_with_a_magic_in_a_part() {
    let len = 2 * HALF + 6;
    for at in [0, 4, HALF, (1 << 18) - 4, 2 * HALF, len - 6] {
        assert_same(&format!("at {at}"), sample(vec![with_magic(plain(len, 0), at)]), false, 0, 1);
        let second = sample(vec![plain(len, 0), with_magic(plain(len, 1), at), plain(100, 0)]);
        assert_same(&format!("at {at} in the second part"), second, false, 0, 1);
    }
    for at in [1, 2, HALF + 3, (1 << 18) - 2, len - 5, len - 4] {
        let is_one = at % 4 == 0;
        assert_same(
            &format!("at {at}"),
            sample(vec![with_magic(plain(len, 0), at)]),
            false,
            usize::from(!is_one),
            usize::from(is_one),
        );
    }
    let many = MAGIC.to_le_bytes().repeat(HALF / 2);
    assert_same("only magics", sample(vec![many]), false, 0, 1);
}

#[test]
fn heads_last_gives_the_same_bytes_with_a_magic_in_a_head() {
    let magics = MAGIC.to_le_bytes().repeat(3);
    for shift in 0..4 {
        let small = [&plain(shift, 0)[..], &magics].concat();
        let samples = [sample(vec![small.clone(), plain(2 * HALF, 0)])];
        assert!(heads_last(&samples, false).bytes == in_order(&samples, false), "shift {shift}");
        let mut meta = Meta::new();
        meta.set("magic", Value::Bytes(small));
        let samples = [(vec![plain(5, 0), plain(2 * HALF, 0)], meta)];
        assert!(heads_last(&samples, false).bytes == in_order(&samples, false), "shift {shift}, meta");
    }
    // The checksum is known last: the head of zeros has no magic, and the final head has one at one of these shifts.
    let mut cuts = 0;
    for shift in 0..4 {
        let one = sample(vec![plain(shift, 0), with_magic_as_crc(plain(2 * HALF, 0))]);
        let sink = heads_last(std::slice::from_ref(&one), false);
        assert!(sink.bytes == in_order(&[one], false), "the magic as checksum, shift {shift}");
        assert_eq!(sink.over.len() + sink.cuts, 1);
        cuts += sink.cuts;
    }
    assert_eq!(cuts, 1);
}

#[test]
fn failed_write_succeeds_when_the_sample_is_written_again() {
    let samples = [
        sample(vec![plain(2 * HALF, 0), plain(100, 0)]),
        sample(vec![with_magic(plain(2 * HALF, 1), HALF), plain(100, 0)]),
        sample(vec![plain(100, 0), plain(2 * HALF, 2)]),
    ];
    let want = in_order(&samples, false);
    let mut failed = 0;
    for fails_at in 1.. {
        let mut sink = Watched::default();
        let mut writer = begin(&mut sink, 2, false);
        (sink.calls, sink.fails_at) = (0, Some(fails_at));
        for sample in &samples {
            let at = writer.position();
            match put(sample, |sample| writer.sample_over(&mut sink, sample)) {
                Ok(()) => continue,
                Err(FormatError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
                Err(error) => unreachable!("{error}"),
            }
            failed += 1;
            assert_eq!(writer.position(), at);
            sink.cut(at).unwrap();
            put(sample, |sample| writer.sample_over(&mut sink, sample)).unwrap();
        }
        if sink.calls < fails_at {
            break;
        }
        writer.finish(&mut sink).unwrap();
        assert!(sink.bytes == want, "call {fails_at}");
    }
    assert!(failed > 15, "{failed}");
}

/// Returns what salvage finds in an unfinished segment: ordinals of samples, and the number of skipped regions.
fn found(bytes: &[u8]) -> (Vec<u64>, usize) {
    let (mut ordinals, mut skipped) = (Vec::new(), 0);
    for found in Salvage::new(bytes.to_vec().into(), Default::default()) {
        match found {
            SalvageItem::Sample(sample) => {
                assert!(sample.parts.iter().all(Result::is_ok));
                ordinals.push(sample.ordinal);
            }
            SalvageItem::Skipped(_) => skipped += 1,
        }
    }
    (ordinals, skipped)
}

#[test]
fn writer_that_dies_before_the_head_leaves_no_sample() {
    let one = sample(vec![plain(100, 0), plain(2 * HALF, 2)]);
    let mut sink = Watched::default();
    let mut writer = begin(&mut sink, 2, false);
    put(&one, |sample| writer.sample_over(&mut sink, sample)).unwrap();
    let at = writer.position() as usize;
    put(&one, |sample| writer.sample_over(&mut sink, sample)).unwrap();
    assert_eq!(sink.over[1], at as u64);
    let (whole, before) = (sink.bytes, sink.before);
    let head = 8 + u32::from_le_bytes(*whole[at + 4..].first_chunk().unwrap()) as usize;
    assert_eq!(found(&whole), (vec![0, 1], 1)); // the skipped region is the missing footer
    // The head as far as it reached the disk: a prefix of its bytes, or all but one byte.
    for there in 0..head {
        let mut torn = before.clone();
        torn[at..at + there].copy_from_slice(&whole[at..at + there]);
        assert_eq!(found(&torn).0, [0], "{there} bytes of the head");
    }
    for lost in (0..head).filter(|lost| whole[at + lost] != before[at + lost]) {
        let mut torn = whole.clone();
        torn[at + lost] = before[at + lost];
        assert_eq!(found(&torn).0, [0], "byte {lost} of the head");
    }
    // The head is complete, but not all of its parts.
    for len in [at + head, at + head + 100, whole.len() - 1] {
        let salvage = Salvage::new(whole[..len].to_vec().into(), Default::default());
        let whole = salvage.filter(|it| matches!(it, SalvageItem::Sample(one) if one.parts.iter().all(Result::is_ok)));
        assert_eq!(whole.count(), 1, "{len} bytes");
    }
}
