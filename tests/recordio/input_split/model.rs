//! The model: section 2 of SPEC.md, in the slowest and simplest form.

pub const MAGIC: [u8; 4] = [0x0a, 0x23, 0xd7, 0xce];

#[derive(Debug, PartialEq)]
pub enum Why {
    Damage(&'static str),
    /// The frame's length is consistent: the next frame, or the end, is at this offset.
    Foreign(&'static str, usize),
}

pub fn word(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().unwrap()))
}

pub fn is_magic(file: &[u8], at: usize) -> bool {
    file.get(at..at + 4) == Some(&MAGIC)
}

/// Returns the payload and the end of the record at `at`.
pub fn strict(file: &[u8], mut at: usize) -> Result<(Vec<u8>, usize), Why> {
    let (mut payload, mut first) = (Vec::new(), true);
    loop {
        if file.len() < at + 8 {
            return Err(Why::Damage("Truncated"));
        }
        if !is_magic(file, at) {
            return Err(Why::Damage("BadMagic"));
        }
        let lrec = word(file, at + 4).unwrap();
        let (flag, len) = (lrec >> 29, (lrec & 0x1fff_ffff) as usize);
        let end = at + 8 + len.div_ceil(4) * 4;
        let follows =
            |flags: [u32; 2]| is_magic(file, end) && word(file, end + 4).is_some_and(|w| flags.contains(&(w >> 29)));
        let fits = match flag {
            0 | 3 => end == file.len() || follows([0, 1]),
            _ => follows([2, 3]),
        };
        let verdict = |name| Err(if fits { Why::Foreign(name, end) } else { Why::Damage(name) });
        if flag > 3 {
            return Err(Why::Damage("BadFlag"));
        }
        if (flag == 1 || flag == 2) && len % 4 != 0 {
            return verdict("UnalignedPart");
        }
        if first != (flag < 2) {
            return Err(Why::Damage("BadFlag"));
        }
        if end > file.len() {
            return Err(Why::Damage("Truncated"));
        }
        if file[at + 8 + len..end].iter().any(|byte| *byte != 0) {
            return Err(Why::Damage("DirtyPadding"));
        }
        if (at + 8..at + 8 + len).step_by(4).any(|word| word + 4 <= at + 8 + len && is_magic(file, word)) {
            return verdict("UnescapedMagic");
        }
        if !first {
            payload.extend(MAGIC);
        }
        payload.extend(&file[at + 8..at + 8 + len]);
        (at, first) = (end, false);
        if flag == 0 || flag == 3 {
            return Ok((payload, at));
        }
    }
}

/// A record, or a damaged region: file, begin, end, payload.
pub type Piece = (usize, usize, usize, Option<Vec<u8>>);

/// Reads all files from the front.
pub fn whole(files: &[Vec<u8>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (n, file) in files.iter().enumerate() {
        let mut at = 0;
        while at < file.len() {
            let (payload, end) = match strict(file, at) {
                Ok((payload, end)) => (Some(payload), end),
                Err(_) => {
                    let next = (at + 4..file.len()).step_by(4).find(|at| strict(file, *at).is_ok());
                    (None, next.unwrap_or(file.len()))
                }
            };
            pieces.push((n, at, end, payload));
            at = end;
        }
    }
    pieces
}

/// The split that byte `at` of file `n` belongs to, by bytes.
pub fn owner(files: &[Vec<u8>], n: usize, at: usize, world: u64) -> u64 {
    let total: usize = files.iter().map(Vec::len).sum();
    let byte = (files[..n].iter().map(Vec::len).sum::<usize>() + at) as u64;
    (0..world).rev().find(|rank| total as u64 * rank / world <= byte).unwrap()
}
