//! Two who met talk by names in a directory: `<side>.<number>.<kind>.<text>`, each read once and removed.
//!
//! These names have a directory to themselves, `words`. A client that sees a directory change asks
//! the server anew about the names in it. Names that come and go beside a measured directory would
//! make both clients forget what they remember of it, and the doctor would see fewer stale answers
//! than a ring does.

use super::super::{Check, Stop};
use super::Times;
use super::rendezvous::Pair;
use crate::probe::{Subject, delays};
use ringreel::fs::atomic_publish::write_new;
use ringreel::fs::{FsError, FsResult};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// B's last word: it has read the verdict.
const KNOWN: &str = "known";
/// Longest text.
const TEXT: usize = 180;
/// Looks without a name of our own, and time between looks with one.
const PLAIN_LOOKS: u32 = 20;
const POKE: Duration = Duration::from_millis(100);
/// Longest time between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// For so long the directory of a pair may seem to be gone.
const GONE: Duration = Duration::from_secs(1);
/// Largest verdict.
const MAX_VERDICT: u64 = 1 << 20;
/// Longest time that a step spends on repeating what it measures, after the first time.
const REPEAT_FOR: Duration = Duration::from_secs(2);
/// A says these before each repetition, and when there are enough.
const MORE: &str = "more";
const ENOUGH: &str = "enough";

/// Why it did not go on.
#[derive(Debug)]
pub enum Trouble {
    /// The filesystem refused something, on this side or the other.
    Refused(String),
    /// The other side said nothing for too long.
    Silent(Duration),
    /// The other side took everything away.
    Ended,
    /// The caller asked to stop.
    Stopped,
    /// The other side said something that makes no sense here.
    Nonsense(String),
    /// A has made up its mind.
    Verdict,
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

/// Short for what a step returns.
pub type Attempt<T> = Result<T, Trouble>;

/// Nobody but the other side, which cleans up when it ends, removes the pair's directory and what was just written there.
fn unless_ended(done: FsResult<()>) -> Attempt<()> {
    match done {
        Err(error) if error.is_gone() => Err(Trouble::Ended),
        done => Ok(done?),
    }
}

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of a step.
    Word,
    /// The filesystem refused something there.
    Broken,
    /// The verdict is there.
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
    /// What is measured.
    pub subject: Subject,
    /// The pair's own directory.
    pub dir: PathBuf,
    /// Where the two talk, below it.
    words: PathBuf,
    /// See there.
    pub times: Times,
    /// What is being done.
    pub step: &'static str,
    /// Time of a name and its answer, once that was measured (by A).
    pub trip: Duration,
    stop: Stop,
    is_a: bool,
    sent: u64,
    received: u64,
}

impl Session {
    /// This side of those who met.
    pub fn new(subject: Subject, met: &Pair, times: Times, stop: Stop) -> Session {
        let (dir, is_a, trip) = (met.dir.clone(), met.is_a, Duration::ZERO);
        let words = dir.join("words");
        Session { subject, dir, words, times, step: "", trip, stop, is_a, sent: 0, received: 0 }
    }

    /// Makes the directory in which the two talk. The other side may have made it.
    ///
    /// # Errors
    /// What the filesystem says; the other side is gone.
    pub(super) fn begin(&self) -> Attempt<()> {
        unless_ended(self.subject.fs.ensure_dir(&self.words))
    }

    fn side(is_a: bool) -> char {
        if is_a { 'a' } else { 'b' }
    }

    /// Says something. Of `text`, what cannot stand in a name is left out.
    ///
    /// # Errors
    /// What the filesystem says; the other side is gone.
    pub fn send(&mut self, kind: Answer, text: &str) -> Attempt<()> {
        let text: String = text.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
        let end = (0..=text.len().min(TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let name =
            format!("{}.{}.{}.{}", Session::side(self.is_a), self.sent, kind.name(), text.get(..end).unwrap_or(""));
        self.sent += 1;
        unless_ended(self.subject.fs.create_new(&self.words.join(name)).and_then(|file| file.close()))
    }

    /// Says a word.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn say(&mut self, text: &str) -> Attempt<()> {
        self.send(Answer::Word, text)
    }

    /// Waits for the other side's next word.
    ///
    /// # Errors
    /// It does not come; another message came.
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
            // A slow server is not asked all the time.
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

    /// Waits for just this word.
    ///
    /// # Errors
    /// As [`Session::hear`].
    pub fn expect(&mut self, word: &str) -> Attempt<()> {
        let heard = self.hear()?;
        if heard == word { Ok(()) } else { Err(Trouble::Nonsense(heard)) }
    }

    /// Returns whether A measures a `round` more, of `most` at most, and tells B. A slow filesystem
    /// gets fewer rounds: after the first one, none begins later than [`REPEAT_FOR`] after `begun`.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn goes_on(&mut self, begun: Instant, round: usize, most: usize) -> Attempt<bool> {
        let more = round == 0 || (round < most && begun.elapsed() < REPEAT_FOR);
        self.say(if more { MORE } else { ENOUGH })?;
        Ok(more)
    }

    /// Returns whether A measures a round more.
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

    /// A name comes and goes: clients that remember listings look again.
    fn poke(&self) {
        let path = self.words.join(format!("look.{}", Session::side(self.is_a)));
        if let Ok(file) = self.subject.fs.create_new(&path) {
            let _ = file.close();
        }
        let _ = self.subject.fs.forget_file(&path);
    }

    /// Fails when somebody asked to stop.
    ///
    /// # Errors
    /// That.
    pub fn go_on(&self) -> Attempt<()> {
        if (self.stop)() { Err(Trouble::Stopped) } else { Ok(()) }
    }

    /// Looks until `seen`, or until `limit` is over. Returns whether it was seen.
    ///
    /// # Errors
    /// The caller asked to stop.
    pub fn until(&self, limit: Duration, mut seen: impl FnMut() -> bool) -> Attempt<bool> {
        let mut stopped = false;
        let at = delays::until(limit, || {
            stopped = self.go_on().is_err();
            stopped || seen()
        });
        if stopped { Err(Trouble::Stopped) } else { Ok(at.is_some()) }
    }

    /// Makes a directory of the pair's.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn make_dir(&self, name: &str) -> FsResult<PathBuf> {
        let path = self.dir.join(name);
        self.subject.fs.make_dir(&path).map(|()| path)
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// What the filesystem says.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> FsResult<()> {
        write_new(&*self.subject.fs, path, bytes, true)
    }

    /// Sends A's verdict, and waits until B has read it. B may have said more before it hears of the verdict.
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
                Err(Trouble::Refused(_)) => {} // B gave up the step, and waits for the verdict, too
                _ => return Ok(()),            // B knows, or went away
            }
        }
    }

    /// B waits for what A found.
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

    /// What happened, and what to do.
    pub(super) fn in_words(&self, trouble: Trouble) -> String {
        let step = self.step;
        match trouble {
            Trouble::Refused(what) => format!("{what} (while measuring: {step})"),
            Trouble::Silent(limit) => format!(
                "the other side has said nothing for {:.0} s (while measuring: {step}): was it killed, or has it lost \
                 this filesystem?",
                limit.as_secs_f64()
            ),
            Trouble::Ended => format!("the other side ended early (while measuring: {step}): see what it says"),
            Trouble::Stopped => format!("interrupted (while measuring: {step})"),
            Trouble::Nonsense(said) => {
                format!("the other side said {said:?} (while measuring: {step}): is it a ringreel of this version?")
            }
            Trouble::Verdict => format!("the other side made up its mind (while measuring: {step})"),
        }
    }
}
