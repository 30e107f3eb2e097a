//! Reading: which reader gets which samples, in which order, from which generation, and their memory layout.

use ringreel::read::shard::Share;
use ringreel::read::stream::Item;
use ringreel::read::{ReadSample, Reader};
use ringreel::{Config, Error, Generator, NamedPart, Stream, StreamOptions};
use ringreel_format::{DType, Meta};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::cli::{self, Place, checked, contents, generate, put};

const READS: [&str; 2] = ["READ: mmap\n", "READ: pread\n"];

/// Options with a long timeout.
fn patient() -> StreamOptions {
    StreamOptions { timeout: Some(cli::PATIENCE), ..StreamOptions::default() }
}

fn next(stream: &mut Stream) -> Result<Option<Item>, Error> {
    stream.next(&|| false, &mut |_| {})
}

/// Returns the next item, which must be an intact sample.
fn sample(stream: &mut Stream) -> ReadSample {
    match next(stream).unwrap() {
        Some(Item::Sample(sample)) => *sample,
        other => panic!("no sample: {other:?}"),
    }
}

/// Positions that a worker reads in one pass over the newest generation.
fn one_pass(config: &Config, rank: u64, world: u64) -> Vec<u64> {
    let share = Share::new(rank, world).unwrap();
    let options = StreamOptions { share, epochs: Some(1), ..patient() };
    let mut stream = Stream::new(Arc::new(Reader::open(config).unwrap()), options).unwrap();
    let mut positions = Vec::new();
    while let Some(item) = next(&mut stream).unwrap() {
        let Item::Sample(sample) = item else { panic!("{item:?}") };
        assert_eq!(checked(&sample), sample.position);
        positions.push(sample.position);
    }
    positions
}

#[test]
fn three_workers_read_every_third_sample_each() {
    for segment_samples in [1, 3, 10] {
        let place = Place::new(&format!("SWAP_CAP: 10\nSAMPLE: [data, label]\nSEGMENT_SAMPLES: {segment_samples}\n"));
        let mut generator = Generator::open(&place.config()).unwrap();
        (0..9).for_each(|n| drop(put(&mut generator, n)));
        if segment_samples != 3 {
            put(&mut generator, 9);
        }
        generator.finish(true, &|| false).unwrap();
        let nine = segment_samples == 3;
        let of = |rank| one_pass(&place.config(), rank, 3);
        let first = if nine { vec![0, 3, 6] } else { vec![0, 3, 6, 9] };
        assert_eq!([of(0), of(1), of(2)], [first, vec![1, 4, 7], vec![2, 5, 8]], "{segment_samples}");
    }
}

#[test]
fn two_ranks_of_the_command_share_a_generation() {
    let place = Place::new("SWAP_CAP: 11\nSAMPLE: [data, label]\n");
    generate(&place.config(), 0..11);
    let of = |rank: &str, how: &[&str]| {
        let args = [&["read", "--json", "--world-size", "2", "--rank", rank], how].concat();
        place.run(&args).ok().values("position")
    };
    for how in [&["--all"][..], &["--generations", "1"]] {
        assert_eq!(of("0", how), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(of("1", how), ["1", "3", "5", "7", "9"]);
    }
}

#[test]
fn workers_without_a_sample_wait_and_others_do_not() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    generate(&place.config(), 0..2);
    let stream = |rank| {
        let share = Share::new(rank, 3).unwrap();
        let timeout = Some(Duration::from_millis(200));
        let options = StreamOptions { share, timeout, ..StreamOptions::default() };
        Stream::new(Arc::new(Reader::open(&place.config()).unwrap()), options).unwrap()
    };
    assert_eq!(sample(&mut stream(1)).position, 1);
    assert!(matches!(next(&mut stream(2)), Err(Error::Timeout { .. })));
}

#[test]
fn mapped_and_read_samples_are_the_same() {
    for more in ["", "SEGMENT_SAMPLES: 4\n", "SEGMENT_SAMPLES: 4\nCOMPRESS: 3\n", "COMPRESS: {label: 3}\n"] {
        let place = Place::new(&format!("SWAP_CAP: 12\nSAMPLE: [data, label]\n{more}"));
        generate(&place.config(), 0..12);
        let readers = READS.map(|read| Reader::open(&place.with(read)).unwrap());
        let private = Reader::open(&place.with("READ: mmap\n")).unwrap().with_private_maps();
        let newest = readers[0].newest().unwrap();
        for position in 0..12 {
            let [mapped, read] = readers.each_ref().map(|reader| reader.sample(&newest, position).unwrap());
            let own = private.sample(&newest, position).unwrap();
            assert_eq!(checked(&mapped), position);
            for other in [read, own] {
                assert_eq!((mapped.id, &mapped.meta), (other.id, &other.meta));
                let pairs = mapped.parts.iter().zip(&other.parts);
                assert!(
                    pairs
                        .clone()
                        .all(|(a, b)| (&a.name, &a.shape, a.data().unwrap()) == (&b.name, &b.shape, b.data().unwrap())),
                    "{more}"
                );
            }
        }
    }
}

#[test]
fn large_parts_begin_at_multiples_of_64_in_memory() {
    const PARTS: [(&str, usize); 3] = [("data", 100_000), ("mask", 1031), ("label", 5000)];
    let place = Place::new("SWAP_CAP: 6\nSAMPLE: [data, mask, label]\nSEGMENT_SAMPLES: 3\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 0..6 {
        let lens = PARTS.map(|(_, len)| [(len + n) as u64]);
        let bytes: Vec<_> = PARTS.iter().map(|(_, len)| contents(n as u64, 0, len + n)).collect();
        let parts: Vec<_> = (0..3).map(|p| NamedPart::new(PARTS[p].0, DType::U8, &lens[p], &bytes[p])).collect();
        generator.write(&parts, &Meta::new(), &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
    let open = |read| Reader::open(&place.with(read)).unwrap();
    for (how, reader) in
        [("mmap", open(READS[0])), ("pread", open(READS[1])), ("own maps", open(READS[0]).with_private_maps())]
    {
        let newest = reader.newest().unwrap();
        let mut held = Vec::new(); // keeps all samples, so that each is at another address
        for turn in 0..60 {
            let position = turn % 6;
            let sample = reader.sample(&newest, position).unwrap();
            held.push((sample.clone(), vec![0u8; 17 * turn as usize]));
            for part in &sample.parts {
                assert!(
                    part.data().unwrap().len() >= 1031 && (part.data().unwrap().as_ptr() as usize).is_multiple_of(64),
                    "{how}: {} of {position}",
                    part.name
                );
            }
        }
    }
}

#[test]
fn streams_survive_promoted_and_reclaimed_generations() {
    for read in READS {
        for keep in [0, 1] {
            let place = Place::new(&format!("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: {keep}\n{read}"));
            let mut generator = Generator::open(&place.config()).unwrap();
            (0..6).for_each(|n| drop(put(&mut generator, n))); // the sixth sample promotes the first four
            let mut stream = Stream::new(Arc::new(Reader::open(&place.config()).unwrap()), patient()).unwrap();
            let mut held: Vec<ReadSample> = Vec::new();
            let mut n = 6;
            for turn in 0..60 {
                let got = sample(&mut stream);
                let last = held.last().map_or((0, 0), |last| (last.generation, last.position));
                let follows = (got.generation, got.position) > last || held.is_empty();
                assert!(follows || got.generation == last.0 && got.position == 0, "{last:?}, then {got:?}");
                assert_eq!(checked(&got), (got.generation - 1) * 4 + got.position);
                held.push(got);
                for _ in 0..turn % 13 {
                    put(&mut generator, n);
                    n += 1;
                }
            }
            let generations: BTreeSet<_> = held.iter().map(|sample| sample.generation).collect();
            assert!(generations.len() >= 15, "{generations:?}"); // no generation is left before it was read
            assert_eq!(stream.reader().damaged(), 0);
            for sample in &held {
                checked(sample); // a delivered sample stays valid after its file was removed
            }
        }
    }
}

#[test]
fn streams_survive_a_generator_that_never_pauses() {
    for read in READS {
        let place = Place::new(&format!("SWAP_CAP: 3\nSAMPLE: [data, label]\nKEEP: 0\n{read}"));
        generate(&place.config(), 0..3);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut generator = Generator::open(&place.config()).unwrap();
                (3..).take_while(|_| !done.load(Ordering::SeqCst)).for_each(|n| drop(put(&mut generator, n)));
            });
            let readers: Vec<_> = (0..2)
                .map(|rank| {
                    let share = Share::new(rank, 2).unwrap();
                    let reader = Arc::new(Reader::open(&place.config()).unwrap());
                    scope.spawn(move || {
                        let mut stream = Stream::new(reader, StreamOptions { share, ..patient() }).unwrap();
                        let (mut last, begun) = (0, Instant::now());
                        while last < 150 {
                            let got = sample(&mut stream);
                            checked(&got);
                            assert!(got.generation >= last && got.position % 2 == rank);
                            assert!(begun.elapsed() < cli::PATIENCE, "stuck in generation {last}");
                            last = got.generation;
                        }
                        stream.reader().damaged()
                    })
                })
                .collect();
            let ends: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            done.store(true, Ordering::SeqCst);
            ends.into_iter().for_each(|end| assert_eq!(end.unwrap(), 0, "a reclaimed generation counts as damage"));
        });
    }
}

#[test]
fn readers_started_before_the_ring_get_the_first_sample() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    let mut reader = place.start(&["read", "--samples", "1", "--json"]);
    reader.await_err("waiting for a ring at");
    let mut generator = Generator::open(&place.config()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(reader.is_running(), "the reader waits for the first generation: {}", reader.err());
    (0..2).for_each(|n| drop(put(&mut generator, n)));
    generator.finish(true, &|| false).unwrap();
    let said = reader.finish().ok();
    assert_eq!((said.values("generation"), said.values("position")), (vec!["1".to_owned()], vec!["0".to_owned()]));
}

#[test]
fn readers_wait_while_the_ring_is_being_created() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    generate(&place.config(), 0..2);
    let unborn = place.path().join("unborn");
    fs::rename(place.ring().join("manifests"), &unborn).unwrap(); // ring.json is created before manifests/
    for empty in [false, true] {
        if empty {
            fs::create_dir(place.ring().join("manifests")).unwrap();
        }
        let mut reader = place.start(&["read", "--samples", "1", "--json"]);
        reader.await_err("waiting for");
        std::thread::sleep(Duration::from_millis(100));
        assert!(reader.is_running(), "{}", reader.err());
        if empty {
            fs::remove_dir(place.ring().join("manifests")).unwrap();
            fs::rename(&unborn, place.ring().join("manifests")).unwrap();
            assert_eq!(reader.finish().ok().values("position"), ["0"]);
        }
    }
}

#[test]
fn waiting_readers_end_at_signals_and_timeouts() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    let said = place.run(&["read", "--timeout", "0.3"]);
    assert!(said.code == Some(1) && said.err.contains("demo.ring") && said.err.contains("timed out"), "{said:?}");
    let mut reader = place.start(&["read"]);
    reader.await_err("waiting for a ring");
    reader.terminate();
    assert_eq!(reader.finish().ok().err.matches("ringreel: ").count(), 0);

    let mut generator = Generator::open(&place.config()).unwrap();
    let said = place.run(&["read", "--timeout", "0.3"]);
    assert!(said.code == Some(1) && said.err.contains("0 of 2 samples"), "{said:?}");
    (0..3).for_each(|n| drop(put(&mut generator, n)));
    generator.finish(true, &|| false).unwrap();
    let said = place.run(&["read", "--timeout", "0.3", "--generations", "3", "--json"]);
    assert!(said.code == Some(1) && said.err.contains("generation 3 holds 0 of 2 samples"), "{said:?}");
}

#[test]
fn read_all_prints_each_kept_sample_once_and_never_waits() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 2\n");
    let said = place.run(&["read", "--all", "--json"]);
    assert!(said.code == Some(1) && said.err.contains("no ring at"), "{said:?}");
    let mut generator = Generator::open(&place.config()).unwrap();
    assert!(place.run(&["read", "--all", "--json"]).ok().json().is_empty(), "no sample is readable yet");
    (0..23).for_each(|n| drop(put(&mut generator, n))); // five generations and 3 more samples
    let said = place.run(&["read", "--all", "--json"]).ok();
    let numbers: Vec<u64> = said.json().iter().map(|line| line["meta"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (8..20).collect::<Vec<_>>(), "the newest generation and the two before it");
    for line in said.json() {
        let (n, crc) = (line["meta"]["n"].as_u64().unwrap(), &line["parts"]["data"]["crc32"]);
        assert_eq!(*crc, crc32(&contents(n, 0, cli::DATA)), "sample {n}");
    }
}

/// CRC-32 as in zlib, computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn generations_option_reads_n_distinct_generations() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 8\n");
    generate(&place.config(), 0..4);
    let reader = place.start(&["read", "--generations", "5", "--json"]);
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 4..80 {
        put(&mut generator, n);
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = reader.finish().ok();
    let mut counted: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for line in said.json() {
        let (generation, position) = (line["generation"].as_u64().unwrap(), line["position"].as_u64().unwrap());
        assert!(counted.entry(generation).or_default().insert(position), "{position} of {generation} was read twice");
    }
    assert_eq!(counted.len(), 5);
    assert!(counted.values().all(|positions| positions.len() == 4), "{counted:?}");
}

#[test]
fn uneven_segments_lose_nothing_and_respect_the_cap() {
    for segment_samples in [1, 3, 7] {
        let place = Place::new(&format!(
            "SWAP_CAP: 10\nSAMPLE: [data, label]\nKEEP: 100\nSEGMENT_SAMPLES: {segment_samples}\n"
        ));
        let half = |first: u64| generate(&place.config(), first..first + 41);
        std::thread::scope(|scope| {
            [0, 41].map(|first| scope.spawn(move || half(first))).map(|half| half.join().unwrap())
        });
        let reader = Reader::open(&place.config()).unwrap();
        let kept = reader.kept().unwrap();
        assert!(kept.iter().all(|manifest| manifest.summary.samples <= 10));
        let positions = |samples| 0..samples;
        let mut numbers: Vec<u64> = kept
            .iter()
            .flat_map(|manifest| positions(manifest.summary.samples).map(move |position| (manifest, position)))
            .map(|(manifest, position)| checked(&reader.sample(manifest, position).unwrap()))
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..82).collect::<Vec<_>>(), "SEGMENT_SAMPLES {segment_samples}");
    }
}

#[test]
fn only_selected_parts_are_compressed_and_all_round_trip() {
    let size = |more: &str| {
        let place = Place::new(&format!("SWAP_CAP: 3\nSAMPLE: [data, label]\n{more}"));
        let mut generator = Generator::open(&place.config()).unwrap();
        for n in 0..3u64 {
            let (data, label) = (contents(n, 0, 8000), vec![n as u8; 50_000]);
            let parts = [
                NamedPart::new("data", DType::U8, &[8000], &data),
                NamedPart::new("label", DType::U16, &[100, 250], &label),
            ];
            generator.write(&parts, &Meta::new(), &|| false).unwrap();
        }
        generator.finish(true, &|| false).unwrap();
        for read in READS {
            let reader = Reader::open(&place.with(read)).unwrap();
            let newest = reader.newest().unwrap();
            for n in 0..3 {
                let sample = reader.sample(&newest, n).unwrap();
                assert_eq!(sample.parts[0].data().unwrap()[..], contents(n, 0, 8000));
                assert_eq!((&sample.parts[1].dtype, &sample.parts[1].shape[..]), (&DType::U16, &[100, 250][..]));
                assert!(
                    sample.parts[1].data().unwrap().len() == 50_000
                        && sample.parts[1].data().unwrap().iter().all(|byte| *byte == n as u8)
                );
            }
        }
        let segment = fs::read_dir(place.ring().join("read.1")).unwrap().next().unwrap().unwrap();
        segment.metadata().unwrap().len()
    };
    let (plain, label) = (size(""), size("COMPRESS: {label: 3}\n"));
    assert!(plain > 58_000 && (8000..9500).contains(&label), "{plain} bytes, {label} with the label compressed");
}

#[test]
fn status_shows_how_often_generations_were_read() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\nKEEP: 5\n");
    let fill = |from| {
        let mut generator = Generator::open(&place.config()).unwrap();
        (from..from + 2).for_each(|n| drop(put(&mut generator, n)));
        generator.finish(true, &|| false).unwrap();
    };
    let read = |run: &str, epochs: &str| place.run(&["read", "--run", run, "--samples", epochs]).ok();
    let status = |key: &str| {
        let said: serde_json::Value = serde_json::from_str(&place.run(&["status", "--json"]).ok().out).unwrap();
        said[key].clone()
    };
    fill(0);
    read("a", "6"); // three passes
    fill(2);
    read("b", "1"); // none
    fill(4);
    fill(6);
    let passes: Vec<u64> =
        status("generations").as_array().unwrap().iter().map(|each| each["passes"].as_u64().unwrap()).collect();
    assert_eq!(passes, [3, 0, 0, 0]);
    let bars = serde_json::json!([{ "passes": 0, "generations": 2 }, { "passes": 3, "generations": 1 }]);
    assert_eq!(status("reuse"), bars);
    let said = place.run(&["status"]).ok().out;
    assert!(said.contains("read 3 times") && said.contains("2 not read, 1 read 3 times"), "{said}");
}

#[test]
fn replay_repeats_a_run_and_names_reclaimed_samples() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 1\n");
    let fill = |from| {
        let mut generator = Generator::open(&place.config()).unwrap();
        (from..from + 4).for_each(|n| drop(put(&mut generator, n)));
        generator.finish(true, &|| false).unwrap();
    };
    let ids = |args: &[&str]| -> Vec<(String, bool)> {
        let said = place.run(&[&["read", "--json"], args].concat()).ok();
        let line = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["sample_id"].as_str().unwrap().to_owned(), line["gone"] == true)
        };
        said.out.lines().map(line).collect()
    };
    fill(0);
    let read = ids(&["--run", "r", "--shuffle", "--seed", "7", "--samples", "8"]);
    assert_eq!(ids(&["--replay", "r"]), read);
    let halves = [
        ids(&["--replay", "r", "--rank", "0", "--world-size", "2"]),
        ids(&["--replay", "r", "--rank", "1", "--world-size", "2"]),
    ];
    assert!(halves[0].iter().chain(&halves[1]).all(|id| read.contains(id)) && halves[0].len() == 4);
    let said = place.run(&["read", "--replay"]).ok().out;
    assert!(said.contains("r: 2 epochs of generations 1"), "{said}");
    fill(4);
    fill(8);
    fill(12);
    let named: Vec<(String, bool)> = read.into_iter().map(|(id, _)| (id, true)).collect();
    assert_eq!(ids(&["--replay", "r"]), named, "the names outlive the samples");
    assert_eq!(place.run(&["read", "--replay", "nobody"]).code, Some(1));
}
