//! The stream on stdin: for each sample a length, 8 bytes little endian, and the bytes of an `.npz` file.

use super::{Next, Source};
use crate::formats::npz;
use ringreel::error::{Error, FsError, Result};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Longest wait of [`Source::next`].
const SLICE: Duration = Duration::from_millis(50);
/// Samples that are read ahead.
const AHEAD: usize = 2;
/// A greater length means that the stream is something else.
const MAX_BYTES: u64 = 1 << 40;

/// A stream that a thread reads.
pub struct Stream {
    frames: Receiver<io::Result<Option<Vec<u8>>>>,
    samples: u64,
}

impl Stream {
    /// Begins to read stdin.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn of_stdin() -> anyhow::Result<Stream> {
        let (sender, frames) = sync_channel(AHEAD);
        let run = move || read_all(&mut BufReader::with_capacity(1 << 20, io::stdin()), &sender);
        thread::Builder::new().name("ringreel-stdin".into()).spawn(run)?;
        Ok(Stream { frames, samples: 0 })
    }
}

impl Source for Stream {
    fn next(&mut self) -> Result<Next> {
        let frame = match self.frames.recv_timeout(SLICE) {
            Ok(Ok(Some(frame))) => frame,
            Ok(Ok(None)) => return Ok(Next::End),
            Ok(Err(error)) => return Err(FsError::new("read", Path::new("stdin"), error).into()),
            Err(RecvTimeoutError::Timeout) => return Ok(Next::Nothing),
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
        };
        if frame.is_empty() {
            return Ok(Next::Seal);
        }
        self.samples += 1;
        let sample = npz::read(&frame);
        sample.map(Next::Sample).map_err(|why| Error::Sample(format!("stdin: sample {}: {why}", self.samples)))
    }

    fn refused(&mut self, error: Error) -> Result<()> {
        Err(Error::Sample(format!("stdin: sample {}: {error}", self.samples)))
    }
}

/// Gives each frame to `sender`; none at the end of the input.
fn read_all(input: &mut impl Read, sender: &SyncSender<io::Result<Option<Vec<u8>>>>) {
    loop {
        let frame = read(input);
        let is_last = !matches!(frame, Ok(Some(_)));
        if sender.send(frame).is_err() || is_last {
            return;
        }
    }
}

fn read(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = Vec::new();
    input.take(8).read_to_end(&mut length)?;
    let length = match <[u8; 8]>::try_from(length) {
        Ok(length) => u64::from_le_bytes(length),
        Err(length) if length.is_empty() => return Ok(None),
        Err(_) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ends inside a length")),
    };
    if length > MAX_BYTES {
        let why = format!("a length of {length} bytes: expected 8 bytes, little endian, then an .npz file");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut frame = Vec::new();
    input.take(length).read_to_end(&mut frame)?;
    if frame.len() as u64 != length {
        let why = format!("the stream ends after {} of a sample's {length} bytes", frame.len());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    Ok(Some(frame))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_up_to_the_end_and_cut_ones_are_refused() {
        let bytes = [&3u64.to_le_bytes()[..], b"abc", &0u64.to_le_bytes(), &1u64.to_le_bytes(), b"d"].concat();
        let mut input = &bytes[..];
        let frames: Vec<_> = std::iter::from_fn(|| read(&mut input).unwrap()).collect();
        assert_eq!(frames, [&b"abc"[..], b"", b"d"]);
        for len in [5, 9, 10] {
            assert_eq!(read(&mut &bytes[..len]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert_eq!(read(&mut &b"PK\x03\x04 and more"[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
