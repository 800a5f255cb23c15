//! A read's context, for workers and for sets that read other sets.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use crate::{Context, Error, Result, Scratch};

/// Publishes the current sample's id in `watch`, so that a read that never returns can be named.
pub fn watched(context: Context, watch: Arc<AtomicU64>) -> Context {
    context.watched(watch)
}

/// A context that ends once `stop` has a cause; see `check_stop`.
pub fn ended_by(context: Context, stop: Arc<OnceLock<Error>>) -> Context {
    context.ended_by(stop)
}

/// Fails once the loader ends.
///
/// # Errors
/// The first cause of the loader's end.
pub fn check_stop(context: &Context) -> Result<(), Error> {
    context.check_stop()
}

/// Uses the scratch memory of a worker; `into_scratch` gives it back.
pub fn with_scratch(context: Context, scratch: Scratch) -> Context {
    context.with_scratch(scratch)
}

/// Sets the draws of the samples to read: `draws[i]` for the `i`-th.
pub fn with_draws(context: Context, draws: &[u64]) -> Context {
    context.with_draws(draws)
}

/// The scratch memory, for the next context of the same worker.
pub fn into_scratch(context: Context) -> Scratch {
    context.into_scratch()
}

/// Begins sample `id` as `begin` does, and runs `work`, which reads it.
///
/// ```
/// # use feedline_core::Context;
/// # use feedline_core::internal::context;
/// let mut context = Context::new(0, 0);
/// let own = context::sample(&mut context, 0, 5, |context| context.random().next_u64());
/// let parts = context::sample(&mut context, 0, 5, |context| {
///     [(0, 70), (1, 71)].map(|(index, id)| {
///         context.begin(index, id);
///         (context.draw(), context.random().next_u64())
///     })
/// });
/// assert_eq!(parts[0], (5, own));
/// assert!(parts[1].0 == 5 && parts[1].1 != own);
/// ```
pub fn sample<R>(context: &mut Context, index: usize, id: u64, work: impl FnOnce(&mut Context) -> R) -> R {
    context.sample(index, id, work)
}

/// For a `Dataset::read_many` that reads some of its samples from another set, where they have other ids.
///
/// ```
/// # use feedline_core::Context;
/// # use feedline_core::internal::context;
/// let mut context = context::with_draws(Context::new(0, 0), &[40, 50, 60]);
/// // Samples 7, 8 and 9 were asked for. The last two are samples 107 and 108 of another set.
/// context::delegate(&mut context, 1, &[8, 9], |context| context.begin(1, 108));
/// assert_eq!((context::current(&context), context.draw()), (Some((2, 9)), 60));
/// ```
pub fn delegate<R>(
    context: &mut Context,
    first: usize,
    ids: &[u64],
    work: impl FnOnce(&mut Context) -> R,
) -> R {
    context.delegate(first, ids, work)
}

/// Gives `work` random streams of its own, which differ from this context's and from those of any other
/// `number`: for a set that reads several others, or draws more random numbers than the set it reads.
///
/// ```
/// # use feedline_core::Context;
/// # use feedline_core::internal::context;
/// let mut context = Context::new(0, 0);
/// context.begin(0, 5);
/// let image = context::with_stream(&mut context, 0, |context| context.random().next_u64());
/// let mask = context::with_stream(&mut context, 1, |context| context.random().next_u64());
/// assert_ne!(image, mask);
/// assert_eq!(image, context::with_stream(&mut context, 0, |context| context.random().next_u64()));
/// ```
pub fn with_stream<R>(context: &mut Context, number: u64, work: impl FnOnce(&mut Context) -> R) -> R {
    context.with_stream(number, work)
}

/// A hash of the seed, the epoch and the draw, to seed random generators of a reader outside of this
/// process.
pub fn key(context: &Context) -> u64 {
    context.key()
}

/// Names sample `index` in error messages from now on. The sample was begun before.
pub fn mark(context: &mut Context, index: usize, id: u64) {
    context.mark(index, id)
}

/// Reports that another process, or Python code of this one, has spent `ns` nanoseconds reading
/// samples.
pub fn add_elsewhere(context: &mut Context, ns: u64) {
    context.add_elsewhere(ns)
}

/// The sum of `add_elsewhere`.
pub fn elsewhere_ns(context: &Context) -> u64 {
    context.elsewhere_ns()
}

/// The epoch, for a reader that may or may not use it, as with `key`.
pub fn key_epoch(context: &Context) -> u64 {
    context.key_epoch()
}

/// Whether a read with this context has asked for the epoch, the draw or random numbers.
pub fn varies(context: &Context) -> bool {
    context.varies()
}

/// The sample being read: its index in the ids, and its id, as the loader knows them.
pub fn current(context: &Context) -> Option<(usize, u64)> {
    context.current()
}
