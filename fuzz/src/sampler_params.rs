//! Any sampler over any set in any world is rejected when the batch sampler is created, or gives only ids
//! of the set: the same ids on every call, and each id of a permutation exactly once.

use arbitrary::{Result, Unstructured};
use feedline_core::{BatchSampler, BatchSamplerOptions, ErrorKind, LastBatch, Sampler, World};

/// The largest batch or epoch that is read: a batch of 2^60 is valid, but does not fit in memory.
const ROWS: usize = 4096;

/// Makes a batch sampler from `data` and reads batches.
pub fn check(data: &[u8]) {
    // Running out of bytes is not a failure.
    let _ = build(&mut Unstructured::new(data));
}

fn build(data: &mut Unstructured<'_>) -> Result<()> {
    let len = number(data)?;
    let Some(sampler) = sampler(data, 2)? else { return Ok(()) };
    let size = data.int_in_range(0..=9)?;
    let Ok(world) = World::new(data.int_in_range(0..=9)?, size) else { return Ok(()) };
    let last_batch = *data.choose(&[LastBatch::Keep, LastBatch::Drop, LastBatch::Pad])?;
    let batch = number(data)? as usize;
    let options = BatchSamplerOptions { len, sampler, seed: data.arbitrary()?, batch, last_batch, world };
    let mut batch_sampler = match BatchSampler::new(options) {
        Ok(batch_sampler) => batch_sampler,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            return Ok(());
        }
    };
    let epoch = number(data)?;
    for _ in 0..data.int_in_range(0..=3)? {
        let (first, end) = (number(data)?, number(data)?);
        let _ = if data.arbitrary()? {
            batch_sampler.skip(epoch, first..end)
        } else {
            batch_sampler.skip_positions(epoch, first..end)
        };
    }
    batches(&batch_sampler, epoch, number(data)?, number(data)?);
    whole(&batch_sampler, epoch);
    Ok(())
}

/// Small, large and extreme numbers.
fn number(data: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match data.int_in_range(0..=3)? {
        0 => data.int_in_range(0..=100)?,
        1 => (1u64 << data.int_in_range(0..=63)?) - u64::from(data.arbitrary::<bool>()?),
        2 => u64::MAX - data.int_in_range(0..=100)?,
        _ => data.arbitrary()?,
    })
}

fn sampler(data: &mut Unstructured<'_>, depth: usize) -> Result<Option<Sampler>> {
    let sampler = match data.int_in_range(0..=if depth > 0 { 6 } else { 5 })? {
        0 => Ok(Sampler::Sequential),
        1 => Ok(Sampler::Shuffle),
        2 => Sampler::block(number(data)?, number(data)?),
        3 => Sampler::weighted(&data.arbitrary::<Vec<f64>>()?),
        4 => Sampler::weighted_without_replacement(&data.arbitrary::<Vec<f64>>()?),
        5 => Sampler::balanced(&labels(data)?, data.int_in_range(0..=9)?),
        _ => {
            let ids = data.arbitrary::<Vec<u64>>()?;
            let Some(inner) = sampler(data, depth - 1)? else { return Ok(None) };
            Sampler::subset(ids, inner)
        }
    };
    let sampler = match sampler {
        Ok(sampler) if data.arbitrary()? => sampler.draws(number(data)?),
        other => other,
    };
    Ok(sampler.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Config, "{error}")).ok())
}

fn labels(data: &mut Unstructured<'_>) -> Result<Vec<u32>> {
    let count = data.int_in_range(0..=64)?;
    (0..count).map(|_| data.int_in_range(0..=9)).collect()
}

fn batches(batch_sampler: &BatchSampler, epoch: u64, start: u64, step: u64) {
    let options = batch_sampler.options();
    if !readable(batch_sampler) {
        return;
    }
    let (mut ids, mut again) = (Vec::new(), Vec::new());
    for step in [0, step] {
        let own = batch_sampler.batch(epoch, start, step, &mut ids);
        assert_eq!(batch_sampler.batch(epoch, start, step, &mut again), own);
        assert_eq!(ids, again, "a second call gives the same ids");
        assert!(own <= ids.len() && ids.len() <= options.batch, "{own} of {} rows", ids.len());
        assert_eq!(step < batch_sampler.steps(epoch, start), !ids.is_empty(), "no batch is empty");
        for (row, &id) in ids.iter().enumerate() {
            assert!(id < options.len, "id {id} of {}", options.len);
            let position = batch_sampler.position(epoch, start, step, row);
            assert_eq!(
                position.and_then(|at| batch_sampler.id(epoch, at)),
                Some(id),
                "row {row} at {position:?}"
            );
        }
        assert!(batch_sampler.position_after(epoch, start, step) <= batch_sampler.positions().max(start));
    }
}

/// Whether a batch fits in memory and the first call does not draw an epoch of billions of ids.
fn readable(batch_sampler: &BatchSampler) -> bool {
    let draws_an_epoch = format!("{:?}", batch_sampler.options().sampler).contains("WithoutReplacement");
    batch_sampler.options().batch <= ROWS && !(draws_an_epoch && batch_sampler.positions() > ROWS as u64)
}

/// A single rank with `LastBatch::Keep` delivers each position once; for a permutation, every sample once.
fn whole(batch_sampler: &BatchSampler, epoch: u64) {
    let options = batch_sampler.options();
    let single = options.world == World::single() && options.last_batch == LastBatch::Keep;
    if !single || batch_sampler.positions() > ROWS as u64 || !readable(batch_sampler) {
        return;
    }
    let (mut all, mut ids) = (Vec::new(), Vec::new());
    for step in 0..batch_sampler.steps(epoch, 0) {
        batch_sampler.batch(epoch, 0, step, &mut ids);
        assert!(!ids.is_empty(), "an empty step");
        all.extend_from_slice(&ids);
    }
    let live = batch_sampler.positions() - batch_sampler.skipped(epoch, 0..batch_sampler.positions());
    assert_eq!(all.len() as u64, live);
    if options.sampler.is_permutation() {
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "a sample was delivered twice");
    }
}
