//! Writes many small samples in one call.

use super::{Core, NamedPart};
use crate::error::{Error, Result};
use crate::segment::SampleId;
use crate::unix_ms;
use ringreel_format::{FormatError, Meta, SampleRef};

/// The clock is read once per this many small samples,
const CLOCKED: usize = 64;
/// and for each sample that has more bytes than this.
const CLOCKED_BYTES: usize = 1 << 16;
/// Milliseconds between two calls of `stop`, which may wait for a lock (in Python, the GIL).
const ASKED: u64 = 50;

impl Core {
    pub(crate) fn write_batch(
        &mut self,
        parts: &[NamedPart<'_>],
        count: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<SampleId>> {
        self.unreported.take_deferred()?;
        let whole = self.in_order(parts)?;
        let mut rows = Vec::with_capacity(whole.len());
        for (part, name) in whole.iter().zip(&self.ring.descriptor.sample) {
            let bad = |error: FormatError| Error::Sample(format!("part {name:?}: {error}"));
            let len = part.dtype.byte_len(part.shape).map_err(bad)?;
            let (have, want) = (part.data.len() as u64, len.checked_mul(count as u64));
            if want != Some(have) {
                let (dtype, shape) = (&part.dtype, part.shape);
                let message =
                    format!("part {name:?} has {have} bytes; expected {count} samples of {dtype}, shape {shape:?}");
                return Err(Error::Sample(message));
            }
            rows.push(len as usize);
        }
        self.finite.check(&self.ring.descriptor.sample, &whole)?;
        let (mut one, meta) = (whole.clone(), Meta::new());
        let bytes: usize = rows.iter().sum();
        let (mut now, mut waited) = (unix_ms(), self.backpressure.waited_seconds);
        let mut asked = now;
        for n in 0..count {
            for ((one, whole), row) in one.iter_mut().zip(&whole).zip(&rows) {
                one.data = &whole.data[n * row..(n + 1) * row];
            }
            if n % CLOCKED == 0 || bytes > CLOCKED_BYTES || waited < self.backpressure.waited_seconds {
                (now, waited) = (unix_ms(), self.backpressure.waited_seconds);
                if now.abs_diff(asked) >= ASKED {
                    asked = now;
                    if stop() {
                        return Err(Error::Interrupted { what: "the rest of a batch".to_owned() });
                    }
                }
            }
            self.unreported.discarded = None;
            self.put(&SampleRef { parts: &one, meta: &meta, unix_ms: now }, false, stop)?;
            // The discarded segment may contain samples of this batch.
            self.unreported.discarded.take().map_or(Ok(()), Err)?;
            // An error after samples were finished ends the batch. After the last sample, the next call returns it.
            if n + 1 < count {
                self.unreported.take_deferred()?;
            }
        }
        Ok(self.unreported.take_ids())
    }
}
