//! The reason why a generator or a manager ended is recorded after its end.

use ringreel::failure_log::{Failure, failures};
use ringreel::fs::Posix;
use ringreel::{Generator, Ring};
use std::fs;
use std::sync::Arc;
use testkit::cli::{Place, put};

fn known(place: &Place) -> Vec<Failure> {
    let ring = Ring::find(Arc::new(Posix), &place.config()).unwrap();
    failures(&*ring.coordination).unwrap()
}

#[test]
fn failing_commands_record_why_and_others_do_not() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\n");
    let args = ["generate", "--samples", "3", "--shape", "8"];
    place.run(&args).ok();
    assert!(known(&place).is_empty() && !place.run(&["status"]).ok().out.contains("failures"));
    let failed = place.run(&[&args[..], &["--ledger", "/dev/full"]].concat());
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let status = place.run(&["status", "--json"]).ok().json().remove(0);
    assert_eq!(status["generators"].as_array().unwrap().len(), 0, "the generator is still listed");
    let [failure] = &status["failures"].as_array().unwrap()[..] else { panic!("{status}") };
    assert!(failed.err.contains(failure["message"].as_str().unwrap()), "{failure} {}", failed.err);
    assert!(failure["message"].as_str().unwrap().starts_with("the ledger /dev/full: No space left"), "{failure}");
    assert_eq!(failure["role"], "generator");
    assert!(failure["pid"].as_u64().unwrap() > 0 && failure["unix_ms"].as_u64().unwrap() > 1 << 40);
    let text = place.run(&["status"]).ok().out;
    let line = format!("  generator {}, ", failure["name"].as_str().unwrap());
    let line = text.lines().find(|other| other.starts_with(&line)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(" s ago: the ledger /dev/full: ") && text.contains("\nfailures   1 most recent\n"), "{text}");
}

#[test]
fn closed_output_pipe_is_not_recorded_as_a_failure() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\n");
    let shell = format!("'{}' generate --json --shape 8 --samples 100 | head -n 1", testkit::binary());
    let done = std::process::Command::new("sh").args(["-c", &shell]).current_dir(place.path()).output().unwrap();
    assert!(done.status.success() && String::from_utf8(done.stdout).unwrap().contains("sample_id"));
    assert!(known(&place).is_empty());
}

#[test]
fn roles_ended_by_a_damaged_ring_record_the_reason() {
    let place = Place::new("SWAP_CAP: 2\nSAMPLE: [data, label]\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..3).for_each(|n| drop(put(&mut generator, n)));
    let manifest = place.ring().join("manifests/1");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replacen("generation", "degeneration", 1)).unwrap();
    let mut other = Generator::open(&place.config()).unwrap();
    put(&mut other, 3); // the generation is full now, and follows one with an unreadable manifest
    let error = other.finish(true, &|| false).unwrap_err().to_string();
    let said = known(&place);
    let [failure] = &said[..] else { panic!("{said:?}") };
    assert_eq!((failure.role.as_str(), &failure.message), ("generator", &error));
    assert!(error.contains("manifests/1: the manifest cannot be used"), "{error}");

    let manager = place.run(&["manager"]);
    assert_eq!(manager.code, Some(1), "{manager:?}");
    let said = known(&place);
    assert_eq!(said.iter().map(|failure| failure.role.as_str()).collect::<Vec<_>>(), ["manager", "generator"]);
    let (why, same) = (said[0].message.trim_start_matches("./"), manager.err.contains(&said[0].message));
    assert!(same && error.ends_with(why), "{said:?} {}", manager.err);
}

#[test]
fn first_failure_reported_by_the_caller_is_kept() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, label]\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    let me = generator.ring().me.clone();
    put(&mut generator, 0);
    generator.failed("ValueError: the cause\nand more");
    generator.failed("what came of it");
    generator.finish(false, &|| false).unwrap();
    let said = known(&place);
    assert_eq!(
        said.iter().map(|f| (&f.name, f.message.as_str())).collect::<Vec<_>>(),
        [(&me, "ValueError: the cause\nand more")]
    );
    assert!(place.run(&["status"]).ok().out.contains("ago: ValueError: the cause ...\n"));
}
