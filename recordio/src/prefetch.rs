//! A producer in a thread, some items ahead of its consumer, like dmlc-core's `ThreadedIter`.
//!
//! - Items and errors arrive in the order in which they were produced. Buffers are reused: a dropped item returns its
//!   buffer to the producer.
//! - After an error the producer pauses. The request for the next item calls it once more, as without a thread.
//!   After its end, or after a panic, which is returned as an error, there are no more items.
//! - Dropping the iterator stops the producer after its current call, if any, and joins the thread.
//! - Both sides sleep while they wait.

use ringreel::sched::do_not_preempt;
use std::any::Any;
use std::io;
use std::iter::FusedIterator;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The producer panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a prefetch thread has panicked (a bug; please report it): {message}")]
pub struct Panicked {
    /// The message of the panic.
    pub message: String,
}

/// An order to the thread.
enum Order<T> {
    Fill(T),
    GoOn,
}

/// Iterates over the items that a producer makes in a separate thread.
///
/// The producer fills the buffer that it is given and returns true, or returns false at its end. It is at most
/// `depth` buffers ahead. The consumer may hold any number of further buffers, which are reused after it drops them.
///
/// ```
/// use ringreel_recordio::Prefetch;
/// use ringreel_recordio::prefetch::Panicked;
///
/// let mut n = 0;
/// let squares = Prefetch::<u64, Panicked>::new(2, move |out| {
///     n += 1;
///     *out = n * n;
///     Ok(n <= 4)
/// })?;
/// let squares: Vec<u64> = squares.map(|item| *item.unwrap()).collect();
/// assert_eq!(squares, [1, 4, 9, 16]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Prefetch<T, E> {
    /// `None` after the end.
    orders: Option<Sender<Order<T>>>,
    full: Receiver<Result<T, E>>,
    returned: Receiver<T>,
    give_back: Sender<T>,
    stop: Arc<AtomicBool>,
    /// Whether the last item was an error, so that the producer is paused.
    paused: bool,
    thread: Option<JoinHandle<()>>,
}

impl<T, E> Prefetch<T, E>
where
    T: Default + Send + 'static,
    E: From<Panicked> + Send + 'static,
{
    /// Starts the thread. A `depth` of 0 counts as 1.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn new(
        depth: usize,
        produce: impl FnMut(&mut T) -> Result<bool, E> + Send + 'static,
    ) -> io::Result<Prefetch<T, E>> {
        let (orders, ordered) = channel();
        let (fill, full) = channel();
        let (give_back, returned) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..depth.max(1) {
            let _ = orders.send(Order::Fill(T::default())); // cannot fail: the receiver exists
        }
        let worker = Worker { ordered, full: fill, stop: stop.clone(), spare: Vec::new() };
        let thread = std::thread::Builder::new().name("prefetch".to_owned()).spawn(move || {
            do_not_preempt();
            worker.run(produce)
        })?;
        Ok(Prefetch { orders: Some(orders), full, returned, give_back, stop, paused: false, thread: Some(thread) })
    }

    fn order(&self, order: Order<T>) {
        // If the receiver is gone, the producer has ended, and `next` returns that.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

impl<T, E> Iterator for Prefetch<T, E>
where
    T: Default + Send + 'static,
    E: From<Panicked> + Send + 'static,
{
    type Item = Result<Prefetched<T>, E>;

    fn next(&mut self) -> Option<Result<Prefetched<T>, E>> {
        if std::mem::take(&mut self.paused) {
            self.order(Order::GoOn);
        }
        match self.full.recv() {
            Ok(Ok(item)) => {
                let instead = self.returned.try_recv().unwrap_or_default();
                self.order(Order::Fill(instead));
                Some(Ok(Prefetched { item, give_back: self.give_back.clone() }))
            }
            Ok(Err(error)) => {
                self.paused = true;
                Some(Err(error))
            }
            Err(_) => None,
        }
    }
}

impl<T, E> FusedIterator for Prefetch<T, E>
where
    T: Default + Send + 'static,
    E: From<Panicked> + Send + 'static,
{
}

impl<T, E> Drop for Prefetch<T, E> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.orders = None;
        // Fails only after a panic in a destructor of the producer, which was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The thread's side of the channels.
struct Worker<T, E> {
    ordered: Receiver<Order<T>>,
    full: Sender<Result<T, E>>,
    stop: Arc<AtomicBool>,
    /// Buffers that arrived while it was paused after an error, and the buffer in which that error occurred.
    spare: Vec<T>,
}

impl<T, E: From<Panicked>> Worker<T, E> {
    fn run(mut self, mut produce: impl FnMut(&mut T) -> Result<bool, E>) {
        while let Some(mut buffer) = self.buffer() {
            // After a panic the producer is not called again, nor is the buffer used.
            let made = catch_unwind(AssertUnwindSafe(|| produce(&mut buffer)));
            let told = match made {
                Ok(Ok(true)) => self.full.send(Ok(buffer)).is_ok(),
                Ok(Ok(false)) => false,
                Ok(Err(error)) => {
                    self.spare.push(buffer);
                    self.full.send(Err(error)).is_ok() && self.may_go_on()
                }
                Err(panic) => {
                    let _ = self.full.send(Err(Panicked { message: said(&*panic) }.into()));
                    false
                }
            };
            if !told {
                return;
            }
        }
    }

    /// Returns a buffer to fill; `None` if the thread must stop.
    fn buffer(&mut self) -> Option<T> {
        let buffer = loop {
            match self.spare.pop().map(Order::Fill).map_or_else(|| self.ordered.recv(), Ok) {
                Ok(Order::Fill(buffer)) => break buffer,
                Ok(Order::GoOn) => {}
                Err(_) => return None,
            }
        };
        (!self.stop.load(Ordering::Acquire)).then_some(buffer)
    }

    /// Waits until the consumer requests another item after an error. Returns false if it is gone.
    fn may_go_on(&mut self) -> bool {
        loop {
            match self.ordered.recv() {
                Ok(Order::Fill(buffer)) => self.spare.push(buffer),
                Ok(Order::GoOn) => return true,
                Err(_) => return false,
            }
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// An item. When it is dropped, its buffer is reused.
#[derive(Debug)]
pub struct Prefetched<T: Default> {
    item: T,
    give_back: Sender<T>,
}

impl<T: Default> Deref for Prefetched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Default> DerefMut for Prefetched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T: Default> Drop for Prefetched<T> {
    fn drop(&mut self) {
        // If the receiver is gone, so is the iterator, and the buffer is freed.
        let _ = self.give_back.send(std::mem::take(&mut self.item));
    }
}
