//! The decision whether to compress a large part takes no memory in proportion to it, and compression takes only the
//! size of its result. Runs alone in its process, because it measures the process's peak.

use ringreel::format::{DType, Meta};
use ringreel::{Config, Generator, NamedPart};
use testkit::process::in_own_process;

const MIB: usize = 1 << 20;
const LEN: usize = 300 * MIB;
const ALLOWED: u64 = 24 * MIB as u64;

/// The peak resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Incompressible bytes.
fn noise() -> Vec<u8> {
    let mut state = 1u64;
    let mut data = vec![0; LEN];
    for word in data.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    data
}

#[test]
fn compression_decision_on_300_mib_takes_less_than_24_mib() {
    in_own_process(&testkit::test_name!("compression_decision_on_300_mib_takes_less_than_24_mib"), body);
}

fn body() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let yaml = "DBNAME: t\nSWAP_CAP: 10\nSAMPLE: [image, label]\nCOMPRESS: auto\n";
    let mut generator = Generator::open(&Config::parse(yaml, "test", dir.path(), true).unwrap()).unwrap();
    let mut data = noise();
    let mut before = peak();
    for name in ["image", "label"] {
        if name == "label" {
            data.chunks_mut(64 * 1024).enumerate().for_each(|(n, run)| run.fill((n % 40) as u8));
            before = peak();
        }
        let small = [3; 8];
        let parts = ["image", "label"].map(|part| match part == name {
            true => NamedPart::new(part, DType::U8, &[LEN as u64], &data),
            false => NamedPart::new(part, DType::U8, &[8], &small),
        });
        let stored = generator.summary().bytes;
        generator.write(&parts, &Meta::new(), &|| false).unwrap();
        let stored = generator.summary().bytes - stored;
        assert_eq!(stored < LEN as u64 / 2, name == "label", "{name}: {stored} bytes");
        let more = peak() - before;
        assert!(more < ALLOWED, "{name}: {} MiB beyond the part", more / MIB as u64);
    }
}
