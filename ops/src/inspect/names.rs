//! What each byte of a record's payload is, field by field, as format/SPEC.md lays them out (the sections are named in
//! the functions). It goes as far as it understands, and says where that ends: also in a damaged record.

use ringreel_format::segment::header::SIGNATURE;
use ringreel_format::{Meta, Schema, SegmentInfo};
use std::fmt::Display;

/// Some bytes of a payload, one after the other without gaps.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// How many bytes.
    pub len: u64,
    /// What the specification calls them.
    pub name: String,
    /// What they say.
    pub says: String,
}

/// Goes through a payload.
struct Namer<'a> {
    payload: &'a [u8],
    pos: usize,
    named: Vec<Named>,
}

impl<'a> Namer<'a> {
    fn new(payload: &'a [u8]) -> Namer<'a> {
        Namer { payload, pos: 0, named: Vec::new() }
    }

    fn put(&mut self, len: usize, name: impl Display, says: impl Display) {
        self.named.push(Named { len: len as u64, name: name.to_string(), says: says.to_string() });
        self.pos += len;
    }

    fn rest(&self) -> &'a [u8] {
        &self.payload[self.pos..]
    }

    /// The next `len` bytes. None, and the end of what is understood, where there are not so many.
    fn take(&mut self, len: u64, name: impl Display, says: impl FnOnce(&[u8]) -> String) -> Option<&'a [u8]> {
        let rest = self.rest();
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(bytes) => {
                self.put(bytes.len(), name, says(bytes));
                Some(bytes)
            }
            None => self.lost(format!("{name} needs {len} bytes, {} are left", rest.len())),
        }
    }

    /// Understanding ends here.
    fn lost<T>(&mut self, why: impl Display) -> Option<T> {
        let left = self.rest().len();
        self.put(left, "?", format!("understanding ends here: {why}"));
        None
    }

    fn u8(&mut self, name: impl Display, says: impl FnOnce(u8) -> String) -> Option<u8> {
        self.take(1, name, |bytes| says(bytes[0])).map(|bytes| bytes[0])
    }

    fn u32(&mut self, name: impl Display, says: impl FnOnce(u32) -> String) -> Option<u32> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        self.take(4, name, |bytes| says(number(bytes))).map(number)
    }

    fn u64(&mut self, name: impl Display, says: impl FnOnce(u64) -> String) -> Option<u64> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        self.take(8, name, |bytes| says(number(bytes))).map(number)
    }

    /// Section 1: unsigned LEB128.
    fn varint(&mut self, name: impl Display, says: impl FnOnce(u64) -> String) -> Option<u64> {
        let Some((value, len)) = varint(self.rest()) else {
            return self.lost(format!("{name} is no varint"));
        };
        self.put(len, name, says(value));
        Some(value)
    }

    fn text(&mut self, name: impl Display, len_name: impl Display) -> Option<&'a [u8]> {
        let len = self.varint(len_name, plain)?;
        self.take(len, name, |bytes| format!("{:?}", String::from_utf8_lossy(bytes)))
    }

    fn crc(&mut self, matches: Option<bool>) -> Option<u32> {
        self.u32("CRC-32", |crc| match matches {
            Some(true) => format!("{crc:#010x}: matches"),
            Some(false) => format!("{crc:#010x}: DOES NOT MATCH, nothing of what follows can be trusted"),
            None => format!("{crc:#010x}"),
        })
    }

    fn zeros(&mut self, len: u64) -> Option<()> {
        let says =
            |bytes: &[u8]| if bytes.iter().all(|byte| *byte == 0) { "" } else { "these should be zero" }.to_owned();
        self.take(len, "zero", says).map(|_| ())
    }

    /// A map of section 12.
    fn map(&mut self, len: u64, name: impl Display) -> Option<()> {
        let says = |bytes: &[u8]| match Meta::decode(bytes, 0) {
            Ok(meta) if meta.iter().next().is_none() => "CBOR, an empty map".to_owned(),
            Ok(meta) => format!("CBOR, with the keys {}", keys(&meta)),
            Err(why) => format!("CBOR that cannot be read: {why}"),
        };
        self.take(len, name, says).map(|_| ())
    }

    /// Section 5: a dtype. The item size, and whether it is one that is known.
    fn dtype(&mut self, of: &str) -> Option<u64> {
        let code = self.u8(format!("{of}: dtype code"), |code| code_name(code).to_owned())?;
        let size = self.varint(format!("{of}: item size"), plain)?;
        if code == 255 {
            self.text(format!("{of}: description"), format!("{of}: length of the description"))?;
        }
        Some(size)
    }

    /// Section 5: a shape. The product of its axes.
    fn shape(&mut self, of: &str) -> Option<u64> {
        let axes = self.u8(format!("{of}: number of axes"), plain)?;
        let mut product = 1u64;
        for n in 0..axes {
            let axis = self.varint(format!("{of}: axis {n}"), plain)?;
            product = product.saturating_mul(axis);
        }
        Some(product)
    }

    /// Section 4: segment info.
    fn info(&mut self) -> Option<()> {
        self.take(16, "segment id", hex)?;
        self.u64("born", |n| format!("generation {n}"))?;
        self.u64("created", |ms| format!("{ms} ms after 1970"))?;
        self.u64("first number", plain)?;
        let parts = self.varint("number of parts", plain)?;
        for n in 0..parts {
            let name = self.text(format!("part {n}: name"), format!("part {n}: length of the name"))?;
            let name = String::from_utf8_lossy(name).into_owned();
            self.dtype(&name)?;
            self.shape(&name)?;
        }
        let len = self.varint("length of the provenance", plain)?;
        self.map(len, "provenance")
    }

    /// Section 6: a part of a head.
    fn part(&mut self, name: &str, usual: Option<u64>) -> Option<()> {
        let flags = self.u8(format!("{name}: flags"), flag_words)?;
        let len = if flags & 1 != 0 {
            let size = self.dtype(name)?;
            Some(size.saturating_mul(self.shape(name)?))
        } else {
            usual
        };
        let codec = flags >> 2 & 3;
        let stored = if codec != 0 { Some(self.varint(format!("{name}: stored length"), plain)?) } else { len };
        let Some(stored) = stored else { return self.lost("the schema is not known") };
        if flags & 2 == 0 {
            return self.take(stored, format!("{name}: its bytes"), |_| String::new()).map(|_| ());
        }
        self.u32(format!("{name}: CRC-32 of its stored bytes"), |crc| format!("{crc:#010x}"))?;
        if flags & 16 != 0 {
            let pieces = stored.div_ceil(1 << 28).max(1);
            for n in 0..pieces {
                self.varint(format!("{name}: splits of record {n}"), plain)?;
            }
        }
        Some(())
    }
}

fn plain<T: Display>(value: T) -> String {
    value.to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keys(meta: &Meta) -> String {
    let names: Vec<String> = meta.iter().take(8).map(|(key, _)| format!("{key:?}")).collect();
    names.join(", ") + if meta.iter().count() > 8 { ", ..." } else { "" }
}

/// A number at the front of `bytes`, and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (n, byte) in bytes.iter().take(10).enumerate() {
        let low = u64::from(byte & 0x7f);
        if n == 9 && low > 1 {
            return None;
        }
        value |= low << (7 * n);
        if byte & 0x80 == 0 {
            return Some((value, n + 1));
        }
    }
    None
}

/// The table of section 5.
fn code_name(code: u8) -> &'static str {
    const NAMES: [&str; 16] = [
        "bytes", "bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64",
        "c128",
    ];
    match NAMES.get(usize::from(code)) {
        Some(name) => name,
        None if code == 255 => "numpy",
        None => "of a later version",
    }
}

/// The table of section 6.
fn flag_words(flags: u8) -> String {
    let mut words = vec![if flags & 1 == 0 { "dtype and shape of the schema" } else { "own dtype and shape" }];
    words.push(if flags & 2 == 0 { "inside" } else { "in records of its own" });
    words.push(match flags >> 2 & 3 {
        0 => "plain",
        1 => "zstd",
        _ => "a codec of a later version",
    });
    if flags & 16 != 0 {
        words.push("split");
    }
    if flags & 0xe0 != 0 {
        words.push("and flags that should be zero");
    }
    words.join(", ")
}

/// Section 4: a header record.
pub fn header(payload: &[u8]) -> Vec<Named> {
    let mut namer = Namer::new(payload);
    let matches = payload.get(16..).map(|rest| {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&payload[..12]);
        crc.update(rest);
        Some(crc.finalize()) == payload[12..16].first_chunk().map(|four| u32::from_le_bytes(*four))
    });
    let done = (|| {
        let signature =
            |bytes: &[u8]| if bytes == SIGNATURE { "RINGREEL" } else { "this should be RINGREEL" }.to_owned();
        namer.take(8, "signature", signature)?;
        namer.u8("major version", plain)?;
        namer.u8("minor version", plain)?;
        namer.zeros(2)?;
        namer.crc(matches)?;
        namer.info()
    })();
    finish(namer, done)
}

/// Section 6: the head of a sample. Without a schema, only what stands before the parts.
pub fn head(payload: &[u8], crc_matches: Option<bool>, schema: Option<&Schema>) -> Vec<Named> {
    let mut namer = Namer::new(payload);
    let done = (|| {
        namer.crc(crc_matches)?;
        namer.u8("type", |kind| {
            if kind == b'S' { "S: head of a sample".to_owned() } else { "this should be S".to_owned() }
        })?;
        namer.varint("ordinal", plain)?;
        namer.varint("time", |ms| format!("{ms} ms after the segment was begun"))?;
        match namer.varint("length of the meta", plain)? {
            0 => {}
            len => namer.map(len, "meta")?,
        }
        let Some(schema) = schema else { return namer.lost("the schema is not known") };
        for part in &schema.parts {
            namer.part(&part.name, part.dtype.byte_len(&part.shape).ok())?;
        }
        Some(())
    })();
    finish(namer, done)
}

/// Section 8: the footer.
pub fn footer(payload: &[u8], crc_matches: Option<bool>) -> Vec<Named> {
    let mut namer = Namer::new(payload);
    let done = (|| {
        namer.crc(crc_matches)?;
        namer.u8("type", |kind| if kind == b'F' { "F: footer".to_owned() } else { "this should be F".to_owned() })?;
        namer.u8("major version", plain)?;
        namer.u8("minor version", plain)?;
        namer.zeros(1)?;
        let count = namer.u64("count", |n| format!("{n} samples"))?;
        namer.u32("CRC-32 of the heads' CRC-32s", |crc| format!("{crc:#010x}"))?;
        namer.zeros(4)?;
        namer.take(count.saturating_mul(8), "table", |_| "where each sample begins, u64 each".to_owned())?;
        namer.info()
    })();
    finish(namer, done)
}

/// Section 9: the payload of the trailer.
pub fn trailer(payload: &[u8]) -> Vec<Named> {
    let matches = payload.get(..16).map(|bytes| {
        Some(crc32fast::hash(&bytes[..12])) == bytes[12..].first_chunk().map(|four| u32::from_le_bytes(*four))
    });
    let mut namer = Namer::new(payload);
    let done = (|| {
        namer.u64("offset of the footer", |at| format!("{at} ({at:#x})"))?;
        namer.u32("salt", plain)?;
        namer.crc(matches)?;
        let tag = |bytes: &[u8]| if bytes == b"REELTAIL" { "REELTAIL" } else { "this should be REELTAIL" }.to_owned();
        namer.take(8, "tag", tag).map(|_| ())
    })();
    finish(namer, done)
}

/// A record of MXNet's: its image header (`IRHeader`, `IfQQ`), labels, and the image.
pub fn image(payload: &[u8], kind: &str) -> Vec<Named> {
    let mut namer = Namer::new(payload);
    let done = (|| {
        let labels = namer.u32("IRHeader: flag", |n| match n {
            0 => "0: the label is in the header".to_owned(),
            n => format!("{n} labels follow the header"),
        })?;
        namer.u32("IRHeader: label", |bits| f32::from_bits(bits).to_string())?;
        namer.u64("IRHeader: id", plain)?;
        namer.u64("IRHeader: id2", plain)?;
        if labels > 0 {
            namer.take(4 * u64::from(labels), "labels", |bytes| {
                let (all, _) = bytes.as_chunks::<4>();
                let some: Vec<String> = all.iter().take(8).map(|four| f32::from_le_bytes(*four).to_string()).collect();
                some.join(", ") + if all.len() > 8 { ", ..." } else { "" }
            })?;
        }
        let left = namer.rest().len();
        namer.put(left, "content", kind);
        Some(())
    })();
    finish(namer, done)
}

/// What is left over, where all was understood, is said too.
fn finish(mut namer: Namer<'_>, done: Option<()>) -> Vec<Named> {
    let left = namer.rest().len();
    if done.is_some() && left > 0 {
        namer.put(left, "?", "nothing should stand here, in this version of the format");
    }
    namer.named
}

/// One field for all of it.
pub fn whole(len: u64, name: impl Display, says: impl Display) -> Vec<Named> {
    vec![Named { len, name: name.to_string(), says: says.to_string() }]
}

/// What a payload is by its own first bytes, where no more is known of it.
pub fn guess(payload: &[u8], crc_matches: Option<bool>, info: Option<&SegmentInfo>) -> Vec<Named> {
    match payload.get(4) {
        _ if payload.starts_with(SIGNATURE) => header(payload),
        Some(b'S') if info.is_some() => head(payload, crc_matches, info.map(|info| &info.schema)),
        Some(b'F') if info.is_some() => footer(payload, crc_matches),
        _ => whole(payload.len() as u64, "?", "understanding ends here: nothing says what this is"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringreel_format::DType;

    #[test]
    fn the_table_of_codes_is_that_of_the_format() {
        for code in 0..16 {
            assert!(DType::from_name(code_name(code)).is_some(), "{code}");
        }
    }

    /// Every byte of a truncated head has a name, and the last name says that understanding ends there.
    #[test]
    fn truncated_head_is_named_to_its_last_byte() {
        let payload = [1, 2, 3, 4, b'S', 0x85, 0x01, 9, 0];
        for len in 0..=payload.len() {
            let named = head(&payload[..len], None, None);
            assert_eq!(named.iter().map(|named| named.len).sum::<u64>(), len as u64);
            assert!(named.last().is_some_and(|last| last.says.contains("understanding ends here")), "{named:?}");
        }
        let ordinal = &head(&payload, None, None)[2];
        assert_eq!((ordinal.len, &*ordinal.says), (2, "133"));
    }
}
