//! Per-read context: epoch, random numbers, scratch memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::random::key;
use crate::scratch::Taken;
use crate::{Error, Random, Scratch};

/// The context of a [`Dataset::read`](crate::Dataset::read): the epoch, random numbers that belong to the
/// draw, and scratch memory of the worker.
///
/// # Draws
///
/// A draw is a place in the order of an epoch, counted over all ranks: [`draw`](Self::draw). A sample that a
/// sampler draws several times in an epoch gets other random numbers each time. They are the same for any
/// number of workers and ranks, any batch size, after a resume, and on a decode server.
///
/// # Composed sets
///
/// A set that reads from other sets passes its context on. Each random stream is keyed by the seed, the
/// epoch, the draw, and the place of the set in the composition (`with_stream`): two
/// stages never share a stream. A read that calls [`read_many`](crate::Dataset::read_many) of another set
/// gets a stream for each of its samples.
#[derive(Debug)]
pub struct Context {
    seed: u64,
    epoch: u64,
    /// The sample being read.
    current: Option<Current>,
    /// Created on first use: it costs as much as copying a short row, and many data sets never use it.
    random: Option<Random>,
    /// The key of the random streams of the current part of a composed set; 0 outside of all parts.
    stream: u64,
    within: Within,
    /// Whether the read asked for the epoch, the draw or a random number.
    varies: Cell<bool>,
    watch: Option<Arc<Watch>>,
    /// Nanoseconds that other processes have spent reading.
    elsewhere_ns: u64,
    /// Set when the loader ends, to the first cause.
    stop: Option<Arc<OnceLock<Error>>>,
    scratch: Scratch,
}

/// The sample being read, as the loader knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    /// The index in the ids that the loader asked for.
    index: usize,
    id: u64,
    draw: u64,
    /// Distinguishes the samples of another set that are read for this one; 0 for the first.
    part: u64,
}

/// The id of the sample that a worker reads. It is written for each sample, so it has cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Watch(pub AtomicU64);

/// The numbering of the indices of [`Context::begin`].
#[derive(Clone, Copy, Debug)]
enum Within {
    /// The ids that the loader asked for.
    Loader,
    /// Within [`Context::delegate`]: the samples in `Scratch::places` from this index on.
    Delegate(usize),
    /// Within the read of one sample: the index is ignored. A sample of another set that is begun here is a
    /// part of this sample.
    Sample {
        /// The part number of the sample itself.
        part: u64,
        /// The number of parts that were begun.
        begun: u64,
    },
}

impl Context {
    /// A context for samples of `epoch` under `seed`. Sample `i` is draw `i`, as in sequence, unless
    /// a loader says otherwise.
    pub fn new(seed: u64, epoch: u64) -> Self {
        Self {
            seed,
            epoch,
            current: None,
            random: None,
            stream: 0,
            within: Within::Loader,
            varies: Cell::new(false),
            watch: None,
            elsewhere_ns: 0,
            stop: None,
            scratch: Scratch::new(),
        }
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
        let mut value = Taken::new(self.scratch.take::<T>());
        let result = work(value.get_mut(), self);
        if let Some(value) = value.into_inner() {
            self.scratch.put(value);
        }
        result
    }

    /// Begins sample `id`, at `index` of the ids being read, and restarts the random stream.
    ///
    /// A custom [`Dataset::read_many`](crate::Dataset::read_many) must call this before each sample that uses
    /// random numbers.
    pub fn begin(&mut self, index: usize, id: u64) {
        let current = self.next(index, id);
        self.current = Some(current);
        self.random = None;
        if let Some(watch) = &self.watch {
            watch.0.store(current.id, Ordering::Relaxed);
        }
    }

    /// The sample that [`begin`](Self::begin) begins.
    fn next(&mut self, index: usize, id: u64) -> Current {
        if let (Within::Sample { part, begun }, Some(current)) = (&mut self.within, self.current) {
            *begun += 1;
            // A `read_many` of one sample gets the same random numbers as its `read`.
            let is_own = *begun == 1 && self.random.is_none();
            return Current { part: if is_own { *part } else { key(&[*part, *begun]) }, ..current };
        }
        let place = match self.within {
            Within::Delegate(first) => self.scratch.places.get(first + index).copied(),
            Within::Loader | Within::Sample { .. } => None,
        };
        place.unwrap_or_else(|| {
            let draw = self.scratch.draws.get(index).copied().unwrap_or(id);
            Current { index, id, draw, part: 0 }
        })
    }

    /// The epoch being read.
    pub fn epoch(&self) -> u64 {
        self.varies.set(true);
        self.epoch
    }

    /// The position of the sample in the order of the epoch, counted over all ranks from 0 on; it differs
    /// each time that a sampler draws the sample again. A substitute has the draw of the sample that it
    /// replaces. For a [`Source`](crate::Source), whose order has no positions, it is the id of the record.
    ///
    /// Seed a generator of your own by `(seed, epoch, draw)` for numbers that workers, ranks and a resume do
    /// not change; [`random`](Self::random) is one that has been seeded so.
    pub fn draw(&self) -> u64 {
        self.varies.set(true);
        self.current.map_or(0, |current| current.draw)
    }

    /// Random numbers keyed by (seed, epoch, [`draw`](Self::draw)): the same for any number of workers.
    pub fn random(&mut self) -> &mut Random {
        self.varies.set(true);
        let Self { seed, epoch, stream, .. } = *self;
        self.random.get_or_insert_with(|| match self.current {
            Some(Current { draw, part: 0, .. }) if stream == 0 => Random::for_draw(seed, epoch, draw),
            Some(Current { draw, part: 0, .. }) => Random::from_key(key(&[seed, epoch, draw, stream])),
            Some(Current { draw, part, .. }) => Random::from_key(key(&[seed, epoch, draw, stream, part])),
            None => Random::from_key(0),
        })
    }

    /// Runs `work`, and returns whether it asked for the epoch, the draw or random numbers.
    pub(crate) fn watch_variation<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> (R, bool) {
        let before = self.varies.replace(false);
        let result = work(self);
        let varied = self.varies.replace(before || self.varies.get());
        (result, varied)
    }
}

/// # For loaders and readers
///
/// What loaders, bridges and sets that read other sets call. It may change in any release.
impl Context {
    /// Publishes the current sample's id in `watch`, so that a read that never returns can be named.
    pub fn watched(self, watch: Arc<Watch>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// A context that ends once `stop` has a cause; see [`check_stop`](Self::check_stop).
    pub fn ended_by(self, stop: Arc<OnceLock<Error>>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Fails once the loader ends. A [`Dataset::read_many`](crate::Dataset::read_many) with slow samples
    /// should call it between two of them.
    ///
    /// # Errors
    /// The first cause of the loader's end.
    pub fn check_stop(&self) -> Result<(), Error> {
        self.stop.as_ref().and_then(|stop| stop.get()).cloned().map_or(Ok(()), Err)
    }

    /// Uses the scratch memory of a worker; [`into_scratch`](Self::into_scratch) gives it back.
    pub fn with_scratch(self, mut scratch: Scratch) -> Self {
        scratch.draws.clear();
        Self { scratch, ..self }
    }

    /// Sets the draws of the samples to read: `draws[i]` for the `i`-th. Call it after
    /// [`with_scratch`](Self::with_scratch). Without it, the draw of a sample is its id.
    pub fn with_draws(mut self, draws: &[u64]) -> Self {
        self.scratch.draws.clear();
        self.scratch.draws.extend_from_slice(draws);
        self
    }

    /// The scratch memory, for the next context of the same worker.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// Begins sample `id` as [`begin`](Self::begin) does, and runs `work`, which reads it. Samples of another
    /// set that `work` begins are parts of sample `id`: they have the same draw, but different random
    /// numbers.
    pub fn sample<R>(&mut self, index: usize, id: u64, work: impl FnOnce(&mut Self) -> R) -> R {
        self.begin(index, id);
        let part = self.current.map_or(0, |current| current.part);
        let above = std::mem::replace(&mut self.within, Within::Sample { part, begun: 0 });
        let result = work(self);
        self.within = above;
        result
    }

    /// For a [`Dataset::read_many`](crate::Dataset::read_many) that reads some of its samples from another
    /// set, where they have other ids. `ids` are their ids in this set; the first is at index `first` of the
    /// requested ids. `work` calls `read_many` of the other set.
    ///
    /// Within `work`, [`begin`](Self::begin) of the `n`-th sample begins the `n`-th of `ids`: random
    /// numbers and error messages stay those of the sample that the loader asked for.
    pub fn delegate<R>(&mut self, first: usize, ids: &[u64], work: impl FnOnce(&mut Self) -> R) -> R {
        let start = self.scratch.places.len();
        for (index, &id) in (first..).zip(ids) {
            let sample = self.next(index, id);
            self.scratch.places.push(sample);
        }
        let above = std::mem::replace(&mut self.within, Within::Delegate(start));
        let result = work(self);
        self.scratch.places.truncate(start);
        self.within = above;
        result
    }

    /// Gives `work` random streams of its own, which differ from this context's and from those of any other
    /// `number`: for a set that reads several others, or draws more random numbers than the set it reads.
    pub fn with_stream<R>(&mut self, number: u64, work: impl FnOnce(&mut Self) -> R) -> R {
        let above = (self.stream, self.random.take(), self.within, self.current);
        self.stream = key(&[self.stream, number]);
        if let Within::Sample { begun, .. } = &mut self.within {
            *begun = 0;
        }
        let result = work(self);
        (self.stream, self.random, self.within, self.current) = above;
        result
    }

    /// A hash of the seed, the epoch and the draw, to seed random generators of a reader outside of this
    /// process. A read that uses them must ask for [`epoch`](Self::epoch) too, so that it is not cached.
    pub fn key(&self) -> u64 {
        let (draw, part) = self.current.map_or((0, 0), |current| (current.draw, current.part));
        key(&[self.seed, self.epoch, draw, self.stream, part, u64::from_le_bytes(*b"own data")])
    }

    /// Names sample `index` in error messages from now on. The sample was begun before.
    pub fn mark(&mut self, index: usize, id: u64) {
        if matches!(self.within, Within::Sample { .. }) {
            return;
        }
        let current = self.next(index, id);
        self.current = Some(current);
        if let Some(watch) = &self.watch {
            watch.0.store(current.id, Ordering::Relaxed);
        }
    }

    /// Reports that another process, or Python code of this one, has spent `ns` nanoseconds reading samples.
    /// A loader then splits batches by this time instead of the time of the read, most of which may be
    /// waiting.
    pub fn add_elsewhere(&mut self, ns: u64) {
        self.elsewhere_ns = self.elsewhere_ns.saturating_add(ns);
    }

    /// The sum of [`add_elsewhere`](Self::add_elsewhere).
    pub fn elsewhere_ns(&self) -> u64 {
        self.elsewhere_ns
    }

    /// The epoch, for a reader that may or may not use it, as with [`key`](Self::key).
    pub fn key_epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a read with this context has asked for the epoch, the draw or random numbers. Its output may
    /// then differ in another epoch, so it must not be cached.
    pub fn varies(&self) -> bool {
        self.varies.get()
    }

    /// The sample being read: its index in the ids, and its id, as the loader knows them. Identifies the
    /// sample when a read panics.
    pub fn current(&self) -> Option<(usize, u64)> {
        self.current.map(|current| (current.index, current.id))
    }
}
