//! A fault that lets a closure decide each call's fate.

use crate::fault::{Answer, Call, EINTR, Fault, FaultyFs, NETWORK, Next};
use ringreel::fs::{Fs, FsResult, Posix};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The fate of a call.
pub enum Action {
    Pass,
    /// Fails with this errno, without effect. A failing write has written half, unless the errno is EINTR, which means
    /// that nothing was written.
    Refuse(i32),
    /// Takes effect, and returns this errno: a lost reply.
    LoseReply(i32),
    /// Takes effect on another path: a client that resolves a directory by an old name.
    Elsewhere(PathBuf),
    /// Writes half of a write, and reports that.
    Short,
    /// Takes effect; then this runs, before the caller gets the answer.
    Then(Box<dyn FnOnce() + Send>),
}

/// Calls that change something.
pub const CHANGES: [&str; 10] =
    ["create", "make_dir", "link", "rename", "remove_file", "remove_dir", "write", "write_over", "sync", "close"];

type Decide = dyn Fn(usize, &str, &Path) -> Action + Send + Sync;

/// A filesystem with a hook before each call.
pub type HookFs = FaultyFs<Hook>;

/// Decides about each call by its number, its name ([`Call::op`]) and its path.
#[derive(Default)]
pub struct Hook {
    /// Whether the filesystem reports that other machines share it.
    is_network: bool,
    calls: AtomicUsize,
    decide: RwLock<Option<Box<Decide>>>,
}

impl Default for HookFs {
    /// On the real filesystem.
    fn default() -> HookFs {
        HookFs::on(Posix)
    }
}

impl HookFs {
    /// On another filesystem.
    pub fn on(inner: impl Fs + 'static) -> HookFs {
        FaultyFs::with(inner, Hook::default())
    }

    /// On the real filesystem, as if other machines shared it.
    pub fn on_a_network() -> HookFs {
        FaultyFs::with(Posix, Hook { is_network: true, ..Hook::default() })
    }
}

impl Hook {
    /// From now on, numbers calls from 0, and lets `decide` decide about them.
    pub fn hook(&self, decide: impl Fn(usize, &str, &Path) -> Action + Send + Sync + 'static) {
        self.calls.store(0, Ordering::SeqCst);
        *self.decide.write().unwrap() = Some(Box::new(decide));
    }

    pub fn unhook(&self) {
        *self.decide.write().unwrap() = None;
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn action(&self, call: &Call<'_>) -> Action {
        let n = self.calls.fetch_add(1, Ordering::SeqCst);
        self.decide.read().unwrap().as_ref().map_or(Action::Pass, |decide| decide(n, call.op, call.path))
    }
}

impl Fault for Hook {
    fn around(&self, call: Call<'_>, next: Next<'_>) -> FsResult<Answer> {
        let len = call.bytes.len();
        let answer = match self.action(&call) {
            Action::Refuse(EINTR) if call.op == "write" => Err(call.error(EINTR)),
            Action::Refuse(errno) if matches!(call.op, "write" | "write_over") => {
                next(call.shortened(len / 2)).and_then(|_| Err(call.error(errno)))
            }
            Action::Refuse(errno) => Err(call.error(errno)),
            Action::LoseReply(errno) => next(call).and_then(|_| Err(call.error(errno))),
            Action::Elsewhere(other) => next(call.at(&other)),
            Action::Short if call.op == "write" => next(call.shortened(len.div_ceil(2))),
            Action::Short | Action::Pass => next(call),
            Action::Then(then) => {
                let answer = next(call);
                then();
                answer
            }
        };
        if call.op == "kind" && self.is_network { answer.map(|_| NETWORK.into()) } else { answer }
    }
}
