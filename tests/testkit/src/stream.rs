//! What the tests of streams share: a ring whose samples are identified by numbers, and the results of a stream.

use crate::coordination;
use ringreel::read::shard::{Equal, Share};
use ringreel::read::shuffle::mix;
use ringreel::read::stream::Item;
use ringreel::read::{ReadSample, Reader};
use ringreel::run_log::{Epoch, Turn};
use ringreel::{Config, Error, Generator, NamedPart, Ring, Stream, StreamOptions};
use ringreel_format::{DType, Meta, Value};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tempfile::TempDir;

pub use crate::wait::{PATIENCE, eventually};

/// The value of every element of a padding sample.
pub const FILL: f64 = -7.5;
/// The shape of every sample's only part.
pub const SHAPE: [u64; 2] = [2, 3];
pub const MODES: [Equal; 4] = [Equal::No, Equal::Drop, Equal::Wrap, Equal::Pad];

/// A ring in a separate directory.
pub struct World {
    dir: TempDir,
    yaml: String,
}

impl World {
    /// A ring with these configuration lines, and short times.
    pub fn new(yaml: &str) -> World {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let lease = if yaml.contains("LEASE_SECONDS") { "" } else { "LEASE_SECONDS: 30\n" };
        let index = coordination::lines(dir.path());
        // Without SEGMENT_SAMPLES, tests follow single samples.
        let segments = if yaml.contains("SEGMENT_SAMPLES") { "" } else { "SEGMENT_SAMPLES: 1\n" };
        let keys = format!("DBNAME: demo\nSAMPLE: [data]\nPOLL_SECONDS: 0.002\n{segments}{lease}");
        World { dir, yaml: format!("{keys}{yaml}\n{index}") }
    }

    pub fn config(&self) -> Config {
        self.with("")
    }

    /// The same configuration with additional lines.
    pub fn with(&self, more: &str) -> Config {
        Config::parse(&format!("{}\n{more}", self.yaml), "test", self.dir.path(), true).unwrap()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("demo.ring")
    }

    /// A reader as in another process.
    pub fn reader(&self) -> Arc<Reader> {
        Arc::new(Reader::open(&self.config()).unwrap())
    }

    /// The ring as in another process.
    pub fn ring(&self) -> Ring {
        Ring::find(Arc::new(ringreel::fs::Posix), &self.config()).unwrap()
    }

    /// The same on this filesystem.
    pub fn with_fs(&self, fs: impl ringreel::fs::Fs + 'static) -> Ring {
        Ring::find(Arc::new(fs), &self.config()).unwrap()
    }

    /// Writes and promotes one more generation of these samples.
    pub fn generation(&self, numbers: Range<u64>) {
        let mut generator = Generator::open(&self.config()).unwrap();
        numbers.for_each(|n| put(&mut generator, n));
        let summary = generator.finish(true, &patience()).unwrap();
        assert_eq!(summary.waiting, 0, "{summary:?}");
    }

    /// Whether this generation's directory exists.
    pub fn has(&self, generation: u64) -> bool {
        self.path().join(format!("read.{generation}")).exists()
    }

    /// A stream with a separate reader and a long timeout.
    pub fn stream(&self, options: StreamOptions) -> Stream {
        Stream::new(self.reader(), options).unwrap()
    }

    /// Damages the sample at a position of the newest generation.
    pub fn damage(&self, position: u64) {
        let reader = self.reader();
        let newest = reader.newest().unwrap();
        let data = data(number(&reader.sample(&newest, position).unwrap()));
        let file = newest.locate(position).unwrap().0.file();
        let path = self.path().join(format!("read.{}", newest.summary.generation)).join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
        bytes[at + 5] ^= 4;
        std::fs::write(&path, bytes).unwrap();
    }
}

/// Options of worker `rank` of `world`, with a long timeout.
pub fn worker(rank: u64, world: u64) -> StreamOptions {
    let share = Share::new(rank, world).unwrap();
    StreamOptions { share, pad_value: FILL, timeout: Some(PATIENCE), ..StreamOptions::default() }
}

pub fn data(n: u64) -> Vec<u8> {
    (0..6).flat_map(|i| (n as f32 + i as f32 / 8.0).to_le_bytes()).collect()
}

/// Returns true after a long time, so that a test that would hang fails.
pub fn patience() -> impl Fn() -> bool {
    let begun = Instant::now();
    move || begun.elapsed() > PATIENCE
}

/// Writes sample `n`; the ring must have space for it in time.
pub fn put(generator: &mut Generator, n: u64) {
    let mut meta = Meta::new();
    meta.set("n", n);
    let data = data(n);
    generator.write(&[NamedPart::new("data", DType::F32, &SHAPE, &data)], &meta, &patience()).unwrap();
}

/// The number of a sample.
pub fn number(sample: &ReadSample) -> u64 {
    let Some(Value::Int(n)) = sample.meta.get("n") else { panic!("no number: {:?}", sample.meta) };
    *n as u64
}

/// An item that a stream returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The run's number of the epoch.
    pub epoch: u64,
    pub generation: u64,
    pub position: u64,
    pub is_padding: bool,
    /// The position of a damaged sample. If it equals `position`, no replacement was returned.
    pub damaged: Option<u64>,
}

/// Returns the next item after comparing every byte. None at the end.
pub fn next(stream: &mut Stream) -> Result<Option<Got>, Error> {
    let Some(item) = stream.next(&|| false, &mut |_| {})? else { return Ok(None) };
    let epoch = stream.epoch();
    let of = |error: Error| match error {
        Error::Damaged { generation, position, .. } => (generation, position),
        other => panic!("no damage: {other}"),
    };
    let (sample, damaged) = match item {
        Item::Damaged(error) => {
            let (generation, position) = of(error);
            return Ok(Some(Got { epoch, generation, position, is_padding: false, damaged: Some(position) }));
        }
        Item::Sample(sample) => (sample, None),
        Item::Replaced(sample, error) => (sample, Some(of(error).1)),
    };
    let [part] = &sample.parts[..] else { panic!("{:?}", sample.parts) };
    let fill = (FILL as f32).to_le_bytes().repeat(6);
    let wanted = if sample.is_padding { fill } else { data(number(&sample)) };
    assert_eq!((&part.dtype, &part.shape[..], &part.data().unwrap()[..]), (&DType::F32, &SHAPE[..], &wanted[..]));
    let (generation, position, is_padding) = (sample.generation, sample.position, sample.is_padding);
    Ok(Some(Got { epoch, generation, position, is_padding, damaged }))
}

/// Returns the next item of a stream with a short timeout, and retries after each timeout.
pub fn patiently(stream: &mut Stream) -> Result<Option<Got>, Error> {
    let late = patience();
    loop {
        match next(stream) {
            Err(Error::Timeout { .. }) if !late() => {}
            other => return other,
        }
    }
}

pub fn one(stream: &mut Stream) -> Got {
    next(stream).unwrap().expect("the stream has ended")
}

/// Returns all items up to the end.
pub fn drain(stream: &mut Stream) -> Vec<Got> {
    std::iter::from_fn(|| next(stream).unwrap()).collect()
}

/// Returns at most `count` items.
pub fn take(stream: &mut Stream, count: usize) -> Vec<Got> {
    (0..count).map_while(|_| next(stream).unwrap()).collect()
}

/// Decides that this run reads these generations, one per epoch.
pub fn decide(ring: &Ring, run: &str, generations: &[u64], workers: u64) {
    for (k, generation) in generations.iter().enumerate() {
        let samples = ring.manifests.get(*generation).unwrap().unwrap().summary.samples;
        let epoch =
            Epoch { generation: *generation, samples, workers, shuffle: false, seed: 0, repeats: 0, unix_ms: 0 };
        assert_eq!(ring.run(run).unwrap().decide(k as u64, &epoch).unwrap(), epoch);
    }
}

/// Pseudo-random numbers, the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % sides
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// Whether the path names a segment.
pub fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "rec")
}

/// A new turn of a rank of one worker.
pub fn turn(rank: u64) -> Option<Turn> {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    Some(Turn { rank, token: TURNS.fetch_add(1, Ordering::SeqCst).to_string() })
}
