//! Per-read context: epoch, random numbers, scratch memory.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::key;
use crate::{Error, Random, Scratch, Stop};

/// The context of a [`Dataset::read`](crate::Dataset::read): the epoch, random numbers that belong to the
/// sample, and scratch memory of the worker.
///
/// # Composed sets
///
/// A set that reads from other sets passes its context on. Each random stream is keyed by the seed, the
/// epoch, the id that the loader asked for, and the place of the set in the composition
/// ([`with_stream`](Self::with_stream)). So a sample gets the same numbers on every worker and rank, two
/// stages never share a stream, and a sample that comes twice in an epoch under two ids gets different ones.
#[derive(Debug)]
pub struct Context {
    seed: u64,
    epoch: u64,
    /// The sample being read, as the loader knows it.
    current: Option<(usize, u64)>,
    /// Created on first use: it costs as much as copying a short row, and many data sets never use it.
    random: Option<Random>,
    /// Keys the random streams of the present part of a composed set; 0 outside of all parts.
    stream: u64,
    /// The index in the scratch at which the loader's samples for the ids being read begin, within
    /// [`Self::delegate`].
    delegated: Option<usize>,
    /// Whether the read asked for the epoch or a random number.
    varies: Cell<bool>,
    watch: Option<Arc<AtomicU64>>,
    /// Set when the loader ends.
    stop: Option<Arc<Stop>>,
    scratch: Scratch,
}

impl Context {
    /// A context for samples of `epoch` under `seed`.
    #[doc(hidden)] // For the crates of this repository.
    pub fn new(seed: u64, epoch: u64) -> Self {
        Self {
            seed,
            epoch,
            current: None,
            random: None,
            stream: 0,
            delegated: None,
            varies: Cell::new(false),
            watch: None,
            stop: None,
            scratch: Scratch::new(),
        }
    }

    /// Stores the id of every sample begun in `watch`, so that a read that never returns can be named.
    #[doc(hidden)] // The workers' bookkeeping.
    pub fn watched(self, watch: Arc<AtomicU64>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Ends with `stop`; see [`check_stop`](Self::check_stop).
    #[doc(hidden)] // The workers' bookkeeping.
    pub fn ended_by(self, stop: Arc<Stop>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Fails once the loader ends: for a [`Dataset::read_many`](crate::Dataset::read_many) whose samples take
    /// long, between two of them.
    ///
    /// # Errors
    /// The first cause of the loader's end.
    #[doc(hidden)] // For the Python package.
    pub fn check_stop(&self) -> Result<(), Error> {
        self.stop.as_ref().map_or(Ok(()), |stop| stop.check())
    }

    /// Uses the scratch memory of a worker; [`into_scratch`](Self::into_scratch) gives it back.
    #[doc(hidden)] // For the crates of this repository.
    pub fn with_scratch(self, scratch: Scratch) -> Self {
        Self { scratch, ..self }
    }

    /// The scratch memory, for the next context of the same worker.
    #[doc(hidden)] // For the crates of this repository.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// This worker's value of type `T`, such as the buffers of a decoder: made by `T::default()` once, then
    /// kept from sample to sample and from batch to batch, so that a read need not allocate.
    ///
    /// It keeps the content of an earlier read, perhaps by another data set that uses the same type, and it
    /// is lost when a read panics. So the output of [`Dataset::read`](crate::Dataset::read) must not depend
    /// on its content: treat it like memory that was never written. Use a type of your own, which no other
    /// set uses for something else.
    ///
    /// ```
    /// # use feedline_core::Context;
    /// #[derive(Default)]
    /// struct Decoded(Vec<u8>);
    ///
    /// let mut context = Context::new(0, 0);
    /// let Decoded(pixels) = context.scratch();
    /// pixels.clear();
    /// pixels.extend_from_slice(&[1, 2, 3]);
    /// ```
    pub fn scratch<T: Default + Send + 'static>(&mut self) -> &mut T {
        self.scratch.get()
    }

    /// Like [`scratch`](Self::scratch), for work that also needs the context. Nested calls with the same type
    /// get different values.
    ///
    /// ```
    /// # use feedline_core::Context;
    /// let mut context = Context::new(0, 0);
    /// let first = context.scoped_scratch(|noise: &mut Vec<u64>, context| {
    ///     noise.clear();
    ///     noise.extend((0..3).map(|_| context.random().next_u64()));
    ///     noise[0]
    /// });
    /// assert_eq!(first, Context::new(0, 0).random().next_u64());
    /// ```
    pub fn scoped_scratch<T: Default + Send + 'static, R>(
        &mut self,
        work: impl FnOnce(&mut T, &mut Self) -> R,
    ) -> R {
        let mut value = self.scratch.take::<T>();
        let result = work(&mut value, self);
        self.scratch.put(value);
        result
    }

    /// Begins sample `id`, at `index` of the ids being read, and restarts the random stream.
    ///
    /// A custom [`Dataset::read_many`](crate::Dataset::read_many) must call this before each sample that uses
    /// random numbers.
    #[doc(hidden)] // For the crates of this repository.
    pub fn begin(&mut self, index: usize, id: u64) {
        let place = self.delegated.and_then(|first| self.scratch.places.get(first + index).copied());
        let (index, id) = place.unwrap_or((index, id));
        self.current = Some((index, id));
        self.random = None;
        if let Some(watch) = &self.watch {
            watch.store(id, Ordering::Relaxed);
        }
    }

    /// For a [`Dataset::read_many`](crate::Dataset::read_many) that reads some of its samples from another
    /// set under other ids. `ids` are those samples, and the first of them is at index `first` of the
    /// requested ids. `work` calls `read_many` of the other set.
    ///
    /// Within `work`, [`begin`](Self::begin) of the `n`-th sample begins the `n`-th of `ids`: random
    /// numbers and error messages stay those of the sample that the loader asked for.
    ///
    /// ```
    /// # use feedline_core::Context;
    /// let mut context = Context::new(0, 0);
    /// // Samples 7, 8 and 9 were asked for. The last two are samples 107 and 108 of another set.
    /// context.delegate(1, &[8, 9], |context| context.begin(1, 108));
    /// assert_eq!(context.current(), Some((2, 9)));
    /// ```
    #[doc(hidden)] // For the crates of this repository.
    pub fn delegate<R>(&mut self, first: usize, ids: &[u64], work: impl FnOnce(&mut Self) -> R) -> R {
        let start = self.scratch.places.len();
        let above = self.delegated.replace(start);
        for (index, &id) in (first..).zip(ids) {
            let place = above.and_then(|above| self.scratch.places.get(above + index).copied());
            self.scratch.places.push(place.unwrap_or((index, id)));
        }
        let result = work(self);
        self.scratch.places.truncate(start);
        self.delegated = above;
        result
    }

    /// Gives `work` random streams of its own, which differ from those of this context and of any other
    /// `number`: for a set that reads several others, or adds random numbers to those of another.
    ///
    /// ```
    /// # use feedline_core::Context;
    /// let mut context = Context::new(0, 0);
    /// context.begin(0, 5);
    /// let image = context.with_stream(0, |context| context.random().next_u64());
    /// let mask = context.with_stream(1, |context| context.random().next_u64());
    /// assert_ne!(image, mask);
    /// assert_eq!(image, context.with_stream(0, |context| context.random().next_u64()));
    /// ```
    #[doc(hidden)] // For the crates of this repository.
    pub fn with_stream<R>(&mut self, number: u64, work: impl FnOnce(&mut Self) -> R) -> R {
        let random = self.random.take();
        let stream = key(&[self.stream, number]);
        let above = std::mem::replace(&mut self.stream, stream);
        let result = work(self);
        self.stream = above;
        self.random = random;
        result
    }

    /// The epoch being read.
    pub fn epoch(&self) -> u64 {
        self.varies.set(true);
        self.epoch
    }

    /// Random numbers keyed by (seed, epoch, sample id): the same for any number of workers.
    pub fn random(&mut self) -> &mut Random {
        self.varies.set(true);
        self.random.get_or_insert_with(|| match self.current {
            Some((_, id)) if self.stream == 0 => Random::for_sample(self.seed, self.epoch, id),
            Some((_, id)) => Random::from_key(key(&[self.seed, self.epoch, id, self.stream])),
            None => Random::from_key(0),
        })
    }

    /// Whether a read with this context has asked for the epoch or for random numbers. Its output may then
    /// differ in another epoch, so it must not be cached.
    #[doc(hidden)] // For the crates of this repository.
    pub fn varies(&self) -> bool {
        self.varies.get()
    }

    /// Runs `work`, and returns whether it asked for the epoch or for random numbers.
    #[doc(hidden)] // For the crates of this repository.
    pub fn watch_variation<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> (R, bool) {
        let before = self.varies.replace(false);
        let result = work(self);
        let varied = self.varies.replace(before || self.varies.get());
        (result, varied)
    }

    /// The sample being read: its index in the ids, and its id, as the loader knows them. Identifies the
    /// sample when a read panics.
    #[doc(hidden)] // The workers' bookkeeping.
    pub fn current(&self) -> Option<(usize, u64)> {
        self.current
    }
}
