//! Power cuts, with DURABILITY: node. The test records the operations of generators and a manager on a simulated disk,
//! and cuts the journal after every operation; of unsynced data, any subset survives. In every such image, each sample
//! that was reported as finished is delivered once, with its bytes, and a sample that a reader had seen stays in its
//! generation.
//!
//! `RINGREEL_CRASH_IMAGES=200000 cargo test --release --test crash_images -- --nocapture` sets the number of images.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use ringreel::format::frame::MAGIC;
use ringreel::format::{DType, Meta};
use ringreel::ring::Ring;
use ringreel::ring::failure_detector::FailureDetector;
use ringreel::swap::manager::Manager;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Config, Error, Generator, NamedPart, Reader, SampleId};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::disk::{Disk, Image, Lie};
use testkit::ring::{Action, EACCES, HookFs, listed_on, never, splitmix, try_bring_in, write};

fn config(more: &str) -> Config {
    let yaml = format!(
        "DBNAME: t\nINDEX: files\nSWAP_CAP: 4\nSAMPLE: [data]\nPOLL_SECONDS: 0.001\nLEASE_SECONDS: 60\n\
         DURABILITY: node\nREAD: pread\n{more}"
    );
    Config::parse(&yaml, "test", Path::new("/"), true).unwrap()
}

/// A sequence of operations on a ring on a disk.
type Script<'a> = dyn Fn(&Disk, &Config) + Sync + 'a;

/// One generator, which promotes the generations that it fills.
fn alone(disk: &Disk, config: &Config) {
    let mut generator = Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    for n in 0..10 {
        disk.told(&write(&mut generator, n).unwrap());
    }
    disk.told(&generator.seal(&never).unwrap());
    generator.finish(true, &never).unwrap();
}

/// One generator of large samples, whose heads are written last.
fn of_large_samples(disk: &Disk, config: &Config) {
    let mut generator = Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    let mut data = vec![7; 2 << 20];
    for magic in [false, true, false] {
        data[5000..5004].copy_from_slice(&if magic { MAGIC.to_le_bytes() } else { [7; 4] });
        let parts = [NamedPart::new("data", DType::U8, &[2 << 20], &data)];
        disk.told(&generator.write(&parts, &Meta::new(), &never).unwrap());
    }
    disk.told(&generator.seal(&never).unwrap());
    generator.finish(true, &never).unwrap();
}

/// Two generators and a manager, which promotes, adopts the segments of a dead owner, and reclaims.
fn company(disk: &Disk, config: &Config) {
    let mut manager = Manager::open_on(Arc::new(disk.clone()), config).unwrap();
    manager.turn().unwrap();
    // A second manager dies after it has published a manifest, and before it has synced it.
    let hooks = Arc::new(HookFs::on(disk.clone()));
    let dying = Ring::find_or_make(hooks.clone(), config).unwrap();
    let dies = |path: &Path, op: &str| op == "sync_dir" && path.ends_with("manifests");
    hooks.hook(move |_, op, path| if dies(path, op) { Action::Refuse(EACCES) } else { Action::Pass });
    let mut first = Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    disk.told(&write(&mut first, 50).unwrap());
    disk.told(&first.flush(&never).unwrap());
    let died = dying.promote(PromoteWhen::NotEmpty);
    assert!(died.is_err(), "{died:?}");
    let mut one = Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    let mut two = Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    for n in 0..4 {
        disk.told(&write(&mut one, n).unwrap());
        disk.told(&write(&mut two, 100 + n).unwrap());
        manager.turn().unwrap();
    }
    // One generator dies, and its segments are adopted.
    drop(two);
    let ring = manager.ring().clone();
    let mut watch = FailureDetector::new(Duration::ZERO);
    for n in 4..8 {
        disk.told(&write(&mut one, n).unwrap());
        ring.recover(&mut watch).unwrap();
        manager.turn().unwrap();
    }
    disk.told(&one.seal(&never).unwrap());
    one.finish(true, &never).unwrap();
    ring.reclaim().unwrap();
}

/// A manager, and three generators that write, end, die and are adopted, in an order that `seed` determines.
fn at_random(seed: u64, disk: &Disk, config: &Config) {
    let open = || Generator::open_on(Arc::new(disk.clone()), config).unwrap();
    let mut manager = Manager::open_on(Arc::new(disk.clone()), config).unwrap();
    manager.turn().unwrap();
    let (mut state, mut watch) = (seed, FailureDetector::new(Duration::ZERO));
    let mut generators: Vec<Generator> = (0..3).map(|_| open()).collect();
    for n in 0..14 {
        let draw = splitmix(&mut state);
        let who = (draw >> 8) as usize % generators.len();
        match draw % 16 {
            0 => generators[who] = open(), // the previous generator dies
            1 => disk.told(&generators[who].seal(&never).unwrap()),
            2 | 3 => drop(manager.ring().recover(&mut watch).unwrap()),
            4 | 5 => drop(manager.turn().unwrap()),
            6 => drop(manager.ring().reclaim().unwrap()),
            _ => disk.told(&write(&mut generators[who], n).unwrap()),
        }
        manager.turn().unwrap();
    }
    generators.iter_mut().for_each(|generator| disk.told(&generator.seal(&never).unwrap()));
    manager.ring().promote(PromoteWhen::NotEmpty).unwrap();
}

const KEEP_ALL: &str = "KEEP: 100\n";

/// What is wrong with the ring that an image contains.
#[derive(Default)]
struct Wrong {
    lost: usize,
    twice: usize,
    /// Samples that a reader had seen in one generation, and that another one lists now.
    moved: usize,
    torn: Vec<String>,
}

/// Each sample, with the generations that list it.
fn listed(disk: &Disk, config: &Config) -> BTreeMap<SampleId, Vec<u64>> {
    listed_on(Arc::new(disk.clone()), &config.ring)
}

/// Restarts the machine: commits all staged segments, and promotes them.
fn judge(image: &Image, seen: &BTreeMap<SampleId, Vec<u64>>, config: &Config) -> Result<Wrong, Error> {
    let ring = Ring::find_or_make(Arc::new(image.disk.clone()), config)?;
    try_bring_in(&ring)?;
    let mut wrong = Wrong::default();
    let reader = Reader::open_on(Arc::new(image.disk.clone()), config)?;
    for manifest in reader.kept()? {
        for position in 0..manifest.summary.samples {
            if let Err(error) = reader.sample(&manifest, position) {
                wrong.torn.push(error.to_string());
            }
        }
    }
    let listed = listed(&image.disk, config);
    wrong.lost = image.told.iter().filter(|id| !listed.contains_key(id)).count();
    wrong.twice = listed.values().filter(|generations| generations.len() > 1).count();
    wrong.moved = seen.iter().filter(|(id, generations)| listed.get(id) != Some(generations)).count();
    Ok(wrong)
}

struct Found {
    images: usize,
    operations: usize,
    wrong: usize,
    first: Option<String>,
}

/// Cuts the power after every operation of `script`, and checks at most `most` distinct images in all.
fn cut(script: &Script<'_>, config: &Config, lie: Lie, most: usize) -> Found {
    let disk = Disk::new(lie);
    script(&disk, config);
    let history = disk.history();
    let len = history.operations();
    // Few images of many operations find little, so this takes several images of every third operation.
    let step = if most < 8 * len { 3 } else { 1 };
    let (next, images, wrong) = (AtomicUsize::new(1), AtomicUsize::new(0), AtomicUsize::new(0));
    let first = std::sync::Mutex::new(None);
    let seen = std::sync::Mutex::new(HashSet::new());
    let work = |thread: u64| {
        let mut state = thread;
        let mut random = || splitmix(&mut state);
        loop {
            let at = next.fetch_add(step, Ordering::Relaxed);
            if at > len {
                return;
            }
            let seen_before = listed(&history.living(at), config);
            history.images(at, most.div_ceil(len).max(8), &mut random, &mut |image| {
                if !seen.lock().unwrap().insert(image.hash) {
                    return;
                }
                images.fetch_add(1, Ordering::Relaxed);
                let what = match judge(&image, &seen_before, config) {
                    Ok(Wrong { lost: 0, twice: 0, moved: 0, torn }) if torn.is_empty() => return,
                    Ok(Wrong { lost, twice, moved, torn }) => {
                        format!("lost {lost}, twice {twice}, moved {moved}, unreadable {torn:?}")
                    }
                    Err(error) => format!("the ring cannot be used: {error}"),
                };
                wrong.fetch_add(1, Ordering::Relaxed);
                let what = format!("{what}; undone: {}", image.missing.join(" "));
                first.lock().unwrap().get_or_insert(format!("a cut after operation {at} of {len}: {what}"));
            });
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|thread| drop(scope.spawn(move || work(thread)))));
    let first = first.lock().unwrap().take();
    Found { images: images.into_inner(), operations: len, wrong: wrong.into_inner(), first }
}

#[test]
fn power_cut_at_any_operation_loses_or_duplicates_no_sample() {
    let most: usize = std::env::var("RINGREEL_CRASH_IMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let mut all = 0;
    let mut look = |name: &str, script: &Script<'_>, config: &Config| {
        let found = cut(script, config, Lie::None, most.div_ceil(8).min(20_000));
        println!("{name}: {} operations, {} images, {} wrong", found.operations, found.images, found.wrong);
        assert!(found.wrong == 0, "{name}: {}", found.first.unwrap());
        all += found.images;
        all
    };
    look("one generator", &alone, &config(KEEP_ALL));
    look("three samples a segment", &alone, &config("KEEP: 100\nSEGMENT_SAMPLES: 3\n"));
    look("large samples, two a segment", &of_large_samples, &config("KEEP: 100\nSEGMENT_SAMPLES: 2\n"));
    look("two generators and a manager", &company, &config(KEEP_ALL));
    look("two generators, a manager, and reclaim", &company, &config("KEEP: 1\nSEGMENT_SAMPLES: 2\n"));
    for seed in 1.. {
        let more = ["KEEP: 100\n", "KEEP: 1\nSEGMENT_SAMPLES: 2\n", "KEEP: 2\nSEGMENT_SAMPLES: 4\n"][seed as usize % 3];
        if look(&format!("random, seed {seed}"), &|disk, config| at_random(seed, disk, config), &config(more)) >= most {
            break;
        }
    }
    println!("{all} images of power cuts: no sample lost or duplicated");
}

/// Checks the test itself: it detects a disk that omits any kind of sync.
#[test]
fn disk_that_fakes_a_sync_loses_samples() {
    for lie in
        [Lie::Files, Lie::Dirs("staging"), Lie::Dirs("manifests"), Lie::Dirs("read."), Lie::Dirs("t.ring"), Lie::Owners]
    {
        let found = cut(&alone, &config(KEEP_ALL), lie, 1000);
        println!("{lie:?}: {} of {} images wrong: {:?}", found.wrong, found.images, found.first);
        assert!(found.wrong > 0, "{lie:?}");
    }
}
