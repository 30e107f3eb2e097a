//! Forwards the crate's log, from level info, to the logger `ringreel` of Python's `logging`.
//!
//! Each message takes the GIL. During finalization of the interpreter, messages of other threads are dropped, because
//! the finalizing thread may join a generator's thread. A caller releases the GIL before it joins such a thread.

use crate::interpreter::with_living_python;
use pyo3::prelude::*;
use ringreel::escape::escape;
use std::fmt::{self, Write};
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Starts forwarding, unless the program has already installed another subscriber.
pub fn forward() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tracing::subscriber::set_global_default(Forwarder);
    });
}

struct Forwarder;

impl Subscriber for Forwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("ringreel")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::INFO)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        with_living_python(|py| {
            if let Err(error) = tell(py, level, &text.line()) {
                error.write_unraisable(py, None);
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn tell(py: Python<'_>, level: u8, line: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("ringreel",))?;
    if logger.call_method1("isEnabledFor", (level,))?.is_truthy()? {
        logger.call_method1("log", (level, "%s", line))?;
    }
    Ok(())
}

/// An event as one line: the message, then its fields, escaped, because both may hold text that
/// other users of the ring chose.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn line(&self) -> String {
        if self.fields.is_empty() {
            return escape(&self.message).into_owned();
        }
        escape(&format!("{} ({})", self.message, self.fields)).into_owned()
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{comma}{}: {value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
