//! `ringreel inspect` describes every ring and file, damaged or not, and writes nothing.

use ringreel::format::describe::FieldKind;
use ringreel::fs::{Fs, Posix};
use ringreel::{Config, Error, Generator, NamedPart};
use ringreel_format::recordio::RecordWriter;
use ringreel_format::recordio::image::encode;
use ringreel_format::{DType, FormatError, Meta};
use ringreel_ops::inspect::fields::{FieldFact, Payload, PayloadFact, fields};
use ringreel_ops::inspect::records::{Record, What, walk};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::cli::{Place, Said, as_nobody, listing, put};

/// Generations 1 to 3 of ten samples each, and three finished samples in the generation that fills.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 5\nCOMPRESS: {data: 3}\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..33).for_each(|n| drop(put(&mut generator, n)));
    drop(generator);
    place
}

fn inspect(place: &Place, args: &[&str]) -> Said {
    let said = place.run(&[&["inspect"], args].concat());
    assert!(!said.err.contains("panicked"), "{args:?}: {said:?}");
    said
}

fn json(place: &Place, args: &[&str]) -> Vec<Value> {
    inspect(place, &[args, &["--json"]].concat()).json()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Writes samples of one part with these elements, and promotes them.
fn floats(config: &Config, samples: &[(&[u64], &[f32])]) {
    let mut generator = Generator::open(config).unwrap();
    for (shape, values) in samples {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        generator.write(&[NamedPart::new("data", DType::F32, shape, &bytes)], &Meta::new(), &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
}

#[test]
fn inspect_describes_a_ring_with_read_permission_only() {
    let place = ring();
    let before = listing(&place.ring());
    let told = &json(&place, &["demo.ring"])[0];
    assert_eq!(
        (&told["descriptor"]["swap_cap"], &told["newest"], &told["delivered"]),
        (&10.into(), &3.into(), &30.into())
    );
    let generations = told["generations"].as_array().unwrap();
    let states: Vec<(&Value, &Value, &Value)> =
        generations.iter().map(|g| (&g["generation"], &g["state"], &g["samples"])).collect();
    let want = [(1, "readable", 10), (2, "readable", 10), (3, "readable", 10), (4, "filling", 3)];
    assert_eq!(states.len(), 4);
    for (is, (n, state, samples)) in states.iter().zip(want) {
        assert_eq!(*is, (&n.into(), &state.into(), &samples.into()));
    }
    assert_eq!((&told["owners"][0]["samples"], told["owners"].as_array().unwrap().len()), (&30.into(), 1));
    assert_eq!((&told["staging"]["finished"], &told["quarantined"]), (&3.into(), &0.into()));
    let data = &told["glance"]["parts"][0];
    assert_eq!(
        (&data["name"], &data["kinds"][0]["dtype"], &data["compressed"]),
        (&"data".into(), &"u8".into(), &10.into())
    );
    assert!(data["stored"].as_u64() < data["decoded"].as_u64());
    assert_eq!(told["odd"], Value::Array(Vec::new()));
    let text = inspect(&place, &["demo.ring"]).ok();
    assert!(text.out.contains("compressed") && text.out.contains("write.4    3 of 10 samples"), "{}", text.out);
    inspect(&place, &["demo.ring", "--tree"]).ok();
    assert_eq!(listing(&place.ring()), before, "inspect wrote into the ring");
    if let Some(said) = as_nobody("inspect_describes_a_ring", &place, &["inspect", "demo.ring"]) {
        assert!(said.ok().out.contains("no issues found"));
    }
}

#[test]
fn non_finite_values_are_a_finding() {
    let place = Place::new("SWAP_CAP: 3\nSAMPLE: [data]\n");
    floats(&place.config(), &[(&[2], &[1.0, f32::NAN]), (&[2], &[f32::INFINITY, f32::NAN]), (&[2], &[0.0, 1.0])]);
    for path in ["demo.ring", "demo.ring/read.1"] {
        let said = inspect(&place, &[path]).ok();
        let what = "part \"data\" holds 2 NaN and 1 infinite of 6 elements";
        assert!(said.out.contains(what) && said.out.contains("CHECK_FINITE"), "{path}: {}", said.out);
        assert!(!said.out.contains("no issues found"), "{path}: {}", said.out);
        assert_eq!(json(&place, &[path])[0]["odd"][0]["damage"], false);
    }
    let said = inspect(&place, &["demo.ring/read.1/000001.rec"]).ok();
    assert!(said.out.contains("holds 1 NaN and 1 infinite of 2 elements"), "{}", said.out);
}

#[test]
fn problems_are_reported_with_the_next_step() {
    let place = ring();
    let ring = place.ring();
    fs::rename(ring.join("write.4"), ring.join("read.4")).unwrap();
    fs::create_dir(ring.join("write.2")).unwrap();
    fs::write(ring.join("quarantine/x.rec"), "x").unwrap();
    let odd = |place: &Place| json(place, &["demo.ring"])[0]["odd"].clone();
    let has = |odd: &Value, damage: bool, what: &str| {
        let found = odd.as_array().unwrap().iter().find(|odd| odd["what"].as_str().unwrap().contains(what));
        let found = found.unwrap_or_else(|| panic!("{what}: {odd:#}"));
        assert!(found["damage"] == damage && !found["next"].as_str().unwrap().is_empty(), "{found}");
    };
    let told = odd(&place);
    has(&told, false, "the promotion of generation 4 is unfinished");
    has(&told, false, "write.2 is litter");
    has(&told, false, "in quarantine");
    assert_eq!(inspect(&place, &["demo.ring"]).code, Some(0), "a working ring counts as damaged");
    fs::write(ring.join("manifests/2"), "x").unwrap();
    let told = odd(&place);
    has(&told, true, "generation 2 cannot be read");
    assert_eq!(inspect(&place, &["demo.ring"]).code, Some(1));
    let generation = inspect(&place, &["demo.ring", "--generation", "2"]);
    assert!(generation.code == Some(1) && generation.out.contains("next: ringreel verify"), "{generation:?}");
    fs::remove_file(ring.join("ring.json")).unwrap();
    has(&odd(&place), true, "ring.json is missing");
}

#[test]
fn inspect_reports_different_shapes_and_nan() {
    let place = Place::new("SWAP_CAP: 3\nSAMPLE: [data]\n");
    floats(&place.config(), &[(&[2], &[1.0, f32::NAN]), (&[2], &[-4.0, 3.0]), (&[1, 3], &[9.0, f32::INFINITY, 1.0])]);
    let told = &json(&place, &["demo.ring"])[0]["glance"];
    let part = &told["parts"][0];
    assert_eq!((&told["looked_at"], &told["samples"]), (&3.into(), &3.into()));
    assert_eq!(
        part["kinds"],
        serde_json::json!([
            { "dtype": "f32", "shape": [2], "samples": 2 }, { "dtype": "f32", "shape": [1, 3], "samples": 1 },
        ])
    );
    let range = &part["range"];
    assert_eq!([&range["min"], &range["max"], &range["mean"]].map(|x| x.as_f64().unwrap()), [-4.0, 9.0, 2.0]);
    assert_eq!([&range["nan"], &range["infinite"], &range["elements"]].map(|n| n.as_u64().unwrap()), [1, 1, 7]);
    assert_eq!(json(&place, &["demo.ring", "--glance", "1"])[0]["glance"]["looked_at"], 1);
    let text = inspect(&place, &["demo.ring/read.1"]).ok().out;
    assert!(
        text.contains("f32 [2] in 2 samples; f32 [1, 3] in 1 sample: -4 to 9, mean 2, 1 NaN, 1 infinite"),
        "{text}"
    );
}

#[test]
fn inspect_shows_a_sample_by_position_and_by_id() {
    let place = ring();
    let told = json(&place, &["demo.ring", "-n", "4"]).remove(0);
    assert_eq!((&told["meta"]["n"], &told["generation"]), (&24.into(), &3.into()));
    let part = |n: usize| &told["parts"][n];
    assert_eq!(
        (&part(0)["codec"], &part(1)["codec"], &part(0)["bytes"]),
        (&"zstd".into(), &"plain".into(), &4096.into())
    );
    let first = json(&place, &["demo.ring", "--generation", "1", "-n", "0"]).remove(0);
    let id = first["id"].as_str().unwrap();
    assert_eq!(json(&place, &["demo.ring", "--id", id])[0], first);
    let text = inspect(&place, &["demo.ring", "--id", id]).ok().out;
    assert!(text.contains("generator: ") && text.contains("zstd") && text.contains(id), "{text}");
}

#[test]
fn inspect_names_records_that_cover_the_whole_segment() {
    let place = ring();
    let file = segments(&place.ring().join("read.2")).remove(0);
    let records = json(&place, &[file.to_str().unwrap(), "--tree"]);
    let names: Vec<&str> = records.iter().map(|record| record["what"].as_str().unwrap()).collect();
    let mut end = 0;
    for record in &records {
        assert_eq!(record["at"], end);
        end = record["end"].as_u64().unwrap();
    }
    assert_eq!(end, fs::metadata(&file).unwrap().len());
    assert_eq!(
        (names[0], names[1], names[names.len() - 2], names[names.len() - 1]),
        ("header", "head", "footer", "trailer")
    );
}

#[test]
fn inspect_names_and_decodes_every_byte_of_a_record() {
    let place = Place::verbatim("");
    let vectors = testkit::workspace().join("format/vectors/ok");
    // The segment of format/SPEC.md, section 17.
    let spec = vectors.join("spec.rec");
    let field = |record: usize, name: &str| {
        let record = record.to_string();
        let fields = json(&place, &[spec.to_str().unwrap(), "--hex", "--record", &record]);
        let found = fields.into_iter().find(|field| field["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} of {record}"));
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        (found["at"].as_u64().unwrap(), text("bytes"), text("says"))
    };
    let is = |at, bytes: &str, says: &str| (at, bytes.to_owned(), says.to_owned());
    assert_eq!(field(0, "born"), is(0x28, "0100000000000000", "generation 1"));
    assert_eq!(field(0, "CRC-32"), is(0x14, "91cc3970", "0x7039cc91: matches"));
    assert_eq!(field(1, "flag and length"), is(0x54, "10000000", "0 (whole record), 16 bytes"));
    assert_eq!(field(1, "CRC-32"), is(0x58, "bae951a8", "0xa851e9ba: matches"));
    assert_eq!(field(1, "time"), is(0x5e, "fa01", "250 ms after the segment's creation"));
    assert_eq!(field(1, "data: its bytes"), is(0x62, "010203040506", ""));
    assert_eq!(field(2, "count"), is(0x78, "0100000000000000", "1 sample"));
    assert_eq!(field(2, "padding"), is(0xc5, "000000", ""));
    assert_eq!(field(3, "tag"), is(0xe0, "5245454c5441494c", "REELTAIL"));
}

#[test]
fn inspect_puts_every_byte_of_every_vector_in_one_field() {
    let vectors = testkit::workspace().join("format/vectors");
    for path in [segments(&vectors.join("ok")), segments(&vectors.join("bad"))].concat() {
        if path.extension().is_none_or(|end| end != "rec") {
            continue;
        }
        let (mut records, mut info) = (Vec::new(), None);
        let told = walk(&Posix, &path, &mut |record| {
            if let What::Header(header) = &record.what {
                info = Some((**header).clone());
            }
            records.push(record);
            true
        });
        let another = matches!(told, Err(Error::Format { source: FormatError::Version { .. }, .. }));
        assert!(told.is_ok() || another, "{}: {told:?}", path.display());
        let file = Posix.open(&path).unwrap();
        let is_damaged = |record: &Record| matches!(record.what, What::Damage(_));
        assert!(!records.iter().any(is_damaged) || path.to_str().unwrap().contains("/bad/"), "{records:?}");
        for (n, record) in records.iter().enumerate() {
            let mut at = record.at;
            assert_eq!(
                (at, record.number),
                (if n > 0 { records[n - 1].end } else { 0 }, n as u64),
                "{}",
                path.display()
            );
            for field in fields(&*file, record, info.as_ref()).unwrap() {
                assert_eq!(field.at, at, "{} {record:?}: {field:?}", path.display());
                at += field.bytes.len() as u64 + field.left_out;
                let lost = match &field.what {
                    FieldFact::Payload(Payload { what: PayloadFact::Field(field), .. }) => {
                        field.kind == FieldKind::NotUnderstood
                    }
                    FieldFact::Payload(Payload { what: PayloadFact::Unknown, .. }) => true,
                    FieldFact::Damage(_) | FieldFact::NoFrame => true,
                    _ => false,
                };
                assert!(!lost || path.to_str().unwrap().contains("/bad/"), "{}: {field:?}", path.display());
            }
            assert_eq!(record.end, at, "{} {record:?}", path.display());
        }
    }
}

#[test]
fn damaged_sample_is_dumped_up_to_the_damage() {
    let place = ring();
    let file = segments(&place.ring().join("read.3")).remove(2);
    let path = file.to_str().unwrap();
    let whole = fs::read(&file).unwrap();
    let records = json(&place, &[path, "--tree"]);
    let at = records[1]["at"].as_u64().unwrap() as usize;
    let mut bytes = whole.clone();
    bytes[at + 16] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let said = inspect(&place, &["demo.ring", "--hex", "-n", "2"]);
    assert!(said.code == Some(1) && said.out.contains("DOES NOT MATCH"), "{said:?}");
    assert!(said.out.contains("type: S: head of a sample") && said.out.contains("cannot be decoded"), "{said:?}");
    let story = inspect(&place, &[path]);
    assert!(story.code == Some(1) && story.out.contains("next: ringreel verify"), "{story:?}");
    // Truncated in the middle of the head; the remaining bytes are named.
    fs::write(&file, &whole[..at + 20]).unwrap();
    let said = inspect(&place, &[path, "--hex", "--record", "1"]);
    assert!(said.code == Some(1) && said.out.contains("of which 12 are present"), "{said:?}");
    assert!(said.out.contains("ordinal: 0"), "{said:?}");
}

#[test]
fn large_tensors_are_shortened_with_a_count_of_the_rest() {
    let place = Place::new("SWAP_CAP: 1\nSAMPLE: [data]\n");
    floats(&place.config(), &[(&[5000], &[1.5; 5000])]);
    let said = inspect(&place, &["demo.ring", "--hex", "-n", "0"]).ok();
    assert!(said.out.contains(&format!("{} more bytes, not shown", 20_000 - 4096)) && said.out.len() < 40_000);
}

#[test]
fn foreign_records_are_described_by_their_apparent_type() {
    let place = Place::verbatim("");
    let mut file = Vec::new();
    let mut writer = RecordWriter::new(&mut file);
    writer.write(&encode(7, 0, &[2.5], b"\xff\xd8\xffpixels")).unwrap();
    writer.write(&encode(8, 0, &[1.0, 2.0, 3.0], b"\x89PNG\r\n\x1a\npixels")).unwrap();
    writer.write(b"plain").unwrap();
    fs::write(place.path().join("train.rec"), &file).unwrap();
    let told = &json(&place, &["train.rec"])[0];
    assert_eq!(
        (&told["records"], &told["with_image_header"], &told["kinds"]),
        (&3.into(), &2.into(), &serde_json::json!({ "JPEG": 1, "PNG": 1 }))
    );
    assert_eq!((&told["shortest"], &told["longest"]), (&5.into(), &(24 + 12 + 14).into()));
    let tree = inspect(&place, &["train.rec", "--tree"]).ok().out;
    assert!(tree.contains("MXNet image header (id 8, 3 labels, the first is 1), then PNG"), "{tree}");
    let hex = inspect(&place, &["train.rec", "--hex", "--record", "1"]).ok().out;
    assert!(hex.contains("labels: 1, 2, 3") && hex.contains("content: PNG"), "{hex}");
    assert!(inspect(&place, &["train.rec", "-n", "0"]).ok().out.contains("then JPEG"));
    // Damage between two records: the damaged range and the records behind it are reported.
    file[1] ^= 0xff;
    fs::write(place.path().join("train.rec"), &file).unwrap();
    let said = inspect(&place, &["train.rec"]);
    assert!(said.code == Some(1) && said.out.contains("DAMAGE") && said.out.contains("2 of 5 to 50 bytes"), "{said:?}");
}

#[test]
fn every_format_vector_gives_a_status_and_one_message() {
    let place = Place::verbatim("");
    let vectors = testkit::workspace().join("format/vectors");
    for kind in ["ok", "bad"] {
        for path in segments(&vectors.join(kind)) {
            let name = path.to_str().unwrap();
            if name.ends_with(".json") {
                continue;
            }
            // The bytes of whole files are tested above, without starting a process per file.
            let asked = [&[name][..], &[name, "--tree"], &[name, "--hex", "--record", "0"]];
            for args in asked.iter().take(if kind == "ok" { 1 } else { 3 }) {
                let said = inspect(&place, args);
                assert!(matches!(said.code, Some(0..=2)), "{said:?}");
                assert!(!said.out.is_empty() || !said.err.is_empty(), "{args:?}");
                let one_line = said.out.lines().all(|line| !line.chars().any(char::is_control));
                assert!(one_line, "{args:?}");
                let whole = kind == "ok" && name.ends_with(".rec") && !name.contains("nothing");
                assert!(!whole || said.code == Some(0), "{args:?}: {said:?}");
            }
        }
    }
}

#[test]
fn inspect_exits_with_1_if_it_sees_damage() {
    let place = ring();
    let filling = segments(&place.ring().join("write.4"));
    fs::write(&filling[1], "x").unwrap();
    fs::write(&filling[2], "y").unwrap();
    for path in ["demo.ring", "demo.ring/write.4"] {
        let said = inspect(&place, &[path]);
        assert!(said.code == Some(1) && said.out.contains("(and 1 more like it)"), "{said:?}");
    }
    // A segment whose end is missing but whose first sample is intact, and a RecordIO file with a damaged middle.
    let segment = segments(&place.ring().join("read.1")).remove(0);
    let bytes = fs::read(&segment).unwrap();
    fs::write(place.path().join("cut.rec"), &bytes[..bytes.len() - 40]).unwrap();
    let mut writer = RecordWriter::new(Vec::new());
    (0..3).for_each(|_| assert!(writer.write(&[7; 64]).is_ok()));
    let mut records = writer.into_inner();
    records[72] ^= 1;
    fs::write(place.path().join("damaged.rec"), records).unwrap();
    for args in [&["cut.rec", "-n", "0"][..], &["damaged.rec", "-n", "0"], &["damaged.rec", "-n", "0", "--json"]] {
        let said = inspect(&place, args);
        assert!(said.code == Some(1) && !said.out.is_empty(), "{args:?}: {said:?}");
    }
    // A generation without a manifest is not readable, but not damaged.
    fs::write(&filling[1], &bytes).unwrap();
    fs::write(&filling[2], &bytes).unwrap();
    fs::rename(place.ring().join("write.4"), place.ring().join("read.4")).unwrap();
    inspect(&place, &["demo.ring/read.4"]).ok();
    inspect(&place, &["demo.ring/read.4", "-n", "0"]).ok();
}

#[test]
fn record_of_very_many_frames_is_inspected_in_bounded_time() {
    let place = ring();
    let segment = segments(&place.ring().join("read.1")).remove(0);
    let mut end = 0;
    walk(&Posix, &segment, &mut |record| {
        end = record.end as usize;
        false
    })
    .unwrap();
    let mut bytes = fs::read(&segment).unwrap()[..end].to_vec();
    let frame = |kind: u32| [0xced7_230a_u32.to_le_bytes(), (kind << 29).to_le_bytes()].concat();
    bytes.extend(frame(1));
    bytes.extend(frame(2).repeat(200_000));
    fs::write(place.path().join("hostile.rec"), bytes).unwrap();
    assert_eq!(inspect(&place, &["hostile.rec", "--tree"]).code, Some(1));
}

#[test]
fn hostile_files_and_names_are_handled_without_a_panic() {
    let place = ring();
    let ring = place.ring();
    symlink("/etc/passwd", ring.join("read.2/000100.rec")).unwrap();
    symlink("/", ring.join("read.77")).unwrap();
    symlink("/dev/zero", ring.join("manifests/9")).unwrap();
    fs::write(ring.join("read.2/new\nline.rec"), "x").unwrap();
    fs::create_dir(ring.join("read.2/000101.rec")).unwrap();
    assert!(Command::new("mkfifo").arg(ring.join("write.4/000200.rec")).status().unwrap().success());
    assert!(Command::new("mkfifo").arg(ring.join("fifo")).status().unwrap().success());
    let mut lies = fs::read(&segments(&ring.join("read.1"))[0]).unwrap();
    let end = lies.len() - 16;
    lies[end..end + 8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    fs::write(ring.join("write.4/000202.rec"), lies).unwrap();
    for args in [&["demo.ring"][..], &["demo.ring", "--tree"], &["demo.ring/read.2", "--tree"], &["demo.ring/write.4"]]
    {
        let said = inspect(&place, args);
        assert!(matches!(said.code, Some(0..=2)), "{said:?}");
        assert!(said.out.lines().all(|line| !line.starts_with("line.rec")), "a name spans several lines: {}", said.out);
    }
    for args in [&["demo.ring/fifo"][..], &["demo.ring/fifo", "--tree"], &["nothing"], &["."], &["demo.ring", "--hex"]]
    {
        let said = inspect(&place, args);
        assert!(said.code == Some(2) && said.out.is_empty() && said.err.lines().count() == 1, "{args:?}: {said:?}");
    }
}

#[test]
fn large_directories_are_counted_and_abbreviated() {
    let place = ring();
    // On a filesystem in memory, if available, because 100,000 files take long to create on a disk.
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    assert!(Command::new("cp").arg("-a").arg(place.ring()).arg(memory.path()).status().unwrap().success());
    let ring = memory.path().join("demo.ring");
    let dir = ring.join("write.5");
    fs::create_dir(&dir).unwrap();
    (0..100_000).for_each(|n| drop(fs::File::create(dir.join(format!("{n:06}.rec"))).unwrap()));
    let ring = ring.to_str().unwrap();
    let tree = inspect(&place, &[ring, "--tree"]).ok().out;
    assert!(tree.contains("... and 99990 more: segment") && tree.lines().count() < 100, "{tree}");
    let told = inspect(&place, &[ring]).ok().out;
    assert!(told.contains("samples not counted in 100000 files"), "{told}");
}
