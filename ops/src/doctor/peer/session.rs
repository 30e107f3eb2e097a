//! The two processes exchange messages as names in a directory: `<side>.<number>.<kind>.<text>`. The receiver removes each
//! name.
//!
//! These names are in a separate directory, `words`. A client that sees a directory change looks up the names in it anew,
//! so messages beside a measured directory would refresh both clients' caches, and the doctor would see fewer stale results
//! than a ring does.

use super::super::{Check, Stop};
use super::Times;
use super::rendezvous::Pair;
use crate::probe::{Subject, delays};
use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{FsError, FsResult};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// B's last message: it has read the verdict.
const KNOWN: &str = "known";
/// Longest text of a message in bytes.
const TEXT: usize = 180;
/// Number of polls before the listing is refreshed, and interval of refreshes.
const PLAIN_LOOKS: u32 = 20;
const POKE: Duration = Duration::from_millis(100);
/// Longest time between two polls.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which the directory of a pair may seem to be missing.
const GONE: Duration = Duration::from_secs(1);
/// Largest verdict in bytes.
const MAX_VERDICT: u64 = 1 << 20;
/// Longest time for repetitions of a measurement.
const REPEAT_FOR: Duration = Duration::from_secs(2);
/// A's messages before each repetition, and after the last.
const MORE: &str = "more";
const ENOUGH: &str = "enough";

/// Why a session ended early.
#[derive(Debug)]
pub enum Trouble {
    /// The filesystem refused an operation, on this side or the other.
    Refused(String),
    /// The other side sent nothing for too long.
    Silent(Duration),
    /// The other side ended and removed the directory.
    Ended,
    /// The doctor was stopped.
    Stopped,
    /// The other side sent an unexpected message.
    Nonsense(String),
    /// A has sent the verdict.
    Verdict,
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

/// The result of a step.
pub type Attempt<T> = Result<T, Trouble>;

/// Maps a missing file to [`Trouble::Ended`], because only the other side removes the pair's directory, when it ends.
fn unless_ended(done: FsResult<()>) -> Attempt<()> {
    match done {
        Err(error) if error.is_gone() => Err(Trouble::Ended),
        done => Ok(done?),
    }
}

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A message of a step.
    Word,
    /// The filesystem refused an operation on the sender's side.
    Broken,
    /// The verdict is published.
    Verdict,
}

impl Answer {
    fn name(self) -> &'static str {
        match self {
            Answer::Word => "word",
            Answer::Broken => "broken",
            Answer::Verdict => "verdict",
        }
    }
}

/// One side of a pair.
pub struct Session {
    /// The filesystem to measure.
    pub subject: Subject,
    /// The pair's directory.
    pub dir: PathBuf,
    /// The directory of messages in it.
    words: PathBuf,
    /// Time limits.
    pub times: Times,
    /// Name of the current step.
    pub step: &'static str,
    /// Time of a message and its reply, once A has measured it.
    pub trip: Duration,
    stop: Stop,
    is_a: bool,
    sent: u64,
    received: u64,
}

impl Session {
    /// Creates this side of a pair.
    pub fn new(subject: Subject, met: &Pair, times: Times, stop: Stop) -> Session {
        let (dir, is_a, trip) = (met.dir.clone(), met.is_a, Duration::ZERO);
        let words = dir.join("words");
        Session { subject, dir, words, times, step: "", trip, stop, is_a, sent: 0, received: 0 }
    }

    /// Creates the directory of messages, unless the other side has.
    ///
    /// # Errors
    /// The filesystem's errors; the other side ended.
    pub(super) fn begin(&self) -> Attempt<()> {
        unless_ended(self.subject.fs.ensure_dir(&self.words))
    }

    fn side(is_a: bool) -> char {
        if is_a { 'a' } else { 'b' }
    }

    /// Sends a message. Characters of `text` that cannot be in a name are replaced.
    ///
    /// # Errors
    /// The filesystem's errors; the other side ended.
    pub fn send(&mut self, kind: Answer, text: &str) -> Attempt<()> {
        let text: String = text.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
        let end = (0..=text.len().min(TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let name =
            format!("{}.{}.{}.{}", Session::side(self.is_a), self.sent, kind.name(), text.get(..end).unwrap_or(""));
        self.sent += 1;
        unless_ended(self.subject.fs.create_new(&self.words.join(name)).and_then(|file| file.close()))
    }

    /// Sends a message of a step.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn say(&mut self, text: &str) -> Attempt<()> {
        self.send(Answer::Word, text)
    }

    /// Waits for the other side's next message.
    ///
    /// # Errors
    /// No message arrived; a message of another kind arrived.
    pub fn hear(&mut self) -> Attempt<String> {
        let start = format!("{}.{}.", Session::side(!self.is_a), self.received);
        let (begun, mut looks, mut gone, mut poked) = (Instant::now(), 0, None, Instant::now());
        loop {
            self.go_on()?;
            looks += 1;
            if looks > PLAIN_LOOKS && poked.elapsed() > POKE {
                self.poke();
                poked = Instant::now();
            }
            let looked = Instant::now();
            match self.subject.fs.list(&self.words) {
                Ok(names) => {
                    gone = None;
                    if let Some(name) = names.iter().find(|name| name.starts_with(&start)) {
                        self.received += 1;
                        let _ = self.subject.fs.forget_file(&self.words.join(name));
                        return Session::understood(name.get(start.len()..).unwrap_or_default());
                    }
                }
                Err(error) if error.is_gone() => {
                    if gone.get_or_insert_with(Instant::now).elapsed() > GONE {
                        return Err(Trouble::Ended);
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if begun.elapsed() > self.times.answer {
                return Err(Trouble::Silent(self.times.answer));
            }
            // Polls a slow server less often.
            std::thread::sleep(looked.elapsed().clamp(delays::LOOK, PAUSE));
        }
    }

    fn understood(message: &str) -> Attempt<String> {
        match message.split_once('.') {
            Some(("word", text)) => Ok(text.to_owned()),
            Some(("broken", text)) => Err(Trouble::Refused(format!("on the other node: {text}"))),
            Some(("verdict", _)) => Err(Trouble::Verdict),
            _ => Err(Trouble::Nonsense(message.to_owned())),
        }
    }

    /// Waits for exactly this message.
    ///
    /// # Errors
    /// As [`Session::hear`].
    pub fn expect(&mut self, word: &str) -> Attempt<()> {
        let heard = self.hear()?;
        if heard == word { Ok(()) } else { Err(Trouble::Nonsense(heard)) }
    }

    /// Returns whether A measures round `round` of at most `most`, and tells B. A slow filesystem gets fewer rounds: after
    /// the first one, none begins later than [`REPEAT_FOR`] after `begun`.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn goes_on(&mut self, begun: Instant, round: usize, most: usize) -> Attempt<bool> {
        let more = round == 0 || (round < most && begun.elapsed() < REPEAT_FOR);
        self.say(if more { MORE } else { ENOUGH })?;
        Ok(more)
    }

    /// Waits for A's message, and returns whether it measures another round.
    ///
    /// # Errors
    /// As [`Session::hear`].
    pub fn goes_on_there(&mut self) -> Attempt<bool> {
        match self.hear()?.as_str() {
            MORE => Ok(true),
            ENOUGH => Ok(false),
            other => Err(Trouble::Nonsense(other.to_owned())),
        }
    }

    /// Creates and removes a name, so that clients that cache listings refresh them.
    fn poke(&self) {
        let path = self.words.join(format!("look.{}", Session::side(self.is_a)));
        if let Ok(file) = self.subject.fs.create_new(&path) {
            let _ = file.close();
        }
        let _ = self.subject.fs.forget_file(&path);
    }

    /// Checks whether to stop.
    ///
    /// # Errors
    /// The doctor was stopped.
    pub fn go_on(&self) -> Attempt<()> {
        if (self.stop)() { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Polls until `seen` returns true or `limit` is over. Returns whether it was seen.
    ///
    /// # Errors
    /// The doctor was stopped.
    pub fn until(&self, limit: Duration, mut seen: impl FnMut() -> bool) -> Attempt<bool> {
        let mut stopped = false;
        let at = delays::until(limit, || {
            stopped = self.go_on().is_err();
            stopped || seen()
        });
        if stopped { Err(Trouble::Stopped) } else { Ok(at.is_some()) }
    }

    /// Creates a directory in the pair's directory.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn make_dir(&self, name: &str) -> FsResult<PathBuf> {
        let path = self.dir.join(name);
        self.subject.fs.make_dir(&path).map(|()| path)
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// The filesystem's errors.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> FsResult<()> {
        write_new(&*self.subject.fs, path, bytes, true)
    }

    /// Publishes A's verdict, and waits until B has read it. B may send other messages before.
    pub(super) fn publish_verdict(&mut self, checks: &[Check]) -> Attempt<()> {
        let bytes = serde_json::to_vec(checks).map_err(|error| Trouble::Nonsense(error.to_string()))?;
        let temp = self.dir.join("verdict.new");
        unless_ended(self.write(&temp, &bytes))?;
        unless_ended(self.subject.fs.rename(&temp, &self.dir.join("verdict")))?;
        self.send(Answer::Verdict, "")?;
        loop {
            match self.hear() {
                Err(Trouble::Stopped) => return Err(Trouble::Stopped),
                Ok(word) if word != KNOWN => {}
                Err(Trouble::Refused(_)) => {} // B failed in the step, and waits for the verdict too
                _ => return Ok(()),            // B has read it, or ended
            }
        }
    }

    /// Waits for A's verdict.
    pub(super) fn await_verdict(&mut self) -> Attempt<Vec<Check>> {
        loop {
            match self.hear() {
                Err(Trouble::Verdict) => return self.read_verdict(),
                Err(trouble) => return Err(trouble),
                Ok(_) => {}
            }
        }
    }

    pub(super) fn read_verdict(&mut self) -> Attempt<Vec<Check>> {
        let (path, begun) = (self.dir.join("verdict"), Instant::now());
        loop {
            let read = self.subject.fs.read(&path, MAX_VERDICT);
            if let Some(checks) = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                self.say(KNOWN)?;
                return Ok(checks);
            }
            self.go_on()?;
            if begun.elapsed() > self.times.answer {
                return Err(Trouble::Silent(self.times.answer));
            }
            std::thread::sleep(POKE);
        }
    }

    /// Describes what happened, and what to do.
    pub(super) fn in_words(&self, trouble: Trouble) -> String {
        let step = self.step;
        match trouble {
            Trouble::Refused(what) => format!("{what} (while measuring: {step})"),
            Trouble::Silent(limit) => format!(
                "the other side sent nothing for {:.0} s (while measuring: {step}): check whether it was killed or lost \
                 this filesystem",
                limit.as_secs_f64()
            ),
            Trouble::Ended => format!("the other side ended early (while measuring: {step}): see its output"),
            Trouble::Stopped => format!("interrupted (while measuring: {step})"),
            Trouble::Nonsense(said) => {
                format!("the other side sent {said:?} (while measuring: {step}): check that it has the same version")
            }
            Trouble::Verdict => format!("the other side sent its verdict early (while measuring: {step})"),
        }
    }
}
