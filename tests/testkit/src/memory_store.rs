//! A coordination store in the memory of one process: the simplest reference of what a store does.

use ringreel::Result;
use ringreel::coordination::{CoordinationStore, Counter, Lease, Leases, Membership, Notes, Report, SwapStatus};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first number that no counter hands out.
const COUNTER_END: u64 = 1 << 40;

/// The coordination store in memory; see the module.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counters: HashMap<u64, u64>,
    closed: HashSet<u64>,
    status: Option<SwapStatus>,
    leases: HashMap<String, Lease>,
    members: HashMap<String, (u64, Report)>,
    notes: HashMap<(String, String), String>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counter for MemoryStore {
    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        let mut state = self.lock();
        if state.closed.contains(&generation) {
            return Ok(None);
        }
        let counter = state.counters.entry(generation).or_default();
        let number = *counter;
        *counter = counter.saturating_add(1);
        Ok((number < COUNTER_END).then_some(number))
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        self.lock().closed.insert(generation);
        Ok(())
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        Ok(self.lock().counters.get(&generation).copied().unwrap_or_default())
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        let mut state = self.lock();
        let counter = state.counters.entry(generation).or_default();
        *counter = next.max(*counter);
        Ok(())
    }
}

impl Leases for MemoryStore {
    fn lease(&self, role: &str) -> Result<Option<Lease>> {
        Ok(self.lock().leases.get(role).cloned())
    }

    fn claim_lease(&self, role: &str, token: u64, holder: &str) -> Result<bool> {
        let mut state = self.lock();
        if state.leases.get(role).is_some_and(|lease| lease.token >= token) {
            return Ok(false);
        }
        state.leases.insert(role.to_owned(), Lease { token, holder: holder.to_owned(), released: false });
        Ok(true)
    }

    fn release_lease(&self, role: &str, token: u64) -> Result<()> {
        if let Some(lease) = self.lock().leases.get_mut(role).filter(|lease| lease.token == token) {
            lease.released = true;
        }
        Ok(())
    }
}

impl Membership for MemoryStore {
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        self.lock().members.insert(member.to_owned(), (beat, report.clone()));
        Ok(())
    }

    fn leave(&self, member: &str) -> Result<()> {
        self.lock().members.remove(member);
        Ok(())
    }

    fn members(&self) -> Result<Vec<(String, u64)>> {
        Ok(self.lock().members.iter().map(|(name, (beat, _))| (name.clone(), *beat)).collect())
    }

    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>> {
        let state = self.lock();
        Ok(state.members.get(member).filter(|(last, _)| *last == beat).map(|(_, report)| report.clone()))
    }
}

impl Notes for MemoryStore {
    fn add_note(&self, folder: &str, name: &str, text: &str) -> Result<String> {
        let key = (folder.to_owned(), name.to_owned());
        Ok(self.lock().notes.entry(key).or_insert_with(|| text.to_owned()).clone())
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        Ok(self.lock().notes.get(&(folder.to_owned(), name.to_owned())).cloned())
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        Ok(self.lock().notes.keys().filter(|(of, _)| of == folder).map(|(_, name)| name.clone()).collect())
    }

    fn remove_note(&self, folder: &str, name: &str) -> Result<()> {
        self.lock().notes.remove(&(folder.to_owned(), name.to_owned()));
        Ok(())
    }
}

impl CoordinationStore for MemoryStore {
    fn place(&self) -> String {
        "the memory of this process".to_owned()
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn publish_status(&self, status: &SwapStatus) -> Result<bool> {
        let mut state = self.lock();
        if state.status.as_ref().is_some_and(|old| old.generation > status.generation) {
            return Ok(false);
        }
        state.status = Some(status.clone());
        Ok(true)
    }

    fn status(&self) -> Result<Option<SwapStatus>> {
        Ok(self.lock().status.clone())
    }

    fn forget_before(&self, generation: u64) -> Result<()> {
        let mut state = self.lock();
        state.counters.retain(|n, _| *n >= generation);
        state.closed.retain(|n| *n >= generation);
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        *self.lock() = State::default();
        Ok(())
    }
}
