//! Files that claim much memory, in a process with little: the total is bounded over all threads, and an excess is an
//! error that does not end the process.

use ringreel::read::stream::Item;
use ringreel::{Error, Generator, NamedPart, Reader, Stream, StreamOptions};
use ringreel_format::{DType, Meta};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;
use testkit::cli::Place;
use testkit::process::alone;

const MIB: u64 = 1 << 20;
/// Bytes of each part.
const LEN: u64 = 90 * MIB;
const SAMPLES: u64 = 4;
/// Limit on the address space: enough for three parts, but not for four, nor for two with their compressed forms.
const ADDRESSES: u64 = 400 * MIB;

fn ring(more: &str) -> Place {
    let yaml = format!("SWAP_CAP: {SAMPLES}\nSAMPLE: [data]\nREAD: pread\n{more}");
    let place = Place::new(&yaml);
    let mut generator = Generator::open(&place.config()).unwrap();
    let zeros = vec![0; LEN as usize];
    for _ in 0..SAMPLES {
        generator.write(&[NamedPart::new("data", DType::U8, &[LEN], &zeros)], &Meta::new(), &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
    place
}

#[test]
fn verify_stays_within_memory_in_many_threads() {
    let (_alone, place) = (alone(), ring("COMPRESS: 1\n"));
    let verify = format!("ulimit -v {} && exec \"$0\" \"$@\"", ADDRESSES >> 10);
    let mut command = Command::new("sh");
    command.args(["-c", &verify, testkit::binary(), "verify", "--threads", "16"]).arg(place.ring());
    // Without this, each thread has a separate heap, which takes 64 MiB of address space.
    let done = command.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr) + String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{:?}: {said}", done.status);
}

/// Runs in a process with little address space: holds all samples that it gets, in several threads.
fn hold_all(place: &str) {
    let hard = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESSES), maximum: hard }).unwrap();
    let yaml = std::fs::read_to_string(place).unwrap();
    let config = ringreel::Config::parse(&yaml, place, std::path::Path::new(place).parent().unwrap(), true).unwrap();
    let reader = Reader::open(&config).unwrap();
    let newest = reader.newest().unwrap();
    for round in 0..3 {
        let read =
            |position| std::thread::scope(|scope| scope.spawn(|| reader.sample(&newest, position)).join().unwrap());
        let samples: Vec<_> = (0..SAMPLES).map(read).collect();
        let held = samples.iter().filter(|sample| sample.is_ok()).count();
        assert!((1..SAMPLES as usize).contains(&held), "{held} of {SAMPLES} in round {round}");
        for refused in samples.into_iter().filter_map(Result::err) {
            let text = refused.to_string();
            assert!(!matches!(refused, Error::Damaged { .. }) && text.contains("not enough memory"), "{text}");
        }
        assert_eq!(reader.damaged(), 0, "a lack of memory counts as damage");
        assert!(reader.sample(&newest, SAMPLES - 1).is_ok(), "memory is available again");
    }
}

/// Runs in a process with little address space: takes samples from a stream and keeps all of them.
fn hold_all_of_stream(place: &str) {
    let hard = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(ADDRESSES), maximum: hard }).unwrap();
    let yaml = std::fs::read_to_string(place).unwrap();
    let config = ringreel::Config::parse(&yaml, place, std::path::Path::new(place).parent().unwrap(), true).unwrap();
    let reader = std::sync::Arc::new(Reader::open(&config).unwrap());
    let mut stream = Stream::new(reader, StreamOptions::default()).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match stream.next(&|| false, &mut |_| {}) {
            Ok(item) => held.push(item.unwrap()),
            Err(error) => break error.to_string(),
        }
    };
    assert!(!held.is_empty() && error.contains("hold fewer samples"), "{} held: {error}", held.len());
    held.clear();
    assert!(matches!(stream.next(&|| false, &mut |_| {}).unwrap(), Some(Item::Sample(_))), "memory is available again");
}

#[test]
fn streams_fail_after_a_lease_if_the_caller_holds_all_memory() {
    let name = testkit::test_name!("streams_fail_after_a_lease_if_the_caller_holds_all_memory");
    if let Ok(place) = std::env::var("RINGREEL_HOLD_STREAM") {
        return hold_all_of_stream(&place);
    }
    let (_alone, place) = (alone(), ring(""));
    let mut command = Command::new("timeout"); // a defect would be an endless wait
    command.arg("60").arg(std::env::current_exe().unwrap()).args(["--exact", &name]);
    command.env("RINGREEL_HOLD_STREAM", place.path().join("config.yaml")).env("MALLOC_ARENA_MAX", "1");
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{:?}: {said}", done.status);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn readers_stay_within_memory_and_resume_when_some_is_free() {
    if let Ok(place) = std::env::var("RINGREEL_HOLD_ALL") {
        return hold_all(&place);
    }
    let name = testkit::test_name!("readers_stay_within_memory_and_resume_when_some_is_free");
    let _alone = alone();
    for more in ["", "COMPRESS: 1\n"] {
        let place = ring(more);
        let mut command = Command::new("timeout"); // without memory for an error message, it may wait for ever
        command.arg("60").arg(std::env::current_exe().unwrap());
        command.args(["--exact", &name]);
        command.env("RINGREEL_HOLD_ALL", place.path().join("config.yaml")).env("MALLOC_ARENA_MAX", "1");
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{more}: {:?}: {said}", done.status);
    }
}
