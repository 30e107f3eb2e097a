//! Members: one file for each, renamed at each heartbeat.

use super::{FileStore, TEMP, numbered};
use crate::coordination::{BEATS_PER_LEASE, Membership, Report};
use crate::error::Result;
use crate::fs::FsResult;
use crate::fs::atomic_publish::write_new;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

/// The directory of members.
pub(super) const MEMBERS: &str = "members";
/// Number of heartbeats after a report before changed details of a wait are written.
const BEATS_WITHOUT_DETAILS: u64 = 2;

/// The contents of a member's file: a report, and the heartbeat with which it was written. Later
/// heartbeats rename the file, and its readers add the time of these heartbeats to the report's
/// time.
#[derive(Debug, Serialize, Deserialize)]
struct StoredReport {
    #[serde(flatten)]
    report: Report,
    since: u64,
}

/// The last heartbeat that this process published for a member, and the contents of its file.
#[derive(Debug)]
pub(super) struct LastBeat {
    beat: u64,
    stored: StoredReport,
}

impl LastBeat {
    /// Returns whether a rename to `beat` publishes `report`: the time that readers compute from
    /// the file is right within one heartbeat, and at most the details of a wait differ.
    fn stands_for(&self, beat: u64, report: &Report) -> bool {
        let StoredReport { report: stored, since } = &self.stored;
        let beats = beat.saturating_sub(*since);
        let off = Duration::from_millis(stored.clone().after(beats).unix_ms.abs_diff(report.unix_ms));
        let waits_still = report.doing.is_empty() == stored.doing.is_empty() && beats <= BEATS_WITHOUT_DETAILS;
        let doing = if waits_still { &stored.doing } else { &report.doing }.clone();
        let (unix_ms, per_second) = (stored.unix_ms, stored.per_second);
        let news = Report { unix_ms, per_second, doing, ..report.clone().with_current_times_of(stored) };
        news == *stored && off <= stored.lease() / BEATS_PER_LEASE
    }
}

impl FileStore {
    /// Returns the time by the filesystem's clock: the change time of a new file.
    fn now(&self) -> FsResult<SystemTime> {
        let temp = self.temp();
        self.fs.create_new(&temp)?.close()?;
        let now = self.fs.changed(&temp);
        self.fs.forget_file(&temp)?;
        now
    }
}

impl Membership for FileStore {
    fn beat(&self, member: &str, beat: u64, report: &Report) -> Result<()> {
        let dir = self.dir(MEMBERS);
        let target = dir.join(format!("{member}.{beat}"));
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let last = beats.get(member).map(|last| dir.join(format!("{member}.{}", last.beat)));
        // This takes one request to a file server; a new report takes six.
        if let (Some(old), Some(last)) = (beats.get_mut(member).filter(|old| old.stands_for(beat, report)), &last) {
            match self.fs.rename(last, &target) {
                // The old name is missing: another process removed it, or the rename succeeded and
                // its reply was lost.
                Err(error) if error.is_gone() && !self.fs.exists(&target)? => {}
                Err(error) if !error.is_gone() => return Err(error.into()),
                _ => {
                    old.beat = beat;
                    return Ok(());
                }
            }
        }
        let stored = StoredReport { report: report.clone(), since: beat };
        let bytes = Self::encode(&stored)?;
        let published = self.with_dirs(None, || {
            let temp = self.temp();
            write_new(&*self.fs, &temp, &bytes, false)?;
            self.fs.rename(&temp, &target)
        });
        match (published, last) {
            (Ok(()), last) => {
                beats.insert(member.to_owned(), LastBeat { beat, stored });
                last.map_or(Ok(()), |last| self.forget(&last))?;
            }
            // On a full disk, the old report gets the new number, because a rename needs no space.
            (Err(error), Some(last)) if error.is_full() => {
                self.fs.rename(&last, &target)?;
                if let Some(old) = beats.get_mut(member) {
                    old.beat = beat;
                }
            }
            (Err(error), _) => return Err(error.into()),
        }
        Ok(())
    }

    fn leave(&self, member: &str) -> Result<()> {
        let is_beat = |name: &str| numbered(name).is_some_and(|(other, _)| other == member);
        let is_temp = |name: &str| name.strip_prefix(member).is_some_and(|rest| rest.starts_with('.'));
        self.forget_where(&self.dir(MEMBERS), is_beat)?;
        self.forget_where(&self.dir(TEMP), is_temp)
    }

    fn members(&self) -> Result<Vec<(String, u64)>> {
        let mut last = HashMap::new();
        for name in self.list(&self.dir(MEMBERS))? {
            if let Some((member, beat)) = numbered(&name) {
                let known = last.entry(member.to_owned()).or_insert(beat);
                *known = beat.max(*known);
            }
        }
        Ok(last.into_iter().collect())
    }

    /// Compares the files' change times with that of a temporary file, so that all times are from
    /// the filesystem's clock. Returns nothing if this process may not write in the ring.
    fn beat_ages(&self, beats: &[(String, u64)]) -> Result<HashMap<String, Duration>> {
        let Ok(now) = self.now() else { return Ok(HashMap::new()) };
        let dir = self.dir(MEMBERS);
        let age = |(member, beat): &(String, u64)| {
            // The file was just listed. After a false "not found", the report's own time is used.
            let changed = self.fs.changed(&dir.join(format!("{member}.{beat}"))).ok()?;
            Some((member.clone(), now.duration_since(changed).unwrap_or_default()))
        };
        Ok(beats.iter().filter_map(age).collect())
    }

    fn report(&self, member: &str, beat: u64) -> Result<Option<Report>> {
        let stored: Option<StoredReport> = self.read(&self.dir(MEMBERS).join(format!("{member}.{beat}")))?;
        Ok(stored.map(|stored| stored.report.after(beat.saturating_sub(stored.since))))
    }
}
