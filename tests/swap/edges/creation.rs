//! How a ring is created, and found.

use super::generations;
use ringreel::Error;
use ringreel::config::Config;
use ringreel::coordination::Claim;
use ringreel::fs::Posix;
use ringreel::layout::Layout;
use ringreel::ring::{Ring, descriptor};
use ringreel_ops::repair;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::ring::{self, Action, EACCES, EIO, HookFs, another, config, scratch};

const EINVAL: i32 = 22;
const ENOTSUP: i32 = 95;

/// Replaces `this` by `that` in `ring.json`, and reads it.
fn ring_json(config: &Config, this: &str, that: &str) -> Result<Option<descriptor::RingDescriptor>, Error> {
    let layout = Layout::new(&config.ring);
    let text = fs::read_to_string(layout.ring_json()).unwrap();
    assert!(text.contains(this), "{text}");
    fs::write(layout.ring_json(), text.replace(this, that)).unwrap();
    let found = descriptor::read(&Posix, &layout);
    let of_another = descriptor::is_of_another_version(&Posix, &layout);
    fs::write(layout.ring_json(), text).unwrap();
    assert_eq!(of_another, that.contains("\"ringreel\": 2"));
    found
}

#[test]
fn foreign_ring_json_is_refused_with_the_reason() {
    let dir = scratch();
    let config = config(dir.path(), 4, "");
    assert!(descriptor::read(&Posix, &Layout::new(&config.ring)).unwrap().is_none());
    another(&config);
    assert_eq!(ring_json(&config, "\"swap_cap\": 4", "\"swap_cap\": 4").unwrap().unwrap().swap_cap, 4);
    for (this, that, why) in [
        ("\"ringreel\": 1", "\"ringreel\": 2", "version 2"),
        ("\"ringreel\": 1", "\"other\": 1", "damaged (no version)"),
        ("\"link\"", "\"rename\"", "\"rename\""),
        ("\"swap_cap\": 4", "\"swap_cap\": 0", "no parts or no cap"),
        ("\"data\"", "", "no parts or no cap"),
        ("\"swap_cap\"", "\"cap\"", "is damaged"),
        ("{", "[", "is damaged"),
    ] {
        let error = ring_json(&config, this, that).unwrap_err();
        assert!(matches!(error, Error::RingMismatch { .. }) && error.to_string().contains(why), "{that}: {error}");
    }
    let hooks = HookFs::default();
    hooks.hook(|_, _, _| Action::Refuse(EIO));
    assert!(matches!(descriptor::read(&hooks, &Layout::new(&config.ring)), Err(Error::Fs { .. })));
}

#[test]
fn configurations_that_contradict_the_ring_are_refused() {
    let dir = scratch();
    let ours = config(dir.path(), 4, "VALIDATION: 2");
    let descriptor = another(&ours).descriptor;
    assert!(fs::read_to_string(Layout::new(&ours.ring).ring_json()).unwrap().contains("\"validation\": 2"));
    assert!(descriptor::check(&descriptor, &ours).is_ok());
    let (mut cap, mut validation, mut sample, mut nothing) = (ours.clone(), ours.clone(), ours.clone(), ours);
    (cap.swap_cap, validation.validation, sample.sample) = (Some(5), Some(0), Some(vec!["label".into()]));
    for (config, key) in [(cap, "SWAP_CAP"), (validation, "VALIDATION"), (sample, "SAMPLE")] {
        assert!(descriptor::check(&descriptor, &config).unwrap_err().to_string().contains(key), "{key}");
    }
    (nothing.swap_cap, nothing.validation, nothing.sample) = (None, None, None);
    assert!(descriptor::check(&descriptor, &nothing).is_ok());

    let dir = scratch();
    let config = config(dir.path(), 4, "");
    another(&config);
    assert!(!fs::read_to_string(Layout::new(&config.ring).ring_json()).unwrap().contains("validation"));
}

#[test]
fn ring_is_created_only_in_an_empty_place() {
    for name in ["manifests", "staging", "index", "quarantine", "trash", "write.1"] {
        assert!(descriptor::is_of_a_birth(name), "{name}");
        let dir = scratch();
        let config = config(dir.path(), 4, "");
        fs::create_dir_all(config.ring.join(name)).unwrap();
        another(&config);
    }
    for name in ["data", "write.2", "read.1", "ring.json.old", "manifests2"] {
        assert!(!descriptor::is_of_a_birth(name), "{name}");
        let dir = scratch();
        let config = config(dir.path(), 4, "");
        fs::create_dir_all(config.ring.join(name)).unwrap();
        let error = Ring::find_or_make(Arc::new(Posix), &config).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(fs::read_dir(&config.ring).unwrap().count(), 1, "the failed creation left files");
    }
}

#[test]
fn failed_ring_creation_is_retried_or_undone() {
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

#[test]
fn unsyncable_parent_directory_does_not_prevent_creation() {
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
fn processes_have_names_and_poll_several_times_a_lease() {
    let dir = scratch();
    let config = Config { poll: None, ..config(dir.path(), 8, "") };
    let (one, two) = (another(&config), another(&config));
    assert!(one.me != two.me && ringreel::layout::is_owner(&one.me));
    let (rest, random) = one.me.rsplit_once('-').unwrap();
    assert!(random.len() == 8 && rest.ends_with(&format!("-{}", std::process::id())), "{}", one.me);
    let default = if one.settings.kind.local { 200 } else { 1000 };
    assert_eq!(one.settings.poll, Duration::from_millis(default));
    let short = Config { lease: Duration::from_millis(100), ..config.clone() };
    assert_eq!(another(&short).settings.poll, Duration::from_millis(25));
    assert_eq!((one.syncs_files(), one.syncs_dirs()), (!one.settings.kind.local, false));
    let node = ring::config(dir.path(), 8, "DURABILITY: node");
    assert_eq!((another(&node).syncs_files(), another(&node).syncs_dirs()), (true, true));
}

#[test]
fn damaged_ring_json_is_rebuilt_and_intact_one_is_kept() {
    let dir = scratch();
    let ours = config(dir.path(), 2, "VALIDATION: 0");
    generations(&ours, 2);
    let path = Layout::new(&ours.ring).ring_json();
    let was = fs::read(&path).unwrap();
    let find = |config: &Config, apply| repair::ring_json::find_damaged(Arc::new(Posix), config, Claim::Never, apply);
    assert!(find(&ours, true).unwrap().1.is_none());
    for damage in [None, Some("{")] {
        fs::remove_file(&path).unwrap();
        damage.iter().for_each(|text| fs::write(&path, text).unwrap());
        let (mut small, mut capless, mut silent) = (ours.clone(), ours.clone(), ours.clone());
        (small.swap_cap, capless.swap_cap, silent.validation) = (Some(1), None, None);
        for (config, why) in [(small, "too small"), (capless, "SWAP_CAP and SAMPLE"), (silent, "VALIDATION")] {
            assert!(find(&config, true).err().unwrap().to_string().contains(why), "{why}");
        }
        let (ring, action) = find(&ours, false).unwrap();
        assert_eq!((action.unwrap().path, ring.descriptor.swap_cap), (path.clone(), 2));
        assert_eq!(fs::read(&path).ok(), damage.map(|text| text.as_bytes().to_vec()), "the file was changed");
        find(&ours, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), was);
        let kept = fs::read_dir(ring.layout.quarantine()).unwrap().count();
        assert_eq!(kept, usize::from(damage.is_some()), "the damaged file is kept");
    }
    // The files of another ring: then which ring this is cannot be determined.
    let elsewhere = scratch();
    let other = config(elsewhere.path(), 2, "VALIDATION: 0");
    generations(&other, 3);
    fs::copy(Layout::new(&other.ring).manifest(3), Layout::new(&ours.ring).manifest(3)).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(find(&ours, true).err().unwrap().to_string().contains("several rings") && !path.exists());
}
