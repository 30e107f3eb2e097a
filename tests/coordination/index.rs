//! The indexes without a server fulfil the contract that all indexes share.

use ringreel::coordination::{CoordinationStore, FileStore, Report, SwapStatus};
use ringreel::fs::Posix;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::contract::{self, Place};
use testkit::memory_store::MemoryStore;

testkit::contract!(memory, super::memory_place);
testkit::contract!(files, super::files_place);

fn memory_place() -> Place {
    let index = Arc::new(MemoryStore::default());
    Box::new(move || index.clone())
}

fn files_at(root: &Path, me: &str) -> Arc<dyn CoordinationStore> {
    Arc::new(FileStore::new(Arc::new(Posix), root.to_owned(), me, 4))
}

fn files_place() -> Place {
    let (dir, n) = (tempfile::tempdir().unwrap(), AtomicU32::new(0));
    Box::new(move || files_at(&dir.path().join("index"), &format!("me-{}", n.fetch_add(1, Ordering::Relaxed))))
}

#[test]
fn file_counters_give_each_number_to_one_process() {
    let dir = tempfile::tempdir().unwrap();
    contract::hands_out_each_number_to_one_process(
        &testkit::test_name!("child_of_files"),
        dir.path().to_str().unwrap(),
        8,
        300,
    );
}

#[test]
fn child_of_files() {
    contract::child(|place| files_at(Path::new(place), &format!("me-{}", std::process::id())));
}

#[test]
fn deleted_index_files_are_recreated() {
    let dir = tempfile::tempdir().unwrap();
    let index = files_at(&dir.path().join("index"), "me");
    assert_eq!(index.next_index(1).unwrap(), Some(0));
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    (0..8).for_each(|_| assert!(index.next_index(1).unwrap().is_some()));
    index.beat("me", 1, &Report::default()).unwrap();
    assert!(index.claim_lease("manager", 1, "me").unwrap());
    assert!(index.publish_status(&SwapStatus { generation: 1, unix_ms: 0, total_samples: 0 }).unwrap());
}

#[test]
fn truncated_index_files_are_ignored_and_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let index = files_at(&root, "me");
    let status = |generation| SwapStatus { generation, unix_ms: 7, total_samples: 9 };
    let cut = |name: &str| std::fs::File::options().write(true).open(root.join(name)).unwrap().set_len(1).unwrap();
    assert!(index.publish_status(&status(1)).unwrap() && index.publish_status(&status(2)).unwrap());
    cut("status/2");
    assert_eq!(index.status().unwrap(), Some(status(1)));
    assert!(index.publish_status(&status(2)).unwrap());
    assert_eq!(index.status().unwrap(), Some(status(2)));
    assert!(index.claim_lease("manager", 5, "me").unwrap());
    cut("leases/manager.5");
    let lease = index.lease("manager").unwrap().unwrap();
    assert_eq!((lease.token, &*lease.holder, lease.released), (5, "", false));
    assert!(!index.claim_lease("manager", 5, "other").unwrap() && index.claim_lease("manager", 6, "other").unwrap());
    assert_eq!(index.lease("manager").unwrap().unwrap().holder, "other");
}
