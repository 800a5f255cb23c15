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
pub fn sample<R>(context: &mut Context, index: usize, id: u64, work: impl FnOnce(&mut Context) -> R) -> R {
    context.sample(index, id, work)
}

/// For a `Dataset::read_many` that reads some of its samples from another set, where they have other ids.
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
