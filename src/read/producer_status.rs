//! What a reader knows of the generators: which are alive, since when none is, and why the last one failed. Readers
//! use it to say what they wait for, and to notice that no new samples will arrive.

use crate::coordination::{CoordinationStore, Membership, Report};
use crate::failure_log::{Failure, failures};
use crate::ring::failure_detector::FailureDetector;
use crate::role::Role;
use crate::unix_ms;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names in a message; the others are only counted.
const NAMED: usize = 4;
/// Generators whose reports are read at a time; the others follow in turn. (Else a hundred readers that wait for a
/// thousand generators would each read a thousand reports.)
const ASKED: usize = 32;

/// While generators are alive, a failure older than this does not explain a wait.
const FAILURE_IS_NEWS_MS: u64 = 60_000;

/// Status of the generators, kept up to date by the thread of the reader's heartbeat.
pub struct ProducerStatus {
    state: Mutex<State>,
    /// How long the generators' reports are reused.
    pause: Duration,
}

struct State {
    watch: FailureDetector,
    /// The latest report read of each member, with its heartbeat.
    reports: HashMap<String, (u64, Report)>,
    living: Vec<String>,
    /// When a generator was last known to be alive; at first, when the watch began.
    last: Instant,
    /// Whether a generator was ever seen alive.
    ever: bool,
    /// Why the index did not answer the last check.
    away: Option<String>,
    /// When the last successful check was.
    looked: Option<Instant>,
    failure: Option<Failure>,
    /// When the generators' reports were last read.
    asked: Option<Instant>,
}

impl ProducerStatus {
    /// Returns this process's status of the generators of a ring. All its streams share it, since a program may
    /// create one stream per epoch.
    pub fn of(ring_id: &str, lease: Duration) -> Arc<ProducerStatus> {
        static KNOWN: Mutex<Vec<(u32, String, Arc<ProducerStatus>)>> = Mutex::new(Vec::new());
        let new = || Arc::new(ProducerStatus::new(lease));
        // After a fork, the lock may be held by a thread that does not exist in the child.
        let Ok(mut known) = KNOWN.try_lock() else { return new() };
        let pid = std::process::id();
        known.retain(|(of, _, _)| *of == pid);
        if let Some((.., found)) = known.iter().find(|(_, ring, _)| ring == ring_id) {
            return found.clone();
        }
        let made = new();
        known.push((pid, ring_id.to_owned(), made.clone()));
        made
    }

    /// Creates an empty status. A generator without a heartbeat for `lease` is considered dead.
    pub fn new(lease: Duration) -> ProducerStatus {
        let state = Mutex::new(State {
            watch: FailureDetector::new(lease),
            reports: HashMap::new(),
            living: Vec::new(),
            last: Instant::now(),
            ever: false,
            away: None,
            looked: None,
            failure: None,
            asked: None,
        });
        ProducerStatus { state, pause: lease / 4 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks which generators are alive. While the index is unreachable, those that were alive stay so.
    pub fn look(&self, store: &dyn Membership) {
        let mut state = self.lock();
        if let Err(error) = state.watch.look_at_once(store) {
            tracing::debug!(%error, "cannot read the generators' heartbeats");
            if !state.living.is_empty() {
                state.last = Instant::now();
            }
            state.away = Some(error.to_string());
            return;
        }
        let members = state.watch.listed();
        drop(state);
        let mut reports = HashMap::new();
        for (name, beat) in members {
            // A member's role never changes. The rest of a report is read again when it is needed.
            let known = self.lock().reports.get(&name).cloned();
            if let Some(report) = known.or_else(|| store.report(&name, beat).ok().flatten().map(|said| (beat, said))) {
                reports.insert(name, report);
            }
        }
        let mut state = self.lock();
        let generators = reports.iter().filter(|(_, (_, report))| Role::parse(&report.role) == Some(Role::Generator));
        let mut living: Vec<String> = generators.map(|(name, _)| name.clone()).collect();
        living.retain(|name| !state.watch.is_dead(name));
        living.sort();
        if !living.is_empty() {
            (state.last, state.ever) = (Instant::now(), true);
        }
        (state.reports, state.living, state.away, state.looked) = (reports, living, None, Some(Instant::now()));
    }

    /// Checks which generators are alive, unless that was done in the last 5/8 of a lease. (A check costs a file
    /// server more than a heartbeat.)
    pub fn keep_up(&self, store: &dyn Membership) {
        let looked = self.lock().looked;
        if looked.is_none_or(|looked| looked.elapsed() > self.pause * 5 / 2) {
            self.look(store);
        }
    }

    /// Reads the reports of live generators, and the last failure, at most once per pause.
    fn ask(&self, store: &dyn CoordinationStore) {
        let asked = self.lock().asked;
        if asked.is_some_and(|asked| asked.elapsed() < self.pause) {
            return;
        }
        self.look(store);
        let beats: HashMap<String, u64> = self.lock().watch.listed().into_iter().collect();
        let mut living = self.lock().living.clone();
        // Those with the oldest reports first: they have had the most heartbeats since.
        let unheard = |name: &String| {
            let known = self.lock().reports.get(name).map_or(0, |(beat, _)| *beat);
            std::cmp::Reverse(beats.get(name).map_or(0, |beat| beat.saturating_sub(known)))
        };
        living.sort_by_cached_key(unheard);
        for name in living.into_iter().take(ASKED) {
            let said = beats.get(&name).and_then(|beat| Some((*beat, store.report(&name, *beat).ok().flatten()?)));
            if let Some(said) = said {
                self.lock().reports.insert(name, said);
            }
        }
        let failed = failures(store)
            .unwrap_or_default()
            .into_iter()
            .find(|failure| Role::parse(&failure.role) == Some(Role::Generator));
        let mut state = self.lock();
        (state.failure, state.asked) = (failed, Some(Instant::now()));
    }

    /// Returns for how long no generator has been alive. Zero while the index does not answer, and if a generator was
    /// alive at the last check.
    pub fn missing_for(&self, store: &dyn Membership) -> Duration {
        let looked = self.lock().looked;
        if looked.is_none_or(|looked| looked.elapsed() > self.pause) {
            self.look(store);
        }
        let state = self.lock();
        if state.away.is_none() && state.living.is_empty() { state.last.elapsed() } else { Duration::ZERO }
    }

    /// Returns whether a generator was seen alive since this process started.
    pub fn ever_seen(&self) -> bool {
        self.lock().ever
    }

    /// Makes the next description read the reports again.
    pub fn forget_reports(&self) {
        self.lock().asked = None;
    }

    /// Describes the live generators, their rate, and why the last failed one failed.
    pub fn describe(&self, store: &dyn CoordinationStore) -> String {
        self.ask(store);
        let state = self.lock();
        let mut words = if let Some(why) = &state.away {
            format!("it is not known whether generators are alive ({why})")
        } else if state.living.is_empty() {
            format!("no generator is alive (for {:.0} s)", state.last.elapsed().as_secs_f64())
        } else {
            let reports = state.living.iter().filter_map(|name| state.reports.get(name));
            let rate: f64 = reports.map(|(_, report)| report.per_second).sum();
            let mut names = state.living[..state.living.len().min(NAMED)].join(", ");
            if state.living.len() > NAMED {
                names += &format!(" and {} more", state.living.len() - NAMED);
            }
            let (count, plural) = (state.living.len(), if state.living.len() == 1 { " is" } else { "s are" });
            format!("{count} generator{plural} alive, at {rate:.2} samples/s: {names}")
        };
        let is_news = |failure: &&Failure| {
            state.living.is_empty() || unix_ms().saturating_sub(failure.unix_ms) < FAILURE_IS_NEWS_MS
        };
        if let Some(failure) = state.failure.as_ref().filter(is_news) {
            let ago = unix_ms().saturating_sub(failure.unix_ms) / 1000;
            words += &format!("; generator {} failed {ago} s ago: {}", failure.name, failure.message);
        }
        words
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::coordination::Notes;
    use crate::coordination::files::FileStore;
    use crate::fs::Posix;
    use std::fs;

    #[test]
    fn old_failure_is_described_only_if_no_generator_is_alive() {
        let hour_ago = Failure {
            name: "gone".to_owned(),
            role: Role::Generator.to_string(),
            host: "node".to_owned(),
            pid: 1,
            unix_ms: unix_ms() - 3_600_000,
            message: "out of luck".to_owned(),
        };
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(Posix), place.path().join("index"), "me", 1);
        store.add_note("failures", "gone", &serde_json::to_string(&hour_ago).unwrap()).unwrap();
        let generators = ProducerStatus::new(Duration::from_secs(3600));
        let words = generators.describe(&store);
        assert!(words.contains("no generator is alive") && words.contains("out of luck"), "{words}");
        let report = Report { role: Role::Generator.to_string(), ..Report::default() };
        for name in ["one", "two"] {
            store.beat(name, 1, &report).unwrap();
        }
        generators.forget_reports();
        let words = generators.describe(&store);
        assert!(words.contains("2 generators are alive") && !words.contains("out of luck"), "{words}");
    }

    /// The index answers once, then its server becomes unreachable.
    #[test]
    fn unreachable_index_does_not_count_generators_as_missing() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(Posix), place.path().join("index"), "me", 1);
        let generators = ProducerStatus::new(Duration::from_millis(1));
        assert!(generators.describe(&store).starts_with("no generator is alive"));
        assert!(generators.missing_for(&store) > Duration::ZERO);

        let broken = place.path().join("index");
        std::os::unix::fs::symlink(&broken, &broken).unwrap();
        std::thread::sleep(Duration::from_millis(2)); // a check is reused for a quarter of the lease
        assert_eq!(generators.missing_for(&store), Duration::ZERO);
        generators.forget_reports();
        let said = generators.describe(&store);
        assert!(said.starts_with("it is not known whether generators are alive ("), "{said}");

        fs::remove_file(broken).unwrap();
        generators.forget_reports();
        assert!(generators.describe(&store).starts_with("no generator is alive"));
    }
}
