//! The validation split: which samples it has, that they are kept, and that they are never served for training.

use ringreel::coordination::Claim;
use ringreel::fs::Posix;
use ringreel::manifest::Manifest;
use ringreel::manifest::store::MANIFESTS_KEPT;
use ringreel::read::ReadSample;
use ringreel::ring::Ring;
use ringreel::{Config, Error, Generator, Reader};
use ringreel_ops::repair;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use testkit::coordination;
use testkit::ring::{Action, HookFs, config, never, scratch, write};

const ENOENT: i32 = 2;

/// Writes samples with these numbers into a ring with four samples per generation that holds out the first six.
fn six_held_out(samples: std::ops::Range<u64>) -> (tempfile::TempDir, Config) {
    let dir = scratch();
    let config = config(dir.path(), 4, "VALIDATION: 6\n");
    add(&config, samples);
    (dir, config)
}

fn add(config: &Config, samples: std::ops::Range<u64>) {
    let mut generator = Generator::open(config).unwrap();
    samples.for_each(|n| drop(write(&mut generator, n).unwrap()));
    generator.finish(true, &never).unwrap();
}

/// The same configuration with other last lines.
fn with(dir: &Path, more: &str) -> Config {
    config(dir, 4, more)
}

fn number(sample: &ReadSample) -> u64 {
    u64::from_le_bytes(sample.parts[0].data().unwrap()[..].try_into().unwrap())
}

/// Returns the numbers of the samples at these positions.
fn numbers(reader: &Reader, generation: u64, positions: std::ops::Range<u64>) -> Vec<u64> {
    let manifest = reader.ring().manifests.get(generation).unwrap().unwrap();
    positions.map(|position| number(&reader.sample(&manifest, position).unwrap())).collect()
}

fn held_out(reader: &Reader) -> Vec<u64> {
    let mut all = Vec::new();
    for (manifest, positions) in reader.ring().held_out_samples().unwrap() {
        all.extend(numbers(reader, manifest.summary.generation, positions));
    }
    all
}

/// Returns the generations that have a directory.
fn there(config: &Config) -> Vec<u64> {
    let names = fs::read_dir(&config.ring).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut there: Vec<u64> = names.filter_map(|name| name.strip_prefix("read.")?.parse().ok()).collect();
    there.sort_unstable();
    there
}

#[test]
fn first_samples_are_held_out_and_never_served_for_training() {
    let (_dir, config) = six_held_out(0..0);
    for newest in 1..=8 {
        add(&config, 4 * (newest - 1)..4 * newest);
        let reader = Reader::open(&config).unwrap();
        assert_eq!(held_out(&reader), (0..(4 * newest).min(6)).collect::<Vec<_>>());
        // The two generations that contain them are kept; others are removed when they are older than KEEP.
        let kept: Vec<u64> = (1..=newest).filter(|n| *n <= 2 || *n + 1 >= newest).collect();
        assert_eq!(there(&config), kept, "of {newest}");
        let listed: Vec<u64> = reader.kept().unwrap().iter().map(|manifest| manifest.summary.generation).collect();
        assert_eq!(listed, kept, "every existing generation is readable");
        let served = reader.newest_filled().unwrap();
        assert_eq!(served.as_ref().map(|manifest| manifest.summary.generation), (newest > 1).then_some(newest));
        let Some(served) = served else { continue };
        let first = if newest == 2 { 6 } else { 4 * newest - 4 };
        let training = numbers(&reader, newest, reader.ring().training(&served));
        assert_eq!(training, (first..4 * newest).collect::<Vec<_>>(), "of {newest}");
    }
}

#[test]
fn reader_waits_for_samples_that_are_not_held_out() {
    let (_dir, config) = six_held_out(0..4);
    let wait = |all: bool| {
        let mut told = Vec::new();
        let (timeout, tell) = (Some(Duration::from_millis(20)), &mut |what: &str| told.push(what.to_owned()));
        let done = match all {
            true => Reader::wait_for_held_out(&config, timeout, &never, tell).map(|(_, found)| found.len()),
            false => Reader::wait_for(&config, timeout, &never, tell).map(|_| 0),
        };
        (done, told.join("\n"))
    };
    let reader = Reader::open(&config).unwrap();
    assert!(reader.newest_filled().unwrap().is_none() && matches!(reader.newest(), Err(Error::RingNotFound { .. })));
    let (done, told) = wait(false);
    assert!(matches!(done, Err(Error::Timeout { .. })), "{done:?}");
    assert!(told.contains("beyond the 6 that are held out") && told.contains("0 of 4 samples are written"), "{told}");
    let (done, told) = wait(true);
    assert!(matches!(done, Err(Error::Timeout { .. })), "{done:?}");
    assert!(told.contains("the 6 held-out samples of") && told.contains("4 are readable, and 0 of 4"), "{told}");
    add(&config, 4..8);
    assert!(matches!((wait(false).0, wait(true).0), (Ok(_), Ok(2))));
}

#[test]
fn validation_split_may_end_with_a_generation() {
    let dir = scratch();
    let config = config(dir.path(), 4, "VALIDATION: 4\nKEEP: 0\n");
    add(&config, 0..9);
    let reader = Reader::open(&config).unwrap();
    assert_eq!(reader.newest().unwrap().summary.generation, 3);
    assert_eq!((there(&config), held_out(&reader)), (vec![1, 3], vec![0, 1, 2, 3]));
    let manifests: Vec<_> = (0..=3).map(|n| reader.ring().manifests.get(n).unwrap().unwrap()).collect();
    let positions = |of: fn(&Ring, &_) -> _| manifests.iter().map(|m| of(reader.ring(), m)).collect::<Vec<_>>();
    assert_eq!(positions(|ring, manifest| ring.held_out(manifest)), [0..0, 0..4, 0..0, 0..0]);
    assert_eq!(positions(|ring, manifest| ring.training(manifest)), [0..0, 4..4, 0..4, 0..1]);
}

#[test]
fn nothing_is_reclaimed_while_all_samples_are_held_out() {
    let dir = scratch();
    let config = config(dir.path(), 4, "VALIDATION: 21\nKEEP: 0\n");
    add(&config, 0..20);
    let reader = Reader::open(&config).unwrap();
    assert!(there(&config) == [1, 2, 3, 4, 5] && reader.newest_filled().unwrap().is_none());
    add(&config, 20..23);
    assert_eq!((there(&config), held_out(&reader)), (vec![1, 2, 3, 4, 5, 6], (0..21).collect()));
    assert_eq!(reader.ring().training(&reader.newest().unwrap()), 1..3);
    add(&config, 23..25);
    assert_eq!(there(&config), [1, 2, 3, 4, 5, 6, 7]);
    add(&config, 25..27);
    assert_eq!(there(&config), [1, 2, 3, 4, 5, 6, 8]);
}

#[test]
fn validation_key_must_match_the_ring_or_be_absent() {
    let (dir, made) = six_held_out(0..8);
    for (more, ok) in [("VALIDATION: 6\n", true), ("", true), ("VALIDATION: 5\n", false), ("VALIDATION: 0\n", false)] {
        let config = with(dir.path(), more);
        for opened in [Reader::open(&config).map(drop), Generator::open(&config).map(drop)] {
            match opened {
                Ok(()) => assert!(ok, "{more}"),
                Err(error) => {
                    let says = more.trim_end_matches('\n').replace("VALIDATION: ", "");
                    let text =
                        format!("it was made with VALIDATION 6, but the configuration has VALIDATION {says}: use 6");
                    assert!(!ok && matches!(error, Error::RingMismatch { .. }), "{more}: {error}");
                    assert!(error.to_string().contains(&text), "{error}");
                }
            }
        }
    }
    // Reclaim uses the ring's value, too.
    let (plain, reader) = (with(dir.path(), ""), Reader::open(&made).unwrap());
    add(&plain, 8..32);
    assert_eq!((there(&made), held_out(&reader)), (vec![1, 2, 7, 8], (0..6).collect()));
    assert_eq!(Reader::open(&plain).unwrap().ring().descriptor.validation, 6);
}

#[test]
fn ring_without_validation_split_is_unchanged() {
    let born = |more: &str| {
        let dir = scratch();
        let config = with(dir.path(), more);
        add(&config, 0..16);
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(config.ring.join("ring.json")).unwrap()).unwrap();
        let keys: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        (dir, config, keys)
    };
    let (_a, without, keys) = born("");
    assert_eq!(keys, ["publish", "ring_id", "ringreel", "sample", "swap_cap"]);
    let (_b, zero, same) = born("VALIDATION: 0\n");
    assert_eq!(same, keys);
    let (_c, _, more) = born("VALIDATION: 1\n");
    assert_eq!(more.len(), keys.len() + 1);
    for config in [&without, &zero] {
        let reader = Reader::open(config).unwrap();
        assert_eq!(there(config), [3, 4]);
        assert!(
            reader.ring().held_out_samples().unwrap().is_empty() && reader.ring().kept_for_ever().unwrap().is_empty()
        );
        assert_eq!(reader.ring().training(&reader.newest().unwrap()), 0..4);
        let refused = Reader::wait_for_held_out(config, None, &never, &mut |_| {}).err().unwrap();
        assert!(refused.to_string().contains("made without VALIDATION"), "{refused}");
    }
    let says = with(without.ring.parent().unwrap(), "VALIDATION: 3\n");
    assert!(
        Reader::open(&says)
            .err()
            .unwrap()
            .to_string()
            .contains("made with VALIDATION 0, but the configuration has VALIDATION 3")
    );
}

#[test]
fn held_out_samples_count_towards_the_budget() {
    let (_dir, config) = six_held_out(0..40);
    let ring = Reader::open(&config).unwrap();
    let ring = ring.ring();
    assert_eq!(there(&config), [1, 2, 9, 10]);
    let (mut bytes, mut files) = (0, 0);
    for n in there(&config) {
        for entry in fs::read_dir(config.ring.join(format!("read.{n}"))).unwrap() {
            bytes += entry.unwrap().metadata().unwrap().len();
            files += 1;
        }
    }
    assert_eq!(ring.usage().unwrap(), (bytes, files));
    assert_eq!(ring.usage().unwrap(), (bytes, files), "the second call uses cached sizes");
}

#[test]
fn unreadable_held_out_samples_count_as_damaged() {
    let (_dir, config) = six_held_out(0..40);
    let reader = Reader::open(&config).unwrap();
    let (manifest, _) = reader.ring().held_out_samples().unwrap().remove(0);
    fs::remove_file(config.ring.join("read.1").join(manifest.segments[2].file())).unwrap();
    let error = reader.sample(&manifest, 2).unwrap_err();
    assert!(matches!(error, Error::Damaged { generation: 1, position: 2, .. }), "{error}");
    assert_eq!(number(&reader.sample(&manifest, 3).unwrap()), 3);
    let old = reader.ring().manifests.get(5).unwrap().unwrap();
    assert!(matches!(reader.sample(&old, 0), Err(Error::Reclaimed { generation: 5 })));
}

#[test]
fn permanently_lost_held_out_samples_are_not_awaited() {
    let (_dir, config) = six_held_out(0..12);
    let ring = Ring::find(Arc::new(Posix), &config).unwrap();
    // A segment with one of them is missing, and so is the manifest that listed it.
    let segment = ring.manifests.get(1).unwrap().unwrap().segments[1].file();
    fs::remove_file(ring.layout.read(1).join(segment)).unwrap();
    fs::remove_file(ring.layout.manifest(1)).unwrap();
    drop(ring);
    let (ring, _) = repair::ring_json::find_damaged(Arc::new(Posix), &config, Claim::IfUnowned, true).unwrap();
    let (plan, life) = repair::plan_repair_watching(&ring, &|_| ()).unwrap();
    repair::apply_repair(&ring, &plan, &life).unwrap();
    let rebuilt = ring.manifests.get(1).unwrap().unwrap();
    assert_eq!((rebuilt.summary.samples, rebuilt.summary.lost), (3, 1), "the ring must have a loss");
    let wait = Some(Duration::from_secs(60));
    let (reader, found) = Reader::wait_for_held_out(&config, wait, &never, &mut |_| {}).unwrap();
    assert_eq!(found.iter().map(|(_, positions)| positions.end).sum::<u64>(), 5);
    assert_eq!(held_out(&reader), [0, 2, 3, 4, 5]);
}

#[test]
fn invisible_manifest_causes_no_reclaim() {
    for hidden in [1, 2, 3] {
        let dir = scratch();
        let config = config(dir.path(), 4, "VALIDATION: 6\nKEEP: 9\n");
        add(&config, 0..20);
        let fs = Arc::new(HookFs::default());
        let name = hidden.to_string();
        fs.hook(move |_, op, path| match (op, path.file_name().unwrap() == name.as_str()) {
            ("open", true) if path.parent().unwrap().ends_with("manifests") => Action::Refuse(ENOENT),
            _ => Action::Pass,
        });
        let ring = Ring::find(fs.clone(), &Config { keep: 0, ..config.clone() }).unwrap();
        ring.reclaim().unwrap();
        // Only its manifest shows whether the samples of generation 3 were delivered.
        let left = if hidden == 3 { &[1, 2, 3, 5][..] } else { &[1, 2, 5] };
        assert_eq!(there(&config), left, "the manifest of {hidden} was invisible");
        let found = ring.held_out_samples();
        assert_eq!(found.is_ok(), hidden == 3, "{found:?}");
        assert!(hidden == 3 || found.unwrap_err().is_retryable());
        fs.unhook();
        ring.reclaim().unwrap();
        assert_eq!(there(&config), [1, 2, 5]);
        assert_eq!(ring.held_out_samples().unwrap().len(), 2);
        assert_eq!(ring.kept_for_ever().unwrap(), [0, 1, 2]);
    }
}

#[test]
fn command_reads_and_reports_held_out_samples() {
    let (dir, config) = six_held_out(0..20);
    let yaml = format!("RING: {}\n{}", config.ring.display(), coordination::lines(dir.path()));
    fs::write(dir.path().join("config.yaml"), yaml).unwrap();
    let run = |args: &[&str]| {
        let done = Command::new(testkit::binary()).args(args).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let all = run(&["read", "--all", "--json"]);
    let generations: Vec<u64> = all.lines().map(|line| json(line)["generation"].as_u64().unwrap()).collect();
    assert_eq!(generations, [[1; 4], [2; 4], [4; 4], [5; 4]].concat());
    let status = json(&run(&["status", "--json"]));
    assert_eq!(status["validation"], 6);
    let generations = status["generations"].as_array().unwrap();
    let held_out: Vec<u64> = generations.iter().map(|each| each["held_out"].as_u64().unwrap()).collect();
    assert_eq!(held_out, [4, 2, 0, 0]);
    let text = run(&["status"]);
    let both = ["held out   6 of 6 samples readable", "the first 2 held out"].map(|words| text.contains(words));
    assert_eq!(both, [true; 2], "{text}");
}

/// Flips a bit in the middle of a segment, inside its sample.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_held_out_sample_is_counted_and_named() {
    let (dir, config) = six_held_out(0..20);
    let yaml = format!("RING: {}\n{}", config.ring.display(), coordination::lines(dir.path()));
    fs::write(dir.path().join("config.yaml"), yaml).unwrap();
    let run = |args: &[&str]| {
        let done = Command::new(testkit::binary()).args(args).current_dir(dir.path()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let path = config.ring.join("read.1/000001.rec");
    let whole = fs::read(&path).unwrap();
    damage(&path);
    let (code, text) = run(&["repair"]);
    let named = text.lines().any(|line| line.starts_with("left     held-out") && line.contains("000001.rec"));
    assert!(code == Some(1) && named && text.contains("1 problem cannot be repaired"), "{text}");
    assert_eq!(run(&["repair", "--apply"]).0, Some(1));
    let (code, text) = run(&["verify", config.ring.to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("000001.rec"), "{text}");
    // A reader finds the damage, and `status` shows it.
    let reader = Reader::open(&config).unwrap();
    let (manifest, positions) = reader.ring().held_out_samples().unwrap().remove(0);
    assert_eq!(positions.filter(|position| reader.sample(&manifest, *position).is_err()).collect::<Vec<_>>(), [1]);
    let (_, text) = run(&["status"]);
    assert!(text.contains("held out   5 of 6 samples readable, 1 damaged"), "{text}");
    // The file is restored from a copy.
    fs::write(&path, whole).unwrap();
    let (_, text) = run(&["status"]);
    assert!(text.contains("held out   6 of 6 samples readable\n"), "{text}");
    assert_eq!(run(&["repair"]).0, Some(0));
}

#[test]
fn manifests_of_held_out_samples_are_never_pruned() {
    let dir = scratch();
    let config = config(dir.path(), 2, "VALIDATION: 7\nSEGMENT_SAMPLES: 2\n");
    // A segment that is begun while held-out samples are written, and finished when those manifests are pruned.
    let mut slow = Generator::open(&config).unwrap();
    assert!(write(&mut slow, 100).unwrap().is_empty());
    add(&config, 0..10);
    let ring = Ring::find(Arc::new(Posix), &config).unwrap();
    let newest = 2 * MANIFESTS_KEPT + 64;
    for n in 5..newest {
        let before = ring.manifests.get(n).unwrap().unwrap();
        let empty = Manifest::new(before.summary.next("somebody", &[], 0.0), Vec::new());
        fs::write(ring.layout.manifest(n + 1), empty.encode().unwrap()).unwrap();
    }
    ring.reclaim().unwrap();
    let mut numbers = ring.manifests.numbers().unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers[..5], [0, 1, 2, 3, 4]);
    let oldest = numbers[5];
    assert!(oldest > 200, "later manifests are pruned: {oldest}");
    assert_eq!(numbers[5..], (oldest..=newest).collect::<Vec<_>>()[..]);
    let reader = Reader::open(&config).unwrap();
    assert_eq!(held_out(&reader), [0, 1, 2, 3, 4, 5, 6]);
    slow.ring().manifests.newest_listed().unwrap(); // as if some seconds had passed
    let finished = write(&mut slow, 101).unwrap();
    slow.finish(true, &|| false).unwrap();
    let listing: Vec<u64> = ring.manifests.numbers().unwrap();
    let lists = |n: &u64| ring.manifests.get(*n).unwrap().unwrap().lists(finished[0].segment);
    assert_eq!(listing.iter().filter(|n| lists(n)).count(), 1, "a late segment is delivered once");
    assert_eq!(fs::read_dir(config.ring.join("quarantine")).unwrap().count(), 0);
}
