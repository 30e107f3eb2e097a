//! Valid segments.

use super::Vector;
use super::model::*;

/// A zstd frame of [`squares`], level 3.
pub const SQUARES: &[u8] = include_bytes!("squares.zst");
/// A zstd frame of [`squares`], level 19, with a checksum and without the length.
const SQUARES_STREAM: &[u8] = include_bytes!("squares-stream.zst");

/// Returns the squares of 0 to 199 in decimal, separated by commas.
pub fn squares() -> Vec<u8> {
    (0..200).map(|n: u32| (n * n).to_string()).collect::<Vec<_>>().join(",").into_bytes()
}

/// Returns a zstd frame of less than 256 bytes, whose blocks are each raw or one repeated byte.
pub fn zstd(blocks: &[(&[u8], usize)]) -> Vec<u8> {
    let len: usize = blocks.iter().map(|(bytes, times)| bytes.len() * times).sum();
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, len as u8];
    for (n, (bytes, times)) in blocks.iter().enumerate() {
        let kind = if *times > 1 { 1 } else { 0 };
        let head = (bytes.len() * times) << 3 | kind << 1 | usize::from(n + 1 == blocks.len());
        out.extend([&head.to_le_bytes()[..3], bytes].concat());
    }
    out
}

/// Returns pseudo-random bytes without a magic.
pub fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8 | 0x10 // never 0x0a
    };
    (0..len).map(|_| next()).collect()
}

fn ok(name: &str, segment: Segment) -> Vector {
    let written = segment.write();
    Vector { name: format!("ok/{name}.rec"), outcome: written.outcome(), bytes: written.bytes }
}

/// Describes a segment with one part `data` of dtype u8 and this length.
fn bytes_info(len: u64) -> Info {
    Info::new([("data", dtype("u8"), &[len])])
}

/// Returns a segment with one sample per tensor, all of one length.
fn of_tensors(tensors: &[Vec<u8>], large: bool) -> Segment {
    let segment = Segment::new(bytes_info(tensors[0].len() as u64));
    tensors.iter().fold(segment, |segment, tensor| {
        let part = if large { inline(tensor).large() } else { inline(tensor) };
        segment.sample([if tensor.len() == tensors[0].len() { part } else { part.own_length() }])
    })
}

impl Part {
    /// Gives the part its own shape: its length.
    fn own_length(self) -> Part {
        let len = self.tensor.len() as u64;
        self.own(dtype("u8"), &[len])
    }
}

/// Returns a segment with one sample per map.
fn of_metas(metas: Vec<Vec<(String, V)>>) -> Segment {
    let segment = Segment::new(Info::new([]));
    metas.into_iter().fold(segment, |segment, meta| segment.sample_with(meta, []))
}

pub fn vectors() -> Vec<Vector> {
    [whole(), tensors(), magics(), compressed(), maps(), versions()].into_iter().flatten().collect()
}

fn whole() -> Vec<Vector> {
    let mut spec = Info::new([("data", dtype("u8"), &[2, 3])]);
    (spec.id, spec.born, spec.first) = ([7; 16], 1, 0);
    let mut provenance = Info::new([("a", dtype("u8"), &[])]);
    provenance.provenance = map([
        ("generator", "vectors".into()),
        ("host", "node-17".into()),
        ("pid", V::Int(4242)),
        ("settings", V::Map(map([("σ", V::Float(0.5)), ("seeds", V::Array(vec![V::Int(1), V::Int(2)]))]))),
    ]);
    let mut numbers = bytes_info(1);
    (numbers.born, numbers.created, numbers.first) = (u64::MAX, 1 << 53, u64::MAX - 1);
    let ordinals = (0..130).fold(Segment::new(Info::new([])), |segment, _| segment.sample([]));
    let clock = Segment::new(bytes_info(1)).sample([inline(&[1])]).time(5000);
    let clock = clock.sample([inline(&[2])]).time(0).sample([inline(&[3])]).time(u64::from(u32::MAX) * 1000);
    vec![
        ok("spec", Segment::new(spec).sample([inline(&[1, 2, 3, 4, 5, 6])]).time(250)),
        golden(),
        ok("zero-samples", Segment::new(bytes_info(3))),
        ok("no-parts", Segment::new(Info::new([])).sample([]).sample_with(map([("n", V::Int(1))]), [])),
        ok("provenance", Segment::new(provenance).sample([inline(&[9])])),
        ok("numbers", Segment::new(numbers).sample([inline(&[1])])),
        ok("ordinals", ordinals),
        ok("clock", clock),
    ]
}

/// Six samples of about 1.5 KiB in total: inline, large, compressed, empty and split parts, and meta.
fn golden() -> Vector {
    let mut info = Info::new([
        ("image", dtype("f32"), &[16, 24]),
        ("label", dtype("i64"), &[]),
        ("mask", dtype("bool"), &[40]),
        ("text", dtype("bytes"), &[1053]),
    ]);
    info.provenance = map([("generator", "node1-42-abcdef".into()), ("pid", V::Int(42))]);
    let segment = (0..6u8).fold(Segment::new(info), |segment, n| {
        let mut image = noise(16 * 24 * 4, u32::from(n) + 1);
        for k in 0..usize::from(n % 3) {
            image[400 * k..][..4].copy_from_slice(&MAGIC);
        }
        let text = inline(&squares()).stored(1, SQUARES);
        let parts = vec![
            inline(&image).large(),
            inline(&i64::from(n).to_le_bytes()),
            if n == 4 { inline(&[]).own(dtype("bool"), &[0]) } else { inline(&[n % 2; 40]) },
            if n % 2 > 0 { text.large() } else { text },
        ];
        segment.sample_with(map([("seed", V::Int(1000 + i128::from(n))), ("σ", V::Float(f64::from(n) / 3.0))]), parts)
    });
    ok("golden", segment)
}

fn tensors() -> Vec<Vector> {
    let named = DTYPES.map(|row| (row.0, dtype(row.0), &[2][..]));
    let each = DTYPES.map(|row| inline(&noise(2 * row.1 as usize, 7)));
    let scalars = DTYPES.map(|row| (row.0, dtype(row.0), if row.0 == "bytes" { &[5][..] } else { &[] }));
    let scalar = DTYPES.map(|row| inline(&noise(if row.0 == "bytes" { 5 } else { row.1 as usize }, 8)));
    let mut bools = Info::new([("b", dtype("bool"), &[6])]);
    bools.first = 0;
    let numpys = Info::new([
        ("time", numpy("<M8[ns]", 8), &[2]),
        ("name", numpy("<U5", 20), &[]),
        ("pair", numpy("[('x', '<f4'), ('y', '|u1', (3,))]", 7), &[2]),
        ("nothing", numpy("|S0", 0), &[3]),
        ("any", numpy("", 1), &[1]),
    ]);
    let numpy_parts = [16, 20, 14, 0, 1].map(|len| inline(&noise(len, 9)));
    let empty = Info::new([("a", dtype("f32"), &[0]), ("b", dtype("u8"), &[3, 0, 2]), ("c", dtype("bytes"), &[0])]);
    let many: Vec<_> = (0..130).map(|n| (format!("p{n}"), dtype("u8"), vec![])).collect();
    let mut many_info = Info::new([]);
    many_info.schema = many;
    let many_parts: Vec<_> = (0..130).map(|n| inline(&[n as u8])).collect();
    let names = Info::new([
        ("größe", dtype("u8"), &[]),
        ("画像", dtype("u8"), &[]),
        ("a b\t\"c\"\n", dtype("u8"), &[]),
        ("\u{0}", dtype("u8"), &[]),
        (&"long".repeat(75), dtype("u8"), &[]),
        ("🧠", dtype("u8"), &[]),
    ]);
    let own = Segment::new(Info::new([("a", dtype("u16"), &[2, 2]), ("b", dtype("bytes"), &[0])]))
        .sample([inline(&noise(8, 1)), inline(&[])])
        .sample([inline(&noise(6, 2)).own(dtype("u16"), &[3]), inline(b"abc").own(dtype("bytes"), &[3])])
        .sample([inline(&noise(24, 3)).own(dtype("f64"), &[1, 3]), inline(&[])])
        .sample([inline(&noise(4, 4)).own(numpy("|V4", 4), &[]), inline(&[1]).own(dtype("bool"), &[1, 1])]);
    let boundary = Segment::new(Info::new([("a", dtype("u8"), &[1024]), ("b", dtype("u8"), &[1025])]))
        .sample([inline(&noise(1024, 1)), inline(&noise(1025, 2)).large()]);
    let pads =
        (0..17).fold(Segment::new(Info::new([("a", dtype("bytes"), &[0]), ("b", dtype("u8"), &[5])])), |s, n| {
            let filler = noise(4 * n, 3);
            s.sample([inline(&filler).own(dtype("bytes"), &[4 * n as u64]), inline(&noise(5, n as u32)).large()])
        });
    let lengths: Vec<_> = [0, 1, 2, 3, 4, 55, 56, 57, 60, 64].map(|len| noise(len, len as u32)).into();
    let large_twice =
        Segment::new(Info::new([("a", dtype("u8"), &[70]), ("b", dtype("u8"), &[50]), ("c", dtype("u8"), &[])]))
            .sample([inline(&noise(70, 1)).large(), inline(&noise(50, 2)).large(), inline(&[3])])
            .sample([inline(&noise(70, 4)).large(), inline(&noise(50, 5)), inline(&[6]).large()]);
    vec![
        ok("dtypes", Segment::new(Info::new(named)).sample(each)),
        ok("scalars", Segment::new(Info::new(scalars)).sample(scalar)),
        ok("bools", Segment::new(bools).sample([inline(&[0, 1, 2, 127, 128, 255])])),
        ok("numpy", Segment::new(numpys).sample(numpy_parts)),
        ok("empty-tensors", Segment::new(empty).sample([inline(&[]), inline(&[]), inline(&[])])),
        ok("many-parts", Segment::new(many_info).sample(many_parts)),
        ok("axes", Segment::new(Info::new([("a", dtype("u16"), &[1; 64])])).sample([inline(&[1, 2])])),
        ok("names", Segment::new(names).sample([0; 6].map(|n| inline(&[n])))),
        ok("own-shapes", own),
        ok("own-as-schema", Segment::new(bytes_info(5)).sample([inline(&noise(5, 1)).own_length()])),
        ok("boundary", boundary),
        ok("pads", pads),
        ok("large-lengths", of_tensors(&lengths, true)),
        ok("large-twice", large_twice),
    ]
}

/// Returns tensors of at most 40 bytes with the magic at various offsets.
fn magic_places() -> Vec<Vec<u8>> {
    let x = noise(16, 1);
    vec![
        MAGIC.to_vec(),
        [&MAGIC, &x[..]].concat(),
        [&x[..], &MAGIC].concat(),
        [&x[..8], &MAGIC, &x[8..]].concat(),
        [&x[..5], &MAGIC, &x[5..]].concat(),
        [&x[..6], &MAGIC, &MAGIC, &x[6..]].concat(),
        [&x[..7], &MAGIC, &x[7..14]].concat(),
        MAGIC.repeat(3),
        [&MAGIC.repeat(2), &x[..4], &MAGIC.repeat(2), &x[..3]].concat(),
        [&MAGIC[..], &MAGIC[..3]].concat(),
        [&x[..4], &MAGIC, &[0, 0, 0, 0], &MAGIC, &[1]].concat(),
    ]
}

fn magics() -> Vec<Vector> {
    let mut id = bytes_info(1);
    id.id.copy_from_slice(&MAGIC.repeat(4));
    let mut first = bytes_info(1);
    (first.first, first.born) = (0xced7_230a, 0xced7_230a_ced7_230a);
    first.provenance = map([("bytes", V::Bytes(MAGIC.repeat(9)))]);
    let meta = (0..4).map(|n| map([("x", V::Bytes([vec![0; n], MAGIC.repeat(2)].concat()))])).collect();
    // A tensor that contains a head of its own segment, and a whole segment.
    let inner = Segment::new(bytes_info(1)).sample([inline(&[1])]).write().bytes;
    let lookalike = Segment::new(bytes_info(inner.len() as u64)).sample([inline(&inner).large()]);
    vec![
        ok("magic-large", of_tensors(&magic_places(), true)),
        ok("magic-inline", of_tensors(&magic_places(), false)),
        ok("magic-meta", of_metas(meta)),
        ok("magic-id", Segment::new(id).sample([inline(&[1])]).sample([inline(&[2])])),
        ok("magic-info", Segment::new(first).sample([inline(&[1])])),
        ok("segment-in-segment", lookalike.sample([inline(&inner)])),
    ]
}

fn compressed() -> Vec<Vector> {
    let (len, text) = (squares().len() as u64, inline(&squares()));
    let info = || Info::new([("a", dtype("bytes"), &[len]), ("b", dtype("u8"), &[len])]);
    let both = |stored: &[u8]| [text.clone().stored(1, stored), text.clone().stored(1, stored).large()];
    let small = [
        (zstd(&[(&[7], 100)]), vec![7; 100]),
        (zstd(&[(b"raw", 1)]), b"raw".to_vec()),
        (zstd(&[(b"", 1)]), Vec::new()),
        (zstd(&[(b"one", 1), (b"x", 9), (b"", 1), (b"two", 1)]), b"onexxxxxxxxxtwo".to_vec()),
    ];
    let blocks = small.iter().fold(Segment::new(bytes_info(100)), |segment, (stored, tensor)| {
        segment.sample([inline(tensor).stored(1, stored).own_length()])
    });
    let tensor = [&noise(7, 1), &MAGIC[..], &noise(8, 2), &MAGIC, &noise(9, 3)].concat();
    let aligned = [&noise(3, 1), &MAGIC[..], &noise(8, 2), &MAGIC, &noise(9, 3)].concat();
    let splits = [tensor, aligned].iter().fold(Segment::new(bytes_info(28)), |segment, tensor| {
        let part = inline(tensor).stored(1, &zstd(&[(tensor, 1)])).own_length();
        segment.sample([part.clone().large()]).sample([part])
    });
    let unknown = Segment::new(Info::new([("a", dtype("u8"), &[4]), ("b", dtype("u8"), &[4])]))
        .sample([inline(&[1; 4]).stored(2, b"?"), inline(&[2; 4])])
        .sample([inline(&[3; 4]).stored(3, &noise(100, 1)).large(), inline(&[4; 4]).stored(2, b"")]);
    let of_dtype = Info::new([("a", unknown_f8(), &[3]), ("b", dtype("u8"), &[4])]);
    let dtypes = Segment::new(of_dtype)
        .sample([inline(&[1; 3]), inline(&[2; 4])])
        .sample([inline(&[1, 2]).own(dtype("u8"), &[2]), inline(&noise(75, 1)).large().own(unknown_f8(), &[5, 15])])
        .sample([inline(&[5; 3]).stored(2, b"xy"), inline(&[3; 18]).own(super::model::unknown(254, 9), &[2])]);
    vec![
        ok("zstd", Segment::new(info()).sample(both(SQUARES)).sample([text.clone(), text.clone().large()])),
        ok("zstd-stream", Segment::new(info()).sample(both(SQUARES_STREAM))),
        ok("zstd-blocks", blocks),
        ok("zstd-splits", splits),
        ok("unknown-codec", unknown),
        ok("unknown-dtype", dtypes),
    ]
}

fn unknown_f8() -> DType {
    super::model::unknown(16, 1)
}

fn maps() -> Vec<Vector> {
    let kinds = map([
        ("null", V::Null),
        ("bools", V::Array(vec![V::Bool(false), V::Bool(true)])),
        ("int", V::Int(-7)),
        ("floats", V::Array([0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN].map(V::Float).into())),
        ("text", "Gehirn, 脳, \"🧠\"\n".into()),
        ("bytes", V::Bytes(vec![0, 1, 254, 255])),
        ("array", V::Array(vec![V::Array(vec![]), V::Map(vec![]), V::Null])),
        ("map", V::Map(map([("inner", V::Map(map([("x", V::Int(1))])))]))),
    ]);
    let edges = [0, 23, 24, 255, 256, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, 1 << 53, u64::MAX];
    let positive = edges.map(|n| V::Int(n.into()));
    let negative = edges.map(|n| V::Int(-1 - i128::from(n)));
    let integers = map([("positive", V::Array(positive.into())), ("negative", V::Array(negative.into()))]);
    let lengths = [0, 1, 23, 24, 255, 256].map(|len| {
        let text = "x".repeat(len);
        map([(&text[..], V::Bytes(vec![1; len])), ("text of the same length", V::Text(text.clone()))])
    });
    let arrays = map([("a", V::Array(vec![V::Null; 300])), ("b", V::Array(vec![V::Null; 24]))]);
    let wide: Vec<_> = (0..30).map(|n| (format!("k{n}"), V::Int(n))).collect();
    let nan = map([("signalling", V::Float(f64::from_bits(0xfff0_0000_0000_0001)))]);
    let deep = |leaf: V, nest: fn(V) -> V| map([("a", (0..15).fold(leaf, |inner, _| nest(inner)))]);
    let levels = vec![
        deep(V::Int(16), |inner| V::Array(vec![inner])),
        deep(V::Array(vec![]), |inner| V::Array(vec![inner])),
        deep(V::Map(vec![]), |inner| V::Map(map([("a", inner)]))),
    ];
    let order = vec![
        map([("b", V::Int(1)), ("a", V::Int(2)), ("aa", V::Int(3)), ("", V::Int(4))]),
        map([("", V::Int(4)), ("a", V::Int(2)), ("aa", V::Int(3)), ("b", V::Int(1))]),
    ];
    // A meta of length 1 with an empty map has the same meaning as length 0.
    let explicit =
        Segment::new(Info::new([])).sample([]).edit_head(0, |head| head.splice(7..8, [1, 0xa0]).for_each(drop));
    vec![
        ok("meta-kinds", of_metas(vec![kinds, nan])),
        ok("meta-integers", of_metas(vec![integers])),
        ok("meta-lengths", of_metas([&lengths[..], &[arrays, wide]].concat())),
        ok("meta-levels", of_metas(levels)),
        ok("meta-order", of_metas(order)),
        ok("meta-empty", explicit),
    ]
}

fn versions() -> Vec<Vector> {
    let sample = || [inline(&[1, 2, 3])];
    let others = |segment: Segment| {
        let segment = segment.other(b'X', b"a record of a later version").sample(sample()).other(0, &[]);
        segment.other(b'Y', &[&noise(3, 1), &MAGIC[..], &MAGIC].concat()).sample(sample()).other(255, &noise(90, 2))
    };
    let mut later = others(Segment::new(bytes_info(3)));
    (later.minor, later.extra) = (7, b"fields of 1.7".to_vec());
    let mut bare = Segment::new(bytes_info(3)).sample(sample());
    bare.minor = 255;
    vec![
        ok("minor", later),
        ok("minor-bare", bare),
        ok("other-records", others(Segment::new(bytes_info(3)))),
        ok("other-records-alone", Segment::new(bytes_info(3)).other(b'X', &[])),
    ]
}
