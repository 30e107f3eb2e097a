//! The steps of a ring at their edges: the numbers that they go by, what they count, and calls that fail in one way or the
//! other.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{
    Action, EACCES, EIO, ESTALE, HookFs, another, assert_delivered_once, bring_in, config, hooked, linked, listed,
    scratch, staged, write,
};
use ringreel::config::Config;
use ringreel::format::SegmentId;
use ringreel::fs::Posix;
use ringreel::index::Report;
use ringreel::layout::{GenerationDir, Layout, segment_name};
use ringreel::ring::Ring;
use ringreel::ring::birth;
use ringreel::ring::commit::{Commit, Staged, Standing, Step, standing};
use ringreel::ring::liveness::Watch;
use ringreel::ring::manifest::{Manifest, Manifests, SegmentEntry, Summary};
use ringreel::ring::promote::{When, fitting};
use ringreel::ring::reclaim::{Reclaimed, is_old};
use ringreel::ring::recover::Recovered;
use ringreel::{Error, Generator, SampleId};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOTEMPTY: i32 = 39;
const ENOTSUP: i32 = 95;

fn entry(n: u64, samples: u64) -> SegmentEntry {
    SegmentEntry {
        id: SegmentId(u128::from(n).to_be_bytes()),
        index: n,
        file: segment_name(n),
        owner: "node-1-ab".into(),
        born: 1,
        samples,
        bytes: 1000 + n,
        check: 7,
    }
}

/// The second generation of a ring whose first one had 5 samples: 3 and 4 samples, of which one was lost.
fn second() -> Manifest {
    let first = Summary::empty("r", "a").next("a", &[entry(0, 5)], 0.5);
    let segments = vec![entry(1, 3), entry(2, 4)];
    let mut summary = first.next("b", &segments, 0.5);
    (summary.lost, summary.total_samples) = (1, summary.total_samples + 1);
    Manifest::new(summary, segments)
}

#[test]
fn a_directory_is_old_when_more_than_keep_are_newer() {
    for (g, newest, keep, old) in
        [(3, 5, 1, true), (4, 5, 1, false), (5, 5, 1, false), (5, 5, 0, false), (4, 5, 0, true)]
    {
        assert_eq!(is_old(GenerationDir::Read(g), newest, keep), old, "{g} {newest} {keep}");
    }
    let writes = [4, 5, 6].map(|g| is_old(GenerationDir::Write(g), 5, 1));
    assert_eq!(writes, [true, true, false]);
}

#[test]
fn segments_are_listed_as_long_as_they_fit_and_one_that_does_not_is_skipped() {
    let fit = |samples: &[u64], cap| fitting(samples.iter().copied(), cap).collect::<Vec<_>>();
    assert_eq!(fit(&[2, 2, 1], 4), [true, true, false]);
    assert_eq!(fit(&[3, 2, 1, 0, 1], 4), [true, false, true, false, false]);
    assert_eq!(fit(&[5, 4], 4), [false, true]);
}

#[test]
fn where_a_segment_stands_the_manifests_say() {
    assert_eq!(standing(Some(3), Some(4), 5), Standing::Listed(3));
    assert_eq!(standing(None, Some(6), 5), Standing::Linked(6));
    assert_eq!(standing(None, Some(5), 5), Standing::LeftOut);
    assert_eq!(standing(None, None, 5), Standing::Staged);
}

#[test]
fn a_summary_counts_on_from_the_one_before() {
    let summary = second().summary;
    assert_eq!((summary.generation, summary.samples, summary.bytes), (2, 7, 2003));
    assert_eq!((summary.total_samples, summary.total_bytes, summary.before()), (13, 3003, 5));
    assert_eq!((summary.ring.as_str(), summary.by.as_str()), ("r", "b"));
}

#[test]
fn the_first_samples_of_a_ring_are_held_out_and_no_others() {
    // Generation 2 has the samples 5 to 12, of which one is lost.
    for (validation, held_out, lost) in [(0, 0, 0), (5, 0, 0), (6, 1, 0), (12, 7, 0), (13, 7, 1), (20, 7, 1)] {
        let manifest = second();
        assert_eq!(manifest.held_out(validation), 0..held_out, "{validation}");
        assert_eq!(manifest.training(validation), held_out..7, "{validation}");
        assert_eq!(manifest.held_out_lost(validation), lost, "{validation}");
    }
}

#[test]
fn a_manifest_names_what_is_lost_only_where_something_is() {
    let names_lost =
        |manifest: &Manifest| String::from_utf8(manifest.encode().unwrap()).unwrap().contains("\"lost\":1");
    let mut manifest = second();
    assert!(names_lost(&manifest));
    assert_eq!(Manifest::decode(&manifest.encode().unwrap()).unwrap().summary, manifest.summary);
    manifest.summary.lost = 0;
    assert!(!String::from_utf8(manifest.encode().unwrap()).unwrap().contains("lost"));
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused_whatever_its_checksum_says() {
    let whole = second().encode().unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let sealed = |body: &str, end: u64, lines: usize| {
        let crc = crc32fast::hash(body.as_bytes());
        format!("{body}{{\"end\":{end},\"lines\":{lines},\"crc32\":\"{crc:08x}\"}}\n")
    };
    let body = &text[..text[..text.len() - 1].rfind('\n').unwrap() + 1];
    assert_eq!(sealed(body, 2, 3), text);
    let refused = |text: &str| Manifest::decode(text.as_bytes()).unwrap_err();
    for contradiction in [
        sealed(body, 3, 3),
        sealed(body, 2, 4),
        sealed(body, 2, 2),
        sealed(&body.replace("\"samples\":4", "\"samples\":5"), 2, 3),
    ] {
        assert!(refused(&contradiction).contains("contradict"), "{contradiction}");
    }
    assert!(refused(&sealed(&body.replace("\"manifest\":1", "\"manifest\":2"), 2, 3)).contains("version 2"));
    assert!(refused(&text.replace("\"samples\":4", "\"samples\":5")).contains("damaged"));
    assert!(refused(text.trim_end()).contains("cut off") && refused("").contains("cut off"));
    assert!(refused(&sealed(&body.replace("node-1-ab", ".."), 2, 3)).contains("no name of ours"));
    assert!(refused(&sealed(&body.replace("000001.rec", "1.rec"), 2, 3)).contains("no name of ours"));
}

/// Writes the manifests 0 to `newest`, each but the first of one segment, whose id is its generation's number.
fn write_manifests(layout: &Layout, newest: u64) {
    fs::create_dir_all(layout.manifests()).unwrap();
    let mut manifest = Manifest::new(Summary::empty("r", "a"), vec![]);
    for n in 0..=newest {
        fs::write(layout.manifest(n), manifest.encode().unwrap()).unwrap();
        let segments = vec![entry(n + 1, 1)];
        manifest = Manifest::new(manifest.summary.next("a", &segments, 0.0), segments);
    }
}

/// These, as a process sees them.
fn manifests(root: &Path, newest: u64) -> (Manifests, Layout, Arc<HookFs>) {
    let (layout, hooks) = (Layout::new(root), Arc::new(HookFs::default()));
    write_manifests(&layout, newest);
    (Manifests::new(hooks.clone(), layout.clone()), layout, hooks)
}

#[test]
fn manifests_are_found_each_by_its_number_and_none_that_is_another_ones() {
    let dir = scratch();
    let (manifests, layout, hooks) = manifests(dir.path(), 70);
    assert_eq!((manifests.newest().unwrap(), manifests.newest_listed().unwrap()), (70, 70));
    let id = |n: u64| entry(n, 1).id;
    assert_eq!(manifests.find(id(7), 1, 70).unwrap(), Some(7));
    assert_eq!(manifests.find(id(7), 7, 7).unwrap(), Some(7));
    assert_eq!((manifests.find(id(7), 8, 70).unwrap(), manifests.find(id(7), 1, 6).unwrap()), (None, None));
    assert_eq!(manifests.between(3, 6).unwrap(), [3, 4, 5, 6]);
    assert_eq!((manifests.get(71).unwrap().is_none(), manifests.usable(71).unwrap().is_none()), (true, true));

    // The 64 newest ones are kept in memory.
    let calls = |n: u64| {
        let before = hooks.calls();
        manifests.get(n).unwrap().unwrap();
        hooks.calls() - before
    };
    manifests.find(id(0), 1, 70).unwrap();
    assert_eq!((calls(70), calls(7)), (0, 0));
    assert!(calls(1) > 0);

    fs::copy(layout.manifest(3), layout.manifest(71)).unwrap();
    assert!(matches!(manifests.get(71), Err(Error::Manifest { passing: false, .. })));
    assert!(manifests.usable(71).unwrap().is_none());
    fs::write(layout.manifest(71), "").unwrap();
    assert!(matches!(manifests.get(71), Err(Error::Manifest { passing: true, .. })));
    // One that must be there, and is not.
    fs::remove_file(layout.manifest(1)).unwrap();
    let fresh = Manifests::new(Arc::new(Posix), layout);
    assert!(matches!(fresh.find(id(7), 1, 70), Err(Error::Fs { .. })));
}

#[test]
fn of_old_manifests_only_those_that_are_there_are_looked_at() {
    let dir = scratch();
    let (manifests, layout, _) = manifests(dir.path(), 3);
    // 1024 stay at least: of 1 to 1026 the first two may have been pruned, of 1 to 1024 none.
    assert_eq!(manifests.between(1, 1026).unwrap(), (1..=1026).collect::<Vec<_>>());
    fs::remove_file(layout.manifest(1)).unwrap();
    assert_eq!(manifests.between(1, 1026).unwrap(), (2..=1026).collect::<Vec<_>>());
    assert_eq!(manifests.between(1, 1025).unwrap(), (2..=1025).collect::<Vec<_>>());
    assert_eq!(manifests.between(1, 1024).unwrap(), (1..=1024).collect::<Vec<_>>());
}

#[test]
fn a_handle_that_went_stale_is_opened_once_more_and_no_other_error_is_passed_over() {
    let dir = scratch();
    let (manifests, _, hooks) = manifests(dir.path(), 2);
    let fails = |errno: i32, times: usize| {
        let left = AtomicUsize::new(times);
        hooks.hook(move |_, op, path| {
            let hit = op == "open" && path.ends_with("manifests/2");
            let fail = hit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
            if fail { Action::Refuse(errno) } else { Action::Pass }
        });
    };
    fails(EIO, 1);
    assert!(matches!(manifests.get(2), Err(Error::Fs { .. })));
    fails(ESTALE, 2);
    assert!(manifests.get(2).unwrap().is_none());
    fails(ESTALE, 1);
    assert!(manifests.get(2).unwrap().is_some());
    hooks.hook(|_, op, _| if op == "list" { Action::Refuse(EIO) } else { Action::Pass });
    assert!(manifests.numbers().is_err());
    hooks.hook(|_, op, _| if op == "list" { Action::Refuse(ESTALE) } else { Action::Pass });
    assert!(manifests.numbers().unwrap().is_empty());
}

#[test]
fn a_hint_is_believed_when_it_is_seen() {
    let dir = scratch();
    let (manifests, layout, _) = manifests(dir.path(), 2);
    assert_eq!(manifests.newest().unwrap(), 2);
    manifests.hint(9);
    assert_eq!(manifests.newest().unwrap(), 2);
    fs::write(layout.manifest(3), "").unwrap();
    assert_eq!(manifests.newest().unwrap(), 3, "the next ones are asked for by name");
    fs::write(layout.manifest(9), "").unwrap();
    assert_eq!(manifests.newest().unwrap(), 3, "the directory was listed just now");
    manifests.hint(9);
    manifests.hint(1);
    assert_eq!(manifests.newest().unwrap(), 9);
    let fresh = Manifests::new(Arc::new(Posix), layout);
    assert_eq!(fresh.newest().unwrap(), 9);
    assert!(matches!(Manifests::new(Arc::new(Posix), Layout::new(Path::new("/dev/null"))).newest(), Err(_)));
}

/// `ring.json`, with this in place of that.
fn ring_json(config: &Config, this: &str, that: &str) -> Result<Option<birth::Birth>, Error> {
    let layout = Layout::new(&config.ring);
    let text = fs::read_to_string(layout.ring_json()).unwrap();
    assert!(text.contains(this), "{text}");
    fs::write(layout.ring_json(), text.replace(this, that)).unwrap();
    let found = birth::read(&Posix, &layout);
    let of_another = birth::is_of_another_version(&Posix, &layout);
    fs::write(layout.ring_json(), text).unwrap();
    assert_eq!(of_another, that.contains("\"ringreel\": 2"));
    found
}

#[test]
fn a_ring_json_that_is_not_ours_is_refused_and_says_why() {
    let dir = scratch();
    let config = config(dir.path(), 4, "");
    assert!(birth::read(&Posix, &Layout::new(&config.ring)).unwrap().is_none());
    another(&config);
    assert_eq!(ring_json(&config, "\"swap_cap\": 4", "\"swap_cap\": 4").unwrap().unwrap().swap_cap, 4);
    for (this, that, why) in [
        ("\"ringreel\": 1", "\"ringreel\": 2", "version 2"),
        ("\"ringreel\": 1", "\"other\": 1", "names no version"),
        ("\"link\"", "\"rename\"", "\"rename\""),
        ("\"swap_cap\": 4", "\"swap_cap\": 0", "no parts or no cap"),
        ("\"data\"", "", "no parts or no cap"),
        ("\"swap_cap\"", "\"cap\"", "cannot be read"),
        ("{", "[", "cannot be read"),
    ] {
        let error = ring_json(&config, this, that).unwrap_err();
        assert!(matches!(error, Error::WrongRing { .. }) && error.to_string().contains(why), "{that}: {error}");
    }
    let hooks = HookFs::default();
    hooks.hook(|_, _, _| Action::Refuse(EIO));
    assert!(matches!(birth::read(&hooks, &Layout::new(&config.ring)), Err(Error::Fs { .. })));
}

#[test]
fn a_configuration_that_says_something_else_than_the_ring_is_refused() {
    let dir = scratch();
    let ours = config(dir.path(), 4, "VALIDATION: 2");
    let birth = another(&ours).birth;
    assert!(fs::read_to_string(Layout::new(&ours.ring).ring_json()).unwrap().contains("\"validation\": 2"));
    assert!(birth::check(&birth, &ours).is_ok());
    let (mut cap, mut validation, mut sample, mut nothing) = (ours.clone(), ours.clone(), ours.clone(), ours);
    (cap.swap_cap, validation.validation, sample.sample) = (Some(5), Some(0), Some(vec!["label".into()]));
    for (config, key) in [(cap, "SWAP_CAP"), (validation, "VALIDATION"), (sample, "SAMPLE")] {
        assert!(birth::check(&birth, &config).unwrap_err().to_string().contains(key), "{key}");
    }
    (nothing.swap_cap, nothing.validation, nothing.sample) = (None, None, None);
    assert!(birth::check(&birth, &nothing).is_ok());

    let dir = scratch();
    let config = config(dir.path(), 4, "");
    another(&config);
    assert!(!fs::read_to_string(Layout::new(&config.ring).ring_json()).unwrap().contains("validation"));
}

#[test]
fn a_ring_is_made_only_where_nothing_else_is() {
    for name in ["manifests", "staging", "index", "quarantine", "trash", "write.1"] {
        assert!(birth::is_of_a_birth(name), "{name}");
        let dir = scratch();
        let config = config(dir.path(), 4, "");
        fs::create_dir_all(config.ring.join(name)).unwrap();
        another(&config);
    }
    for name in ["data", "write.2", "read.1", "ring.json.old", "manifests2"] {
        assert!(!birth::is_of_a_birth(name), "{name}");
        let dir = scratch();
        let config = config(dir.path(), 4, "");
        fs::create_dir_all(config.ring.join(name)).unwrap();
        let error = Ring::find_or_make(Arc::new(Posix), &config).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(fs::read_dir(&config.ring).unwrap().count(), 1, "nothing is left there");
    }
}

#[test]
fn a_birth_that_fails_for_a_moment_is_tried_again_and_one_that_cannot_be_is_taken_back() {
    let make = |errno: i32, times: usize| {
        let dir = scratch();
        let config = config(dir.path(), 4, "");
        let hooks = Arc::new(HookFs::default());
        let left = Arc::new(AtomicUsize::new(times));
        hooks.hook({
            let left = left.clone();
            move |_, op, path| {
                let hit = op == "link" && path.ends_with("ring.json");
                let fail = hit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
                if fail { Action::Refuse(errno) } else { Action::Pass }
            }
        });
        let made = Ring::find_or_make(hooks, &config);
        (made.err().map(|error| error.to_string()), config.ring.exists(), left.load(Ordering::SeqCst))
    };
    let (error, there, _) = make(EIO, 5);
    assert!(error.is_none() && there, "{error:?}");
    let (error, there, left) = make(EIO, 100);
    assert!(error.is_some() && !there && left == 94, "six times: {left}");
    let (error, there, left) = make(EACCES, 100);
    assert!(error.is_some() && !there && left == 99, "once: {left}");
    let (error, ..) = make(ENOTSUP, 100);
    assert!(error.unwrap().contains("no hard links"));
}

/// So many generations of two samples each, all promoted and none reclaimed; their samples.
fn generations(config: &Config, count: u64) -> Vec<SampleId> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.extend([2 * n, 2 * n + 1].map(|index| linked(config, index).0));
        let ring = another(config);
        let promotion = promote_only(&ring);
        assert_eq!(promotion, n + 1);
    }
    ids
}

/// As if its configuration said so.
fn keeping(mut ring: Ring, keep: u64) -> Ring {
    ring.keep = keep;
    ring
}

fn promote_only(ring: &Ring) -> u64 {
    ring.promote(When::Full).unwrap().unwrap().manifest.summary.generation
}

#[test]
fn what_is_reclaimed_is_counted_and_what_is_kept_is_there() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 3");
    generations(&config, 4);
    let ring = keeping(another(&config), 1);
    fs::create_dir(ring.layout.write(3)).unwrap();
    fs::write(ring.layout.trash().join("stray"), "x").unwrap();
    fs::create_dir_all(ring.layout.trash().join("taken/apart")).unwrap();
    let garbage = ring.garbage().unwrap();
    let brief = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let names: Vec<_> = garbage.iter().map(|found| (brief(&found.path), found.files, found.stays.is_some())).collect();
    let name = |name: &str, files| (name.to_owned(), files, false);
    let mut first = names[..3].to_vec();
    first.sort();
    assert_eq!(first, [name("read.1", 2), name("read.2", 2), name("write.3", 0)]);
    assert_eq!(names[3..], [name("stray", 0), name("taken", 1)]);
    let bytes = |n: u64| ring.manifests.get(n).unwrap().unwrap().summary.bytes;
    let found = garbage.iter().find(|found| found.path.ends_with("read.1")).unwrap();
    assert!(found.bytes == bytes(1) && found.why.contains("KEEP"), "{found:?}");

    assert_eq!(ring.reclaim().unwrap(), Reclaimed { generations: 2, samples: 4, files: 5 });
    assert_eq!(ring.reclaim().unwrap(), Reclaimed::default());
    let there = |dir: PathBuf| dir.exists();
    assert_eq!([1, 2, 3, 4].map(|n| there(ring.layout.read(n))), [false, false, true, true]);
    assert_eq!([3, 4, 5].map(|n| there(ring.layout.write(n))), [false, false, true]);
    assert!(ring.layout.trash().join("taken/apart").exists() && ring.layout.manifest(1).exists());
    assert_eq!(fs::read_dir(ring.layout.trash()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_removed_now_is_left_for_the_next_time_and_other_errors_are_told() {
    // The call that fails, with what, whether that is an error, and whether the generation is gone from its place.
    for (op, errno, is_error, moved) in [
        ("rename", EACCES, false, false),
        ("rename", EIO, true, false),
        ("rename", ESTALE, false, false),
        ("remove_file", EBUSY, false, true),
        ("remove_file", EACCES, false, true),
        ("remove_file", ESTALE, false, true),
        ("remove_file", EIO, true, true),
        ("remove_dir", ENOTEMPTY, false, true),
        ("remove_dir", EBUSY, false, true),
        ("remove_dir", EACCES, false, true),
        ("remove_dir", EIO, true, true),
    ] {
        let dir = scratch();
        let config = config(dir.path(), 2, "KEEP: 3");
        let ids = generations(&config, 3);
        let (ring, hooks) = hooked(&config);
        let ring = keeping(ring, 1);
        hooks.hook(move |_, called, path| {
            let hit = called == op && path.to_string_lossy().contains("trash/read.1");
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        let done = ring.reclaim();
        assert_eq!(done.is_err(), is_error, "{op} {errno}: {done:?}");
        assert_eq!(ring.layout.read(1).exists(), !moved, "{op} {errno}");
        hooks.unhook();
        ring.reclaim().unwrap();
        assert!(!ring.layout.read(1).exists() && fs::read_dir(ring.layout.trash()).unwrap().next().is_none());
        assert_delivered_once(&config.ring, &ids, op);
    }
}

#[test]
fn what_recovery_does_is_counted() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 2, "") };
    let (delivered, file) = linked(&config, 0);
    linked(&config, 1);
    let kept = dir.path().join("kept");
    fs::hard_link(&file, &kept).unwrap();
    promote_only(&another(&config));
    fs::hard_link(&kept, &file)
        .or_else(|_| fs::create_dir_all(file.parent().unwrap()).and_then(|()| fs::hard_link(&kept, &file)))
        .unwrap();
    let adopted = staged(&config, 5).0;
    let (damaged, broken) = staged(&config, 6);
    let mut bytes = fs::read(&broken).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&broken, bytes).unwrap();
    fs::write(broken.with_extension("part"), "begun").unwrap();

    let ring = another(&config);
    let mut watch = Watch::new(Duration::ZERO);
    ring.recover(&mut watch).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut all = Recovered::default();
    for _ in 0..2 {
        let done = ring.recover(&mut watch).unwrap();
        all.adopted += done.adopted;
        all.delivered += done.delivered;
        all.quarantined += done.quarantined;
        all.litter += done.litter;
    }
    assert_eq!((all.delivered, all.quarantined, all.litter), (1, 0, 1), "{all:?}");
    assert!(all.adopted >= 1 && !file.exists(), "{all:?}");
    ring.promote(When::NotEmpty).unwrap();
    let listed = listed(&config.ring);
    assert!(listed[&delivered] == [1] && listed[&adopted] == [2] && !broken.with_extension("part").exists());
    let _ = damaged;
}

#[test]
fn the_ring_takes_what_its_manifests_list_and_what_the_filling_generation_holds() {
    let dir = scratch();
    let config = config(dir.path(), 2, "KEEP: 1");
    generations(&config, 3);
    let ring = another(&config);
    let bytes = |n: u64| ring.manifests.get(n).unwrap().unwrap().summary.bytes;
    let len = |path: PathBuf| fs::metadata(path).unwrap().len();
    // Generation 1 is older than is kept, and still there.
    let all = bytes(1) + bytes(2) + bytes(3);
    assert_eq!(ring.usage().unwrap(), (all, 6));
    linked(&config, 7);
    fs::write(ring.layout.write(4).join(segment_name(8)), "damaged").unwrap();
    fs::create_dir(ring.layout.read(77)).unwrap(); // a stranger's
    let filling = len(ring.layout.write(4).join(segment_name(7)));
    assert_eq!(ring.usage().unwrap(), (all + filling, 8));
    fs::remove_dir_all(ring.layout.write(4)).unwrap();
    assert_eq!(ring.usage().unwrap(), (all, 6));
    fs::remove_dir_all(ring.layout.read(1)).unwrap();
    assert_eq!(ring.usage().unwrap(), (all - bytes(1), 4));
}

/// A staged segment, on its way.
fn on_its_way(ring: &Ring, id: SampleId, file: &Path) -> Commit {
    let owner = file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let bytes = fs::metadata(file).unwrap().len();
    let born = ring.manifests.newest().unwrap() + 1;
    Commit::new(Staged { owner, id: id.segment, born, samples: 1, bytes })
}

#[test]
fn a_commit_takes_the_next_free_number_and_waits_when_the_generation_is_full() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    // The index has handed out 0 to 8 when all are staged. What it hands out next is taken.
    (9..15).for_each(|index| drop(linked(&config, index)));
    let ways = [20, 21, 22].map(|n| staged(&config, n));
    let mut commits = ways.each_ref().map(|(id, file)| on_its_way(&ring, *id, file));
    assert_eq!(ring.commit_step(&mut commits[0], true).unwrap(), Step::Linked(1));
    assert_eq!(commits[0].linked(), Some(1));
    let names = ring.fs.list(&ring.layout.write(1)).unwrap();
    assert!(names.len() == 7 && names.contains(&segment_name(15)), "{names:?}");
    assert_eq!(ring.index.handed_out(1).unwrap(), 16, "it was told, and was not asked for each of them");
    assert_eq!(ring.commit_step(&mut commits[0], true).unwrap(), Step::Linked(1), "and is not linked twice");
    assert!(!ring.seems_full());
    assert_eq!(ring.commit_step(&mut commits[1], true).unwrap(), Step::Linked(1));
    assert!(ring.seems_full());
    for thorough in [false, true] {
        assert_eq!(ring.commit_step(&mut commits[2], thorough).unwrap(), Step::Wait(1));
    }
    assert_eq!(promote_only(&another(&config)), 1);
    assert_eq!(ring.commit_step(&mut commits[1], false).unwrap(), Step::Delivered(1));
    assert_eq!(ring.commit_step(&mut commits[2], false).unwrap(), Step::Linked(2));
    assert!(!ways[1].1.exists() && ways[2].1.exists());
}

#[test]
fn numbers_of_a_closed_generation_are_drawn_at_random_and_only_for_who_waits_long() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    ring.index.close_generation(1).unwrap();
    let (id, file) = staged(&config, 20);
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), Step::Wait(1));
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Linked(1));
    let name = ring.fs.list(&ring.layout.write(1)).unwrap().remove(0);
    assert!(name.strip_suffix(".rec").unwrap().parse::<u64>().unwrap() >= 1 << 40, "{name}");
}

#[test]
fn a_link_that_fails_is_another_ones_to_make_or_an_error() {
    for (errno, step) in [(EACCES, Some(Step::Refused)), (EIO, None)] {
        let dir = scratch();
        let config = config(dir.path(), 8, "");
        let (id, file) = staged(&config, 20);
        let (ring, hooks) = hooked(&config);
        let mut commit = on_its_way(&ring, id, &file);
        let filling = ring.layout.write(1);
        hooks.hook(
            move |_, op, path| {
                if op == "link" && path.starts_with(&filling) { Action::Refuse(errno) } else { Action::Pass }
            },
        );
        assert_eq!(ring.commit_step(&mut commit, true).ok(), step);
        // Of its own, it is an error whatever it says.
        commit.staged.owner.clone_from(&ring.me);
        let ours = ring.layout.staging_of(&ring.me);
        fs::create_dir_all(&ours).unwrap();
        fs::hard_link(&file, ours.join(file.file_name().unwrap())).unwrap();
        assert!(ring.commit_step(&mut commit, true).is_err(), "{errno}");
    }
}

#[test]
fn a_staged_file_that_somebody_removed_is_waited_for_and_then_lost() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(200), ..config(dir.path(), 8, "") };
    let ring = another(&config);
    let (id, file) = staged(&config, 20);
    let mut commit = on_its_way(&ring, id, &file);
    let away = dir.path().join("away");
    fs::rename(&file, &away).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Wait(1));
    std::thread::sleep(Duration::from_millis(250));
    assert!(matches!(ring.commit_step(&mut commit, true), Err(Error::Lost { .. })));
    fs::rename(&away, &file).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Linked(1));
}

#[test]
fn a_promotion_says_what_it_left_out() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let staged = [0, 1, 2].map(|n| staged(&config, n));
    let ring = another(&config);
    for (index, (_, file)) in staged.iter().enumerate() {
        fs::hard_link(file, ring.layout.write(1).join(segment_name(index as u64))).unwrap();
    }
    let ids = staged.map(|(id, _)| id);
    fs::write(ring.layout.write(1).join(segment_name(9)), "damaged").unwrap();
    let promotion = ring.promote(When::Full).unwrap().unwrap();
    assert_eq!((promotion.left_out, promotion.damaged, promotion.ours), (2, 1, true));
    assert!(promotion.swap_ms > 0.0 && promotion.publish_ms >= promotion.swap_ms && promotion.publish_ms < 60_000.0);
    assert_eq!(promotion.manifest.summary.swap_ms, promotion.swap_ms);
    assert!(ring.layout.write(2).exists() && !ring.layout.write(1).exists());
    // The link of what came too late is removed, and what is damaged stays: it may only be seen too early.
    let mut names = ring.fs.list(&ring.layout.read(1)).unwrap();
    names.sort();
    assert_eq!(names, [0, 1, 9].map(segment_name));
    assert!(ring.promote(When::NotEmpty).unwrap().is_none());
    bring_in(&ring);
    assert_delivered_once(&config.ring, &ids, "one came too late");
}

#[test]
fn a_generation_is_promoted_when_it_is_full_or_when_it_holds_a_sample() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let ring = another(&config);
    assert!(ring.promote(When::NotEmpty).unwrap().is_none());
    linked(&config, 0);
    assert!(ring.promote(When::Full).unwrap().is_none());
    assert!(ring.layout.write(1).exists());
    assert!(ring.promote(When::NotEmpty).unwrap().is_some());
    fs::remove_dir(ring.layout.write(2)).unwrap();
    assert!(ring.promote(When::Full).unwrap().is_none() && ring.layout.write(2).exists());
}

#[test]
fn a_segment_counts_once_under_two_names_and_not_with_more_samples_than_a_generation() {
    let dir = scratch();
    let config = config(dir.path(), 3, "");
    let (_, file) = linked(&config, 0);
    let ring = another(&config);
    let filling = ring.layout.write(1);
    fs::hard_link(&file, filling.join(segment_name(1))).unwrap();
    let bytes = fs::metadata(&file).unwrap().len();
    assert_eq!((ring.fill_of(1).unwrap(), ring.fill_in(1, &filling).unwrap()), (1, (1, bytes)));
    assert_eq!(ring.look_at(1, &filling).unwrap().segments.len(), 2);
    // A directory that was made anew is looked at anew.
    fs::rename(&filling, ring.layout.trash().join("old")).unwrap();
    fs::create_dir(&filling).unwrap();
    assert_eq!(ring.fill_of(1).unwrap(), 0);

    // Three samples in a segment are as many as a generation may have; four are too many.
    let elsewhere = scratch();
    let large = common::config(elsewhere.path(), 100, "SEGMENT_SAMPLES: 4");
    for (samples, counts) in [(3, 1), (4, 0)] {
        let mut generator = Generator::open(&large).unwrap();
        let mut ids: Vec<SampleId> = (0..samples).flat_map(|n| write(&mut generator, n).unwrap()).collect();
        ids.extend(generator.seal(&common::never).unwrap());
        let staged = generator.ring().layout.sealed(&generator.ring().me, ids[0].segment);
        fs::hard_link(staged, filling.join(segment_name(10))).unwrap();
        let found = ring.look_at(1, &filling).unwrap();
        assert_eq!((found.segments.len(), found.damaged.len()), (counts, 1 - counts), "{samples}");
        fs::remove_dir_all(&filling).unwrap();
        fs::create_dir(&filling).unwrap();
    }
}

#[test]
fn an_index_knows_nobody_only_where_somebody_worked_without_it() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let ring = another(&config);
    assert!(!ring.has_no_index().unwrap(), "nobody worked yet");
    linked(&config, 0);
    assert!(!ring.has_no_index().unwrap(), "a number was handed out");
    ring.index.clear().unwrap();
    assert!(ring.has_no_index().unwrap());
    ring.index.beat("somebody-1-a", 1, &Report::default()).unwrap();
    assert!(!ring.has_no_index().unwrap());
}

#[test]
fn the_directory_of_the_generation_that_fills_is_made_where_it_is_gone_and_waited_for_where_it_is_promoted() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    let (id, file) = staged(&config, 20);
    fs::rename(ring.layout.write(1), ring.layout.read(1)).unwrap();
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Wait(1));
    assert!(!ring.layout.write(1).exists());
    fs::remove_dir(ring.layout.read(1)).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Linked(1));
}

#[test]
fn what_a_process_has_begun_itself_it_removes_not() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 8, "") };
    let ring = another(&config);
    let begun = |owner: &str| ring.layout.staging_of(owner).join("x.part");
    for owner in [ring.me.as_str(), "dead-1-a"] {
        fs::create_dir_all(ring.layout.staging_of(owner)).unwrap();
        fs::write(begun(owner), "begun").unwrap();
    }
    assert!(ring.has_begun_files().unwrap());
    let mut after = 0;
    for _ in 0..1000 {
        ring.gc().unwrap();
        ring.recover(&mut ring.watch()).unwrap();
        after += usize::from(!ring.layout.staging_of("dead-1-a").exists());
        if after > 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(4));
    }
    assert!(begun(&ring.me).exists() && !ring.layout.staging_of("dead-1-a").exists());
    assert!(!ring.has_begun_files().unwrap() && ring.garbage_of_the_dead().unwrap().is_empty());
}

#[test]
fn a_directory_above_that_may_not_or_cannot_be_synced_hinders_no_ring() {
    for (errno, is_made) in [(EACCES, true), (EINVAL, true), (ENOTSUP, true), (EIO, false)] {
        let dir = scratch();
        let config = config(dir.path(), 8, "DURABILITY: node");
        let (above, hooks) = (dir.path().to_owned(), Arc::new(HookFs::default()));
        hooks.hook(
            move |_, op, path| {
                if op == "sync_dir" && path == above { Action::Refuse(errno) } else { Action::Pass }
            },
        );
        assert_eq!(Ring::find_or_make(hooks, &config).is_ok(), is_made, "{errno}");
    }
}

#[test]
fn when_there_are_twice_as_many_manifests_as_are_kept_the_older_half_goes() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = keeping(another(&config), 5000);
    let left = || {
        let mut numbers = ring.manifests.numbers().unwrap();
        numbers.sort();
        numbers
    };
    for newest in [1984, 2111] {
        write_manifests(&ring.layout, newest);
        ring.reclaim().unwrap();
        assert_eq!(left(), (0..=newest).collect::<Vec<_>>());
    }
    write_manifests(&ring.layout, 2112);
    fs::create_dir(ring.layout.read(7)).unwrap(); // it is still there
    ring.reclaim().unwrap();
    assert_eq!(left(), [7].into_iter().chain(1088..=2112).collect::<Vec<_>>());
}

#[test]
fn a_segment_that_is_older_than_all_manifests_goes_to_quarantine() {
    for (newest, first_is_there, want) in
        [(1025, false, None), (1025, true, Some(Ok(Step::Linked(1026)))), (1024, false, Some(Err(())))]
    {
        let dir = scratch();
        let config = config(dir.path(), 8, "");
        let ring = another(&config);
        let (id, file) = staged(&config, 20);
        let mut commit = on_its_way(&ring, id, &file);
        write_manifests(&ring.layout, newest);
        if !first_is_there {
            fs::remove_file(ring.layout.manifest(1)).unwrap();
        }
        let ring = another(&config);
        let step = ring.commit_step(&mut commit, true);
        let Some(want) = want else {
            assert!(matches!(&step, Ok(Step::Quarantined(why)) if why.contains("whose manifest is gone")), "{step:?}");
            let mut names = ring.fs.list(&ring.layout.quarantine()).unwrap();
            names.sort();
            assert!(names.len() == 2 && names[0].ends_with(".rec") && names[1].ends_with(".why") && !file.exists());
            continue;
        };
        assert_eq!(step.map_err(|_| ()), want);
    }
}

#[test]
fn how_full_a_generation_is_its_footers_tell_where_its_names_do_not() {
    let dir = scratch();
    let config = config(dir.path(), 4, "");
    let ring = another(&config);
    let ways = [0, 1, 2].map(|n| staged(&config, n));
    for (index, (_, file)) in ways.iter().take(2).enumerate() {
        fs::hard_link(file, ring.layout.write(1).join(segment_name(10 + index as u64))).unwrap();
    }
    // Two names, of which each might be of two samples.
    let mut commit = on_its_way(&ring, ways[2].0, &ways[2].1);
    commit.staged.samples = 2;
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), Step::Linked(1));
    // Four names, of which two are of one segment.
    fs::hard_link(&ways[0].1, ring.layout.write(1).join(segment_name(20))).unwrap();
    let (id, file) = staged(&config, 30);
    let ring = another(&config);
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), Step::Wait(1));
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), Step::Linked(1));
}

#[test]
fn what_stands_in_staging_and_is_no_owner_hinders_nobody() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(10), ..config(dir.path(), 8, "") };
    let ring = another(&config);
    fs::write(ring.layout.staging().join("file-1-a"), "x").unwrap();
    fs::create_dir(ring.layout.staging().join(".hidden")).unwrap();
    let (id, _) = staged(&config, 20);
    let mut watch = Watch::new(Duration::ZERO);
    for _ in 0..2 {
        ring.recover(&mut watch).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    ring.promote(When::NotEmpty).unwrap().unwrap();
    assert!(listed(&config.ring).contains_key(&id) && ring.layout.staging().join(".hidden").exists());
}

#[test]
fn a_process_has_a_name_of_its_own_and_looks_some_times_in_a_lease() {
    let dir = scratch();
    let config = Config { poll: None, ..config(dir.path(), 8, "") };
    let (one, two) = (another(&config), another(&config));
    assert!(one.me != two.me && ringreel::layout::is_owner(&one.me));
    let (rest, random) = one.me.rsplit_once('-').unwrap();
    assert!(random.len() == 8 && rest.ends_with(&format!("-{}", std::process::id())), "{}", one.me);
    let default = if one.kind.local { 200 } else { 1000 };
    assert_eq!(one.poll, Duration::from_millis(default));
    let short = Config { lease: Duration::from_millis(100), ..config.clone() };
    assert_eq!(another(&short).poll, Duration::from_millis(25));
    assert_eq!((one.syncs_files(), one.syncs_dirs()), (!one.kind.local, false));
    let node = common::config(dir.path(), 8, "DURABILITY: node");
    assert_eq!((another(&node).syncs_files(), another(&node).syncs_dirs()), (true, true));
}
