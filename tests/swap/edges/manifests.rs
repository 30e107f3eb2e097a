//! The rules on numbers and manifests.

use super::{entry, write_manifests};
use ringreel::Error;
use ringreel::commit::{CommitState, commit_state};
use ringreel::fs::Posix;
use ringreel::layout::{GenerationDir, Layout};
use ringreel::manifest::store::{Lookup, Manifests};
use ringreel::manifest::{Manifest, Summary};
use ringreel::swap::promote::fitting;
use ringreel::swap::reclaim::is_old;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::ring::{Action, EIO, ESTALE, HookFs, scratch};

/// The second generation of a ring whose first one had 5 samples: 3 and 4 samples, one of which was lost.
fn second() -> Manifest {
    let first = Summary::empty("r", "a").next("a", &[entry(0, 5)], 0.5);
    let segments = vec![entry(1, 3), entry(2, 4)];
    let mut summary = first.next("b", &segments, 0.5);
    (summary.lost, summary.total_samples) = (1, summary.total_samples + 1);
    Manifest::new(summary, segments)
}

#[test]
fn directory_is_old_if_more_than_keep_are_newer() {
    for (g, newest, keep, old) in
        [(3, 5, 1, true), (4, 5, 1, false), (5, 5, 1, false), (5, 5, 0, false), (4, 5, 0, true)]
    {
        assert_eq!(is_old(GenerationDir::Read(g), newest, keep), old, "{g} {newest} {keep}");
    }
    let writes = [4, 5, 6].map(|g| is_old(GenerationDir::Write(g), 5, 1));
    assert_eq!(writes, [true, true, false]);
}

#[test]
fn segments_are_listed_while_they_fit_and_skipped_otherwise() {
    let fit = |samples: &[u64], cap| fitting(samples.iter().copied(), cap).collect::<Vec<_>>();
    assert_eq!(fit(&[2, 2, 1], 4), [true, true, false]);
    assert_eq!(fit(&[3, 2, 1, 0, 1], 4), [true, false, true, false, false]);
    assert_eq!(fit(&[5, 4], 4), [false, true]);
}

#[test]
fn manifests_locate_a_segment() {
    assert_eq!(commit_state(Some(3), Some(4), 5), CommitState::Listed(3));
    assert_eq!(commit_state(None, Some(6), 5), CommitState::Linked(6));
    assert_eq!(commit_state(None, Some(5), 5), CommitState::LeftOut);
    assert_eq!(commit_state(None, None, 5), CommitState::Staged);
}

#[test]
fn summary_continues_the_previous_one() {
    let summary = second().summary;
    assert_eq!((summary.generation, summary.samples, summary.bytes), (2, 7, 2003));
    assert_eq!((summary.total_samples, summary.total_bytes, summary.before()), (13, 3003, 5));
    assert_eq!((summary.ring.as_str(), summary.by.as_str()), ("r", "b"));
}

#[test]
fn only_the_first_samples_of_a_ring_are_held_out() {
    // Generation 2 has the samples 5 to 12, one of which is lost.
    for (validation, held_out, lost) in [(0, 0, 0), (5, 0, 0), (6, 1, 0), (12, 7, 0), (13, 7, 1), (20, 7, 1)] {
        let manifest = second();
        assert_eq!(manifest.held_out(validation), 0..held_out, "{validation}");
        assert_eq!(manifest.training(validation), held_out..7, "{validation}");
        assert_eq!(manifest.held_out_lost(validation), lost, "{validation}");
    }
}

#[test]
fn manifest_has_a_lost_count_only_after_a_loss() {
    let names_lost =
        |manifest: &Manifest| String::from_utf8(manifest.encode().unwrap()).unwrap().contains("\"lost\":1");
    let mut manifest = second();
    assert!(names_lost(&manifest));
    assert_eq!(Manifest::decode(&manifest.encode().unwrap()).unwrap().summary, manifest.summary);
    manifest.summary.lost = 0;
    assert!(!String::from_utf8(manifest.encode().unwrap()).unwrap().contains("lost"));
}

#[test]
fn contradictory_manifests_are_refused_despite_their_checksum() {
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
        sealed(&body.replace("\"samples\":4", "\"samples\":5").replace(".4.rec", ".5.rec"), 2, 3),
    ] {
        assert!(refused(&contradiction).contains("contradict"), "{contradiction}");
    }
    assert!(refused(&sealed(&body.replace("\"manifest\":1", "\"manifest\":2"), 2, 3)).contains("version 2"));
    assert!(refused(&text.replace("\"samples\":4", "\"samples\":5")).contains("damaged"));
    assert!(refused(text.trim_end()).contains("truncated") && refused("").contains("truncated"));
    assert!(refused(&sealed(&body.replace("node-1-ab", ".."), 2, 3)).contains("not a valid file or owner name"));
    for file in ["2.4.rec", "000002.rec", "000002.3.rec"] {
        let why = refused(&sealed(&body.replace("000002.4.rec", file), 2, 3));
        assert!(why.contains("not a valid file or owner name"), "{file}: {why}");
    }
}

/// These manifests, as a process sees them.
fn manifests(root: &Path, newest: u64) -> (Manifests, Layout, Arc<HookFs>) {
    let (layout, hooks) = (Layout::new(root), Arc::new(HookFs::default()));
    write_manifests(&layout, newest);
    (Manifests::new(hooks.clone(), layout.clone()), layout, hooks)
}

#[test]
fn manifests_are_found_by_number_and_foreign_ones_are_not() {
    let dir = scratch();
    let (manifests, layout, hooks) = manifests(dir.path(), 70);
    assert_eq!((manifests.newest().unwrap(), manifests.newest_listed().unwrap()), (70, 70));
    let id = |n: u64| entry(n, 1).id;
    assert_eq!(manifests.find(id(7), 1, 70).unwrap(), Lookup::Listed(7));
    assert_eq!(manifests.find(id(7), 7, 7).unwrap(), Lookup::Listed(7));
    assert_eq!(manifests.find(id(7), 8, 70).unwrap(), Lookup::NotListed);
    assert_eq!(manifests.find(id(7), 1, 6).unwrap(), Lookup::NotListed);
    assert_eq!(manifests.between(3, 6).unwrap(), [3, 4, 5, 6]);
    assert_eq!((manifests.get(71).unwrap().is_none(), manifests.usable(71).unwrap().is_none()), (true, true));

    // Small manifests are cached.
    let calls = |n: u64| {
        let before = hooks.calls();
        manifests.get(n).unwrap().unwrap();
        hooks.calls() - before
    };
    manifests.find(id(0), 1, 70).unwrap();
    assert_eq!((calls(70), calls(7)), (0, 0));

    fs::copy(layout.manifest(3), layout.manifest(71)).unwrap();
    assert!(matches!(manifests.get(71), Err(Error::Manifest { passing: false, .. })));
    assert!(manifests.usable(71).unwrap().is_none());
    fs::write(layout.manifest(71), "").unwrap();
    assert!(matches!(manifests.get(71), Err(Error::Manifest { passing: true, .. })));
    // A manifest that must exist, and is missing.
    fs::remove_file(layout.manifest(1)).unwrap();
    let fresh = Manifests::new(Arc::new(Posix), layout);
    assert!(matches!(fresh.find(id(7), 1, 70), Err(Error::Fs { .. })));
}

#[test]
fn pruned_manifests_are_not_looked_up() {
    let dir = scratch();
    let (manifests, layout, _) = manifests(dir.path(), 3);
    // At least 1024 manifests stay: of 1 to 1026 the first two may have been pruned, of 1 to 1024 none.
    assert_eq!(manifests.between(1, 1026).unwrap(), (1..=1026).collect::<Vec<_>>());
    fs::remove_file(layout.manifest(1)).unwrap();
    assert_eq!(manifests.between(1, 1026).unwrap(), (2..=1026).collect::<Vec<_>>());
    assert_eq!(manifests.between(1, 1025).unwrap(), (2..=1025).collect::<Vec<_>>());
    assert_eq!(manifests.between(1, 1024).unwrap(), (1..=1024).collect::<Vec<_>>());
}

#[test]
fn stale_handles_are_reopened_once_and_other_errors_reported() {
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
    fails(ESTALE, 2);
    assert!(manifests.get_surely(2).is_err(), "the manifest exists");
    assert!(manifests.get_surely(3).unwrap().is_none());
    fails(ESTALE, 1);
    assert!(manifests.get(2).unwrap().is_some());
    hooks.hook(|_, op, _| if op == "list" { Action::Refuse(EIO) } else { Action::Pass });
    assert!(manifests.numbers().is_err());
    hooks.hook(|_, op, _| if op == "list" { Action::Refuse(ESTALE) } else { Action::Pass });
    assert!(manifests.numbers().unwrap().is_empty());
}

#[test]
fn hint_is_accepted_once_its_manifest_is_visible() {
    let dir = scratch();
    let (manifests, layout, _) = manifests(dir.path(), 2);
    assert_eq!(manifests.newest().unwrap(), 2);
    manifests.hint(9);
    assert_eq!(manifests.newest().unwrap(), 2);
    fs::write(layout.manifest(3), "").unwrap();
    assert_eq!(manifests.newest().unwrap(), 3, "the next manifests are looked up by name");
    fs::write(layout.manifest(9), "").unwrap();
    assert_eq!(manifests.newest().unwrap(), 3, "the directory was listed just now");
    manifests.hint(9);
    manifests.hint(1);
    assert_eq!(manifests.newest().unwrap(), 9);
    let fresh = Manifests::new(Arc::new(Posix), layout);
    assert_eq!(fresh.newest().unwrap(), 9);
    assert!(Manifests::new(Arc::new(Posix), Layout::new(Path::new("/dev/null"))).newest().is_err());
}
