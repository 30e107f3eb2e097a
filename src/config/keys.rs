//! The keys of config.yaml. `docs/reference/configuration.md` says what each means.

/// Value of RING_MODE if the configuration has none.
pub(super) const FROM_UMASK: &str = "from the umask";

/// The keys, in the order in which they are shown, and the default of each: in words where it depends on something,
/// and empty if there is none.
pub const KEYS: [(&str, &str); 35] = [
    ("DBNAME", ""),
    ("RING", "<DBNAME>.ring beside the config file"),
    ("SWAP_CAP", ""),
    ("SAMPLE", ""),
    ("VALIDATION", "the ring's, 0 in a new one"),
    ("RING_MODE", FROM_UMASK),
    ("SEGMENT_SAMPLES", "auto"),
    ("SEGMENT_BYTES", "33554432"),
    ("SEGMENT_SECONDS", "0.5"),
    ("COMPRESS", "none"),
    ("CHECK_FINITE", "off"),
    ("STRICT_SCHEMA", "false"),
    ("DURABILITY", "process"),
    ("CHUNKSIZE", "1"),
    ("MAX_PART", "1099511627776"),
    ("REUSE", "{min: 0, max: 0}"),
    ("ON_STALE", "warn"),
    ("STALE_AFTER", "300"),
    ("RUN_GRACE", "3600"),
    ("PREFETCH_BYTES", "268435456"),
    ("READ", "auto"),
    ("VERIFY", "first"),
    ("KEEP", "1"),
    ("MAX_BYTES", "none"),
    ("MAX_FILES", "none"),
    ("LEASE_SECONDS", "10"),
    ("POLL_SECONDS", "0.2 local, 1 network"),
    ("INDEX", "files"),
    ("MONGOHOST", ""),
    ("PORT", "27017"),
    ("MONGOURI", ""),
    ("COUNTER_COLLECTION", "counter"),
    ("WRITE_COLLECTION", ""),
    ("READ_COLLECTION", ""),
    ("TEMP_COLLECTION", ""),
];
