//! The warnings that a call logs.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A subscriber that takes part in the decision on each event, and wants none.
struct Undecided;

impl Subscriber for Undecided {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Registers a second subscriber for the life of the process.
///
/// Each test collects the warnings of its own thread. While a process has one subscriber, `tracing` queries only the
/// subscriber of the thread that reaches a message first, and caches the answer for all threads. With two, it queries
/// all.
fn ask_all_subscribers() {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(Undecided));
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `call`, and returns its result and the warnings and errors that this thread logged, one per line.
pub fn warnings<T>(call: impl FnOnce() -> T) -> (T, String) {
    ask_all_subscribers();
    let text = Text::default();
    let writer = text.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let value = tracing::subscriber::with_default(subscriber, || {
        tracing::callsite::rebuild_interest_cache();
        call()
    });
    let bytes = text.0.lock().unwrap().clone();
    (value, String::from_utf8(bytes).unwrap())
}
