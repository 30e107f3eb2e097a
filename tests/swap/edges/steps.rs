//! Commit and promotion, one step at a time.

use super::{promote_only, write_manifests};
use ringreel::commit::{Commit, CommitOutcome, Staged};
use ringreel::config::Config;
use ringreel::layout::segment_name;
use ringreel::ring::Ring;
use ringreel::swap::promote::PromoteWhen;
use ringreel::{Error, Generator, SampleId};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use testkit::ring::{
    self, Action, EACCES, EIO, another, assert_delivered_once, bring_in, config, hooked, linked, scratch, staged, write,
};

/// A staged segment that is not committed yet.
pub(crate) fn on_its_way(ring: &Ring, id: SampleId, file: &Path) -> Commit {
    let owner = file.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let bytes = fs::metadata(file).unwrap().len();
    let born = ring.manifests.newest().unwrap() + 1;
    Commit::new(Staged { owner, id: id.segment, born, samples: 1, bytes })
}

#[test]
fn commits_take_the_next_index_and_wait_if_full() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    // The index has handed out 0 to 8 when all are staged. The next one is taken, so the index learns where to
    // continue.
    (9..14).chain([20]).for_each(|index| drop(linked(&config, index)));
    let ways = [20, 21, 22].map(|n| staged(&config, n));
    let mut commits = ways.each_ref().map(|(id, file)| on_its_way(&ring, *id, file));
    assert_eq!(ring.commit_step(&mut commits[0], true).unwrap(), CommitOutcome::Linked(1));
    assert_eq!(commits[0].linked, Some(1));
    let names = ring.fs.list(&ring.layout.write(1)).unwrap();
    assert!(names.len() == 7 && names.contains(&segment_name(21, 1)), "{names:?}");
    assert_eq!(ring.coordination.handed_out(1).unwrap(), 22);
    assert_eq!(ring.commit_step(&mut commits[0], true).unwrap(), CommitOutcome::Linked(1), "not linked twice");
    assert!(!ring.seems_full(0));
    assert_eq!(ring.commit_step(&mut commits[1], true).unwrap(), CommitOutcome::Linked(1));
    assert!(ring.seems_full(0));
    for thorough in [false, true] {
        assert_eq!(ring.commit_step(&mut commits[2], thorough).unwrap(), CommitOutcome::Wait(1));
    }
    assert_eq!(promote_only(&another(&config)), 1);
    assert_eq!(ring.commit_step(&mut commits[1], false).unwrap(), CommitOutcome::Delivered(Some(1)));
    assert_eq!(ring.commit_step(&mut commits[2], false).unwrap(), CommitOutcome::Linked(2));
    assert!(!ways[1].1.exists() && ways[2].1.exists());
}

#[test]
fn full_generation_is_checked_again_after_a_while() {
    let dir = scratch();
    let mut config = config(dir.path(), 8, "");
    ring::a_manager_seems_to_live(&config);
    (0..8).for_each(|index| drop(linked(&config, index)));
    let (id, file) = staged(&config, 8);
    let rings = [Duration::from_secs(3600), Duration::from_millis(10)].map(|poll| {
        config.poll = Some(poll);
        another(&config)
    });
    let mut commits = rings.each_ref().map(|ring| (ring, on_its_way(ring, id, &file)));
    for (ring, commit) in &mut commits {
        assert_eq!(ring.commit_step(commit, false).unwrap(), CommitOutcome::Wait(1));
    }
    fs::remove_file(rings[0].layout.write(1).join(segment_name(0, 1))).unwrap();
    sleep(Duration::from_millis(30));
    let [(patient, for_hours), (soon, for_moments)] = &mut commits;
    assert_eq!(patient.commit_step(for_hours, false).unwrap(), CommitOutcome::Wait(1), "not polled at each step");
    assert_eq!(soon.commit_step(for_moments, false).unwrap(), CommitOutcome::Linked(1));
}

/// An estimate of the fill by the number of files would link both single samples.
#[test]
fn segment_names_give_the_fill_of_a_generation() {
    let dir = scratch();
    let single = config(dir.path(), 8, "");
    ring::a_manager_seems_to_live(&single);
    let mut generator = Generator::open(&config(dir.path(), 8, "SEGMENT_SAMPLES: 7")).unwrap();
    (0..7).for_each(|n| drop(write(&mut generator, n).unwrap()));
    let ring = another(&single);
    assert_eq!(ring.fs.list(&ring.layout.write(1)).unwrap(), [segment_name(0, 7)]);
    let ways = [7, 8].map(|n| staged(&single, n));
    let mut commits = ways.each_ref().map(|(id, file)| on_its_way(&ring, *id, file));
    assert_eq!(ring.commit_step(&mut commits[0], false).unwrap(), CommitOutcome::Linked(1));
    assert_eq!(ring.commit_step(&mut commits[1], false).unwrap(), CommitOutcome::Wait(1));
}

/// Only the footers show the number of samples; the result is cached.
#[test]
fn exaggerated_segment_names_delay_a_commit_once() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    (0..3).for_each(|n| drop(linked(&config, n)));
    let ring = another(&config);
    let write = ring.layout.write(1);
    fs::write(write.join(segment_name(100, 9)), "more samples than a generation").unwrap();
    fs::write(write.join(segment_name(101, 5)), "damaged").unwrap();
    let ways = [3, 4].map(|n| staged(&config, n));
    let mut commits = ways.each_ref().map(|(id, file)| on_its_way(&ring, *id, file));
    assert_eq!(ring.commit_step(&mut commits[0], false).unwrap(), CommitOutcome::Wait(1));
    assert_eq!(ring.commit_step(&mut commits[0], true).unwrap(), CommitOutcome::Linked(1));
    assert_eq!(ring.commit_step(&mut commits[1], false).unwrap(), CommitOutcome::Linked(1));
    fs::remove_file(write.join(segment_name(101, 5))).unwrap();
    let (id, file) = staged(&config, 5);
    assert_eq!(
        ring.commit_step(&mut on_its_way(&ring, id, &file), false).unwrap(),
        CommitOutcome::Linked(1),
        "9 samples do not count"
    );
}

#[test]
fn long_waiting_commits_get_a_random_index() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    ring.coordination.close_generation(1).unwrap();
    let (id, file) = staged(&config, 20);
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), CommitOutcome::Wait(1));
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Linked(1));
    let name = ring.fs.list(&ring.layout.write(1)).unwrap().remove(0);
    assert!(name.strip_suffix(".rec").unwrap().parse::<u64>().unwrap() >= 1 << 40, "{name}");
}

#[test]
fn failed_link_is_an_error_only_for_the_segments_owner() {
    for (errno, step) in [(EACCES, Some(CommitOutcome::Refused)), (EIO, None)] {
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
        // For its own segment, every failure is an error.
        commit.staged.owner.clone_from(&ring.me);
        let ours = ring.layout.staging_of(&ring.me);
        fs::create_dir_all(&ours).unwrap();
        fs::hard_link(&file, ours.join(file.file_name().unwrap())).unwrap();
        assert!(ring.commit_step(&mut commit, true).is_err(), "{errno}");
    }
}

#[test]
fn staging_names_of_other_owners_are_kept() {
    for (errno, is_told) in [(EACCES, false), (EIO, true)] {
        let dir = scratch();
        let config = config(dir.path(), 2, "");
        let ids = [0, 1].map(|n| linked(&config, n));
        let (ring, hooks) = hooked(&config);
        let owners = ring.layout.staging();
        hooks.hook(move |_, op, path| {
            let hit =
                op == "remove_file" && path.starts_with(&owners) && path.extension().is_some_and(|end| end == "rec");
            if hit { Action::Refuse(errno) } else { Action::Pass }
        });
        assert_eq!(ring.promote(PromoteWhen::Full).is_err(), is_told, "{errno}");
        assert!(ids.iter().all(|(_, file)| file.exists()) && ring.layout.manifest(1).exists());
        hooks.unhook();
        bring_in(&another(&config));
        assert_delivered_once(&config.ring, &ids.map(|(id, _)| id), "left to its owner");
    }
}

#[test]
fn removed_staged_files_are_awaited_and_then_lost() {
    let dir = scratch();
    let config = Config { lease: Duration::from_millis(200), ..config(dir.path(), 8, "") };
    let ring = another(&config);
    let (id, file) = staged(&config, 20);
    let mut commit = on_its_way(&ring, id, &file);
    let away = dir.path().join("away");
    fs::rename(&file, &away).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Wait(1));
    std::thread::sleep(Duration::from_millis(250));
    assert!(matches!(ring.commit_step(&mut commit, true), Err(Error::Lost { .. })));
    fs::rename(&away, &file).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Linked(1));
}

#[test]
fn promotion_removes_late_links_and_keeps_damaged_files() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let staged = [0, 1, 2].map(|n| staged(&config, n));
    let ring = another(&config);
    for (index, (_, file)) in staged.iter().enumerate() {
        fs::hard_link(file, ring.layout.write(1).join(segment_name(index as u64, 1))).unwrap();
    }
    let ids = staged.map(|(id, _)| id);
    fs::write(ring.layout.write(1).join(segment_name(9, 1)), "damaged").unwrap();
    let promotion = ring.promote(PromoteWhen::Full).unwrap().done().unwrap();
    assert_eq!((promotion.manifest.segments.len(), promotion.ours), (2, true));
    let (told, swap_ms) = (promotion.manifest.summary.swap_ms, promotion.swap_ms);
    assert!(0.0 < told && told <= swap_ms && swap_ms < 60_000.0, "{told} {swap_ms}");
    assert!(ring.layout.write(2).exists() && !ring.layout.write(1).exists());
    // The late link is removed, but a damaged segment stays, because it may only be visible too early.
    let mut names = ring.fs.list(&ring.layout.read(1)).unwrap();
    names.sort();
    assert_eq!(names, [0, 1, 9].map(|n| segment_name(n, 1)));
    assert!(ring.promote(PromoteWhen::NotEmpty).unwrap().done().is_none());
    bring_in(&ring);
    assert_delivered_once(&config.ring, &ids, "one late link");
}

#[test]
fn generations_are_promoted_when_full_or_not_empty() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let ring = another(&config);
    assert!(ring.promote(PromoteWhen::NotEmpty).unwrap().done().is_none());
    linked(&config, 0);
    assert!(ring.promote(PromoteWhen::Full).unwrap().done().is_none());
    assert!(ring.layout.write(1).exists());
    assert!(ring.promote(PromoteWhen::NotEmpty).unwrap().done().is_some());
    fs::remove_dir(ring.layout.write(2)).unwrap();
    assert!(ring.promote(PromoteWhen::Full).unwrap().done().is_none() && ring.layout.write(2).exists());
}

#[test]
fn segments_count_once_and_not_beyond_the_cap() {
    let dir = scratch();
    let config = config(dir.path(), 3, "");
    let (_, file) = linked(&config, 0);
    let ring = another(&config);
    let filling = ring.layout.write(1);
    fs::hard_link(&file, filling.join(segment_name(1, 1))).unwrap();
    let bytes = fs::metadata(&file).unwrap().len();
    assert_eq!((ring.count_samples(1).unwrap(), ring.fill_in(1, &filling).unwrap()), (1, (1, bytes)));
    assert_eq!(ring.look_at(1, &filling).unwrap().segments.len(), 2);
    // A directory that was recreated is listed again.
    fs::rename(&filling, ring.layout.trash().join("old")).unwrap();
    fs::create_dir(&filling).unwrap();
    assert_eq!(ring.count_samples(1).unwrap(), 0);

    // A segment may have as many samples as a generation, here three; four are too many. Its name gives the number, or
    // the segment does not count.
    let elsewhere = scratch();
    let large = ring::config(elsewhere.path(), 100, "SEGMENT_SAMPLES: 4");
    for (samples, named, counts) in [(3, 3, 1), (4, 4, 0), (3, 1, 0)] {
        let mut generator = Generator::open(&large).unwrap();
        let mut ids: Vec<SampleId> = (0..samples).flat_map(|n| write(&mut generator, n).unwrap()).collect();
        ids.extend(generator.seal(&ring::never).unwrap());
        let staged = generator.ring().layout.sealed(&generator.ring().me, ids[0].segment);
        fs::hard_link(staged, filling.join(segment_name(10, named))).unwrap();
        let found = ring.look_at(1, &filling).unwrap();
        assert_eq!((found.segments.len(), found.damaged), (counts, 1 - counts), "{samples} {named}");
        fs::remove_dir_all(&filling).unwrap();
        fs::create_dir(&filling).unwrap();
    }
}

#[test]
fn lookups_of_one_generation_are_not_used_for_the_next() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    [0, 1].iter().for_each(|index| drop(linked(&config, *index)));
    let ring = another(&config);
    let looked = |n: u64| ring.look_at(n, &ring.layout.write(n)).unwrap().segments;
    let first = looked(1);
    fs::create_dir(ring.layout.write(2)).unwrap();
    // Another thread has continued with the next generation.
    assert!(looked(2).is_empty() && ring.countable(1, &first).unwrap().len() == 2);
    assert_eq!(promote_only(&another(&config)), 1);
    fs::hard_link(ring.layout.read(1).join(first[0].file()), ring.layout.write(2).join(segment_name(50, 1))).unwrap();
    let late = looked(2);
    assert!(late.len() == 1 && ring.countable(2, &late).unwrap().is_empty(), "the segment is delivered already");
}

#[test]
fn removed_filling_directory_is_recreated_or_skipped() {
    let dir = scratch();
    let config = config(dir.path(), 8, "");
    let ring = another(&config);
    let (id, file) = staged(&config, 20);
    fs::remove_dir(ring.layout.write(1)).unwrap();
    let linked = ring.commit_step(&mut on_its_way(&ring, id, &file), true).unwrap();
    assert!(linked == CommitOutcome::Linked(1) && ring.layout.write(1).exists());
    fs::rename(ring.layout.write(1), ring.layout.read(1)).unwrap();
    // The next generation was promoted, too, but a power cut undid the manifests.
    fs::create_dir(ring.layout.read(2)).unwrap();
    let (id, file) = staged(&config, 21);
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Wait(1));
    fs::remove_dir(ring.layout.read(2)).unwrap();
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Linked(2));
    assert!(!ring.layout.write(1).exists());
}

/// A pruned manifest listed no segment that still has a staging name, and every segment that has none.
#[test]
fn staging_name_implies_what_pruned_manifests_listed() {
    for (newest, first_exists, is_staged, want) in [
        (1025, true, true, Some(CommitOutcome::Linked(1026))),
        (1025, false, true, Some(CommitOutcome::Linked(1026))),
        (1025, false, false, Some(CommitOutcome::Delivered(None))),
        (1024, false, true, None), // too new to be pruned: it is invisible, and may list the segment
    ] {
        let dir = scratch();
        let config = config(dir.path(), 8, "");
        let ring = another(&config);
        let (id, file) = staged(&config, 20);
        let mut commit = on_its_way(&ring, id, &file);
        write_manifests(&ring.layout, newest);
        if !first_exists {
            fs::remove_file(ring.layout.manifest(1)).unwrap();
        }
        if !is_staged {
            fs::remove_file(&file).unwrap();
        }
        let step = another(&config).commit_step(&mut commit, true);
        assert!(step.as_ref().err().is_none_or(Error::is_retryable), "{step:?}");
        assert_eq!(step.ok(), want, "newest {newest}, manifest 1 {first_exists}, staged {is_staged}");
        assert_eq!(ring.fs.list(&ring.layout.quarantine()).unwrap(), [""; 0]);
    }
}

#[test]
fn footers_give_the_fill_of_a_generation() {
    let dir = scratch();
    let config = config(dir.path(), 4, "");
    let ring = another(&config);
    let ways = [0, 1, 2].map(|n| staged(&config, n));
    for (index, (_, file)) in ways.iter().take(2).enumerate() {
        fs::hard_link(file, ring.layout.write(1).join(segment_name(10 + index as u64, 1))).unwrap();
    }
    // Two names, each of which might have two samples.
    let mut commit = on_its_way(&ring, ways[2].0, &ways[2].1);
    commit.staged.samples = 2;
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), CommitOutcome::Linked(1));
    // Four names, two of which belong to one segment.
    fs::hard_link(&ways[0].1, ring.layout.write(1).join(segment_name(20, 1))).unwrap();
    let (id, file) = staged(&config, 30);
    let ring = another(&config);
    let mut commit = on_its_way(&ring, id, &file);
    assert_eq!(ring.commit_step(&mut commit, false).unwrap(), CommitOutcome::Wait(1));
    assert_eq!(ring.commit_step(&mut commit, true).unwrap(), CommitOutcome::Linked(1));
}
