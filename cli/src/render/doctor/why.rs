//! Why a check of the doctor matters.

use ringreel_ops::doctor::Check;

/// Returns why `check` matters.
pub fn why(check: &Check) -> &'static str {
    match check.group.as_str() {
        "configuration" => of_configuration(&check.check),
        "filesystem" => of_filesystem(&check.check),
        "index" => of_index(&check.check),
        "machine" => of_machine(&check.check),
        _ => of_peer(&check.check),
    }
}

fn of_configuration(check: &str) -> &'static str {
    match check {
        "ring" => "no role opens a ring that does not match the configuration",
        "READ" => "if a mapped file is changed or truncated, its reader sees the change or zeros",
        "POLL_SECONDS" => "a process is dead after LEASE_SECONDS without a heartbeat; each polls every POLL_SECONDS",
        "LEASE_SECONDS" => "a member is declared dead after the longer of its own and the observer's lease",
        _ => "a configuration error would otherwise appear only when the job runs",
    }
}

fn of_filesystem(check: &str) -> &'static str {
    match check {
        "scratch" => "the doctor measures in a scratch directory, and a ring must be writable",
        "cleaning up" => "the doctor should leave no files behind",
        "kind" => "it decides whether files are mapped or read, and how often to poll",
        "mount" => "mount options decide what other nodes see, and when",
        "rename of a directory" => "a generation is promoted by one rename",
        "rename onto a full one" => "when two processes promote at once, the second rename must fail",
        "hard link" => "a finished segment is linked into its generation",
        "removal of an open file" => "old generations are reclaimed while slow readers still read them",
        "upper and lower case" => "file names contain host names",
        "length of names" => "file names contain host name, process id and a random number",
        "inotify" => "readers wake up at once if inotify works; otherwise they poll every POLL_SECONDS",
        "flock" => "for information only: a ring uses no locks",
        "reading (pread)" => "samples are read from sealed files",
        "mapping (mmap)" => "sealed files are mapped, depending on READ",
        "when names are seen" => "other processes of this node must see new names soon",
        "fsync" => "segments are synced on network filesystems and with DURABILITY: node",
        "room" => "a full disk blocks generators; a ring takes up to KEEP + 3 generations",
        "MAX_BYTES, MAX_FILES" => "generators wait rather than exceed these limits",
        "writing" => "it limits samples per second, and an exhausted quota appears only as a failed write",
        "one mount" => "links and renames cannot cross filesystems",
        "permissions" => "processes of different users link, rename and remove each other's files",
        "RING_MODE" => "with the setgid bit, all files in the ring belong to the ring's group",
        _ => "a ring relies on this instead of locks: exactly one process gets a name", // the races
    }
}

fn of_index(check: &str) -> &'static str {
    match check {
        "files" => "segments get their numbers, and processes their leases, from the index",
        "round trip" => "each block of numbers and each heartbeat takes a round trip",
        "atomic counter" => "duplicate numbers cost time, but no sample",
        "write concern" => "acknowledged writes must have happened",
        "clock of the server" => "for comparing timestamps; no decision depends on it",
        _ if cfg!(not(feature = "mongodb")) => "the configuration keeps the index in MongoDB",
        _ => "without the index the ring continues, but numbers collide and heartbeats are not seen",
    }
}

fn of_machine(check: &str) -> &'static str {
    match check {
        "open files (ulimit -n)" => "a reader keeps segments open, and a loader with workers keeps more",
        "processes (ulimit -u)" => "loaders start workers, each with several threads",
        "address space (ulimit -v)" => "mapped segments and torch use address space",
        "locked memory (ulimit -l)" => "loaders lock pinned memory; a ring locks none",
        "/dev/shm" => "torch's workers pass batches through it",
        "memory" => "streams prefetch up to PREFETCH_BYTES",
        "processors" => "generators and loader workers need processors",
        "clock" => "for comparing timestamps; no decision depends on it",
        "TMPDIR" => "Python's workers and libraries create files there",
        "job" => "each rank finds its share of an epoch by these variables",
        "Python package" => "package and command should be of the same version",
        _ => "the limits apply to every process", // the limits
    }
}

fn of_peer(check: &str) -> &'static str {
    match check {
        "nodes" => "the measurements below compare two nodes",
        "round trip" => "each delay below includes one round trip",
        "clocks" => "for comparing timestamps; no decision depends on it",
        "rename is seen" => "this is how late a reader sees a promoted generation",
        "new name is listed" => "heartbeats and manifests are found by listing directories",
        "missing name appears" => "a node may cache that a name was absent",
        "inotify" => "without it, readers poll every POLL_SECONDS",
        "late names" => "a generator may link into a generation that was just promoted",
        "replaced files" => "for information only: a ring never replaces or rewrites a file",
        "sealed files" => "samples are read on other nodes than they were written on",
        "one winner" => "a ring relies on this instead of locks: exactly one process gets a name",
        "end" => "both nodes must complete all steps",
        _ => "the doctor should leave no files behind",
    }
}
