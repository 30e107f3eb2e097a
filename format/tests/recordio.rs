//! The readers of plain RecordIO, compared with a slow model on random files, intact and damaged.

use ringreel_format::recordio::{RecordReader, RecordWriter, ResyncItem, ResyncReader};
use ringreel_format::{FormatError, frame::MAGIC};
use std::io::{self, Read};

/// Returns the records of `file`, and the offset of the frame or padding that section 2 of SPEC.md refuses.
fn model(file: &[u8]) -> (Vec<Vec<u8>>, Option<u64>) {
    let word = |at: usize| file.get(at..at + 4).map(|w| u32::from_le_bytes(w.try_into().unwrap()));
    let (mut records, mut pos) = (Vec::new(), 0);
    while pos < file.len() {
        let mut record: Option<Vec<u8>> = None;
        loop {
            let (Some(magic), Some(lrec)) = (word(pos), word(pos + 4)) else { return (records, Some(pos as u64)) };
            let (flag, len) = (lrec >> 29, (lrec & 0x1fff_ffff) as usize);
            let order = if record.is_none() { flag < 2 } else { flag == 2 || flag == 3 };
            if magic != MAGIC || !order || (flag == 1 || flag == 2) && len % 4 != 0 {
                return (records, Some(pos as u64));
            }
            let (begin, end) = (pos + 8, pos + 8 + len);
            let next = end.next_multiple_of(4);
            if next > file.len() {
                return (records, Some(pos as u64));
            }
            if file[end..next].iter().any(|byte| *byte != 0) {
                return (records, Some(end as u64));
            }
            if let Some(at) = (begin..).step_by(4).take_while(|at| at + 4 <= end).find(|at| word(*at) == Some(MAGIC)) {
                return (records, Some(at as u64));
            }
            let mut joined = record.map_or_else(Vec::new, |mut first| {
                first.extend_from_slice(&MAGIC.to_le_bytes());
                first
            });
            joined.extend_from_slice(&file[begin..end]);
            pos = next;
            record = Some(joined);
            if flag == 0 || flag == 3 {
                break;
            }
        }
        records.extend(record);
    }
    (records, None)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }

    /// Returns up to `most` bytes with many magics at any alignment.
    fn payload(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let len = self.below(most + 1);
        while bytes.len() < len {
            match self.below(4) {
                0 => bytes.extend_from_slice(&MAGIC.to_le_bytes()),
                1 => bytes.extend(std::iter::repeat_n(0, self.below(9))),
                _ => bytes.extend((0..self.below(9)).map(|n| n as u8 | 1)),
            }
        }
        bytes.truncate(len);
        bytes
    }
}

/// Returns its bytes in pieces of irregular sizes.
struct Pieces<'a>(&'a [u8], Random);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.1.below(7) == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = (1 + self.1.below(100)).min(out.len()).min(self.0.len());
        out[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

fn read<I: ringreel_format::input::Input>(mut reader: RecordReader<I>) -> (Vec<Vec<u8>>, Option<FormatError>) {
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.payload.to_vec()),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

fn written(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new());
    payloads.iter().for_each(|payload| assert!(writer.write(payload).is_ok()));
    writer.into_inner()
}

#[test]
fn readers_agree_with_the_model_on_intact_and_damaged_files() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut whole, mut refused) = (0, 0);
    for round in 0..6_000 {
        let payloads = (0..random.below(12)).map(|_| random.payload(80)).collect::<Vec<_>>();
        let mut file = written(&payloads);
        if round % 3 == 0 {
            assert_eq!(model(&file), (payloads, None));
        }
        for _ in 0..(round % 3).min(file.len()) {
            let at = random.below(file.len());
            match random.below(4) {
                0 => file.truncate(at),
                1 => file[at] ^= 1 << random.below(8),
                2 => file[at] = 0,
                _ => drop(file.splice(at..at, [1, 2, 3, 4].into_iter().take(random.below(5)))),
            }
            if file.is_empty() {
                break;
            }
        }
        let (records, at) = model(&file);
        for (found, error) in
            [read(RecordReader::over(&file)), read(RecordReader::new(Pieces(&file, Random(round as u64 + 1))))]
        {
            assert_eq!(found, records);
            assert_eq!(error.as_ref().and_then(FormatError::at), at, "{error:?}");
        }
        whole += usize::from(at.is_none());
        refused += usize::from(at.is_some());
        let resynchronised = |mut reader: ResyncReader<_>| {
            let (mut found, mut pos) = (Vec::new(), 0);
            while let Some(next) = reader.next().unwrap() {
                let (begin, end) = match &next {
                    ResyncItem::Record(record) => (record.at, record.end),
                    ResyncItem::Skipped(region) => (region.begin, region.end),
                };
                assert!(begin == pos && end > begin);
                pos = end;
                found.push(match next {
                    ResyncItem::Record(record) => Ok(record.payload.to_vec()),
                    ResyncItem::Skipped(region) => Err((region.begin, region.end, region.why.name())),
                });
            }
            assert_eq!(pos, file.len() as u64);
            found
        };
        let found = resynchronised(ResyncReader::new(Pieces(&file, Random(round as u64 + 7))));
        let before = found.iter().map_while(|found| found.as_ref().ok().cloned()).collect::<Vec<_>>();
        assert_eq!(before, records, "records before the damage");
        assert_eq!(found.iter().all(Result::is_ok), at.is_none());
    }
    println!("{whole} intact and {refused} damaged files agree with the model");
}

#[test]
fn readers_repeat_an_error_and_return_no_later_record() {
    let mut file = written(&[b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    file[12] ^= 1; // the second record's magic
    let mut reader = RecordReader::over(&file);
    assert_eq!(reader.next().unwrap().unwrap().payload, b"one");
    for _ in 0..3 {
        assert!(matches!(reader.next(), Err(FormatError::BadMagic { at: 12, .. })));
        assert_eq!(reader.position(), 12);
    }
}

#[test]
fn claimed_half_gigabyte_costs_no_memory() {
    // A header that claims 2^29 - 1 bytes, followed by 100 bytes, is an error in memory and in a stream.
    let mut file = [MAGIC.to_le_bytes(), 0x1fff_ffffu32.to_le_bytes()].concat();
    file.extend_from_slice(&[7; 100]);
    for error in [read(RecordReader::over(&file)).1, read(RecordReader::new(&file[..])).1] {
        assert!(matches!(error, Some(FormatError::Truncated { at: 0, have: 108, .. })), "{error:?}");
    }
}

#[test]
fn records_over_the_limit_are_refused() {
    let mut writer = RecordWriter::new(Vec::new());
    let payload = vec![0; 1 << 29];
    assert!(matches!(writer.write(&payload), Err(FormatError::TooLarge { .. })));
    assert_eq!((writer.position(), writer.into_inner().len()), (0, 0));
}
