//! Who lives: by watching, on our own monotonic clock, whether a growing beat goes on. No clocks are compared.

use crate::error::Result;
use crate::index::Index;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What one process has seen of the others' beats.
pub struct Watch {
    ttl: Duration,
    seen: HashMap<String, (Option<u64>, Instant)>,
}

impl Watch {
    /// A watch that calls dead whoever gave no new sign for `ttl`.
    pub fn new(ttl: Duration) -> Watch {
        Watch { ttl, seen: HashMap::new() }
    }

    /// Looks at all members once.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn look(&mut self, index: &dyn Index) -> Result<()> {
        let now = Instant::now();
        let beats: HashMap<String, u64> = index.members()?.into_iter().collect();
        for (member, seen) in &mut self.seen {
            let beat = beats.get(member).copied();
            if beat.is_some() && beat != seen.0 {
                *seen = (beat, now);
            }
        }
        for (member, beat) in beats {
            self.seen.entry(member).or_insert((Some(beat), now));
        }
        Ok(())
    }

    /// For how long `member` has been silent, as far as was seen. Who was never seen is watched from now on.
    pub fn silence(&mut self, member: &str) -> Duration {
        self.seen.entry(member.to_owned()).or_insert((None, Instant::now())).1.elapsed()
    }

    /// Whether `member` counts as dead.
    pub fn is_dead(&mut self, member: &str) -> bool {
        self.silence(member) > self.ttl
    }

    /// Members that do not count as dead.
    pub fn living(&self) -> impl Iterator<Item = &str> {
        self.seen
            .iter()
            .filter(|(_, seen)| seen.0.is_some() && seen.1.elapsed() <= self.ttl)
            .map(|(name, _)| name.as_str())
    }

    /// Stops watching `member`.
    pub fn forget(&mut self, member: &str) {
        self.seen.remove(member);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::{MemoryIndex, Report};

    #[test]
    fn a_member_is_dead_when_its_beat_stood_still_for_the_ttl_and_lives_again_when_it_moves() {
        let index = MemoryIndex::default();
        let mut watch = Watch::new(Duration::from_millis(60));
        index.beat("a", 1, &Report::default()).unwrap();
        watch.look(&index).unwrap();
        assert!(!watch.is_dead("a") && !watch.is_dead("never seen"), "nobody is dead at first sight");
        std::thread::sleep(Duration::from_millis(80));
        watch.look(&index).unwrap();
        assert!(watch.is_dead("a") && watch.is_dead("never seen"));
        index.beat("a", 2, &Report::default()).unwrap();
        watch.look(&index).unwrap();
        assert!(!watch.is_dead("a"));
    }
}
