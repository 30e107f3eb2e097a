//! The C interface. `include/ringreel.h` documents each function; this file says only what C does not need to know.
//!
//! No panic crosses the interface, no callback is made, and no pointer of the caller is kept after a call returns.

mod guard;

use guard::{Failure, guarded, text_at};
use ringreel::{Config, Generator, NamedPart};
use ringreel_format::{DType, Meta, Value};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A part that was added to the sample.
struct Part {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    data: Vec<u8>,
}

/// The generator, and the sample that was begun.
struct State {
    generator: Generator,
    parts: Vec<Part>,
    meta: Meta,
}

impl State {
    fn clear(&mut self) {
        self.parts.clear();
        self.meta = Meta::new();
    }
}

/// What a `ringreel_generator` points to.
pub struct Handle {
    state: Mutex<State>,
    /// Beside the state, since `ringreel_stop` sets it while another call waits.
    is_stopped: AtomicBool,
}

impl Handle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Logs to stderr, unless the program has installed a subscriber.
fn log_to_stderr() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let filter = std::env::var("RINGREEL_LOG").ok().and_then(|levels| levels.parse().ok());
        let filter: Targets = filter.unwrap_or_else(|| Targets::new().with_target("ringreel", Level::WARN));
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
        let _ = tracing_subscriber::registry().with(log).with(filter).try_init();
    });
}

/// # Safety
/// `generator` is null, or came from `ringreel_open` and is not closed before the call ends.
unsafe fn handle_at<'a>(generator: *mut Handle) -> Result<&'a Handle, Failure> {
    // SAFETY: the caller promises that the pointer is null or that of a live handle; a handle is only borrowed as shared.
    unsafe { generator.as_ref() }.ok_or_else(|| Failure::argument("the generator is a null pointer"))
}

/// See `ringreel.h`.
///
/// # Safety
/// `config_path` is null or a text that ends with a zero byte; `generator` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_open(config_path: *const c_char, generator: *mut *mut Handle) -> c_int {
    guarded(|| {
        if generator.is_null() {
            return Err(Failure::argument("the place for the generator is a null pointer"));
        }
        // SAFETY: it is not null, and the caller promises that it can be written.
        unsafe { *generator = std::ptr::null_mut() };
        // SAFETY: the caller promises a text.
        let path = unsafe { text_at("config_path", config_path) }?;
        log_to_stderr();
        let opened = Generator::open(&Config::load(Path::new(path))?)?;
        let state = Mutex::new(State { generator: opened, parts: Vec::new(), meta: Meta::new() });
        let handle = Handle { state, is_stopped: AtomicBool::new(false) };
        // SAFETY: as above.
        unsafe { *generator = Box::into_raw(Box::new(handle)) };
        Ok(())
    })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_begin(generator: *mut Handle) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        unsafe { handle_at(generator) }?.state().clear();
        Ok(())
    })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`]. `name` and `dtype` are null or texts; `shape` has `ndim` lengths, and `data` as many elements as
/// `shape` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_part(
    generator: *mut Handle,
    name: *const c_char,
    dtype: *const c_char,
    ndim: usize,
    shape: *const u64,
    data: *const c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (handle, name, dtype) =
            unsafe { (handle_at(generator)?, text_at("name", name)?, text_at("dtype", dtype)?) };
        let dtype = DType::from_name(dtype)
            .ok_or_else(|| Failure::argument(&format!("part {name:?}: unknown dtype {dtype:?}")))?;
        if ndim > 0 && shape.is_null() {
            return Err(Failure::argument(&format!("part {name:?}: the shape is a null pointer")));
        }
        // SAFETY: it is not null unless it is empty, and the caller promises `ndim` lengths.
        let shape = if ndim == 0 { Vec::new() } else { unsafe { slice::from_raw_parts(shape, ndim) }.to_vec() };
        let too_large = |error| Failure::argument(&format!("part {name:?}: {error}"));
        let bytes = usize::try_from(dtype.byte_len(&shape).map_err(too_large)?).unwrap_or(usize::MAX);
        if bytes > 0 && data.is_null() {
            return Err(Failure::argument(&format!("part {name:?}: the data is a null pointer")));
        }
        // SAFETY: it is not null unless it is empty, and the caller promises that many elements. `byte_len` is below 2^63.
        let data = if bytes == 0 { Vec::new() } else { unsafe { slice::from_raw_parts(data.cast(), bytes) }.to_vec() };
        handle.state().parts.push(Part { name: name.to_owned(), dtype, shape, data });
        Ok(())
    })
}

/// Sets `key` in the metadata of the sample.
///
/// # Safety
/// As [`handle_at`]; `key` is null or a text.
unsafe fn set_meta(generator: *mut Handle, key: *const c_char, value: Value) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    let (handle, key) = unsafe { (handle_at(generator)?, text_at("key", key)?) };
    handle.state().meta.set(key, value);
    Ok(())
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`set_meta`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_meta_int(generator: *mut Handle, key: *const c_char, value: i64) -> c_int {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { set_meta(generator, key, Value::from(value)) })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`set_meta`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_meta_double(generator: *mut Handle, key: *const c_char, value: f64) -> c_int {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { set_meta(generator, key, Value::from(value)) })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`set_meta`]; `value` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_meta_text(generator: *mut Handle, key: *const c_char, value: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { set_meta(generator, key, Value::from(text_at("value", value)?)) })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_commit(generator: *mut Handle) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle_at(generator) }?;
        let mut state = handle.state();
        let State { generator, parts, meta } = &mut *state;
        let named: Vec<NamedPart<'_>> =
            parts.iter().map(|part| NamedPart::new(&part.name, part.dtype.clone(), &part.shape, &part.data)).collect();
        generator.write(&named, meta, &|| handle.is_stopped())?;
        state.clear();
        Ok(())
    })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_flush(generator: *mut Handle) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle_at(generator) }?;
        handle.state().generator.flush(&|| handle.is_stopped())?;
        Ok(())
    })
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_finished(generator: *mut Handle) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { handle_at(generator) }.map_or(0, |handle| handle.state().generator.summary().finished)
}

/// See `ringreel.h`. It only stores a flag, so a signal handler may call it.
///
/// # Safety
/// As [`handle_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_stop(generator: *mut Handle) {
    // SAFETY: as the caller promises.
    if let Ok(handle) = unsafe { handle_at(generator) } {
        handle.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// See `ringreel.h`.
///
/// # Safety
/// As [`handle_at`]; the generator is not used again. `finished` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringreel_close(generator: *mut Handle, promote: c_int, finished: *mut u64) -> c_int {
    guarded(|| {
        // SAFETY: as the caller promises.
        unsafe { handle_at(generator) }?;
        // SAFETY: it came from `Box::into_raw` in `ringreel_open`, and the caller gives it up.
        let Handle { state, is_stopped } = *unsafe { Box::from_raw(generator) };
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let summary = state.generator.finish(promote != 0, &|| is_stopped.load(Ordering::Relaxed))?;
        if !finished.is_null() {
            // SAFETY: the caller promises that it can be written.
            unsafe { *finished = summary.finished };
        }
        Ok(())
    })
}

/// See `ringreel.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ringreel_message() -> *const c_char {
    guard::message()
}

/// See `ringreel.h`.
#[unsafe(no_mangle)]
pub extern "C" fn ringreel_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
