//! Keeps the process alive when a mapped file is truncated underneath it.
//!
//! Maps are registered in a table. A handler for SIGBUS, installed with the first map, checks
//! whether the fault address is in a registered map. If so, it maps zeros there and marks the map
//! as truncated; the faulting instruction is then repeated and reads the zeros. All other signals go to
//! the previous handler, or end the process as they would have without this one. (systemd's journal
//! reader does the same: `src/basic/sigbus.c`.)
//!
//! - Reads cost nothing. A map costs one registration, and one more operation when it is unmapped.
//! - [`is_truncated`] returns whether bytes are in a truncated map. Readers call it after the bytes were
//!   checked and before they are handed out. [`newly_truncated`] returns the path of each truncated file
//!   once, for maps that were truncated after they were handed out.
//! - If other code installs a handler above this one (Python's faulthandler, torch's workers), this
//!   one does not run until the next map is made. Then it is installed again above the other, and
//!   calls the other for every fault that is not in a registered map. The other may in turn call
//!   the handler that it found, which is this one; then the handler before it is called, and in the
//!   end the default action. A handler that returns without having resolved the fault is called for
//!   the same fault at most a thousand times.
//! - A handler above this one that gives way by raising the signal again (as faulthandler does) may
//!   do so: a fault recurs at once, and then reaches this handler. For the same reason, one SIGBUS
//!   that a thread sends to itself is ignored while maps are registered.
//! - A forked child has the table and the handler of its parent. There are no locks that could be
//!   held at the fork.
//!
//! The handler may interrupt any code, so it takes no lock, allocates nothing, and calls only
//! functions that signal-safety(7) allows, and mmap(2), which is a plain system call on Linux.
#![allow(unsafe_code)]

use libc::{c_int, c_void, sigaction, siginfo_t};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize};

/// Number of maps per block of the table, and maximum number of blocks: together a million maps,
/// sixteen times what Linux allows a process by default.
const BLOCK: usize = 1024;
const BLOCKS: usize = 1024;
/// si_code: an address beyond the end of the file, or one that cannot be read. (Not a hardware
/// memory error.)
const BUS_ADRERR: c_int = 2;
/// si_code: sent by tgkill(2), which raise(3) uses.
const SI_TKILL: c_int = -6;

/// One registered map.
#[derive(Default)]
struct Slot {
    taken: AtomicBool,
    /// First byte of the map; 0 if the slot is empty. Set after the other fields, and cleared
    /// before them.
    start: AtomicUsize,
    end: AtomicUsize,
    writable: AtomicBool,
    /// Number of faults in the map.
    faults: AtomicU32,
    /// The path of its file, until the map is truncated.
    name: AtomicPtr<Name>,
}

/// The path of a file, as an element of the list of truncated files.
struct Name {
    path: PathBuf,
    next: *mut Name,
}

/// A handler that was installed before ours.
struct Previous {
    action: sigaction,
    /// The handler that was found before this one.
    earlier: *const Previous,
}

/// A call of a previous handler.
struct HandedOn {
    thread: AtomicI32,
    /// Address of the signal's siginfo, and an address on the stack of the call.
    info: AtomicUsize,
    frame: AtomicUsize,
    /// Which previous handler was called; 0 is the last one that was found.
    level: AtomicUsize,
    /// Address of the fault, and how often it has recurred from there.
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

    /// Records a call by this thread. Returns which previous handler to call, how often this fault
    /// has recurred, and the stack address of the previous call.
    ///
    /// If a previous handler calls this one, the call has the same siginfo on a deeper stack. (A
    /// handler that left by siglongjmp does not look like that: its next fault finds the stack as
    /// it was.)
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

    /// Records the end of a call, so that a later call from the enclosing one counts as nested in
    /// that.
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
/// Number of registered maps.
static MAPS: AtomicUsize = AtomicUsize::new(0);
/// Number of truncated maps that are still registered.
static LIVE_TORN: AtomicUsize = AtomicUsize::new(0);
/// Paths of truncated maps that [`newly_truncated`] has not returned yet.
static NAMES: AtomicPtr<Name> = AtomicPtr::new(null_mut());
/// The previous handlers of SIGBUS, the latest first.
static PREVIOUS: AtomicPtr<Previous> = AtomicPtr::new(null_mut());
/// The last call of a previous handler by each thread. (Threads may share an entry; then one of
/// them loses its state.)
static HANDED_ON: [HandedOn; 64] = [const { HandedOn::new() }; 64];
/// A fault that recurs from the same place after this many calls of previous handlers will not be
/// resolved by them.
const PATIENCE: u32 = 1000;
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// Whether a thread has sent itself a SIGBUS since the last fault.
static RAISED: AtomicBool = AtomicBool::new(false);

/// A map in the table; dropping it unregisters the map. It must be dropped before the map is
/// unmapped.
pub(super) struct Registered {
    slot: &'static Slot,
    number: usize,
}

/// Registers the map of `len` bytes at `start`, of the file at `path`, and makes sure that the
/// handler is installed.
///
/// # Errors
/// System errors of installing the handler; a full table.
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
            // SAFETY: it came from Box::into_raw in `register`, and the code that swaps it out of
            // the slot is its only owner.
            drop(unsafe { Box::from_raw(name) });
        }
        self.slot.taken.store(false, Release);
        FREE_FROM.fetch_min(self.number, Relaxed);
    }
}

/// Returns whether `bytes` are in a truncated map, whose missing pages read as zeros.
pub fn is_truncated(bytes: &[u8]) -> bool {
    LIVE_TORN.load(Acquire) > 0 && find(bytes.as_ptr() as usize).is_some_and(|slot| slot.faults.load(Acquire) > 0)
}

/// Returns the files whose maps were truncated since the last call in this process.
pub fn newly_truncated() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if NAMES.load(Relaxed).is_null() {
        return paths;
    }
    let mut next = NAMES.swap(null_mut(), AcqRel);
    while !next.is_null() {
        // SAFETY: each came from Box::into_raw in `register` and was put into the list once, by the
        // code that swapped it out of its slot; the whole list belongs to this call since the swap.
        let name = unsafe { Box::from_raw(next) };
        next = name.next;
        paths.push(name.path);
    }
    paths
}

/// Takes a free slot; returns its number and the slot.
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

/// Returns a block of the table, which is allocated if it does not exist yet. Blocks are never
/// freed.
fn block(number: usize) -> &'static Block {
    let place = &TABLE[number];
    let mut block = place.load(Acquire);
    if block.is_null() {
        let new = Box::into_raw(Box::new(std::array::from_fn(|_| Slot::default())));
        block = match place.compare_exchange(null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(there) => {
                // SAFETY: made by Box::into_raw just now, and not visible to any other thread,
                // because another thread's block was stored first.
                drop(unsafe { Box::from_raw(new) });
                there
            }
        };
    }
    // SAFETY: a pointer in the table came from Box::into_raw and is never freed. All fields are
    // atomics.
    unsafe { &*block }
}

/// Returns the registered map that contains this address. Called in the handler.
fn find(address: usize) -> Option<&'static Slot> {
    for place in &TABLE {
        let block = place.load(Acquire);
        if block.is_null() {
            return None; // blocks are allocated in order
        }
        // SAFETY: as in `block`.
        for slot in unsafe { &*block } {
            let start = slot.start.load(Acquire);
            // The slot may be reused for another map meanwhile. Then its start differs, or both
            // numbers are those of the new map.
            let inside = start != 0 && (start..slot.end.load(Acquire)).contains(&address);
            if inside && slot.start.load(Acquire) == start {
                return Some(slot);
            }
        }
    }
    None
}

/// Returns the size of a memory page in bytes.
pub(super) fn page() -> usize {
    if PAGE.load(Relaxed) == 0 {
        // SAFETY: sysconf takes and returns a number.
        PAGE.store(unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize, Relaxed);
    }
    PAGE.load(Relaxed)
}

/// Returns the current handler of SIGBUS.
fn current() -> io::Result<sigaction> {
    // SAFETY: all zeros are a valid value of this structure of numbers and optional pointers; the
    // call only writes to it.
    let (result, now) = unsafe {
        let mut now: sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGBUS, null(), &raw mut now), now)
    };
    if result == 0 { Ok(now) } else { Err(io::Error::last_os_error()) }
}

fn is_ours(action: &sigaction) -> bool {
    action.sa_sigaction == handle as *const () as usize
}

/// Installs our handler above the current one, unless ours is the current one.
fn ensure_handler() -> io::Result<()> {
    let there = current()?;
    if is_ours(&there) {
        return Ok(());
    }
    page(); // stores the page size for the handler
    remember(there);
    // SAFETY: as in `current`; `handle` has the signature that SA_SIGINFO requires. It runs on the
    // alternate stack, if the thread has one, so that it can call a handler that needs that stack.
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
        remember(before); // installed between the two calls
    }
    Ok(())
}

/// Stores a previous handler. It is never freed, because the handler may be using it. Programs do
/// not install many different handlers, and one that is known already is not stored twice.
fn remember(action: sigaction) {
    let last = PREVIOUS.load(Acquire);
    let is_same = |known: &sigaction| (known.sa_sigaction, known.sa_flags) == (action.sa_sigaction, action.sa_flags);
    // SAFETY: a pointer in PREVIOUS came from Box::into_raw below and is never freed.
    let same = unsafe { last.as_ref() }.is_some_and(|known| is_same(&known.action));
    if !same {
        PREVIOUS.store(Box::into_raw(Box::new(Previous { action, earlier: last })), Release);
    }
}

/// Returns the handler that was found `level` handlers before the last one.
fn previous(level: usize) -> Option<&'static sigaction> {
    let mut found = PREVIOUS.load(Acquire).cast_const();
    for _ in 0..level {
        // SAFETY: as in `remember`: no element of the list is ever freed or changed.
        found = unsafe { found.as_ref() }.map_or(null(), |previous| previous.earlier);
    }
    // SAFETY: the same.
    unsafe { found.as_ref() }.map(|previous| &previous.action)
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system calls this function with SA_SIGINFO, so `info` is valid; `si_addr` and
    // `si_pid` are read only if `si_code` says that they are set. errno belongs to this thread.
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

/// Maps zeros where the file has no bytes, twice as many at each fault of a map: so a map that lost
/// its file causes few faults, and an unreadable page of a disk replaces only that page. Pages of a
/// private map that a user has written stay as they are. Returns false if the address is not in a
/// registered map, or no memory is left.
fn mend(address: usize) -> bool {
    let Some(slot) = find(address) else { return false };
    let page = PAGE.load(Relaxed);
    // Marked as truncated before the zeros are mapped, so that code that reads them without a fault can
    // find out.
    let times = slot.faults.fetch_add(1, AcqRel);
    if times == 0 {
        LIVE_TORN.fetch_add(1, AcqRel);
    }
    let at = address & !(page - 1);
    let most = (slot.end.load(Acquire) - at).min(page << times.min(30));
    let is_writable = slot.writable.load(Relaxed);
    let len = if is_writable { page * unwritten(at / page, most / page) } else { most };
    if len == 0 {
        return true; // another thread has replaced this page, and may have written into it
    }
    let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the pages are in a registered map that is not being unmapped, because this thread is
    // reading it. They are beyond the end of the file, or cannot be read, or follow such a page in
    // a file that has changed, so no code can rely on their contents. In a private map, none of
    // them had been written when `unwritten` checked.
    let zeros = unsafe { libc::mmap(at as *mut c_void, len, protection, flags, -1, 0) };
    if zeros == libc::MAP_FAILED {
        return false;
    }
    let name = slot.name.swap(null_mut(), AcqRel);
    if !name.is_null() {
        let mut first = NAMES.load(Relaxed);
        loop {
            // SAFETY: it came from Box::into_raw in `register`, and belongs to this call since the
            // swap.
            unsafe { (*name).next = first };
            match NAMES.compare_exchange(first, name, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
    }
    true
}

/// Returns how many pages of a private map, from page number `first` on and at most `most`, have
/// not been written by a user. 0: the first one is in memory and was written. Called in the
/// handler. If the system does not report it, only the first page is known to be unwritten, because
/// reading it has just failed.
fn unwritten(first: usize, most: usize) -> usize {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    let mut entries = [0u64; 64]; // small, because the alternate stack of a signal handler may have only a page left
    let bytes = most.min(entries.len()) * size_of::<u64>();
    // SAFETY: the path ends with a zero byte; pread writes at most `bytes` bytes to `entries`,
    // which is at least that long; the file is closed once. signal-safety(7) allows all three
    // calls.
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
        Some(entry) if is_users(entry, PRESENT) => 0, // a swapped-out page may be the one that failed
        _ => 1 + entries[..read].iter().skip(1).take_while(|entry| !is_users(entry, PRESENT | SWAPPED)).count(),
    }
}

/// Does what would have happened without our handler.
///
/// # Safety
/// Must only be called by the handler, with its arguments.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: a handler in PREVIOUS was returned by sigaction(2) and is never freed; it is called
    // as its flags require. The other calls take numbers, and addresses of values that live until
    // they return.
    unsafe {
        let was_sent = (*info).si_code <= 0;
        // glibc has gettid(2) as a function only since 2.30; the wheels support 2.17.
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
                libc::raise(signal); // it is delivered after this handler returns; a fault recurs anyway
            }
            return;
        }
        if previous.is_some_and(|previous| previous.sa_flags & libc::SA_RESETHAND != 0) {
            restore_default(signal); // SA_RESETHAND: it may be called only once
        }
        if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) {
            let call: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(c_int) = std::mem::transmute(handler);
            call(signal);
        }
        calls.is_over(level, frame_before);
        // The previous handler gave way by raising the signal again for the handler that it had
        // found. If that is ours, no other handler is left.
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
