//! Random files.

use super::model::{MAGIC, whole};
use ringreel::format::recordio::RecordWriter;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
    /// A payload with magic numbers at every alignment, and with words that look like frame headers.
    pub fn payload(&mut self, most: usize) -> Vec<u8> {
        let limit = [1, 9, 60, 400, most][self.below(5)].min(most);
        let len = self.below(limit + 1);
        let mut payload = Vec::new();
        while payload.len() < len {
            match self.below(6) {
                0 => payload.extend(MAGIC),
                1 => payload.extend([MAGIC, [self.below(64) as u8, 0, 0, (self.below(5) * 0x20) as u8]].concat()),
                2 => payload.extend(vec![0; self.below(9)]),
                3 => payload.push(self.next() as u8),
                _ => (0..self.below(40)).for_each(|_| payload.push(self.next() as u8)),
            }
        }
        payload.truncate(len);
        payload
    }
    pub fn file(&mut self, records: usize, most: usize) -> Vec<u8> {
        file(&(0..records).map(|_| self.payload(most)).collect::<Vec<_>>())
    }
    pub fn files(&mut self) -> Vec<Vec<u8>> {
        let most = [40, 400, 6000][self.below(3)];
        let counts: Vec<_> = (0..self.below(6)).map(|_| self.below(9)).collect();
        counts.into_iter().map(|records| self.file(records, most)).collect()
    }
}

pub fn file<P: AsRef<[u8]>>(payloads: &[P]) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new());
    payloads.iter().for_each(|payload| assert!(writer.write(payload.as_ref()).is_ok()));
    writer.into_inner()
}

/// The index of an undamaged file.
pub fn index(file: &[u8]) -> Vec<u8> {
    let offsets = whole(&[file.to_vec()]).into_iter().map(|piece| piece.1);
    offsets.enumerate().map(|(n, at)| format!("{n}\t{at}\n")).collect::<String>().into_bytes()
}
