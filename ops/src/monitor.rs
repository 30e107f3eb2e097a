//! Observes a ring repeatedly: its status, its most recent swaps, and its rates between two observations.
//!
//! Read-only, like [`mod@crate::status`]. If the ring does not exist yet or is unreachable, one observation fails, and the
//! next one tries again.

use crate::history::{History, Swap};
use crate::status::{Status, status};
use ringreel::config::Config;
use ringreel::error::Result;
use ringreel::fs::{Fs, Posix};
use ringreel::ring::{Ring, descriptor};
use ringreel::unix_ms;
use std::sync::Arc;
use std::time::Instant;

/// One observation.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Time by this machine's clock: Unix time in milliseconds.
    pub unix_ms: u64,
    /// State of the ring.
    pub status: Status,
    /// Its most recent swaps, oldest first.
    pub swaps: Vec<Swap>,
    /// Rates since the previous observation; `None` for the first one.
    pub speed: Option<Speed>,
}

/// Rates between two observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Finished samples per second.
    pub samples_per_second: f64,
    /// Bytes added to generations per second.
    pub bytes_per_second: f64,
    /// Swaps per second.
    pub swaps_per_second: f64,
}

/// Counters at one observation.
#[derive(Clone, Copy)]
struct Counts {
    at: Instant,
    samples: u64,
    bytes: u64,
    swaps: u64,
}

impl Counts {
    fn of(status: &Status, at: Instant) -> Counts {
        let bytes = status.bytes_delivered.saturating_add(status.writing.bytes);
        Counts { at, samples: status.samples_generated, bytes, swaps: status.swaps }
    }

    /// Returns the rates since `before`. A counter that decreased has rate 0.
    fn speed_since(&self, before: &Counts) -> Option<Speed> {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (seconds > 0.0).then(|| Speed {
            samples_per_second: per_second(self.samples, before.samples),
            bytes_per_second: per_second(self.bytes, before.bytes),
            swaps_per_second: per_second(self.swaps, before.swaps),
        })
    }
}

/// Observes a ring repeatedly.
pub struct Watcher {
    config: Config,
    most: usize,
    open: Option<Open>,
}

struct Open {
    ring: Ring,
    history: History,
    before: Option<Counts>,
}

impl Watcher {
    /// Creates a watcher of the ring of this configuration that keeps its last `swaps` swaps. Opens nothing yet.
    pub fn new(mut config: Config, swaps: usize) -> Watcher {
        // Absolute, because the output may be read in another directory.
        config.ring = std::path::absolute(&config.ring).unwrap_or(config.ring);
        Watcher { config, most: swaps, open: None }
    }

    /// Returns the ring's directory, whether it exists or not.
    pub fn place(&self) -> String {
        self.config.ring.display().to_string()
    }

    /// Makes an observation.
    ///
    /// # Errors
    /// The ring does not exist (yet) or does not match the configuration; the filesystem's errors.
    pub fn look(&mut self) -> Result<Observation> {
        let mut open = self.opened()?;
        let looked = open.look();
        if looked.is_ok() {
            self.open = Some(open); // after an error, the ring is opened again, because cached data may be the cause
        }
        looked
    }

    /// Returns the opened ring; opens it again if it was replaced by another one.
    fn opened(&mut self) -> Result<Open> {
        let fs: Arc<dyn Fs> = Arc::new(Posix);
        if let Some(open) = self.open.take()
            && descriptor::read(&*fs, &open.ring.layout)?.as_ref() == Some(&open.ring.descriptor)
        {
            return Ok(open);
        }
        let ring = Ring::find(fs, &self.config)?;
        Ok(Open { ring, history: History::of_last(self.most), before: None })
    }
}

impl Open {
    fn look(&mut self) -> Result<Observation> {
        let (unix_ms, at) = (unix_ms(), Instant::now());
        let status = status(&self.ring)?;
        self.history.update(&self.ring)?;
        let counts = Counts::of(&status, at);
        let speed = self.before.and_then(|before| counts.speed_since(&before));
        self.before = Some(counts);
        Ok(Observation { unix_ms, status, swaps: self.history.swaps().cloned().collect(), speed })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ringreel::{Generator, NamedPart};
    use ringreel_format::{DType, Meta};
    use std::time::Duration;

    fn generate(config: &Config, samples: u8) {
        let mut generator = Generator::open(config).unwrap();
        for n in 0..samples {
            generator.write(&[NamedPart::new("data", DType::U8, &[1], &[n])], &Meta::new(), &|| false).unwrap();
        }
        generator.finish(true, &|| false).unwrap();
    }

    /// The watcher finds a ring once it is created, and does not take another ring at the same path for the first one.
    #[test]
    fn watcher_finds_a_new_ring_and_notices_a_replaced_one() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::parse("DBNAME: x\nSWAP_CAP: 2\nSAMPLE: [data]\n", "c", dir.path(), true).unwrap();
        let mut watcher = Watcher::new(config.clone(), 10);
        assert!(watcher.look().is_err() && !config.ring.exists());
        generate(&config, 4);
        let look = watcher.look().unwrap();
        assert_eq!((look.status.samples_delivered, look.swaps.len(), look.speed), (4, 2, None));
        generate(&config, 2);
        let look = watcher.look().unwrap();
        assert_eq!((look.status.samples_delivered, look.swaps.len()), (6, 3));
        assert!(look.speed.unwrap().samples_per_second > 0.0 && look.speed.unwrap().swaps_per_second > 0.0);
        std::fs::remove_dir_all(&config.ring).unwrap();
        assert!(watcher.look().is_err());
        generate(&config, 2);
        let look = watcher.look().unwrap();
        assert_eq!((look.status.samples_delivered, look.swaps.len(), look.speed), (2, 1, None));
        std::fs::remove_dir_all(&config.ring).unwrap(); // replaced at once by another one
        generate(&config, 4);
        assert_eq!(watcher.look().unwrap().swaps.len(), 2);
    }

    #[test]
    fn speeds_are_differences_over_time_and_never_negative() {
        let at = Instant::now();
        let before = Counts { at, samples: 10, bytes: 1000, swaps: 5 };
        let now = Counts { at: at + Duration::from_secs(2), samples: 20, bytes: 900, swaps: 6 };
        let speed = Speed { samples_per_second: 5.0, bytes_per_second: 0.0, swaps_per_second: 0.5 };
        assert_eq!(now.speed_since(&before), Some(speed));
        assert_eq!(before.speed_since(&before), None);
    }
}
