//! What a reader knows of the generators: who lives, for how long nobody has, and why the last one failed. So that it can
//! say what it waits for, and notice that nothing new will come.

use crate::coordination::{CoordinationStore, Membership, Report};
use crate::failure_log::{Failure, failures};
use crate::ring::failure_detector::FailureDetector;
use crate::role::Role;
use crate::unix_ms;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names in a message; the others are counted.
const NAMED: usize = 4;
/// Generators that are asked at a time what they do; the others are asked in their turn. (A hundred readers that wait for a
/// thousand generators would read each report of each.)
const ASKED: usize = 32;

/// While generators live, an older failure does not explain a wait.
const FAILURE_IS_NEWS_MS: u64 = 60_000;

/// Kept up to date by the thread that gives the reader's signs of life.
pub struct ProducerStatus {
    state: Mutex<State>,
}

struct State {
    watch: FailureDetector,
    /// What members said with which beat.
    reports: HashMap<String, (u64, Report)>,
    living: Vec<String>,
    /// When one was last known to live; at first, when the watch began.
    last: Instant,
    /// One was.
    ever: bool,
    /// Somebody looked, and the index answered.
    known: bool,
    /// Why the index did not answer the last look.
    away: Option<String>,
    /// When it was.
    looked: Option<Instant>,
    /// How the last generator ended that ended badly.
    failure: Option<Failure>,
    /// When the generators were asked what they do, and how long that holds.
    asked: Option<Instant>,
    pause: Duration,
}

impl ProducerStatus {
    /// What this process knows of the generators of a ring: its streams come and go, one for each epoch perhaps.
    pub fn of(ring_id: &str, lease: Duration) -> Arc<ProducerStatus> {
        static KNOWN: Mutex<Vec<(u32, String, Arc<ProducerStatus>)>> = Mutex::new(Vec::new());
        let new = || Arc::new(ProducerStatus::new(lease));
        // Where a process was forked meanwhile, the lock may be held by a thread that is not there.
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

    /// Nothing is known yet. Who gave no sign for `lease` counts as dead.
    pub fn new(lease: Duration) -> ProducerStatus {
        let (watch, last) = (FailureDetector::new(lease), Instant::now());
        let state = State {
            watch,
            reports: HashMap::new(),
            living: Vec::new(),
            last,
            ever: false,
            known: false,
            away: None,
            looked: None,
            failure: None,
            asked: None,
            pause: lease / 4,
        };
        ProducerStatus { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at who lives. Where the index is away, those that lived still do.
    pub fn look(&self, store: &dyn Membership) {
        let members = {
            let mut state = self.lock();
            if let Err(error) = state.watch.look_at_once(store) {
                tracing::debug!(%error, "generators cannot be seen");
                if !state.living.is_empty() {
                    state.last = Instant::now();
                }
                state.away = Some(error.to_string());
                return;
            }
            state.watch.listed()
        };
        let mut reports = HashMap::new();
        for (name, beat) in members {
            // Its role never changes. What else generators say is asked for when somebody wants to know.
            let known = self.lock().reports.get(&name).cloned();
            if let Some(report) = known.or_else(|| store.report(&name, beat).ok().flatten().map(|said| (beat, said))) {
                reports.insert(name, report);
            }
        }
        let mut state = self.lock();
        let mut living: Vec<String> = Vec::new();
        for (name, (_, report)) in &reports {
            if Role::parse(&report.role) == Some(Role::Generator) && !state.watch.is_dead(name) {
                living.push(name.clone());
            }
        }
        living.sort();
        if !living.is_empty() {
            (state.last, state.ever) = (Instant::now(), true);
        }
        (state.reports, state.living, state.known, state.looked) = (reports, living, true, Some(Instant::now()));
        state.away = None;
    }

    /// Looks at who lives, if that was not done in the last two quarters of a lease. (A look costs a file server more
    /// than a beat.)
    pub fn keep_up(&self, store: &dyn Membership) {
        let (looked, pause) = {
            let state = self.lock();
            (state.looked, state.pause)
        };
        if looked.is_none_or(|looked| looked.elapsed() > pause * 5 / 2) {
            self.look(store);
        }
    }

    /// Asks the generators that live what they do, and how the last one failed: not more often than they say.
    fn ask(&self, store: &dyn CoordinationStore) {
        let (stale, pause) = {
            let state = self.lock();
            (state.asked, state.pause)
        };
        if stale.is_some_and(|asked| asked.elapsed() < pause) {
            return;
        }
        self.look(store);
        let beats: HashMap<String, u64> = self.lock().watch.listed().into_iter().collect();
        let mut living = self.lock().living.clone();
        // Those whose word is the oldest: they have beaten most often since.
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

    /// Returns for how long no generator has lived. Zero while the index does not answer, and while
    /// a generator lived at the last look.
    pub fn missing_for(&self, store: &dyn Membership) -> Duration {
        let looked = self.lock().looked;
        if looked.is_none_or(|looked| looked.elapsed() > self.lock().pause) {
            self.look(store);
        }
        let state = self.lock();
        if state.known && state.away.is_none() && state.living.is_empty() {
            state.last.elapsed()
        } else {
            Duration::ZERO
        }
    }

    /// Whether one was seen to live since this process looks.
    pub fn ever_seen(&self) -> bool {
        self.lock().ever
    }

    /// What was asked a moment ago does not stand for what is asked next.
    pub fn ask_anew(&self) {
        self.lock().asked = None;
    }

    /// Who lives, in words, how much they make, and why the last one failed that did.
    pub fn describe(&self, store: &dyn CoordinationStore) -> String {
        self.ask(store);
        let state = self.lock();
        let mut words = if let Some(why) = &state.away {
            format!("whether generators live is not known ({why})")
        } else if !state.known {
            "whether generators live is not known".to_owned()
        } else if state.living.is_empty() {
            format!("no generator lives (for {:.0} s)", state.last.elapsed().as_secs_f64())
        } else {
            let reports = state.living.iter().filter_map(|name| state.reports.get(name));
            let rate: f64 = reports.map(|(_, report)| report.per_second).sum();
            let mut names = state.living[..state.living.len().min(NAMED)].join(", ");
            if state.living.len() > NAMED {
                names += &format!(" and {} more", state.living.len() - NAMED);
            }
            let (count, plural) = (state.living.len(), if state.living.len() == 1 { " lives" } else { "s live" });
            format!("{rate:.2} samples/s come, {count} generator{plural}: {names}")
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
    use crate::coordination::files::FileStore;
    use crate::coordination::{MemoryStore, Notes};
    use crate::fs::Posix;
    use std::fs;

    #[test]
    fn a_wait_quotes_an_old_failure_only_while_no_generator_lives() {
        let hour_ago = Failure {
            name: "gone".to_owned(),
            role: Role::Generator.to_string(),
            host: "node".to_owned(),
            pid: 1,
            unix_ms: unix_ms() - 3_600_000,
            message: "out of luck".to_owned(),
        };
        let store = MemoryStore::default();
        store.add_note("failures", "gone", &serde_json::to_string(&hour_ago).unwrap()).unwrap();
        let generators = ProducerStatus::new(Duration::from_secs(3600));
        let words = generators.describe(&store);
        assert!(words.contains("no generator lives") && words.contains("out of luck"), "{words}");
        let report = Report { role: Role::Generator.to_string(), ..Report::default() };
        for name in ["one", "two"] {
            store.beat(name, 1, &report).unwrap();
        }
        generators.ask_anew();
        let words = generators.describe(&store);
        assert!(words.contains("2 generators live") && !words.contains("out of luck"), "{words}");
    }

    /// The index answered once, then its server went away.
    #[test]
    fn an_index_that_is_away_puts_no_blame_on_generators() {
        let place = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(Posix), place.path().join("index"), "me", 1);
        let generators = ProducerStatus::new(Duration::from_millis(1));
        assert!(generators.describe(&store).starts_with("no generator lives"));
        assert!(generators.missing_for(&store) > Duration::ZERO);

        let broken = place.path().join("index");
        std::os::unix::fs::symlink(&broken, &broken).unwrap();
        std::thread::sleep(Duration::from_millis(2)); // a look holds for a quarter of the lease
        assert_eq!(generators.missing_for(&store), Duration::ZERO);
        generators.ask_anew();
        let said = generators.describe(&store);
        assert!(said.starts_with("whether generators live is not known ("), "{said}");

        fs::remove_file(broken).unwrap();
        generators.ask_anew();
        assert!(generators.describe(&store).starts_with("no generator lives"));
    }
}
