//! Batches, and the threads that fill them.
//!
//! A batch is filled by all threads at once, each of which takes the next slot that is free. Threads live for one batch:
//! starting one takes about ten microseconds, filling a batch about ten milliseconds. A thread takes a lock only to get
//! its next slot, and the compiler checks that each slot is written by one thread.

use super::order::{Epoch, Order};
use super::pipeline::{Target, Workspace};
use super::{Element, ImageOptions, Shared};
use ringreel::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// The pixels of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Pixels {
    /// Bytes as they were decoded.
    U8(Vec<u8>),
    /// Normalised numbers.
    F32(Vec<f32>),
}

impl Pixels {
    /// The memory, in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Pixels::U8(bytes) => bytes,
            Pixels::F32(numbers) => bytemuck::cast_slice(numbers),
        }
    }
}

/// The images of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// `batch_size` images, in the layout of the options.
    pub pixels: Pixels,
    /// `label_width` labels of each image.
    pub labels: Vec<f32>,
    /// A mask of each image, rows by columns, where there are masks.
    pub masks: Vec<u8>,
    /// The id in the header of each image's record.
    pub ids: Vec<u64>,
    /// Number of last slots that do not belong to the epoch: images of the next epoch, or zeros.
    pub pad: usize,
    home: Home,
}

impl Default for Batch {
    fn default() -> Batch {
        let (pixels, home) = (Pixels::default(), Home::default());
        Batch { pixels, labels: Vec::new(), masks: Vec::new(), ids: Vec::new(), pad: 0, home }
    }
}

impl Default for Pixels {
    fn default() -> Pixels {
        Pixels::U8(Vec::new())
    }
}

/// Memory of batches of earlier epochs. The kernel takes as long to give new memory as it takes to fill it. No call waits
/// for the lock, so that a process that is forked while it is held works.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Vec<Pixels>>,
    most: usize,
}

impl Pool {
    /// A pool of `most` batches at most.
    pub(super) fn new(most: usize) -> Pool {
        Pool { free: Mutex::new(Vec::new()), most }
    }

    fn take(&self) -> Option<Pixels> {
        self.free.try_lock().ok()?.pop()
    }

    fn give(&self, pixels: Pixels) {
        if let Ok(mut free) = self.free.try_lock()
            && free.len() < self.most
        {
            free.push(pixels);
        }
    }
}

/// The pool that gets the memory of a dropped batch.
#[derive(Clone, Debug, Default)]
struct Home(Option<Arc<Pool>>);

impl PartialEq for Home {
    fn eq(&self, _: &Home) -> bool {
        true
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(pool) = self.home.0.take() {
            pool.give(std::mem::take(&mut self.pixels));
        }
    }
}

impl Batch {
    /// Makes room for `images` images, in the memory that it has where that fits.
    pub(super) fn reshape(&mut self, options: &ImageOptions, has_masks: bool, images: usize) {
        let elements = images * options.shape.iter().product::<usize>();
        match (&mut self.pixels, options.element) {
            (Pixels::U8(bytes), Element::U8) => bytes.resize(elements, 0),
            (Pixels::F32(numbers), Element::F32) => numbers.resize(elements, 0.0),
            (pixels, Element::U8) => *pixels = Pixels::U8(vec![0; elements]),
            (pixels, Element::F32) => *pixels = Pixels::F32(vec![0.0; elements]),
        }
        self.labels.resize(images * options.label_len(), 0.0);
        self.masks.resize(if has_masks { images * options.mask_len() } else { 0 }, 0);
        self.ids.resize(images, 0);
        self.pad = 0;
    }

    /// The slots, in order.
    pub(super) fn slots<'a>(&'a mut self, options: &ImageOptions) -> impl Iterator<Item = Slot<'a>> {
        let size = options.shape.iter().product();
        let pixels: Box<dyn Iterator<Item = Target<'a>>> = match &mut self.pixels {
            Pixels::U8(bytes) => Box::new(bytes.chunks_exact_mut(size).map(Target::U8)),
            Pixels::F32(numbers) => Box::new(numbers.chunks_exact_mut(size).map(Target::F32)),
        };
        let labels = self.labels.chunks_exact_mut(options.label_len());
        let masks = self.masks.chunks_exact_mut(options.mask_len()).map(Some).chain(std::iter::repeat_with(|| None));
        let slots = pixels.zip(labels).zip(masks).zip(&mut self.ids);
        slots.map(|(((pixels, labels), mask), id)| Slot { pixels, labels, mask, id })
    }
}

/// Where an image, and what belongs to it, is written.
pub(super) struct Slot<'a> {
    pub(super) pixels: Target<'a>,
    pub(super) labels: &'a mut [f32],
    pub(super) mask: Option<&'a mut [u8]>,
    pub(super) id: &'a mut u64,
}

impl Slot<'_> {
    fn clear(self) {
        match self.pixels {
            Target::U8(bytes) => bytes.fill(0),
            Target::F32(numbers) => numbers.fill(0.0),
        }
        self.labels.fill(0.0);
        self.mask.into_iter().for_each(|mask| mask.fill(0));
        *self.id = 0;
    }
}

/// One image that is to be made.
struct Job<'a> {
    number: usize,
    round: u64,
    index: usize,
    slot: Slot<'a>,
}

/// Makes the batches of one epoch.
pub(super) struct Filler {
    shared: Arc<Shared>,
    order: Order,
    options: ImageOptions,
    epoch: Epoch,
    next: u64,
    /// The orders of two rounds at most.
    rounds: Vec<(u64, Vec<usize>)>,
    spaces: Vec<Workspace>,
}

impl Filler {
    pub(super) fn new(shared: Arc<Shared>, epoch: Epoch) -> Filler {
        let (order, options) = (shared.order, shared.options.clone());
        let mut spaces = Vec::new();
        spaces.resize_with(options.threads.max(1), Workspace::default);
        Filler { shared, order, options, epoch, next: 0, rounds: Vec::new(), spaces }
    }

    /// The same with another order, and batches of other numbers.
    pub(super) fn with(self, order: Order, options: &ImageOptions) -> Filler {
        Filler { order, options: options.clone(), ..self }
    }

    /// Makes the next batch. False at the end of the epoch.
    ///
    /// # Errors
    /// That of the first image that has one. The next call makes the batch behind.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        if self.next >= self.epoch.batches {
            return Ok(false);
        }
        let number = self.next;
        self.next += 1;
        if batch.home.0.is_none() {
            let pool = &self.shared.pool;
            batch.home = Home(Some(pool.clone()));
            batch.pixels = pool.take().unwrap_or_default();
        }
        batch.reshape(&self.options, self.shared.masks.is_some(), self.options.batch_size);
        batch.pad = if self.next == self.epoch.batches { self.epoch.padding } else { 0 };
        let jobs = self.jobs(number, batch);
        let (jobs, failure) = (Mutex::new(jobs.into_iter()), Mutex::new(None));
        let shared = &*self.shared;
        let (own, others) = self.spaces.split_at_mut(1);
        std::thread::scope(|scope| {
            for space in others {
                let worker = std::thread::Builder::new().name("decode".to_owned());
                // If the system refuses a thread, the remaining ones do its work.
                let _ = worker.spawn_scoped(scope, || work(shared, &jobs, &failure, space));
            }
            own.iter_mut().for_each(|space| work(shared, &jobs, &failure, space));
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(true),
        }
    }

    /// The images of batch `batch_number`. Slots that stay empty are filled with zeros.
    fn jobs<'a>(&mut self, batch_number: u64, batch: &'a mut Batch) -> Vec<Job<'a>> {
        let mut jobs = Vec::with_capacity(self.options.batch_size);
        for (number, slot) in batch.slots(&self.options).enumerate() {
            let Some(found) = self.order.slot(self.epoch, batch_number, number) else {
                slot.clear();
                continue;
            };
            if !self.rounds.iter().any(|(round, _)| *round == found.round) {
                self.rounds.truncate(1);
                self.rounds.insert(0, (found.round, self.order.round(found.round)));
            }
            let order = self.rounds.iter().find(|(round, _)| *round == found.round);
            let index = order.map_or(0, |(_, order)| order[found.position]);
            jobs.push(Job { number, round: found.round, index, slot });
        }
        jobs
    }
}

/// Makes images until all slots of the batch are taken.
fn work<'a>(
    shared: &Shared,
    jobs: &Mutex<impl Iterator<Item = Job<'a>>>,
    failure: &Mutex<Option<(usize, Error)>>,
    space: &mut Workspace,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(Job { number, round, index, slot }) = job else { return };
        if let Err(error) = shared.image(index, round, space, slot) {
            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.as_ref().is_none_or(|(first, _)| number < *first) {
                *failure = Some((number, error));
            }
        }
    }
}
