//! Segments with one error each. All checksums except the one in question are correct.

use super::Vector;
use super::good::{SQUARES, noise, squares, zstd};
use super::json::{Json, error};
use super::model::*;
use super::written::Salvage;

fn refused(name: &str, bytes: Vec<u8>, why: (&str, Option<u64>), salvage: Salvage) -> Vector {
    let outcome = vec![("kind", "segment".into()), ("error", error(why.0, why.1)), ("salvage", salvage.json())];
    Vector { name: format!("bad/{name}.rec"), bytes, outcome: Json::Object(outcome) }
}

/// Three samples with a small and a large part; the large one is split.
fn base() -> Segment {
    let segment = Segment::new(Info::new([("a", dtype("u16"), &[3]), ("b", dtype("u8"), &[150])]));
    (0..3).fold(segment, |segment, n| {
        let large = [&noise(72, n)[..], &MAGIC, &noise(74, n + 10)].concat();
        segment.sample_with(map([("n", V::Int(n.into()))]), [inline(&noise(6, n)), inline(&large).large()])
    })
}

/// Three samples with one small part.
fn small() -> Segment {
    let segment = Segment::new(Info::new([("a", dtype("u16"), &[3])]));
    (0..3).fold(segment, |segment, n| segment.sample([inline(&noise(6, n))]))
}

/// A segment whose head 1 is refused with `why`.
fn bad_head(name: &str, segment: Segment, why: &str) -> Vector {
    let w = segment.write();
    let (at, next) = (w.samples[1].at, w.samples.get(2).map_or(w.footer, |next| next.at));
    let salvage = w.salvage().without(at).skip(at, next, why);
    refused(name, w.bytes, (why, (why != "TooLarge").then_some(at)), salvage)
}

/// [`small`] with `edit` applied to head 1: its checksum, `S`, ordinal, time, no meta, flags and six bytes of its
/// part.
fn edited_head(name: &str, why: &str, edit: impl Fn(&mut Vec<u8>) + 'static) -> Vector {
    bad_head(name, small().edit_head(1, edit), why)
}

/// [`small`] with these bytes as the meta of head 1.
fn bad_meta(name: &str, why: &str, meta: &[u8]) -> Vector {
    let meta = [varint(meta.len() as u64), meta.to_vec()].concat();
    edited_head(&format!("meta-{name}"), why, move |head| head.splice(7..8, meta.clone()).for_each(drop))
}

/// A segment whose header is refused with `why`; the footer's info is correct.
fn bad_header(name: &str, segment: Segment, why: (&str, Option<u64>)) -> Vector {
    let w = segment.write();
    let salvage = w.salvage().skip(0, w.samples[0].at, why.0);
    refused(name, w.bytes, why, salvage)
}

/// [`small`] with this schema in its header.
fn bad_schema(name: &str, why: &str, schema: Vec<u8>) -> Vector {
    let segment = small().edit_header(move |header| header.splice(56..63, schema.clone()).for_each(drop));
    bad_header(&format!("schema-{name}"), segment, (why, (why != "TooLarge").then_some(0)))
}

/// [`small`] with a footer that does not decode, and therefore does not end the samples in salvage.
fn bad_footer(name: &str, why: &str, edit: impl Fn(&mut Vec<u8>) + 'static) -> Vector {
    let w = small().edit_footer(edit).write();
    let salvage = w.salvage().skip(w.footer, w.len(), why);
    let at = (why != "Version").then_some(w.footer);
    refused(name, w.bytes, (why, at), salvage)
}

/// [`small`] with a footer that contradicts the samples before it. Salvage ignores the contradiction.
fn wrong_footer(name: &str, why: &str, edit: impl Fn(&mut Vec<u8>) + 'static) -> Vector {
    let w = small().edit_footer(edit).write();
    let salvage = w.salvage();
    refused(name, w.bytes, (why, Some(w.footer)), salvage)
}

pub fn vectors() -> Vec<Vector> {
    let all = [frames(), cuts(), places(), checksums(), headers(), schemas(), heads(), metas(), footers(), trailers()];
    all.into_iter().chain([parts(), compressed()]).flatten().collect()
}

fn frames() -> Vec<Vector> {
    let w = base().write();
    let s = &w.samples;
    let (head, part, end) = (s[1].at, s[1].parts[1].at, s[1].end);
    let (pad, last) = (s[1].parts[1].pad, part + 8 + 72); // the second frame of the part
    let no_head = |why: &str| w.salvage().without(head).skip(head, s[2].at, why);
    let no_part = |why: &str| w.salvage().part(1, 1, why).skip(part, end, why);
    let no_footer = |why: &str| w.salvage().skip(w.footer, w.len(), why);
    let flag = |at: u64, flag: u8| w.patch(at + 7, &[flag << 5]);
    let dirty = |at: u64, len: u64| w.patch(at + 8 + len, &[1]);
    let head_len = u64::from(w.bytes[head as usize + 4]);
    let mut out = vec![
        refused("magic-of-header", w.flip(0, 1), ("BadMagic", Some(0)), w.salvage().skip(0, s[0].at, "BadMagic")),
        refused("magic-of-head", w.flip(head + 3, 0x80), ("BadMagic", Some(head)), no_head("BadMagic")),
        refused("magic-of-part", w.flip(part + 1, 1), ("BadMagic", Some(part)), no_part("BadMagic")),
        refused("magic-of-inner-frame", w.flip(last, 1), ("BadMagic", Some(last)), no_part("BadMagic")),
        refused("magic-of-pad", w.flip(pad, 1), ("BadMagic", Some(pad)), w.salvage().skip(pad, part, "BadMagic")),
        refused("magic-of-footer", w.flip(w.footer, 1), ("BadMagic", Some(w.footer)), no_footer("BadMagic")),
        refused("flag-above-3", flag(head, 4), ("BadFlag", Some(head)), no_head("BadFlag")),
        refused("flag-7", flag(w.footer, 7), ("BadFlag", Some(w.footer)), no_footer("BadFlag")),
        refused("flag-2-first", flag(part, 2), ("BadFlag", Some(part)), no_part("BadFlag")),
        refused("flag-3-first", flag(head, 3), ("BadFlag", Some(head)), no_head("BadFlag")),
        refused("flag-of-part-0", flag(part, 0), ("Malformed", Some(part)), no_part("Malformed")),
        refused("flag-of-part-missing", flag(last, 0), ("BadFlag", Some(last)), no_part("BadFlag")),
        refused("flag-of-part-twice", flag(last, 1), ("UnalignedPart", Some(last)), no_part("UnalignedPart")),
        refused("flag-of-pad", flag(pad, 1), ("BadFlag", Some(part)), w.salvage().skip(pad, part, "BadFlag")),
        refused("dirty-head-padding", dirty(head, head_len), ("DirtyPadding", Some(head + 8 + head_len)), {
            no_head("DirtyPadding")
        }),
        refused("dirty-part-padding", dirty(last, 74), ("DirtyPadding", Some(last + 8 + 74)), no_part("DirtyPadding")),
        refused(
            "dirty-pad",
            w.flip(pad + 12, 4),
            ("DirtyPadding", Some(pad)),
            w.salvage().skip(pad, part, "DirtyPadding"),
        ),
        refused("pad-shorter", w.patch(pad + 4, &[(part - pad - 12) as u8]), ("DirtyPadding", Some(pad)), {
            w.salvage().skip(pad, part, "DirtyPadding")
        }),
        refused("part-shorter", w.patch(last + 4, &[68]), ("Malformed", Some(part)), no_part("Malformed")),
        refused("part-longer", w.patch(last + 4, &[80]), ("UnescapedMagic", Some(end)), no_part("Malformed")),
    ];
    // Frames with flags 1 and 2 and a length that is not a multiple of 4.
    out.push(refused("unaligned-head", flag(head, 1), ("UnalignedPart", Some(head)), no_head("UnalignedPart")));
    let unaligned = w.patch(part + 4, &[71]);
    out.push(refused("unaligned-part", unaligned, ("UnalignedPart", Some(part)), no_part("UnalignedPart")));
    // A first part whose second part would make the record longer than allowed.
    let long = w.patch(last + 4, &[0xff, 0xff, 0xff, 0x7f]);
    out.push(refused("record-too-large", long, ("TooLarge", None), no_part("TooLarge")));
    // A writer that does not escape the magic.
    let mut segment = small();
    let tensor = [&noise(12, 1)[..], &MAGIC, &noise(4, 2)].concat();
    let part = Part { escape: false, ..inline(&tensor).large() };
    segment = segment.sample([part.own(dtype("u8"), &[20])]);
    let w = segment.write();
    let magic = w.samples[3].parts[0].at + 8 + 12;
    out.push(refused("unescaped-in-part", w.bytes.clone(), ("UnescapedMagic", Some(magic)), w.salvage()));
    let w = small().write();
    let padding = 8 + u64::from(w.bytes[4]);
    let salvage = w.salvage().skip(0, w.samples[0].at, "DirtyPadding");
    out.push(refused("dirty-header-padding", w.flip(padding, 1), ("DirtyPadding", Some(padding)), salvage));
    let magic = w.samples[1].at + 8 + 4;
    let head = w.samples[1].at;
    out.push(refused("unescaped-in-head", w.patch(magic, &MAGIC), ("UnescapedMagic", Some(magic)), {
        w.salvage().without(head).skip(head, w.samples[2].at, "UnescapedMagic")
    }));
    out
}

fn cuts() -> Vec<Vector> {
    let w = base().write();
    let (first, s) = (&w.samples[0], &w.samples[1]);
    let part = &s.parts[1];
    let cut = |name: &str, len: u64, at: u64, salvage: Salvage| {
        refused(&format!("cut-{name}"), w.bytes[..len as usize].to_vec(), ("Truncated", Some(at)), salvage)
    };
    let none = |len: u64| Salvage::nothing(len, "Truncated");
    // The remaining samples, and a skipped region from `begin` on.
    let lost = |begin: u64, len: u64| w.lost_from(begin, len, "Truncated");
    let kept = || w.lost_from(w.samples[2].at, 0, "").part(1, 1, "Truncated").unskipped();
    let zeros = [&w.bytes[..s.at as usize], &vec![0; (w.len() - s.at) as usize]].concat();
    let tail = [&w.bytes[..part.at as usize + 20], &vec![0; 300]].concat();
    vec![
        cut("empty", 0, 0, none(0)),
        cut("4-bytes", 4, 0, none(4)),
        cut("header-frame", 8, 0, none(8)),
        cut("header", 40, 0, none(40)),
        cut("after-header", first.at, first.at, lost(first.at, first.at)),
        cut("magic-last", s.at + 4, s.at, lost(s.at, s.at + 4)),
        cut("head-frame", s.at + 8, s.at, lost(s.at, s.at + 8)),
        cut("head", s.head_end - 4, s.at, lost(s.at, s.head_end - 4)),
        cut("head-padding", s.head_end - 1, s.at, lost(s.at, s.head_end - 1)),
        cut("after-head", s.head_end, s.head_end, kept().skip(s.head_end, s.head_end, "Truncated")),
        cut("pad", part.at - 4, part.pad, kept().skip(part.pad, part.at - 4, "Truncated")),
        cut("after-pad", part.at, part.at, kept().skip(part.at, part.at, "Truncated")),
        cut("part", part.at + 60, part.at, kept().skip(part.at, part.at + 60, "Truncated")),
        cut("between-frames", part.at + 80, part.at + 80, kept().skip(part.at, part.at + 80, "Truncated")),
        cut("part-end", part.end - 1, part.at + 80, kept().skip(part.at, part.end - 1, "Truncated")),
        cut("after-sample", s.end, s.end, lost(s.end, s.end)),
        cut("samples", w.footer, w.footer, lost(w.footer, w.footer)),
        cut("footer", w.footer + 50, w.footer, lost(w.footer, w.footer + 50)),
        cut("after-footer", w.trailer, w.trailer, w.salvage().skip(w.trailer, w.trailer, "Truncated")),
        cut("trailer", w.trailer + 20, w.trailer, w.salvage().skip(w.trailer, w.trailer + 20, "Truncated")),
        cut("last-byte", w.len() - 1, w.trailer, w.salvage().skip(w.trailer, w.len() - 1, "Truncated")),
        refused("zeros-from-head", zeros, ("BadMagic", Some(s.at)), w.lost_from(s.at, w.len(), "BadMagic")),
        refused("zeros-in-part", tail.clone(), ("BadMagic", Some(part.at + 80)), {
            let salvage = w.lost_from(w.samples[2].at, 0, "").part(1, 1, "BadMagic").unskipped();
            salvage.skip(part.at, part.end, "BadMagic").skip(part.end, tail.len() as u64, "BadMagic")
        }),
    ]
}

/// Whole blocks at a wrong place.
fn places() -> Vec<Vector> {
    let w = small().write();
    let s = &w.samples;
    let range = |n: usize| &w.bytes[s[n].at as usize..s[n].end as usize];
    let swapped = w.patch(s[1].at, &[range(2), range(1)].concat());
    let copied = w.patch(s[1].at, range(0));
    let removed = [&w.bytes[..s[1].at as usize], &w.bytes[s[1].end as usize..]].concat();
    let twice = [&w.bytes[..s[1].end as usize], &w.bytes[s[1].at as usize..]].concat();
    let mut foreign = small();
    foreign.info.id[0] ^= 1;
    let foreign = foreign.write();
    let of_another = w.patch(s[1].at, &foreign.bytes[s[1].at as usize..s[1].end as usize]);
    let footer_of_another = w.patch(w.footer, &foreign.bytes[w.footer as usize..]);
    let header_of_another = w.patch(0, &foreign.bytes[..w.header_end as usize]);
    let no_footer = [&w.bytes[..w.footer as usize], &trailer_of(w.footer)].concat();
    let (one, two) = (("Checksum", Some(s[1].at)), ("Checksum", Some(s[2].at)));
    let all_lost = |len: usize| w.lost_from(s[1].at, len as u64, "Checksum");
    let no_samples = Salvage::nothing(0, "").unskipped().skip(w.header_end, w.len(), "Checksum");
    let end = s[2].end;
    vec![
        refused(
            "samples-swapped",
            swapped,
            one,
            w.salvage().without(s[1].at).without(s[2].at).skip(s[1].at, end, "Checksum"),
        ),
        refused("sample-copied", copied, one, w.salvage().without(s[1].at).skip(s[1].at, s[2].at, "Checksum")),
        refused("sample-missing", removed.clone(), one, all_lost(removed.len())),
        refused("sample-twice", twice.clone(), two, w.lost_from(s[2].at, twice.len() as u64, "Checksum")),
        refused("sample-of-another", of_another, one, w.salvage().without(s[1].at).skip(s[1].at, s[2].at, "Checksum")),
        refused("footer-of-another", footer_of_another, ("Checksum", Some(w.footer)), {
            w.salvage().skip(w.footer, w.len(), "Checksum")
        }),
        refused("header-of-another", header_of_another, ("Checksum", Some(s[0].at)), no_samples),
        refused("footer-missing", no_footer.clone(), ("Checksum", Some(w.footer)), {
            w.salvage().skip(w.footer, no_footer.len() as u64, "Checksum")
        }),
    ]
}

fn checksums() -> Vec<Vector> {
    let w = base().write();
    let (s, part) = (&w.samples[1], &w.samples[1].parts[1]);
    let no_head = w.salvage().without(s.at).skip(s.at, w.samples[2].at, "Checksum");
    let no_part = || w.salvage().part(1, 1, "Checksum").skip(part.at, part.end, "Checksum");
    let (head_crc, footer_crc) = (s.at + 8, w.footer + 8);
    let no_footer = w.salvage().skip(w.footer, w.len(), "Checksum");
    let both = {
        let mut bytes = w.flip(20, 1);
        bytes[footer_crc as usize] ^= 1;
        bytes
    };
    let other = small().other(b'X', b"something").write();
    let at = other.others[0];
    vec![
        refused("crc-header", w.flip(20, 1), ("Checksum", Some(0)), w.salvage().skip(0, w.samples[0].at, "Checksum")),
        refused(
            "crc-header-minor",
            w.flip(17, 1),
            ("Checksum", Some(0)),
            w.salvage().skip(0, w.samples[0].at, "Checksum"),
        ),
        refused("crc-header-and-footer", both, ("Checksum", Some(0)), Salvage::nothing(w.len(), "Checksum")),
        refused("crc-head", w.flip(head_crc, 1), ("Checksum", Some(s.at)), no_head.clone()),
        refused("crc-head-type", w.flip(head_crc + 4, 1), ("Checksum", Some(s.at)), no_head),
        refused("crc-part", w.flip(part.at + 30, 8), ("Checksum", Some(part.at)), no_part()),
        refused("crc-part-last-byte", w.flip(part.at + 80 + 8 + 73, 1), ("Checksum", Some(part.at)), no_part()),
        refused("crc-footer", w.flip(footer_crc, 1), ("Checksum", Some(w.footer)), no_footer),
        refused("crc-other-record", other.flip(at + 16, 1), ("Checksum", Some(at)), {
            other.salvage().skip(at, other.footer, "Checksum")
        }),
        wrong_footer("crc-of-heads", "Checksum", |footer| footer[16] ^= 1),
    ]
}

fn headers() -> Vec<Vector> {
    let zero = Some(0);
    let w = small().write();
    let plain = [&raw_frame(0, b"REELRING plain record, 69 bytes"), &w.bytes[w.header_end as usize..]].concat();
    let no_head = Salvage::nothing(0, "").unskipped().skip(0, plain.len() as u64, "NotASegment");
    let mut both = small().edit_header(|header| header[8] = 2);
    both.edit_footer = Some(Box::new(|footer| footer[5] = 2));
    let both = both.write();
    let salvage = Salvage::nothing(both.len(), "Version");
    vec![
        bad_header("header-signature", small().edit_header(|header| header[0] = b'r'), ("NotASegment", None)),
        bad_header("header-short", small().edit_header(|header| header.truncate(12)), ("NotASegment", None)),
        bad_header("header-major-2", small().edit_header(|header| header[8] = 2), ("Version", None)),
        bad_header("header-major-0", small().edit_header(|header| header[8] = 0), ("Version", None)),
        bad_header("header-reserved", small().edit_header(|header| header[10] = 1), ("DirtyPadding", zero)),
        bad_header("header-longer", small().edit_header(|header| header.push(0)), ("Malformed", zero)),
        bad_header("header-cut", small().edit_header(|header| header.truncate(60)), ("Truncated", zero)),
        bad_header("header-no-provenance", small().edit_header(|header| header.truncate(63)), ("Truncated", zero)),
        bad_header(
            "header-empty-provenance",
            small().edit_header(|header| header.splice(63..65, [0]).for_each(drop)),
            ("Truncated", zero),
        ),
        bad_header("header-provenance", small().edit_header(|header| header[64] = 0x80), ("Malformed", zero)),
        refused("both-major-2", both.bytes, ("Version", None), salvage),
        refused("header-plain-record", plain, ("NotASegment", None), no_head),
    ]
}

/// Schemas of one part: number of parts, name, dtype, shape.
fn schemas() -> Vec<Vector> {
    let one = |name: &[u8], dtype: &[u8], shape: &[u8]| [&[1], name, dtype, shape].concat();
    let (a, u16, three) = (&[1, b'a'][..], &[3, 2][..], &[1, 3][..]);
    let twice = [&[2], a, u16, three, a, u16, three].concat();
    let long = [varint(65_536), vec![b'x'; 8]].concat();
    let two = |axis: u64, other: u64| [vec![2], varint(axis), varint(other)].concat();
    vec![
        bad_schema("name-empty", "Malformed", one(&[0], u16, three)),
        bad_schema("name-twice", "Malformed", twice),
        bad_schema("name-not-utf8", "Malformed", one(&[2, 0xc3, 0x28], u16, three)),
        bad_schema("name-surrogate", "Malformed", one(&[3, 0xed, 0xa0, 0x80], u16, three)),
        bad_schema("name-too-long", "TooLarge", one(&long, u16, three)),
        bad_schema("item-size", "Malformed", one(a, &[3, 4], three)),
        bad_schema("item-size-2-to-32", "TooLarge", one(a, &[&[77], &varint(1 << 32)[..]].concat(), three)),
        bad_schema("description-too-long", "TooLarge", one(a, &[&[255, 4], &varint(65_536)[..]].concat(), three)),
        bad_schema("description-not-utf8", "Malformed", one(a, &[255, 4, 1, 0xff], three)),
        bad_schema("axes-65", "TooLarge", one(a, u16, &[&[65][..], &[1; 65]].concat())),
        bad_schema("parts-4097", "TooLarge", [varint(4097), vec![0; 8]].concat()),
        bad_schema("size", "TooLarge", one(a, u16, &two(1 << 31, 1 << 31))),
        bad_schema("size-before-0", "TooLarge", one(a, u16, &two(1 << 62, 0))),
        bad_schema("axis-not-shortest", "Malformed", one(a, u16, &[1, 0x83, 0x00])),
    ]
}

fn heads() -> Vec<Vector> {
    let ordinal = |n: u64| move |head: &mut Vec<u8>| head.splice(5..6, varint(n)).for_each(drop);
    let time = |bytes: &'static [u8]| move |head: &mut Vec<u8>| head.splice(6..7, bytes.to_vec()).for_each(drop);
    let flags = |bits: u8| move |head: &mut Vec<u8>| head[8] |= bits;
    let own = |fields: Vec<u8>| {
        move |head: &mut Vec<u8>| {
            head.truncate(8);
            head.extend([&[1], &fields[..], &[0; 6]].concat());
        }
    };
    let mut out = vec![
        edited_head("head-time-not-shortest", "Malformed", time(&[0x94, 0x00])),
        edited_head("head-time-65-bits", "Malformed", time(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 2])),
        edited_head("head-time-11-bytes", "Malformed", time(&[128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1])),
        edited_head("head-time-cut", "Truncated", |head| head.splice(6.., [0xff]).for_each(drop)),
        edited_head("head-flag-5", "Malformed", flags(0x20)),
        edited_head("head-flag-6", "Malformed", flags(0x40)),
        edited_head("head-flag-7", "Malformed", flags(0x80)),
        edited_head("head-longer", "Malformed", |head| head.push(0)),
        edited_head("head-shorter", "Truncated", |head| head.truncate(14)),
        edited_head("head-no-part", "Truncated", |head| head.truncate(8)),
        edited_head("head-4-bytes", "Truncated", |head| head.truncate(4)),
        edited_head("head-meta-too-long", "TooLarge", |head| head.splice(7..8, varint((1 << 24) + 1)).for_each(drop)),
        edited_head("head-own-item-size", "Malformed", own(vec![12, 8, 1, 6])),
        edited_head("head-own-axes-65", "TooLarge", own([&[3, 2, 65][..], &[1; 65]].concat())),
        edited_head("head-own-size", "TooLarge", own([&[3, 2, 1], &varint(u64::MAX)[..]].concat())),
        edited_head("head-own-cut", "Truncated", |head| head.splice(8.., [1, 3, 2]).for_each(drop)),
        edited_head("head-stored-cut", "Truncated", |head| head.splice(8.., [4, 200, 1, 0, 0]).for_each(drop)),
        edited_head("head-large-cut", "Truncated", |head| head.splice(8.., [2, 0, 0]).for_each(drop)),
        edited_head("head-pieces", "TooLarge", |head| {
            let axes = [&[1], &varint((1 << 44) + 1)[..]].concat();
            head.splice(8.., [&[3, 2, 1], &axes[..], &[0; 4]].concat()).for_each(drop);
        }),
        edited_head("head-splits", "Malformed", |head| head.splice(8.., [0x12, 0, 0, 0, 0, 2]).for_each(drop)),
    ];
    // An ordinal that occurs twice, and one that is missing: salvage accepts ascending ordinals.
    out.push(bad_head("head-ordinal-twice", small().edit_head(1, ordinal(0)), "Malformed"));
    let w = small().edit_head(1, ordinal(7)).write();
    let (at, next) = (w.samples[1].at, w.samples[2].at);
    let mut salvage = w.salvage().without(next).skip(next, w.footer, "Malformed");
    salvage.samples[1].0 = 7;
    out.push(refused("head-ordinal-skipped", w.bytes, ("Malformed", Some(at)), salvage));
    let w = small().edit_head(2, ordinal(u64::MAX)).write();
    let mut salvage = w.salvage();
    salvage.samples[2].0 = u64::MAX;
    out.push(refused("head-ordinal-greatest", w.bytes, ("Malformed", Some(w.samples[2].at)), salvage));
    out
}

fn metas() -> Vec<Vector> {
    let a = |value: &[u8]| [&[0xa1, 0x61, b'a'], value].concat();
    let nested = |n: usize| a(&[&vec![0x81; n - 1][..], &[0xf6]].concat());
    let many = a(&[&cbor_head(4, 65_536)[..], &vec![0xf6; 65_536]].concat());
    let bad = |name: &str, why: &str, value: &[u8]| bad_meta(name, why, &a(value));
    vec![
        bad("u8-not-shortest", "Malformed", &[0x18, 23]),
        bad("u16-not-shortest", "Malformed", &[0x19, 0, 255]),
        bad("u32-not-shortest", "Malformed", &[0x1a, 0, 0, 255, 255]),
        bad("u64-not-shortest", "Malformed", &[0x1b, 0, 0, 0, 0, 255, 255, 255, 255]),
        bad("negative-not-shortest", "Malformed", &[0x38, 0]),
        bad("length-not-shortest", "Malformed", &[0x78, 1, b'x']),
        bad("tag", "Malformed", &[0xc1, 0x00]),
        bad("f16", "Malformed", &[0xf9, 0x3c, 0]),
        bad("f32", "Malformed", &[0xfa, 0, 0, 0, 0]),
        bad("undefined", "Malformed", &[0xf7]),
        bad("simple", "Malformed", &[0xe0]),
        bad("simple-in-two-bytes", "Malformed", &[0xf8, 0xff]),
        bad("indefinite-array", "Malformed", &[0x9f, 0x00, 0xff]),
        bad("indefinite-text", "Malformed", &[0x7f, 0x61, b'x', 0xff]),
        bad("indefinite-map", "Malformed", &[0xbf, 0xff]),
        bad("reserved-length", "Malformed", &[0x1c]),
        bad("break", "Malformed", &[0xff]),
        bad("text-not-utf8", "Malformed", &[0x62, 0xc3, 0x28]),
        bad("text-cut", "Truncated", &[0x65, b'x']),
        bad("bytes-cut", "Truncated", &[0x5b, 255, 255, 255, 255, 255, 255, 255, 255]),
        bad("array-cut", "Truncated", &[0x82, 0x00]),
        bad("float-cut", "Truncated", &[0xfb, 0, 0]),
        bad("number-cut", "Truncated", &[0x19, 1]),
        bad("longer", "Malformed", &[0x00, 0x00]),
        bad("inner-key-twice", "Malformed", &[0xa2, 0x61, b'x', 0, 0x61, b'x', 1]),
        bad_meta("key-twice", "Malformed", &[0xa2, 0x61, b'a', 0, 0x61, b'a', 1]),
        bad_meta("key-integer", "Malformed", &[0xa1, 0x01, 0x02]),
        bad_meta("key-bytes", "Malformed", &[0xa1, 0x41, b'a', 0x02]),
        bad_meta("key-not-utf8", "Malformed", &[0xa1, 0x61, 0xff, 0x02]),
        bad_meta("map-cut", "Truncated", &[0xa1, 0x61, b'a']),
        bad_meta("outermost-array", "Malformed", &[0x80]),
        bad_meta("outermost-integer", "Malformed", &[0x05]),
        bad_meta("levels-17", "TooLarge", &nested(17)),
        bad_meta("values-65537", "TooLarge", &many),
    ]
}

fn footers() -> Vec<Vector> {
    let at = |n: usize| 24 + 8 * n;
    // A record between the footer and the trailer.
    let w = small().write();
    let mut between = vec![0, 0, 0, 0, b'X'];
    bound(&w.info.id, w.trailer, &mut between);
    let (record, _) = record(&between);
    let between = [&w.bytes[..w.trailer as usize], &record, &trailer_of(w.footer)].concat();
    let two = [&w.bytes[..w.trailer as usize], &w.bytes[w.footer as usize..]].concat();
    let follows = |bytes: &[u8]| w.salvage().skip(w.trailer, bytes.len() as u64, "Malformed");
    let wrong = ("Malformed", Some(w.trailer));
    vec![
        bad_footer("footer-major-2", "Version", |footer| footer[5] = 2),
        bad_footer("footer-reserved", "DirtyPadding", |footer| footer[7] = 1),
        bad_footer("footer-reserved-word", "DirtyPadding", |footer| footer[22] = 1),
        bad_footer("footer-longer", "Malformed", |footer| footer.push(0)),
        bad_footer("footer-count", "Truncated", |footer| footer[8] = 200),
        bad_footer("footer-count-2-to-61", "Truncated", |footer| footer[15] = 0x20),
        bad_footer("footer-shorter", "Truncated", |footer| footer.truncate(60)),
        bad_footer("footer-item-size", "Malformed", |footer| footer[24 + 24 + 40 + 4] = 4),
        wrong_footer("footer-sample-missing", "Malformed", move |footer| {
            footer[8] = 2;
            footer.splice(at(2)..at(3), []).for_each(drop);
        }),
        wrong_footer("footer-table", "Malformed", move |footer| footer[at(1)] ^= 4),
        wrong_footer("footer-table-descends", "Malformed", move |footer| {
            let (first, second) = footer[at(0)..at(2)].split_at_mut(8);
            first.swap_with_slice(second);
        }),
        wrong_footer("footer-table-twice", "Malformed", move |footer| footer.copy_within(at(0)..at(1), at(1))),
        wrong_footer("footer-table-unaligned", "Malformed", move |footer| footer[at(2)] ^= 1),
        wrong_footer("footer-table-beyond", "Malformed", move |footer| footer[at(2) + 2] = 1),
        wrong_footer("footer-info", "Malformed", |footer| footer[24 + 24 + 16] ^= 1),
        refused("footer-then-record", between.clone(), wrong, follows(&between)),
        refused("footer-twice", two.clone(), wrong, follows(&two)),
    ]
}

fn trailers() -> Vec<Vector> {
    let w = small().write();
    let bad = |name: &str, trailer: &[u8], why: &str| {
        let at = (why != "NotASegment").then_some(w.trailer);
        let salvage = w.salvage().skip(w.trailer, w.len(), why);
        refused(&format!("trailer-{name}"), w.patch(w.trailer, trailer), (why, at), salvage)
    };
    let flipped = |at: usize| {
        let mut trailer = trailer_of(w.footer);
        trailer[at] ^= 1;
        trailer
    };
    let long = [&w.bytes[..], &[0]].concat();
    let record = [&w.bytes[..], &raw_frame(0, b"one more record")].concat();
    let follows = |bytes: &[u8]| w.salvage().skip(w.trailer, bytes.len() as u64, "Malformed");
    vec![
        bad("tag", &flipped(31), "NotASegment"),
        bad("zeros", &[0; 32], "NotASegment"),
        bad("crc", &flipped(20), "Checksum"),
        bad("offset-flipped", &flipped(10), "Checksum"),
        bad("magic", &flipped(0), "Malformed"),
        bad("length", &flipped(4), "Malformed"),
        bad("flag", &flipped(7), "Malformed"),
        bad("salt", &trailer_with(w.footer, 1), "Malformed"),
        bad("other-footer", &trailer_of(w.footer - 4), "Malformed"),
        bad("unaligned", &trailer_of(w.footer + 2), "Malformed"),
        bad("itself", &trailer_of(w.trailer), "Malformed"),
        bad("beyond", &trailer_of(1 << 40), "Malformed"),
        refused("byte-after-trailer", long.clone(), ("Malformed", Some(w.trailer)), follows(&long)),
        refused("record-after-trailer", record.clone(), ("Malformed", Some(w.trailer)), follows(&record)),
    ]
}

/// Heads that do not match the records after them, with correct checksums.
fn parts() -> Vec<Vector> {
    let info = || Info::new([("a", dtype("u8"), &[40]), ("b", dtype("u8"), &[40])]);
    let both = |n| [inline(&noise(40, n)).large(), inline(&noise(40, n + 10)).large()];
    let segment = || Segment::new(info()).sample(both(1)).sample(both(2)).sample(both(3));
    let mut out = Vec::new();
    // The checksum of a part in its head.
    let w = segment().edit_head(1, |head| head[9] ^= 1).write();
    let (at, end) = (w.samples[1].parts[0].at, w.samples[1].parts[0].end);
    let salvage = w.salvage().part(1, 0, "Checksum").skip(at, end, "Checksum");
    out.push(refused("part-crc-in-head", w.bytes.clone(), ("Checksum", Some(at)), salvage));
    // Both parts are damaged.
    let (first, second) = (&w.samples[2].parts[0], &w.samples[2].parts[1]);
    let w = segment().write();
    let mut bytes = w.flip(first.at + 8, 1);
    bytes[second.at as usize + 8] ^= 1;
    let salvage = w.salvage().part(2, 0, "Checksum").part(2, 1, "Checksum");
    let salvage = salvage.skip(first.at, first.end, "Checksum").skip(second.at, second.end, "Checksum");
    out.push(refused("both-parts", bytes, ("Checksum", Some(first.at)), salvage));
    // The parts are exchanged: each has the length of the other, but a wrong checksum.
    let at = |n: usize| w.samples[1].parts[n].at as usize..w.samples[1].parts[n].end as usize;
    let mut bytes = w.bytes.clone();
    bytes[at(0)].copy_from_slice(&w.bytes[at(1)]);
    bytes[at(1)].copy_from_slice(&w.bytes[at(0)]);
    let salvage = w.salvage().part(1, 0, "Checksum").part(1, 1, "Checksum");
    let parts = &w.samples[1].parts;
    let salvage = salvage.skip(parts[0].at, parts[0].end, "Checksum").skip(parts[1].at, parts[1].end, "Checksum");
    out.push(refused("parts-exchanged", bytes, ("Checksum", Some(parts[0].at)), salvage));
    // A damaged part whose dtype or codec is of a later version.
    let unknown = Segment::new(info()).sample([inline(&[1; 40]).large().own(unknown(99, 4), &[10]), inline(&[2; 40])]);
    let unknown = unknown.sample([inline(&[3; 40]).stored(2, &[4; 9]).large(), inline(&[5; 40])]).write();
    for (n, name) in ["unknown-dtype-damaged", "unknown-codec-damaged"].into_iter().enumerate() {
        let part = &unknown.samples[n].parts[0];
        let salvage = unknown.salvage().part(n, 0, "Checksum").skip(part.at, part.end, "Checksum");
        out.push(refused(name, unknown.flip(part.at + 9, 1), ("Checksum", Some(part.at)), salvage));
    }
    out
}

fn compressed() -> Vec<Vector> {
    let (len, text) = (squares().len() as u64, squares());
    let good = || inline(&text).stored(1, SQUARES);
    let part = |stored: &[u8]| inline(&text).stored(1, stored);
    let info = || Info::new([("a", dtype("bytes"), &[len])]);
    let both = |name: &str, bad: Part| {
        let w = Segment::new(info()).sample([good()]).sample([bad.clone()]).sample([good()]).write();
        let salvage = w.salvage().part(1, 0, "Decompress");
        let inline = refused(name, w.bytes.clone(), ("Decompress", Some(w.samples[1].at)), salvage);
        let w = Segment::new(info()).sample([good().large()]).sample([bad.large()]).sample([good()]).write();
        let (at, end) = (w.samples[1].parts[0].at, w.samples[1].parts[0].end);
        let salvage = w.salvage().part(1, 0, "Decompress").skip(at, end, "Decompress");
        [inline, refused(&format!("{name}-large"), w.bytes, ("Decompress", Some(at)), salvage)]
    };
    let own = |stored: &[u8], len: u64| part(stored).own(dtype("u8"), &[len]);
    let mut damaged = SQUARES.to_vec();
    damaged[60] ^= 0x11;
    let mut checksum = zstd(&[(b"one", 1), (b"x", 9)]);
    checksum[4] |= 4;
    checksum.extend([0; 4]);
    let mut dictionary = zstd(&[(b"one", 1)]);
    (dictionary[4], dictionary[5]) = (0x21, 5);
    dictionary.insert(6, 3);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2][..], SQUARES].concat();
    let two = [zstd(&[(b"one", 1)]), zstd(&[(b"two", 1)])].concat();
    let mut out = Vec::from(both("zstd-no-frame", part(&text[..500])));
    out.extend(both("zstd-nothing", part(&[])));
    out.extend(both("zstd-shorter", own(SQUARES, len + 1)));
    out.extend(both("zstd-longer", own(SQUARES, len - 1)));
    out.extend(both("zstd-cut", part(&SQUARES[..SQUARES.len() - 1])));
    out.extend(both("zstd-byte-after", part(&[SQUARES, &[0]].concat())));
    out.extend(both("zstd-skippable-before", part(&skippable)));
    out.extend(both("zstd-two-frames", own(&two, 6)));
    out.extend(both("zstd-checksum", own(&checksum, 12)));
    out.extend(both("zstd-dictionary", own(&dictionary, 3)));
    out.extend(both("zstd-bomb", own(&zstd(&[(&[0], 200)]), 65_536 * 10 + 1)));
    // A shape that claims more than any reader accepts, with few bytes: the ratio alone refuses it.
    out.extend(both("zstd-claim", own(&zstd(&[(&[0], 200)]), 1 << 39)));
    out
}
