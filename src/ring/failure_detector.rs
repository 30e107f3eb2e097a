//! Who lives: by watching, on our own monotonic clock, whether a growing beat goes on. No clocks are compared.

use crate::coordination::Membership;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What one process has seen of the others' beats.
pub struct FailureDetector {
    /// The lease of this process.
    ttl: Duration,
    seen: HashMap<String, Seen>,
    looked: Option<Instant>,
    /// The last look failed.
    deaf: bool,
}

/// What was seen of one member.
struct Seen {
    /// Its last beat; none for a member that is not on the list.
    beat: Option<u64>,
    /// When its beat was last seen to change; at first, when it was first seen.
    heard: Instant,
    /// Its beat was seen to change.
    moved: bool,
    /// It was on the list at the last look.
    listed: bool,
    /// The lease that its report publishes, read when its silence exceeds ours.
    lease: Option<Duration>,
    /// How often its report could not be read, by errors that pass.
    unread: u8,
}

/// A report that cannot be read this many times in a row publishes no lease.
const READ_TRIES: u8 = 4;

impl Seen {
    fn new(beat: Option<u64>, heard: Instant) -> Seen {
        Seen { beat, heard, moved: false, listed: beat.is_some(), lease: None, unread: 0 }
    }

    /// How long this member may be silent: the longer of its own lease and ours.
    fn ttl(&self, ours: Duration) -> Duration {
        self.lease.unwrap_or_default().max(ours)
    }

    fn hear(&mut self, beat: Option<u64>, now: Instant) {
        (self.beat, self.heard, self.moved) = (beat, now, true);
        self.lease = self.lease.filter(|lease| !lease.is_zero());
    }
}

/// Looks at who lives, and at the manager's lease, in the time of one lease at most: more tell nothing, and cost the index as
/// much.
pub const LOOKS_PER_LEASE: u32 = 6;

impl FailureDetector {
    /// A watch that considers a member dead when its beat stood still for `ttl`, or for the lease
    /// that the member itself publishes, whichever is longer.
    pub fn new(ttl: Duration) -> FailureDetector {
        FailureDetector { ttl, seen: HashMap::new(), looked: None, deaf: false }
    }

    /// Looks at all members, unless that was done just now and nobody's ttl has run out since. Silence counts only while somebody listened: of the time
    /// since the last look, half a ttl at most. So nobody dies of an index that could not be reached for a while, or of a
    /// watcher that was stopped.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn look(&mut self, store: &dyn Membership) -> Result<()> {
        let now = Instant::now();
        let unwatched = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        if self.looked.is_some_and(|looked| !self.ends_between(looked, now)) && unwatched < self.ttl / LOOKS_PER_LEASE {
            return Ok(());
        }
        self.look_at_once(store)
    }

    /// Looks at all members, however short a time ago that was done.
    ///
    /// # Errors
    /// When the index cannot be reached.
    pub fn look_at_once(&mut self, store: &dyn Membership) -> Result<()> {
        let now = Instant::now();
        let unwatched = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        let beats = self.beats(store)?;
        // Who could not be heard for a while gets a whole ttl from now on.
        if std::mem::take(&mut self.deaf) {
            self.seen.values_mut().for_each(|seen| seen.heard = now);
        }
        self.looked = Some(now);
        let unheard = if self.ttl.is_zero() { Duration::ZERO } else { unwatched.saturating_sub(self.ttl / 2) };
        for (member, seen) in &mut self.seen {
            seen.heard = (seen.heard + unheard).min(now);
            let beat = beats.get(member).copied();
            seen.listed = beat.is_some();
            if beat.is_some() && beat != seen.beat {
                seen.hear(beat, now);
            }
        }
        for (member, beat) in beats {
            self.seen.entry(member).or_insert(Seen::new(Some(beat), now));
        }
        self.ask_for_leases(store, now)
    }

    fn beats(&mut self, store: &dyn Membership) -> Result<HashMap<String, u64>> {
        let members = store.members();
        self.deaf |= members.is_err();
        Ok(members?.into_iter().collect())
    }

    /// Reads the published lease of each member whose silence exceeds our own lease.
    fn ask_for_leases(&mut self, store: &dyn Membership, now: Instant) -> Result<()> {
        let (mut missed, mut away) = (Vec::new(), None);
        for (member, seen) in &mut self.seen {
            let Some(beat) = seen.beat else { continue };
            if seen.lease.is_some() || now.saturating_duration_since(seen.heard) <= self.ttl {
                continue;
            }
            match store.report(member, beat) {
                Ok(Some(report)) => seen.lease = Some(report.lease()),
                Ok(None) => missed.push(member.clone()),
                Err(error @ (Error::CoordinationUnavailable { .. } | Error::CoordinationDenied { .. })) => {
                    away = Some(error);
                    break;
                }
                Err(error) if error.is_retryable() && seen.unread < READ_TRIES => {
                    seen.unread += 1;
                    seen.heard = now; // asked again after another of our leases
                }
                Err(error) => {
                    tracing::debug!(%error, member, "a report cannot be read: it publishes no lease");
                    seen.lease = Some(Duration::ZERO);
                }
            }
        }
        if let Some(error) = away {
            // No member is judged by a lease that could not be read.
            self.deaf = true;
            self.seen.values_mut().for_each(|seen| seen.heard = now);
            return Err(error);
        }
        if missed.is_empty() {
            return Ok(());
        }
        // A beat without a report was followed by another one a moment ago, or never had a report.
        let beats = self.beats(store)?;
        for member in missed {
            let Some(seen) = self.seen.get_mut(&member) else { continue };
            match beats.get(&member).copied() {
                beat if beat.is_some() && beat != seen.beat => seen.hear(beat, now),
                _ => seen.lease = Some(Duration::ZERO),
            }
        }
        Ok(())
    }

    /// Whether somebody's ttl ends there: then a look tells whether he is dead.
    fn ends_between(&self, looked: Instant, now: Instant) -> bool {
        self.seen.values().map(|seen| seen.heard + seen.ttl(self.ttl)).any(|end| looked <= end && end < now)
    }

    /// Returns the time until the first member counts as dead that did not at the last look, if it
    /// stays silent; none if there is no such member.
    pub fn until_death(&self) -> Option<Duration> {
        let now = Instant::now();
        let ends = self.seen.values().map(|seen| seen.heard + seen.ttl(self.ttl));
        let ends = ends.filter(|end| self.looked.is_none_or(|looked| *end >= looked));
        ends.map(|end| end.saturating_duration_since(now)).min()
    }

    /// How many count as dead.
    pub fn dead(&self) -> usize {
        let looked = self.looked.unwrap_or_else(Instant::now);
        let is_dead = |seen: &&Seen| looked.saturating_duration_since(seen.heard) > seen.ttl(self.ttl);
        self.seen.values().filter(is_dead).count()
    }

    fn entry(&mut self, member: &str) -> &mut Seen {
        self.seen.entry(member.to_owned()).or_insert(Seen::new(None, Instant::now()))
    }

    /// For how long `member` had been silent at the last look. Who was never seen is watched from now on.
    pub fn silence(&mut self, member: &str) -> Duration {
        let heard = self.entry(member).heard;
        self.looked.map_or(Duration::ZERO, |looked| looked.saturating_duration_since(heard))
    }

    /// Whether `member` counts as dead. A watch without a ttl takes every member for dead, whatever lease it publishes.
    pub fn is_dead(&mut self, member: &str) -> bool {
        let silence = self.silence(member);
        if self.ttl.is_zero() { silence > self.ttl } else { self.is_silent_for(member, 1) }
    }

    /// Whether `member` was silent for more than `leases` leases, each the longer of its own and ours.
    pub fn is_silent_for(&mut self, member: &str, leases: u32) -> bool {
        let (silence, ours) = (self.silence(member), self.ttl);
        silence > self.entry(member).ttl(ours).saturating_mul(leases)
    }

    /// Whether the beat of `member` was seen to change after `since`.
    pub fn was_heard_since(&self, member: &str, since: Instant) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.moved && seen.heard > since)
    }

    /// Whether the beat of `member` was ever seen to change.
    pub fn was_heard(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.moved)
    }

    /// Whether the beat of `member` was seen to change, and it does not count as dead.
    pub fn was_heard_lately(&self, member: &str) -> bool {
        let looked = self.looked.unwrap_or_else(Instant::now);
        let is_alive = |seen: &Seen| looked.saturating_duration_since(seen.heard) <= seen.ttl(self.ttl);
        self.seen.get(member).is_some_and(|seen| seen.moved && is_alive(seen))
    }

    /// The members that were on the list at the last look, with their beats.
    pub fn listed(&self) -> Vec<(String, u64)> {
        let listed = self.seen.iter().filter(|(_, seen)| seen.listed);
        listed.filter_map(|(member, seen)| Some((member.clone(), seen.beat?))).collect()
    }

    /// Whether `member` was on the list at the last look.
    pub fn is_listed(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.listed)
    }

    /// Everybody who was seen or asked for.
    pub fn known(&self) -> Vec<String> {
        self.seen.keys().cloned().collect()
    }

    /// As if `member` had been heard so long ago.
    #[cfg(test)]
    pub(crate) fn backdate(&mut self, member: &str, silence: Duration) {
        let now = Instant::now();
        self.entry(member).heard = now.checked_sub(silence).unwrap_or(now);
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
    use crate::coordination::{MemoryStore, Report};

    /// A member counts as dead once its beat has not changed for the time to live, and as alive once the beat changes.
    #[test]
    fn member_is_dead_after_a_ttl_without_beats_until_the_next_one() {
        let store = MemoryStore::default();
        let mut watch = FailureDetector::new(TTL);
        store.beat("a", 1, &Report::default()).unwrap();
        watch.look(&store).unwrap();
        assert!(!watch.is_dead("a") && !watch.is_dead("never seen"), "nobody is dead at first sight");
        listen(&mut watch, &store, 5);
        assert!(watch.is_dead("a") && watch.is_dead("never seen"));
        store.beat("a", 2, &Report::default()).unwrap();
        listen(&mut watch, &store, 1);
        assert!(!watch.is_dead("a") && watch.is_dead("never seen"));
    }

    #[test]
    fn nobody_dies_while_nobody_listens() {
        let store = MemoryStore::default();
        let mut watch = FailureDetector::new(TTL);
        store.beat("a", 1, &Report::default()).unwrap();
        watch.look(&store).unwrap();
        std::thread::sleep(TTL * 10);
        watch.look(&store).unwrap();
        assert!(!watch.is_dead("a"));
        listen(&mut watch, &store, 5);
        assert!(watch.is_dead("a"));
    }

    /// A member whose time to live is over is found dead by the next look, and later looks do not ask for its beat.
    #[test]
    fn silent_member_is_dead_at_once_and_not_looked_up_again() {
        let (mut looks, store) = (FailureDetector::new(Duration::from_secs(60)), MemoryStore::default());
        store.beat("a", 1, &Report::default()).unwrap();
        looks.look(&store).unwrap();
        // A moment ago its ttl was not over yet; now it is.
        let now = Instant::now();
        let just_over = now.checked_sub(looks.ttl + Duration::from_millis(1)).unwrap();
        looks.seen.insert("a".to_owned(), Seen::new(Some(1), just_over));
        looks.looked = now.checked_sub(Duration::from_millis(2));
        looks.look(&store).unwrap();
        assert_eq!((looks.dead(), looks.is_dead("a")), (1, true));
        store.beat("a", 2, &Report::default()).unwrap();
        looks.look(&store).unwrap();
        assert!(looks.is_dead("a"), "it was looked again, for nothing");
    }

    #[test]
    fn whoever_is_struck_off_the_list_is_not_heard_by_that() {
        let (mut looks, store) = (FailureDetector::new(Duration::from_secs(60)), MemoryStore::default());
        store.beat("a", 1, &Report::default()).unwrap();
        looks.look(&store).unwrap();
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        looks.seen.insert("a".to_owned(), Seen::new(Some(1), ago(59)));
        looks.looked = Some(ago(20));
        store.leave("a").unwrap();
        looks.look(&store).unwrap();
        assert!(looks.silence("a") >= Duration::from_secs(59));
    }

    #[test]
    fn a_member_is_judged_by_the_longer_of_its_lease_and_ours() {
        let store = MemoryStore::default();
        let ours = Duration::from_secs(60);
        for (published, ttl) in
            [(600.0, 600), (1.0, 60), (0.0, 60), (-5.0, 60), (f64::NAN, 60), (f64::INFINITY, 60), (1e12, 86_400)]
        {
            let report = Report { lease_seconds: published, ..Report::default() };
            store.beat("a", 1, &report).unwrap();
            let mut watch = FailureDetector::new(ours);
            // Looks when "a" has been silent for `silence` seconds.
            let mut silent_for = |silence: u64| {
                let now = Instant::now();
                let heard = now.checked_sub(Duration::from_secs(silence)).unwrap();
                watch.seen.insert("a".to_owned(), Seen::new(Some(1), heard));
                watch.looked = now.checked_sub(Duration::from_secs(25));
                watch.look(&store).unwrap();
                (watch.is_dead("a"), watch.dead(), watch.is_silent_for("a", 6))
            };
            assert_eq!(silent_for(ttl - 1), (false, 0, false), "{published}");
            assert_eq!(silent_for(ttl + 1), (true, 1, false), "{published}");
            assert_eq!(silent_for(6 * ttl + 1), (true, 1, true), "{published}");
        }
    }

    const TTL: Duration = Duration::from_millis(120);

    fn listen(watch: &mut FailureDetector, store: &dyn Membership, times: u32) {
        for _ in 0..times {
            std::thread::sleep(TTL / 3);
            watch.look(store).unwrap();
        }
    }
}
