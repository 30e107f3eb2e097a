//! Who lives: by watching, on our own monotonic clock, whether a growing beat goes on. No clocks are compared.

use crate::error::Result;
use crate::index::Index;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What one process has seen of the others' beats.
pub struct Watch {
    ttl: Duration,
    seen: HashMap<String, (Option<u64>, Instant)>,
    looked: Option<Instant>,
    /// The last look failed.
    deaf: bool,
}

/// Looks at who lives, and at the manager's lease, in the time of one lease at most: more tell nothing, and cost the index as
/// much.
pub const LOOKS_PER_LEASE: u32 = 6;

impl Watch {
    /// A watch that calls dead whoever gave no new sign for `ttl`.
    pub fn new(ttl: Duration) -> Watch {
        Watch { ttl, seen: HashMap::new(), looked: None, deaf: false }
    }

    /// Looks at all members, unless that was done just now and nobody's ttl has run out since. Silence counts only while somebody listened: of the time
    /// since the last look, half a ttl at most. So nobody dies of an index that could not be reached for a while, or of a
    /// watcher that was stopped.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn look(&mut self, index: &dyn Index) -> Result<()> {
        let now = Instant::now();
        let unwatched = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        if self.looked.is_some_and(|looked| !self.ends_between(looked, now)) && unwatched < self.ttl / LOOKS_PER_LEASE {
            return Ok(());
        }
        let beats: HashMap<String, u64> = match index.members() {
            Ok(members) => members.into_iter().collect(),
            Err(error) => {
                self.deaf = true;
                return Err(error);
            }
        };
        // Who could not be heard for a while gets a whole ttl from now on.
        if std::mem::take(&mut self.deaf) {
            self.seen.values_mut().for_each(|seen| seen.1 = now);
        }
        self.looked = Some(now);
        let unheard = if self.ttl.is_zero() { Duration::ZERO } else { unwatched.saturating_sub(self.ttl / 2) };
        for (member, seen) in &mut self.seen {
            seen.1 = (seen.1 + unheard).min(now);
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

    /// Whether somebody's ttl ends there: then a look tells whether he is dead.
    fn ends_between(&self, looked: Instant, now: Instant) -> bool {
        self.seen.values().map(|(_, heard)| *heard + self.ttl).any(|end| looked <= end && end < now)
    }

    /// How many count as dead.
    pub fn dead(&self) -> usize {
        let looked = self.looked.unwrap_or_else(Instant::now);
        self.seen.values().filter(|(_, heard)| looked.saturating_duration_since(*heard) > self.ttl).count()
    }

    /// For how long `member` had been silent at the last look. Who was never seen is watched from now on.
    pub fn silence(&mut self, member: &str) -> Duration {
        let heard = self.seen.entry(member.to_owned()).or_insert((None, Instant::now())).1;
        self.looked.map_or(Duration::ZERO, |looked| looked.saturating_duration_since(heard))
    }

    /// Whether `member` counts as dead.
    pub fn is_dead(&mut self, member: &str) -> bool {
        self.silence(member) > self.ttl
    }

    /// Everybody who was seen or asked for.
    pub fn known(&self) -> Vec<String> {
        self.seen.keys().cloned().collect()
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
        let mut watch = Watch::new(TTL);
        index.beat("a", 1, &Report::default()).unwrap();
        watch.look(&index).unwrap();
        assert!(!watch.is_dead("a") && !watch.is_dead("never seen"), "nobody is dead at first sight");
        listen(&mut watch, &index, 5);
        assert!(watch.is_dead("a") && watch.is_dead("never seen"));
        index.beat("a", 2, &Report::default()).unwrap();
        listen(&mut watch, &index, 1);
        assert!(!watch.is_dead("a") && watch.is_dead("never seen"));
    }

    #[test]
    fn nobody_dies_while_nobody_listens() {
        let index = MemoryIndex::default();
        let mut watch = Watch::new(TTL);
        index.beat("a", 1, &Report::default()).unwrap();
        watch.look(&index).unwrap();
        std::thread::sleep(TTL * 10);
        watch.look(&index).unwrap();
        assert!(!watch.is_dead("a"));
        listen(&mut watch, &index, 5);
        assert!(watch.is_dead("a"));
    }

    #[test]
    fn whoever_fell_silent_is_found_dead_at_once_and_not_looked_for_again() {
        let (mut looks, index) = (Watch::new(Duration::from_secs(60)), MemoryIndex::default());
        index.beat("a", 1, &Report::default()).unwrap();
        looks.look(&index).unwrap();
        // A moment ago its ttl was not over yet; now it is.
        let now = Instant::now();
        let just_over = now.checked_sub(looks.ttl + Duration::from_millis(1)).unwrap();
        looks.seen.insert("a".to_owned(), (Some(1), just_over));
        looks.looked = now.checked_sub(Duration::from_millis(2));
        looks.look(&index).unwrap();
        assert_eq!((looks.dead(), looks.is_dead("a")), (1, true));
        index.beat("a", 2, &Report::default()).unwrap();
        looks.look(&index).unwrap();
        assert!(looks.is_dead("a"), "it was looked again, for nothing");
    }

    const TTL: Duration = Duration::from_millis(120);

    fn listen(watch: &mut Watch, index: &dyn Index, times: u32) {
        for _ in 0..times {
            std::thread::sleep(TTL / 3);
            watch.look(index).unwrap();
        }
    }
}
