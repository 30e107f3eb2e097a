//! Section 6 of SPEC.md in its simplest form: a slow model of the decoder of heads.

use byteorder::{ByteOrder, LE};
use ringreel_format::{Codec, DType, Head, Meta, PartHead, PartPlace, SegmentInfo};

const CHUNK: u64 = 1 << 28;

/// Takes `n` bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], n: u64) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(usize::try_from(n).ok()?)?;
    *bytes = rest;
    Some(front)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u128;
    for n in 0..10 {
        let byte = take(bytes, 1)?[0];
        value |= u128::from(byte & 0x7f) << (7 * n);
        if byte < 0x80 {
            return if byte == 0 && n > 0 { None } else { u64::try_from(value).ok() };
        }
    }
    None
}

fn dtype(bytes: &mut &[u8]) -> Option<DType> {
    let names = "bytes bool u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128";
    let code = take(bytes, 1)?[0];
    let itemsize = u32::try_from(varint(bytes)?).ok()?;
    if code == 255 {
        let len = varint(bytes).filter(|len| *len <= 65_535)?;
        return Some(DType::Numpy { descr: String::from_utf8(take(bytes, len)?.to_vec()).ok()?, itemsize });
    }
    match names.split(' ').nth(usize::from(code)) {
        Some(name) => DType::from_name(name).filter(|dtype| dtype.itemsize() == u64::from(itemsize)),
        None => Some(DType::Unknown { code, itemsize }),
    }
}

/// The records of one large part: the end of each, and its number of bytes.
fn places(bytes: &mut &[u8], len: u64, split: bool, end: &mut u128, pieces: &mut u64) -> Option<Vec<(u128, u64)>> {
    let count = len.div_ceil(CHUNK).max(1);
    *pieces += count;
    if *pieces > 1 << 16 {
        return None;
    }
    let mut records = Vec::new();
    for n in 0..count {
        let len = (len - n * CHUNK).min(CHUNK);
        let splits = if split { varint(bytes)? } else { 0 };
        if splits > len / 4 {
            return None;
        }
        if !(*end + 8).is_multiple_of(64) {
            *end = (*end + 16).next_multiple_of(64) - 8;
        }
        *end += u128::from(8 + len.next_multiple_of(4) + 4 * splits);
        records.push((*end, len));
    }
    (*end < 1 << 63).then_some(records)
}

/// Checks that `head` agrees with `payload`, the record of a head that ends at `end`; if `head` is none, checks that
/// the payload is invalid.
pub(crate) fn assert_head(payload: &[u8], end: u64, info: &SegmentInfo, head: Option<&Head>) {
    let parsed = parse(payload, end, info);
    assert_eq!(parsed.is_some(), head.is_some(), "{head:?}");
    let (Some((ordinal, unix_ms, meta, parts, end)), Some(head)) = (parsed, head) else { return };
    assert_eq!((ordinal, unix_ms, u128::from(head.end)), (head.ordinal, head.unix_ms, end));
    assert_eq!(meta, if head.meta.is_empty() { meta.clone() } else { head.meta.encode().unwrap() });
    assert_eq!(parts.len(), head.parts.len());
    for (want, part) in parts.iter().zip(&head.parts) {
        let PartHead { dtype, shape, codec, stored_len, place, .. } = part;
        assert_eq!((dtype, shape, codec, *stored_len), (&want.dtype, &want.shape, &want.codec, want.stored_len));
        match place {
            PartPlace::Inline(range) => assert_eq!(payload.get(range.clone()), want.inline.as_deref()),
            PartPlace::Large { crc, records } => {
                let records: Vec<_> = records.iter().map(|piece| (u128::from(piece.frames.end), piece.len)).collect();
                assert_eq!((Some(*crc), &records), (want.crc, &want.records));
            }
        }
    }
}

struct Part {
    dtype: DType,
    shape: Vec<u64>,
    codec: Codec,
    stored_len: u64,
    inline: Option<Vec<u8>>,
    crc: Option<u32>,
    records: Vec<(u128, u64)>,
}

/// Ordinal, time, meta, parts, and the end of the sample.
type Parsed = (u64, u64, Vec<u8>, Vec<Part>, u128);

fn parse(payload: &[u8], end: u64, info: &SegmentInfo) -> Option<Parsed> {
    let (mut bytes, mut end, mut pieces) = (payload.get(4..)?, u128::from(end), 0);
    if take(&mut bytes, 1)? != b"S" {
        return None;
    }
    let ordinal = varint(&mut bytes)?;
    let unix_ms = info.created_unix_ms.saturating_add(varint(&mut bytes)?);
    let meta_len = varint(&mut bytes).filter(|len| *len <= 1 << 24)?;
    let meta = take(&mut bytes, meta_len)?.to_vec();
    if !meta.is_empty() {
        Meta::decode(&meta, 0).ok()?;
    }
    let mut parts = Vec::new();
    for named in &info.schema.parts {
        let flags = take(&mut bytes, 1).filter(|flags| flags[0] < 32)?[0];
        let (mut own, mut shape) = (named.dtype.clone(), named.shape.clone());
        if flags & 1 != 0 {
            own = dtype(&mut bytes)?;
            let axes = take(&mut bytes, 1).filter(|axes| axes[0] <= 64)?[0];
            shape = (0..axes).map(|_| varint(&mut bytes)).collect::<Option<_>>()?;
        }
        let step = |len: u64, axis: &u64| len.checked_mul(*axis).filter(|len| *len < 1 << 63);
        let len = shape.iter().try_fold(own.itemsize(), step)?;
        let codec = match flags >> 2 & 3 {
            0 => Codec::Plain,
            1 => Codec::Zstd,
            other => Codec::Unknown(other),
        };
        let stored_len = if codec == Codec::Plain { len } else { varint(&mut bytes)? };
        let mut part = Part { dtype: own, shape, codec, stored_len, inline: None, crc: None, records: Vec::new() };
        if flags & 2 == 0 {
            part.inline = Some(take(&mut bytes, stored_len)?.to_vec());
        } else {
            part.crc = Some(LE::read_u32(take(&mut bytes, 4)?));
            part.records = places(&mut bytes, stored_len, flags & 16 != 0, &mut end, &mut pieces)?;
        }
        parts.push(part);
    }
    bytes.is_empty().then_some((ordinal, unix_ms, meta, parts, end))
}
