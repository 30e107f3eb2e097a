//! Who reads a mapped file that somebody truncates is not ended by SIGBUS.
//!
//! Maps are registered in a table. A handler for SIGBUS, put in place with the first of them, looks whether the address
//! lies in a registered map; if so, it puts zeros there and marks the map as torn. The instruction is then done again and
//! reads the zeros. All else goes to whoever handled SIGBUS before, or ends the process as it would have. (systemd's
//! journal reader does the same: `src/basic/sigbus.c`.)
//!
//! - Reading costs nothing. A map costs one registration, a map that is taken down another one.
//! - [`is_truncated`] tells whether bytes lie in such a map: asked after bytes were checked, and before they are given away.
//!   [`newly_torn`] gives each torn file's path once: for what was torn in the hands of a user.
//! - A handler that others put above ours (Python's faulthandler, torch's workers) keeps ours from working until the next
//!   map is made: then ours is put above it again, and calls it for all that is not ours. It may hand on to the one that it
//!   found, which is ours: then the one before it is called, and in the end the default. One that returns and has mended
//!   nothing is called for the same fault a thousand times at most.
//! - One that is above ours and gives way by raising the signal anew (faulthandler does) is let do so: a fault comes
//!   again at once, to us. For the same reason one SIGBUS that a thread sends to itself is let pass, while there are maps.
//! - A child made by fork has table and handler as its parent had. There are no locks that it could find locked.
//!
//! The handler may interrupt anything, so it takes no lock, allocates nothing, and calls only what signal-safety(7)
//! allows, and mmap(2), which is a system call and nothing else on Linux.
#![allow(unsafe_code)]

use libc::{c_int, c_void, sigaction, siginfo_t};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize};

/// Maps in one block of the table, and blocks at most: a million maps, sixteen times what Linux allows a process by
/// default.
const BLOCK: usize = 1024;
const BLOCKS: usize = 1024;
/// si_code: an address behind the end of the file, or that cannot be read. (Not: broken memory.)
const BUS_ADRERR: c_int = 2;
/// si_code: sent by tgkill(2), as raise(3) does.
const SI_TKILL: c_int = -6;

/// One registered map.
struct Slot {
    taken: AtomicBool,
    /// First byte; 0: nothing is here. Set after the others, and cleared before them.
    start: AtomicUsize,
    end: AtomicUsize,
    writable: AtomicBool,
    /// Times that a page of it was missing.
    faults: AtomicU32,
    /// Its file's name, until it is torn.
    name: AtomicPtr<Name>,
}

/// A file's path, in the list of those that were torn.
struct Name {
    path: PathBuf,
    next: *mut Name,
}

/// A handler that was found in place.
struct Previous {
    action: sigaction,
    /// The one that was found before it.
    earlier: *const Previous,
}

/// A call of the handlers that were there before.
struct HandedOn {
    thread: AtomicI32,
    /// Address of the system's account of the signal, and of something on the stack of the call.
    info: AtomicUsize,
    frame: AtomicUsize,
    /// Which of the handlers was called: 0 is the last one that was found.
    level: AtomicUsize,
    /// Where the fault was, and how often it came from there.
    address: AtomicUsize,
    times: AtomicU32,
}

impl HandedOn {
    const fn new() -> HandedOn {
        HandedOn {
            thread: AtomicI32::new(0),
            info: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            level: AtomicUsize::new(0),
            address: AtomicUsize::new(0),
            times: AtomicU32::new(0),
        }
    }

    /// Notes a call of this thread. Says which handler is to be called, how often this fault came already, and where the
    /// call before was.
    ///
    /// A handler that we called and that calls us has the same account of the signal, on a deeper stack. (One that left by
    /// siglongjmp has not: its next fault finds the stack as it was.)
    fn note(&self, thread: c_int, info: usize, frame: usize, address: usize) -> (usize, u32, usize) {
        let is_mine = self.thread.swap(thread, Relaxed) == thread;
        let (info_before, frame_before) = (self.info.swap(info, Relaxed), self.frame.swap(frame, Relaxed));
        let is_nested = is_mine && info_before == info && frame < frame_before;
        let level = if is_nested { self.level.load(Relaxed) + 1 } else { 0 };
        let is_again = is_mine && frame_before == frame && self.address.swap(address, Relaxed) == address;
        let times = match (is_nested, is_again) {
            (true, _) => self.times.load(Relaxed),
            (_, true) => self.times.load(Relaxed).saturating_add(1),
            (_, false) => 0,
        };
        self.level.store(level, Relaxed);
        self.times.store(times, Relaxed);
        (level, times, frame_before)
    }

    /// The call is over. What comes now from the one around it is nested in that.
    fn is_over(&self, level: usize, frame_before: usize) {
        if let Some(around) = level.checked_sub(1) {
            self.level.store(around, Relaxed);
            self.frame.store(frame_before, Relaxed);
        }
    }
}

type Block = [Slot; BLOCK];

static TABLE: [AtomicPtr<Block>; BLOCKS] = [const { AtomicPtr::new(null_mut()) }; BLOCKS];
/// No slot before this one is free, as far as is known.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);
/// Maps that are registered.
static MAPS: AtomicUsize = AtomicUsize::new(0);
/// Maps that were torn since the process began.
static TRUNCATED: AtomicUsize = AtomicUsize::new(0);
/// Of them, those that are registered still.
static LIVE_TORN: AtomicUsize = AtomicUsize::new(0);
/// Paths of torn maps that were not asked for yet.
static NAMES: AtomicPtr<Name> = AtomicPtr::new(null_mut());
/// What handled SIGBUS before, the last one first.
static PREVIOUS: AtomicPtr<Previous> = AtomicPtr::new(null_mut());
/// What was handed on last, by each thread. (Threads may share a place: then one of them forgets.)
static HANDED_ON: [HandedOn; 64] = [const { HandedOn::new() }; 64];
/// A fault that was handed on so often, and comes again from the same place each time, is mended by nobody.
const PATIENCE: u32 = 1000;
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// A thread has sent itself a SIGBUS since the last fault.
static RAISED: AtomicBool = AtomicBool::new(false);

/// A map in the table; dropping it takes it out. To be dropped before the map is taken down.
#[derive(Debug)]
pub(super) struct Registered {
    slot: &'static Slot,
    number: usize,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("faults", &self.faults).finish_non_exhaustive()
    }
}

/// Registers the map of `len` bytes at `start`, of the file at `path`, and sees to it that the handler is in place.
///
/// # Errors
/// What the system says against a handler; a table that is full.
pub(super) fn register(start: usize, len: usize, writable: bool, path: &Path) -> io::Result<Registered> {
    ensure_handler()?;
    let page = PAGE.load(Relaxed);
    let (number, slot) = take_slot().ok_or_else(|| io::Error::other("more than a million maps in one process"))?;
    slot.end.store((start + len).next_multiple_of(page), Relaxed);
    slot.writable.store(writable, Relaxed);
    slot.faults.store(0, Relaxed);
    slot.name.store(Box::into_raw(Box::new(Name { path: path.to_owned(), next: null_mut() })), Relaxed);
    slot.start.store(start & !(page - 1), Release);
    MAPS.fetch_add(1, Relaxed);
    Ok(Registered { slot, number })
}

impl Drop for Registered {
    fn drop(&mut self) {
        MAPS.fetch_sub(1, Relaxed);
        self.slot.start.store(0, Release);
        if self.slot.faults.load(Acquire) > 0 {
            LIVE_TORN.fetch_sub(1, AcqRel);
        }
        let name = self.slot.name.swap(null_mut(), AcqRel);
        if !name.is_null() {
            // SAFETY: it came from Box::into_raw in `register`, and who swaps it out of the slot is its only owner.
            drop(unsafe { Box::from_raw(name) });
        }
        self.slot.taken.store(false, Release);
        FREE_FROM.fetch_min(self.number, Relaxed);
    }
}

/// Whether `bytes` lie in a map of which pages were missing when somebody looked: what they show there is zeros.
pub fn is_truncated(bytes: &[u8]) -> bool {
    LIVE_TORN.load(Acquire) > 0 && find(bytes.as_ptr() as usize).is_some_and(|slot| slot.faults.load(Acquire) > 0)
}

/// Maps that were torn since the process began.
pub fn torn() -> usize {
    TRUNCATED.load(Acquire)
}

/// The files whose maps were torn since this was asked last, by anybody in this process.
pub fn newly_torn() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if NAMES.load(Relaxed).is_null() {
        return paths;
    }
    let mut next = NAMES.swap(null_mut(), AcqRel);
    while !next.is_null() {
        // SAFETY: each came from Box::into_raw in `register` and was put into the list once, by the one who swapped it out
        // of its slot; the whole list is ours since the swap.
        let name = unsafe { Box::from_raw(next) };
        next = name.next;
        paths.push(name.path);
    }
    paths
}

/// A free slot, and its number.
fn take_slot() -> Option<(usize, &'static Slot)> {
    let from = FREE_FROM.load(Relaxed);
    for number in (from..BLOCK * BLOCKS).chain(0..from) {
        let slot = &block(number / BLOCK)[number % BLOCK];
        if !slot.taken.load(Relaxed) && slot.taken.compare_exchange(false, true, AcqRel, Relaxed).is_ok() {
            FREE_FROM.store(number + 1, Relaxed);
            return Some((number, slot));
        }
    }
    None
}

/// A block of the table, made where it is not there yet. It stays for ever.
fn block(number: usize) -> &'static Block {
    let place = &TABLE[number];
    let mut block = place.load(Acquire);
    if block.is_null() {
        let free = || Slot {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            writable: AtomicBool::new(false),
            faults: AtomicU32::new(0),
            name: AtomicPtr::new(null_mut()),
        };
        let new = Box::into_raw(Box::new(std::array::from_fn(|_| free())));
        block = match place.compare_exchange(null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(there) => {
                // SAFETY: made by Box::into_raw just now, and seen by nobody else: another thread's was first.
                drop(unsafe { Box::from_raw(new) });
                there
            }
        };
    }
    // SAFETY: what stands in the table came from Box::into_raw and is never freed. All of it is atomics.
    unsafe { &*block }
}

/// The registered map in which this address lies. Used in the handler.
fn find(address: usize) -> Option<&'static Slot> {
    for place in &TABLE {
        let block = place.load(Acquire);
        if block.is_null() {
            return None; // they are made in order
        }
        // SAFETY: as in `block`.
        for slot in unsafe { &*block } {
            let start = slot.start.load(Acquire);
            // The slot may be given to another map meanwhile; then its start is another, or both numbers are the new map's.
            let inside = start != 0 && (start..slot.end.load(Acquire)).contains(&address);
            if inside && slot.start.load(Acquire) == start {
                return Some(slot);
            }
        }
    }
    None
}

/// Bytes of a page of memory.
pub(super) fn page() -> usize {
    if PAGE.load(Relaxed) == 0 {
        // SAFETY: it takes and gives a number.
        PAGE.store(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize, Relaxed);
    }
    PAGE.load(Relaxed)
}

/// What handles SIGBUS now.
fn current() -> io::Result<sigaction> {
    // SAFETY: all zeros are a value of this structure of numbers and optional pointers; the call only writes to it.
    let (result, now) = unsafe {
        let mut now: sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGBUS, null(), &raw mut now), now)
    };
    if result == 0 { Ok(now) } else { Err(io::Error::last_os_error()) }
}

fn is_ours(action: &sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Puts our handler above whatever is there, unless it is there itself.
fn ensure_handler() -> io::Result<()> {
    let there = current()?;
    if is_ours(&there) {
        return Ok(());
    }
    page(); // the handler knows it from here
    remember(there);
    // SAFETY: as in `current`; `handle` is what SA_SIGINFO asks for. On the alternative stack, if the thread has one: so
    // that it can call a handler that needs it.
    let (result, before) = unsafe {
        let (mut ours, mut before): (sigaction, sigaction) = std::mem::zeroed();
        ours.sa_sigaction = handle as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        (libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before), before)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if !is_ours(&before) && before.sa_sigaction != there.sa_sigaction {
        remember(before); // put there between the two calls
    }
    Ok(())
}

/// It is kept for ever, since the handler may be using it. Nobody puts many different ones in place: one that is known is
/// not kept twice.
fn remember(action: sigaction) {
    let last = PREVIOUS.load(Acquire);
    let is_same = |known: &sigaction| (known.sa_sigaction, known.sa_flags) == (action.sa_sigaction, action.sa_flags);
    // SAFETY: what stands there came from Box::into_raw below and is never freed.
    let same = unsafe { last.as_ref() }.is_some_and(|known| is_same(&known.action));
    if !same {
        PREVIOUS.store(Box::into_raw(Box::new(Previous { action, earlier: last })), Release);
    }
}

/// The handler that was found `level` handlers before the last one.
fn previous(level: usize) -> Option<&'static sigaction> {
    let mut found = PREVIOUS.load(Acquire).cast_const();
    for _ in 0..level {
        // SAFETY: as in `remember`: all of the list stays for ever, and is never changed.
        found = unsafe { found.as_ref() }.map_or(null(), |previous| previous.earlier);
    }
    // SAFETY: the same.
    unsafe { found.as_ref() }.map(|previous| &previous.action)
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system calls us with SA_SIGINFO, so `info` is valid; `si_addr` and `si_pid` are read where `si_code` says
    // that they are there. errno belongs to this thread.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let code = (*info).si_code;
        let done = if code == BUS_ADRERR {
            RAISED.store(false, Relaxed);
            mend((*info).si_addr() as usize)
        } else {
            let raised = code == SI_TKILL && (*info).si_pid() == libc::getpid() && MAPS.load(Relaxed) > 0;
            raised && !RAISED.swap(true, Relaxed)
        };
        if !done {
            pass_on(signal, info, context);
        }
        *errno = before;
    }
}

/// Puts zeros where the file has none. Each time more of them: a map that lost its file costs few faults, and a page of
/// a disk that cannot be read costs that page. Pages of a private map that a user has written into stay as they are.
/// False: the address is not ours, or there is no memory.
fn mend(address: usize) -> bool {
    let Some(slot) = find(address) else { return false };
    let page = PAGE.load(Relaxed);
    // Marked before the zeros are there: who reads them without a fault is to know.
    let times = slot.faults.fetch_add(1, AcqRel);
    if times == 0 {
        TRUNCATED.fetch_add(1, AcqRel);
        LIVE_TORN.fetch_add(1, AcqRel);
    }
    let at = address & !(page - 1);
    let most = (slot.end.load(Acquire) - at).min(page << times.min(30));
    let is_writable = slot.writable.load(Relaxed);
    let len = if is_writable { page * unwritten(at / page, most / page) } else { most };
    if len == 0 {
        return true; // another thread has mended this page, and may have written into it
    }
    let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the pages lie in a map of ours that is not taken down: this thread is reading it. They are beyond the file's
    // end, or cannot be read, or follow such a page in a file that is not what it was; nobody can rely on what is there.
    // Of a private map, none of them was written into when `unwritten` looked.
    let zeros = unsafe { libc::mmap(at as *mut c_void, len, protection, flags, -1, 0) };
    if zeros == libc::MAP_FAILED {
        return false;
    }
    let name = slot.name.swap(null_mut(), AcqRel);
    if !name.is_null() {
        let mut first = NAMES.load(Relaxed);
        loop {
            // SAFETY: it came from Box::into_raw in `register`, and is ours since the swap.
            unsafe { (*name).next = first };
            match NAMES.compare_exchange(first, name, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
    }
    true
}

/// How many pages of a private map, from page number `first` on and `most` at most, are the file's or nobody's. 0: the first
/// one is in memory and is not the file's. Used in the handler. Where the system does not tell, only the first page is known:
/// it has just failed to be read.
fn unwritten(first: usize, most: usize) -> usize {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    let mut entries = [0u64; 64]; // small: the alternate stack of a signal handler may have a page left
    let bytes = most.min(entries.len()) * size_of::<u64>();
    // SAFETY: the path ends with a zero; the call to pread writes `bytes` bytes at most to `entries`, which is as long or
    // longer; the file is closed once. signal-safety(7) allows all three calls.
    let read = unsafe {
        let table = libc::open(c"/proc/self/pagemap".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if table < 0 {
            return 1;
        }
        let at = (first * size_of::<u64>()) as libc::off_t;
        let read = libc::pread(table, entries.as_mut_ptr().cast(), bytes, at);
        libc::close(table);
        usize::try_from(read).unwrap_or(0) / size_of::<u64>()
    };
    let is_users = |entry: &u64, there: u64| entry & there != 0 && entry & OF_A_FILE == 0;
    match entries[..read].first() {
        Some(entry) if is_users(entry, PRESENT) => 0, // a page that is swapped out may be what failed
        _ => 1 + entries[..read].iter().skip(1).take_while(|entry| !is_users(entry, PRESENT | SWAPPED)).count(),
    }
}

/// What would have happened without us.
///
/// # Safety
/// Called by the handler, with its arguments.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: what stands in PREVIOUS was given by sigaction(2) and is never freed; a handler in it is called as its flags
    // say. The other calls take numbers, and addresses of values that live until they return.
    unsafe {
        let was_sent = (*info).si_code <= 0;
        // glibc has gettid(2) as a function from 2.30 on only; the wheels run with 2.17.
        let thread = libc::syscall(libc::SYS_gettid) as libc::pid_t;
        let frame = &raw const was_sent as usize;
        let address = if was_sent { 0 } else { (*info).si_addr() as usize };
        let calls = &HANDED_ON[thread as usize % HANDED_ON.len()];
        let (level, times, frame_before) = calls.note(thread, info as usize, frame, address);
        let previous = previous(level).filter(|_| was_sent || times < PATIENCE);
        let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
        if handler == libc::SIG_IGN && was_sent {
            return;
        }
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            restore_default(signal);
            if was_sent {
                libc::raise(signal); // it comes when we have returned; a fault comes again by itself
            }
            return;
        }
        if previous.is_some_and(|previous| previous.sa_flags & libc::SA_RESETHAND != 0) {
            restore_default(signal); // it is to be called once
        }
        if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) {
            let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(c_int) = std::mem::transmute(handler);
            call(signal);
        }
        calls.is_over(level, frame_before);
        // It gave way by raising the signal anew, for whom it found before itself. If that was us, there is nobody else.
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        if libc::sigismember(&raw const pending, signal) == 1 && current().is_ok_and(|now| is_ours(&now)) {
            restore_default(signal);
        }
    }
}

fn restore_default(signal: c_int) {
    // SAFETY: as in `current`.
    unsafe {
        let mut default: sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, null_mut());
    }
}
