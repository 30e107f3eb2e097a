//! Failure detector: a member is alive while its heartbeat counter increases, as timed by the
//! observer's monotonic clock. Clocks of different machines are never compared.

use crate::coordination::Membership;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What this process has observed of the other members' heartbeats.
pub struct FailureDetector {
    /// The lease of this process.
    ttl: Duration,
    seen: HashMap<String, Seen>,
    looked: Option<Instant>,
    /// Whether the last poll failed.
    deaf: bool,
}

/// What was observed of one member.
struct Seen {
    /// Its last heartbeat; `None` for a member that is not listed.
    beat: Option<u64>,
    /// When its heartbeat was last seen to change; initially, when the member was first seen.
    heard: Instant,
    /// Whether its heartbeat was ever seen to change.
    moved: bool,
    /// Whether the member was listed at the last poll.
    listed: bool,
    /// The lease in its report, which is read once its silence exceeds our lease.
    lease: Option<Duration>,
    /// How often its report could not be read because of transient errors.
    unread: u8,
}

/// A member whose report cannot be read this many times in a row is judged by our lease alone.
const READ_TRIES: u8 = 4;

impl Seen {
    fn new(beat: Option<u64>, heard: Instant) -> Seen {
        Seen { beat, heard, moved: false, listed: beat.is_some(), lease: None, unread: 0 }
    }

    /// Returns how long this member may be silent: the longer of its lease and ours.
    fn ttl(&self, ours: Duration) -> Duration {
        self.lease.unwrap_or_default().max(ours)
    }

    fn hear(&mut self, beat: Option<u64>, now: Instant) {
        (self.beat, self.heard, self.moved) = (beat, now, true);
        self.lease = self.lease.filter(|lease| !lease.is_zero());
    }
}

/// Maximum number of polls of the members and of the manager's lease per lease. More polls detect
/// nothing earlier, but each costs the coordination store a request.
pub const LOOKS_PER_LEASE: u32 = 6;

impl FailureDetector {
    /// Creates a detector that considers a member dead when its heartbeat has not changed for `ttl`
    /// or for the member's own published lease, whichever is longer.
    pub fn new(ttl: Duration) -> FailureDetector {
        FailureDetector { ttl, seen: HashMap::new(), looked: None, deaf: false }
    }

    /// Polls all members, unless the last poll was less than a sixth of the ttl ago and no member's
    /// ttl has expired since.
    ///
    /// Silence counts only while this process observes: of the time since the last poll, at most
    /// half a ttl counts. So no member is declared dead because the coordination store was
    /// unreachable or the observer was stopped.
    ///
    /// # Errors
    /// The coordination store cannot be reached.
    pub fn look(&mut self, store: &dyn Membership) -> Result<()> {
        let now = Instant::now();
        let is_recent = |looked| now - looked < self.ttl / LOOKS_PER_LEASE && !self.ends_between(looked, now);
        if self.looked.is_some_and(is_recent) { Ok(()) } else { self.look_at_once(store) }
    }

    /// Polls all members, however recent the last poll was.
    ///
    /// # Errors
    /// The coordination store cannot be reached.
    pub fn look_at_once(&mut self, store: &dyn Membership) -> Result<()> {
        let now = Instant::now();
        let unwatched = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        let beats = self.beats(store)?;
        // After a failed poll, each member gets a full ttl from now on.
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
                    seen.heard = now; // read again after another of our leases
                }
                Err(error) => {
                    tracing::debug!(%error, member, "cannot read a report; judging the member by our own lease");
                    seen.lease = Some(Duration::ZERO);
                }
            }
        }
        if let Some(error) = away {
            // A lease that could not be read must not decide about a member.
            self.deaf = true;
            self.seen.values_mut().for_each(|seen| seen.heard = now);
            return Err(error);
        }
        if missed.is_empty() {
            return Ok(());
        }
        // The member has published another heartbeat meanwhile, or this one never had a report.
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

    /// Returns whether a member's ttl ended between `looked` and `now`, so that a poll finds out
    /// whether it is dead.
    fn ends_between(&self, looked: Instant, now: Instant) -> bool {
        self.seen.values().map(|seen| seen.heard + seen.ttl(self.ttl)).any(|end| looked <= end && end < now)
    }

    /// Returns the time until the next member that was alive at the last poll counts as dead, if it
    /// stays silent. Returns `None` if no member was alive.
    pub fn until_death(&self) -> Option<Duration> {
        let now = Instant::now();
        let ends = self.seen.values().map(|seen| seen.heard + seen.ttl(self.ttl));
        let ends = ends.filter(|end| self.looked.is_none_or(|looked| *end >= looked));
        ends.map(|end| end.saturating_duration_since(now)).min()
    }

    /// Returns the number of members that count as dead.
    pub fn dead(&self) -> usize {
        self.seen.values().filter(|seen| !self.is_alive(seen)).count()
    }

    /// Returns whether the member did not count as dead at the last poll.
    fn is_alive(&self, seen: &Seen) -> bool {
        let looked = self.looked.unwrap_or_else(Instant::now);
        looked.saturating_duration_since(seen.heard) <= seen.ttl(self.ttl)
    }

    fn entry(&mut self, member: &str) -> &mut Seen {
        self.seen.entry(member.to_owned()).or_insert(Seen::new(None, Instant::now()))
    }

    /// Returns how long `member` had been silent at the last poll. A member that was never seen is
    /// watched from now on.
    pub fn silence(&mut self, member: &str) -> Duration {
        let heard = self.entry(member).heard;
        self.looked.map_or(Duration::ZERO, |looked| looked.saturating_duration_since(heard))
    }

    /// Returns whether `member` counts as dead. A detector with a ttl of zero considers every
    /// member dead, whatever lease it publishes.
    pub fn is_dead(&mut self, member: &str) -> bool {
        let silence = self.silence(member);
        if self.ttl.is_zero() { silence > self.ttl } else { self.is_silent_for(member, 1) }
    }

    /// Returns whether `member` was silent for more than `leases` leases, each the longer of its
    /// own and ours.
    pub fn is_silent_for(&mut self, member: &str, leases: u32) -> bool {
        let (silence, ours) = (self.silence(member), self.ttl);
        silence > self.entry(member).ttl(ours).saturating_mul(leases)
    }

    /// Returns whether the heartbeat of `member` was seen to change after `since`.
    pub fn was_heard_since(&self, member: &str, since: Instant) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.moved && seen.heard > since)
    }

    /// Returns whether the heartbeat of `member` was ever seen to change.
    pub fn was_heard(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.moved)
    }

    /// Returns whether the heartbeat of `member` was seen to change and the member does not count
    /// as dead.
    pub fn was_heard_lately(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.moved && self.is_alive(seen))
    }

    /// Returns the members that were listed at the last poll, with their heartbeats.
    pub fn listed(&self) -> Vec<(String, u64)> {
        let listed = self.seen.iter().filter(|(_, seen)| seen.listed);
        listed.filter_map(|(member, seen)| Some((member.clone(), seen.beat?))).collect()
    }

    /// Returns whether `member` was listed at the last poll.
    pub fn is_listed(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.listed)
    }

    /// Returns all members that were ever seen or queried.
    pub fn known(&self) -> Vec<String> {
        self.seen.keys().cloned().collect()
    }

    /// Pretends that `member` has been silent for `silence`.
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
    use crate::coordination::Report;
    use std::sync::Mutex;

    /// Members whose heartbeats the tests set.
    #[derive(Debug, Default)]
    struct Members(Mutex<HashMap<String, (u64, Report)>>);

    impl Membership for Members {
        fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
            self.0.lock().unwrap().insert(member.to_owned(), (beat, report.clone()));
            Ok(())
        }

        fn leave(&self, member: &str) -> Result<()> {
            self.0.lock().unwrap().remove(member);
            Ok(())
        }

        fn members(&self) -> Result<Vec<(String, u64)>> {
            Ok(self.0.lock().unwrap().iter().map(|(name, (beat, _))| (name.clone(), *beat)).collect())
        }

        fn report(&self, member: &str, _beat: u64) -> Result<Option<Report>> {
            Ok(self.0.lock().unwrap().get(member).map(|(_, report)| report.clone()))
        }
    }

    /// A member counts as dead once its heartbeat has not changed for the ttl, and as alive once it
    /// changes again.
    #[test]
    fn member_is_dead_from_its_ttl_until_its_next_heartbeat() {
        let store = Members::default();
        let mut watch = FailureDetector::new(TTL);
        store.beat("a", 1, &Report::default()).unwrap();
        watch.look(&store).unwrap();
        assert!(!watch.is_dead("a") && !watch.is_dead("never seen"), "no member is dead at the first poll");
        listen(&mut watch, &store, 5);
        assert!(watch.is_dead("a") && watch.is_dead("never seen"));
        store.beat("a", 2, &Report::default()).unwrap();
        listen(&mut watch, &store, 1);
        assert!(!watch.is_dead("a") && watch.is_dead("never seen"));
    }

    #[test]
    fn silence_does_not_count_while_the_observer_is_stopped() {
        let store = Members::default();
        let mut watch = FailureDetector::new(TTL);
        store.beat("a", 1, &Report::default()).unwrap();
        watch.look(&store).unwrap();
        std::thread::sleep(TTL * 10);
        watch.look(&store).unwrap();
        assert!(!watch.is_dead("a"));
        listen(&mut watch, &store, 5);
        assert!(watch.is_dead("a"));
    }

    /// The next poll finds a member dead whose ttl is over; later polls do not read its heartbeat
    /// again.
    #[test]
    fn member_is_dead_at_the_poll_after_its_ttl_and_polled_no_more() {
        let (mut looks, store) = (FailureDetector::new(Duration::from_secs(60)), Members::default());
        store.beat("a", 1, &Report::default()).unwrap();
        looks.look(&store).unwrap();
        // The ttl ended between the last poll and now.
        let now = Instant::now();
        let just_over = now.checked_sub(looks.ttl + Duration::from_millis(1)).unwrap();
        looks.seen.insert("a".to_owned(), Seen::new(Some(1), just_over));
        looks.looked = now.checked_sub(Duration::from_millis(2));
        looks.look(&store).unwrap();
        assert_eq!((looks.dead(), looks.is_dead("a")), (1, true));
        store.beat("a", 2, &Report::default()).unwrap();
        looks.look(&store).unwrap();
        assert!(looks.is_dead("a"), "the members were polled again needlessly");
    }

    #[test]
    fn removal_from_the_list_is_no_heartbeat() {
        let (mut looks, store) = (FailureDetector::new(Duration::from_secs(60)), Members::default());
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
    fn member_is_judged_by_the_longer_of_its_lease_and_ours() {
        let store = Members::default();
        let ours = Duration::from_secs(60);
        for (published, ttl) in
            [(600.0, 600), (1.0, 60), (0.0, 60), (-5.0, 60), (f64::NAN, 60), (f64::INFINITY, 60), (1e12, 86_400)]
        {
            let report = Report { lease_seconds: published, ..Report::default() };
            store.beat("a", 1, &report).unwrap();
            let mut watch = FailureDetector::new(ours);
            // Polls when "a" has been silent for `silence` seconds.
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
