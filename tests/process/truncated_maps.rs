//! Truncation of a mapped segment: the process survives and reports it, while a foreign bus error still ends the
//! process. The tests run one at a time, because the list of truncated files is process-wide.

use bytes::Bytes;
use ringreel::fs::sigbus::{is_truncated, newly_truncated};
use ringreel::fs::{Fs, MapMode, Posix};
use ringreel::read::stream::Item;
use ringreel::{Error, Generator, NamedPart, Reader, Stream, StreamOptions};
use ringreel_format::{DType, Meta};
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use testkit::cli::Place;
use testkit::hook::{Action, HookFs};
use testkit::process::alone;

const PAGE: usize = 4096;
const MODES: [MapMode; 2] = [MapMode::Shared, MapMode::Private];

fn file_of(dir: &Path, name: &str, pages: usize) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, vec![7; pages * PAGE]).unwrap();
    path
}

fn cut(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn map(path: &Path, mode: MapMode) -> Bytes {
    let len = fs::metadata(path).unwrap().len();
    Posix.open(path).unwrap().map(0..len, mode).unwrap().unwrap()
}

#[test]
fn truncated_pages_read_as_zeros_and_are_reported_once() {
    let (_alone, dir) = (alone(), TempDir::new().unwrap());
    for mode in MODES {
        let (path, other) = (file_of(dir.path(), "a", 64), file_of(dir.path(), "b", 64));
        let (bytes, whole) = (map(&path, mode), map(&other, mode));
        cut(&path, PAGE as u64 * 3 / 2);
        assert!(!is_truncated(&bytes), "no page was read yet");
        let kept = PAGE * 3 / 2;
        assert!(bytes[..kept].iter().all(|byte| *byte == 7) && bytes[kept..].iter().all(|byte| *byte == 0));
        assert!(
            is_truncated(&bytes)
                && is_truncated(&bytes.slice(9..17))
                && !is_truncated(&whole)
                && !is_truncated(&[1; 9])
        );
        assert!(newly_truncated().contains(&path) && !newly_truncated().contains(&path), "reported once");
        drop(bytes);
        assert!(whole.iter().all(|byte| *byte == 7));
        assert!(!is_truncated(&map(&other, mode)), "a new map at the same address counts as truncated");
    }
}

#[test]
fn reads_of_a_truncated_file_cause_few_faults() {
    let (_alone, dir) = (alone(), TempDir::new().unwrap());
    let path = file_of(dir.path(), "a", 4096);
    let bytes = map(&path, MapMode::Private);
    cut(&path, 0);
    // Backwards, so that no fault repairs the pages that are read next.
    assert!((0..4096).rev().step_by(7).all(|page| bytes[page * PAGE] == 0));
    assert!(bytes.iter().all(|byte| *byte == 0) && is_truncated(&bytes));
}

#[test]
fn maps_survive_truncation_in_concurrent_threads() {
    let (_alone, dir) = (alone(), TempDir::new().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let dir = dir.path();
            scope.spawn(move || {
                let mut held = Vec::new();
                for n in 0..400usize {
                    let path = file_of(dir, &format!("{thread}.{n}"), 3);
                    let bytes = map(&path, MODES[n % 2]);
                    if n % 3 == 0 {
                        cut(&path, 0);
                    }
                    assert_eq!(bytes[2 * PAGE], if n % 3 == 0 { 0 } else { 7 });
                    assert_eq!(is_truncated(&bytes), n % 3 == 0);
                    held.push((bytes, n % 3 == 0));
                    if n % 5 == 0 {
                        held.drain(..held.len() / 2)
                            .for_each(|(bytes, truncated)| assert_eq!(is_truncated(&bytes), truncated));
                    }
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
    assert_eq!(newly_truncated().iter().filter(|path| path.starts_with(dir.path())).count(), 8 * 134);
}

#[test]
fn forked_child_is_protected_from_sigbus() {
    let (_alone, dir) = (alone(), TempDir::new().unwrap());
    let path = file_of(dir.path(), "a", 8);
    let bytes = map(&path, MapMode::Private);
    cut(&path, 0);
    // SAFETY: the child reads memory, drops a map, and exits.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let fine = bytes.iter().all(|byte| *byte == 0) && is_truncated(&bytes);
            drop(bytes);
            libc::_exit(if fine { 0 } else { 1 });
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    assert_eq!(status, 0, "the child died, or read other bytes");
    assert!(!is_truncated(&bytes), "the child's observation reached the parent");
}

/// A ring of three samples of `len` bytes of value 7, and a filesystem that truncates each segment to `to` bytes as
/// soon as it is mapped.
fn ring_of_three(len: usize, to: u64, more: &str) -> (Place, Arc<HookFs>) {
    let place = Place::new(&format!("SWAP_CAP: 3\nSAMPLE: [data]\nREAD: mmap\n{more}"));
    let mut generator = Generator::open(&place.config()).unwrap();
    for _ in 0..3 {
        let (shape, bytes) = ([len as u64], vec![7; len]);
        generator.write(&[NamedPart::new("data", DType::U8, &shape, &bytes)], &Meta::new(), &|| false).unwrap();
    }
    generator.finish(true, &|| false).unwrap();
    let fs = HookFs::default();
    fs.hook(move |_, op, path| {
        let path = path.to_owned();
        let is_segment = path.extension().is_some_and(|name| name == "rec");
        if op == "map" && is_segment { Action::Then(Box::new(move || cut(&path, to))) } else { Action::Pass }
    });
    (place, Arc::new(fs))
}

/// Returns the bytes of a sample.
const SIZES: [usize; 2] = [100_000, 3_000_000];

#[test]
fn segments_truncated_during_the_checksum_are_damage() {
    let _alone = alone();
    for case in 0..8 {
        let (len, to, private) = (SIZES[case & 1], [100, 2 * PAGE as u64][case >> 1 & 1], case & 4 == 0);
        let (place, fs) = ring_of_three(len, to, "");
        let reader = Reader::open_on(fs.clone(), &place.config()).unwrap();
        let reader = if private { reader.with_private_maps() } else { reader };
        let newest = reader.newest().unwrap();
        let Err(Error::Damaged { path, message, .. }) = reader.sample(&newest, 0) else {
            panic!("damage not detected: {len}")
        };
        assert!(path.ends_with("read.1/000000.rec") && message.contains("truncated while it was read"), "{message}");
        assert!(message.contains("now: "), "the present state: {message}");
        fs.unhook();
        let sample = reader.sample(&newest, 1).unwrap();
        assert!(sample.parts[0].data().unwrap().iter().all(|byte| *byte == 7) && sample.check_whole().is_ok());
        assert_eq!(reader.damaged(), 1);
    }
}

#[test]
fn samples_torn_in_use_show_zeros_and_fail_their_check() {
    let _alone = alone();
    for len in SIZES {
        let (place, fs) = ring_of_three(len, 2 * PAGE as u64, "VERIFY: never\n");
        let reader = Reader::open_on(fs.clone(), &place.config()).unwrap().with_private_maps();
        let newest = reader.newest().unwrap();
        let sample = reader.sample(&newest, 0).unwrap();
        assert!(sample.check_whole().is_ok(), "no page was read yet");
        assert_eq!(sample.parts[0].data().unwrap()[len - 1], 0);
        assert!(matches!(sample.check_whole(), Err(Error::Damaged { .. })));
        drop(sample);
        assert!(newly_truncated().iter().any(|path| path.ends_with("read.1/000000.rec")), "the next call reports it");
    }
}

#[test]
fn streams_report_damage_for_pages_lost_while_prefetching() {
    let _alone = alone();
    let (place, fs) = ring_of_three(300_000, 2 * PAGE as u64, "VERIFY: never\n");
    let reader = Arc::new(Reader::open_on(fs, &place.config()).unwrap().with_private_maps());
    let options = StreamOptions { epochs: Some(1), prefetch_bytes: 1 << 20, ..StreamOptions::default() };
    let mut stream = Stream::new(reader.clone(), options).unwrap();
    for _ in 0..3 {
        let given = stream.next(&|| false, &mut |_| {}).unwrap();
        assert!(matches!(given, Some(Item::Damaged(Error::Damaged { .. }))));
    }
    assert_eq!(reader.damaged(), 3);
}

/// The body of a child process (this program, started again in a separate directory), selected by name.
fn misbehave(how: &str) {
    // SAFETY: the call reads a value that lives until it returns. It suppresses a core dump.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
    let dir = Path::new(".");
    let ours = file_of(dir, "ours", 4);
    let guarded = map(&ours, MapMode::Private);
    cut(&ours, 0);
    assert_eq!(guarded[0], 0);
    let foreign = file_of(dir, "foreign", 4);
    // SAFETY: the map is read after its file was truncated, which should end this process.
    let unguarded = unsafe { memmap2::Mmap::map(&File::open(&foreign).unwrap()).unwrap() };
    cut(&foreign, 0);
    let (touch, handlers) = how.split_once(", with ").unwrap_or((how, ""));
    let put = |handler: usize, flags| {
        // SAFETY: all zeros are values of these structures; the call reads one and writes the other.
        let before = unsafe {
            let (mut new, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
            (new.sa_sigaction, new.sa_flags) = (handler, flags);
            libc::sigaction(libc::SIGBUS, &raw const new, &raw mut before);
            before.sa_sigaction
        };
        FOUND.store(before, Ordering::SeqCst);
    };
    match handlers {
        "SIG_DFL below" => put(libc::SIG_DFL, 0),
        "SIG_IGN below" => put(libc::SIG_IGN, 0),
        "a handler below that re-raises it" => put(raises_again as *const () as usize, 0),
        "a handler below that reports and resets" => put(reports as *const () as usize, libc::SA_SIGINFO),
        "a handler below that does nothing" => put(does_nothing as *const () as usize, 0),
        // The handler of Rust's runtime is below ringreel's.
        "" | "one above that forwards it" | "one between that forwards it" => {}
        other => panic!("{other}"),
    }
    if handlers.ends_with("forwards it") {
        put(forwards as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
    }
    // SAFETY: these calls take numbers.
    unsafe {
        if !handlers.is_empty() && !handlers.starts_with("one above") {
            drop(map(&file_of(dir, "again", 1), MapMode::Shared)); // installs ringreel's handler above it
        }
        match touch {
            "touch" => _ = std::hint::black_box(unguarded[PAGE]),
            "kill" => _ = libc::kill(libc::getpid(), libc::SIGBUS),
            "raise" => _ = (libc::raise(libc::SIGBUS), libc::raise(libc::SIGBUS)),
            other => panic!("{other}"),
        }
    }
    std::thread::sleep(Duration::from_secs(10)); // another thread may receive the signal
    std::process::exit(0);
}

extern "C" fn raises_again(signal: libc::c_int) {
    // SAFETY: this call takes a number.
    unsafe { libc::raise(signal) };
}

/// The handler that the last call replaced.
static FOUND: AtomicUsize = AtomicUsize::new(0);

fn say(text: &str) {
    // SAFETY: the call reads bytes that live until it returns.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

extern "C" fn reports(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system filled in this description of the signal; the other call takes numbers.
    let code = unsafe {
        libc::signal(signal, libc::SIG_DFL);
        (*info).si_code
    };
    say(if code == 2 { "reported a fault\n" } else { "reported something else\n" });
}

extern "C" fn does_nothing(_: libc::c_int) {}

/// A cooperative handler: it calls the handler that it replaced.
extern "C" fn forwards(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    say("forwarded\n");
    let found = FOUND.load(Ordering::SeqCst);
    // SAFETY: it replaced ringreel's handler, which is installed with SA_SIGINFO.
    unsafe {
        let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(found);
        call(signal, info, context);
    }
}

#[test]
fn foreign_bus_errors_still_end_the_process() {
    if let Ok(how) = std::env::var("RINGREEL_MISBEHAVE") {
        misbehave(&how);
    }
    let _alone = alone();
    let all = [
        "touch",
        "touch, with SIG_DFL below",
        "touch, with a handler below that re-raises it",
        "kill, with SIG_DFL below",
        "raise, with SIG_DFL below",
        "touch, with SIG_IGN below",
        "touch, with a handler below that reports and resets",
        "touch, with a handler below that does nothing",
        "touch, with one above that forwards it",
        "touch, with one between that forwards it",
    ];
    for how in all {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.current_dir(dir.path()).args([
            "--exact",
            &testkit::test_name!("foreign_bus_errors_still_end_the_process"),
            "--nocapture",
        ]);
        // Without a limit, a child that survives would loop endlessly.
        // SAFETY: between fork and exec, one call that reads a value that lives until it returns.
        unsafe {
            command.pre_exec(|| {
                libc::setrlimit(libc::RLIMIT_CPU, &libc::rlimit { rlim_cur: 5, rlim_max: 5 });
                Ok(())
            });
        }
        let done = command.env("RINGREEL_MISBEHAVE", how).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.signal(), Some(libc::SIGBUS), "{how}: {:?}: {said}", done.status);
        let times = |text| said.matches(text).count();
        assert_eq!(times("reported a fault"), usize::from(how.contains("reports")), "{how}: {said}");
        assert!(times("forwarded") <= 3 && (times("forwarded") > 0) == how.contains("forwards"), "{how}: {said}");
    }
}
