//! Plain RecordIO files, and the `.idx` and `.lst` files that belong to them.

use super::Vector;
use super::good::noise;
use super::json::{Json, error, hex8, stretch};
use super::model::{Info, MAGIC, Segment, crc32, dtype, inline, raw_frame, record};

pub fn record_json(at: u64, payload: &[u8], splits: u64) -> Json {
    Json::Object(vec![
        ("at", at.into()),
        ("length", payload.len().into()),
        ("splits", splits.into()),
        ("crc32", hex8(crc32(payload))),
    ])
}

pub fn records_json(records: Vec<Json>) -> Json {
    Json::Object(vec![("kind", "recordio".into()), ("records", records.into())])
}

/// A record of a damaged file.
pub fn found_json(at: u64, payload: &[u8]) -> Json {
    Json::List(vec![at.into(), payload.len().into(), hex8(crc32(payload))])
}

pub fn entry_json(key: &str, offset: u64) -> Json {
    Json::List(vec![key.into(), offset.into()])
}

pub fn item_json(index: u64, labels: &[f32], path: &str) -> Json {
    let labels = labels.iter().map(|label| hex8(label.to_bits())).collect();
    Json::Object(vec![("index", index.into()), ("labels", Json::List(labels)), ("path", path.into())])
}

pub fn entries_json(kind: &str, entries: Vec<Json>) -> Json {
    Json::Object(vec![("kind", kind.into()), ("entries", entries.into())])
}

fn ok(name: &str, payloads: &[Vec<u8>]) -> Vector {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for payload in payloads {
        let (frames, splits) = record(payload);
        records.push(record_json(bytes.len() as u64, payload, splits));
        bytes.extend(frames);
    }
    Vector { name: format!("ok/recordio-{name}.rec"), bytes, outcome: records_json(records) }
}

/// A file of frames, which tracks the offsets between them.
struct Damaged {
    bytes: Vec<u8>,
    records: Vec<Json>,
    skipped: Vec<Json>,
}

impl Damaged {
    fn new() -> Damaged {
        Damaged { bytes: Vec::new(), records: Vec::new(), skipped: Vec::new() }
    }

    /// Adds a record that is found.
    fn record(mut self, payload: &[u8]) -> Damaged {
        self.records.push(found_json(self.bytes.len() as u64, payload));
        self.bytes.extend(record(payload).0);
        self
    }

    /// Adds bytes that are skipped as one region.
    fn skip(mut self, bytes: &[u8], why: &str) -> Damaged {
        let begin = self.bytes.len() as u64;
        self.bytes.extend(bytes);
        self.skipped.push(stretch(begin, self.bytes.len() as u64, why));
        self
    }

    /// `at` is the offset of the error from the beginning of the first region.
    fn refused(self, name: &str, why: &str, at: Option<u64>) -> Vector {
        let Json::List(first) = &self.skipped[0] else { unreachable!() };
        let Json::Int(begin) = first[0] else { unreachable!() };
        let resync = vec![("records", self.records.into()), ("skipped", self.skipped.into())];
        let outcome = vec![
            ("kind", "recordio".into()),
            ("error", error(why, at.map(|at| at + begin as u64))),
            ("resync", Json::Object(resync)),
        ];
        Vector { name: format!("bad/recordio-{name}.rec"), bytes: self.bytes, outcome: Json::Object(outcome) }
    }
}

/// A file of three records whose second one is replaced by these bytes.
fn bad(name: &str, bytes: &[u8], why: &str, at: Option<u64>) -> Vector {
    Damaged::new().record(b"first").skip(bytes, why).record(b"last, longer").refused(name, why, at)
}

/// A file that ends with these bytes.
fn bad_end(name: &str, bytes: &[u8], why: &str, at: Option<u64>) -> Vector {
    Damaged::new().record(b"first").record(b"second").skip(bytes, why).refused(name, why, at)
}

pub fn vectors() -> Vec<Vector> {
    [good(), damaged(), indices(), lists()].into_iter().flatten().collect()
}

fn good() -> Vec<Vector> {
    let x = noise(40, 5);
    let magics = vec![
        MAGIC.to_vec(),
        MAGIC.repeat(4),
        [&MAGIC[..], b"after"].concat(),
        [b"befo", &MAGIC[..]].concat(),
        [&x[..8], &MAGIC, &x[8..17]].concat(),
        [&x[..5], &MAGIC, &x[5..20]].concat(),
        [&x[..2], &MAGIC, &MAGIC, &x[..2], &MAGIC].concat(),
        MAGIC[..3].to_vec(),
    ];
    let mut inner = record(&x).0;
    inner.insert(0, 0);
    let segment = Segment::new(Info::new([("a", dtype("u8"), &[])])).sample([inline(&[1])]).write().bytes;
    vec![
        ok("nothing", &[]),
        ok("empty-record", &[vec![]]),
        ok("lengths", &(0..9).map(|len| noise(len, len as u32)).collect::<Vec<_>>()),
        ok("magics", &magics),
        ok("many", &(0..100).map(|n| n.to_string().into_bytes()).collect::<Vec<_>>()),
        ok("frame-in-record", &[inner, record(&x).0]),
        ok("segment-in-record", &[b"no header".to_vec(), segment]),
        ok("header-not-first", &[vec![], b"RINGREEL".to_vec()]),
    ]
}

fn damaged() -> Vec<Vector> {
    let (one, two) = (raw_frame(0, b"the second one"), raw_frame(0, b"and a third"));
    let flip = |at: usize, bits: u8| {
        let mut bytes = one.clone();
        bytes[at] ^= bits;
        bytes
    };
    let split = [raw_frame(1, b"half"), raw_frame(3, b"rest")].concat();
    let mut second = split.clone();
    second[12] ^= 1;
    let mut longer = raw_frame(0, b"the second one");
    longer[4] = 20;
    let mut most = [raw_frame(1, b"half"), raw_frame(3, &[])].concat();
    most[16..20].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
    let mut beyond = raw_frame(0, b"x");
    beyond[4..8].copy_from_slice(&[0xff, 0xff, 0xff, 0x1f]);
    let escaped = raw_frame(0, &[b"abcd", &MAGIC[..], b"efgh"].concat());
    let in_padding = [&one[..], &[0; 12], b"text that is no record, 32 bytes"].concat();
    let many = Damaged::new()
        .record(b"first")
        .skip(&flip(1, 1), "BadMagic")
        .record(b"second")
        .skip(&flip(7, 0x80), "BadFlag")
        .record(&[b"abcd", &MAGIC[..], b"split"].concat())
        .skip(&flip(23, 1), "DirtyPadding")
        .record(b"last");
    let begin = Damaged::new().skip(&flip(0, 1), "BadMagic").record(b"first").record(b"second");
    let alone = Damaged::new().skip(b"no RecordIO file at all, only text", "BadMagic");
    let inner = Damaged::new().record(b"first").skip(&escaped, "UnescapedMagic").record(b"second");
    // A first part, followed by a whole record instead of the last part: the whole record is found.
    let whole_after_first = Damaged::new().record(b"first").skip(&split[..12], "BadFlag").record(b"a whole record");
    let again =
        Damaged::new().record(b"first").skip(&split[..12], "BadFlag").record(&[b"half", &MAGIC[..], b"rest"].concat());
    let lost_last = Damaged::new().record(b"first").skip(&second, "BadMagic").record(b"second");
    vec![
        bad("magic", &flip(0, 1), "BadMagic", Some(0)),
        bad("magic-swapped", &[&[0xce, 0xd7, 0x23, 0x0a], &one[4..]].concat(), "BadMagic", Some(0)),
        bad("flag-4", &flip(7, 0x80), "BadFlag", Some(0)),
        bad("flag-7", &flip(7, 0xe0), "BadFlag", Some(0)),
        bad("flag-2-first", &[raw_frame(2, b"half"), raw_frame(3, b"rest")].concat(), "BadFlag", Some(0)),
        bad("flag-3-first", &raw_frame(3, b"rest"), "BadFlag", Some(0)),
        whole_after_first.refused("flag-0-inside", "BadFlag", Some(12)),
        again.refused("flag-1-twice", "BadFlag", Some(12)),
        bad("unaligned", &[raw_frame(1, b"hal"), raw_frame(3, b"rest")].concat(), "UnalignedPart", Some(0)),
        bad(
            "unaligned-inside",
            &[raw_frame(1, b"half"), raw_frame(2, b"of"), raw_frame(3, b"it")].concat(),
            "UnalignedPart",
            Some(12),
        ),
        bad("padding", &flip(23, 1), "DirtyPadding", Some(22)),
        inner.refused("unescaped", "UnescapedMagic", Some(12)),
        bad("shorter", &flip(4, 8), "DirtyPadding", Some(14)),
        bad("longer", &longer, "UnescapedMagic", Some(24)),
        bad("frame-lost", &one[8..], "BadMagic", Some(0)),
        bad("text-between", &in_padding[24..], "BadMagic", Some(0)),
        bad("last-part-lost", &split[..12], "BadFlag", Some(12)),
        lost_last.refused("inner-magic", "BadMagic", Some(12)),
        bad("record-too-large", &most, "TooLarge", None),
        bad("beyond-the-end", &beyond, "Truncated", Some(0)),
        begin.refused("first", "BadMagic", Some(0)),
        alone.refused("text", "BadMagic", Some(0)),
        many.refused("many", "BadMagic", Some(0)),
        bad_end("cut-frame", &one[..7], "Truncated", Some(0)),
        bad_end("cut-payload", &one[..15], "Truncated", Some(0)),
        bad_end("cut-padding", &one[..23], "Truncated", Some(0)),
        bad_end("cut-parts", &split[..12], "Truncated", Some(12)),
        bad_end("cut-last-part", &split[..20], "Truncated", Some(12)),
        bad_end("magic-last", &MAGIC, "Truncated", Some(0)),
        bad_end("byte-last", &[0], "Truncated", Some(0)),
        bad_end("odd-end", &[&flip(0, 1), &two[..2]].concat(), "BadMagic", Some(0)),
        bad_end("zeros-4", &[0; 4], "Truncated", Some(0)),
        bad_end("zeros-100", &[0; 100], "BadMagic", Some(0)),
        Damaged::new().record(b"the seco\0\0\0\0\0\0").skip(&[0; 96], "BadMagic").refused(
            "zeros-in-payload",
            "BadMagic",
            Some(0),
        ),
    ]
}

fn line_error(name: &str, kind: &str, text: &[u8], at: u64, line: u64) -> Vector {
    let why = vec![("name", "BadLine".into()), ("at", at.into()), ("line", line.into())];
    let outcome = Json::Object(vec![("kind", kind.into()), ("error", Json::Object(why))]);
    Vector { name: format!("bad/{kind}-{name}.{kind}"), bytes: text.to_vec(), outcome }
}

fn indices() -> Vec<Vector> {
    let ok = |name: &str, text: &str, entries: &[(&str, u64)]| Vector {
        name: format!("ok/idx-{name}.idx"),
        bytes: text.as_bytes().to_vec(),
        outcome: entries_json("idx", entries.iter().map(|(key, offset)| entry_json(key, *offset)).collect()),
    };
    let bad = |name: &str, line: &[u8]| line_error(name, "idx", &[b"0\t0\n1\t24\n", line].concat(), 9, 3);
    vec![
        ok("numbers", "0\t0\n1\t24\n2\t18446744073709551615\n", &[("0", 0), ("1", 24), ("2", u64::MAX)]),
        ok("nothing", "", &[]),
        ok("no-end", "a\t4", &[("a", 4)]),
        ok("cr-lf", "a\t4\r\nb c\t8\r\n", &[("a", 4), ("b c", 8)]),
        ok("twice", "a\t4\nb\t8\na\t12\n", &[("a", 4), ("b", 8), ("a", 12)]),
        ok("text", "脳/0001\t0\n \t00016\n", &[("脳/0001", 0), (" ", 16)]),
        bad("empty-line", b"\n"),
        bad("empty-line-cr", b"\r\n3\t4\n"),
        bad("no-tab", b"3 4\n"),
        bad("no-key", b"\t48\n"),
        bad("no-offset", b"3\t\n"),
        bad("three-fields", b"3\t48\t5\n"),
        bad("sign", b"3\t+48\n"),
        bad("negative", b"3\t-48\n"),
        bad("space", b"3\t 48\n"),
        bad("fraction", b"3\t48.0\n"),
        bad("65-bits", b"3\t18446744073709551616\n"),
        bad("cr-at-end", b"3\t48\r"),
        bad("not-utf8", b"\xff\t48\n"),
        bad("other-digits", "3\t٤٨\n".as_bytes()),
        line_error("empty-first", "idx", b"\n", 0, 1),
    ]
}

fn lists() -> Vec<Vector> {
    let ok = |name: &str, text: &str, items: &[(u64, &[f32], &str)]| Vector {
        name: format!("ok/lst-{name}.lst"),
        bytes: text.as_bytes().to_vec(),
        outcome: entries_json(
            "lst",
            items.iter().map(|(index, labels, path)| item_json(*index, labels, path)).collect(),
        ),
    };
    let bad = |name: &str, line: &[u8]| line_error(name, "lst", &[b"0\t1\ta.png\n", line].concat(), 10, 2);
    let floats = "7\t0.1\t-0\t+1\t.5\t5.\t1e3\t1E-3\t1e-50\t1e50\t-1e50\tinf\t-Infinity\tnan\t16777217\tx\n";
    let values = [0.1, -0.0, 1.0, 0.5, 5.0, 1e3, 1e-3, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY];
    let values = [&values[..], &[f32::NEG_INFINITY, f32::NAN, 16_777_216.0]].concat();
    vec![
        ok(
            "one-label",
            "0\t3\tcat/a.png\n1\t0.000000\tdog b.png\n",
            &[(0, &[3.0], "cat/a.png"), (1, &[0.0], "dog b.png")],
        ),
        ok("nothing", "", &[]),
        ok("labels", floats, &[(7, &values, "x")]),
        ok("cr-lf", "0\t1\t2\ta\r\n1\t3\t脳.png", &[(0, &[1.0, 2.0], "a"), (1, &[3.0], "脳.png")]),
        bad("empty-line", b"\n"),
        bad("no-label", b"1\tb.png\n"),
        bad("empty-label", b"1\t\tb.png\n"),
        bad("no-path", b"1\t0\t\n"),
        bad("no-index", b"\t0\tb.png\n"),
        bad("index-negative", b"-1\t0\tb.png\n"),
        bad("index-float", b"1.0\t0\tb.png\n"),
        bad("label-text", b"1\tcat\tb.png\n"),
        bad("label-space", b"1\t 0\tb.png\n"),
        bad("label-underscore", b"1\t1_0\tb.png\n"),
        bad("label-hex", b"1\t0x10\tb.png\n"),
        bad("spaces", b"1 0 b.png\n"),
        bad("cr-at-end", b"1\t0\tb.png\r"),
        bad("not-utf8", b"1\t0\t\xff.png\n"),
    ]
}
