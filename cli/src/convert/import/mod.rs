//! Files into a ring: one sample for each input, in the order of the inputs, read by several threads.
//!
//! | file | |
//! |---|---|
//! | here | from inputs to samples, with a count of what is left out |
//! | [`journal`] | the inputs whose samples are finished |
//! | [`ring`](mod@ring) | the ring |
//! | [`files`] | arrays, volumes and images in files, one per part |
//! | [`images`] | images with labels: of a folder for each label, of `.lst` files |
//! | [`records`] | records of RecordIO files |
//! | [`lines`](mod@lines) | lines of text |
//! | [`picture`] | the tensor or the bytes of an encoded image |

pub mod files;
pub mod images;
pub mod journal;
pub mod lines;
pub mod picture;
pub mod records;
pub mod ring;

use crate::convert::pack::{Done, Watch, skipped};
use ring::{Sample, Target};
use ringreel::error::{Error, Result};
use ringreel::sched::in_order;
use std::path::Path;

/// How files are imported.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that read and decode.
    pub threads: usize,
    /// Whether the first input that cannot be imported ends the import.
    pub strict: bool,
}

/// Why an input has no sample, and the file that is to blame.
pub struct Refusal {
    /// The file, or a place in it.
    pub at: String,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    /// A refusal of the file at `path`.
    pub fn of(path: &Path, why: impl Into<String>) -> Refusal {
        Refusal { at: path.display().to_string(), why: why.into() }
    }
}

/// The sample of one input.
pub type Loaded = std::result::Result<Sample, Refusal>;

/// An import that is under way.
pub struct Import<'a> {
    target: Target<'a>,
    done: Done,
    options: Options,
    watch: &'a Watch<'a>,
}

impl<'a> Import<'a> {
    /// Begins to import into `target`.
    pub fn new(target: Target<'a>, options: Options, watch: &'a Watch<'a>) -> Import<'a> {
        Import { target, done: Done::default(), options, watch }
    }

    /// Leaves out an input, or ends with an error if the options are strict.
    ///
    /// # Errors
    /// [`Error::Sample`] with both.
    pub fn leave_out(&mut self, at: &str, why: &str) -> Result<()> {
        skipped(&mut self.done, self.options.strict, Path::new(at), why)
    }

    /// Imports `inputs`: `name` is the journal's name of each, `load` makes its sample.
    ///
    /// # Errors
    /// An input that cannot be imported, if the options are strict; what the filesystem says; a signal.
    pub fn all<T: Sync>(
        &mut self,
        inputs: &[T],
        name: impl Fn(&T) -> String,
        load: impl Fn(&T) -> Loaded + Sync,
    ) -> Result<()> {
        let named = inputs.iter().map(|input| (name(input), input));
        let left: Vec<(String, &T)> = named.filter(|(name, _)| !self.target.has(name)).collect();
        self.done.kept += (inputs.len() - left.len()) as u64;
        let threads = self.options.threads;
        in_order(0..left.len() as u64, threads, &|n| load(left[n as usize].1), |n, loaded| {
            let name = &left[n as usize].0;
            if (self.watch.stop)() {
                return Err(Error::Interrupted { what: format!("the end of the import (at {name})") });
            }
            (self.watch.step)();
            self.put(name, loaded)
        })
    }

    fn put(&mut self, name: &str, loaded: Loaded) -> Result<()> {
        let sample = match loaded {
            Ok(sample) => sample,
            Err(Refusal { at, why }) => return self.leave_out(&at, &why),
        };
        match self.target.put(name, &sample) {
            Ok(()) => {
                self.done.samples += 1;
                Ok(())
            }
            // The name of a sample of several files has a line for each.
            Err(Error::Sample(why)) => self.leave_out(name.lines().next().unwrap_or(name), &why),
            Err(error) => Err(error),
        }
    }

    /// Ends the import, and makes its samples visible if all went well.
    ///
    /// # Errors
    /// The error in `imported`; as [`Target::finish`].
    pub fn end(mut self, imported: Result<()>) -> Result<Done> {
        match imported {
            Ok(()) => self.target.finish(&mut self.done).map(|()| self.done),
            Err(error) => {
                self.target.abandon(&error);
                Err(error)
            }
        }
    }
}
