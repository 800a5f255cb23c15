//! Any order over any set, in any world, is either refused when the plan is made, or gives ids of the set only: the
//! same when asked again, every one of a shuffle exactly once.

use arbitrary::{Result, Unstructured};
use feedline_core::{BatchSampler, BatchSamplerOptions, ErrorKind, LastBatch, Sampler, World};

/// What is read of a plan at most: a batch of 2^60 is a legal option, but no machine holds it.
const ROWS: usize = 4096;

/// Makes an order and a plan of `data`, and asks for batches.
pub fn check(data: &[u8]) {
    // Bytes that run out are no finding.
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

/// Small numbers, large ones, and those at the edges.
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
        4 => Sampler::distinct(&data.arbitrary::<Vec<f64>>()?),
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
        let due = batch_sampler.batch(epoch, start, step, &mut ids);
        assert_eq!(batch_sampler.batch(epoch, start, step, &mut again), due);
        assert_eq!(ids, again, "the same when asked again");
        assert!(due <= ids.len() && ids.len() <= options.batch, "{due} of {} rows", ids.len());
        assert!(step < batch_sampler.steps(epoch, start) || ids.is_empty());
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

/// Whether a batch fits in memory, and its first call draws no epoch of billions.
fn readable(batch_sampler: &BatchSampler) -> bool {
    let draws_an_epoch = format!("{:?}", batch_sampler.options().sampler).contains("Distinct");
    batch_sampler.options().batch <= ROWS && !(draws_an_epoch && batch_sampler.positions() > ROWS as u64)
}

/// One rank alone that keeps its tail delivers each position once: of a permutation, every sample once.
fn whole(batch_sampler: &BatchSampler, epoch: u64) {
    let options = batch_sampler.options();
    let alone = options.world == World::single() && options.last_batch == LastBatch::Keep;
    if !alone || batch_sampler.positions() > ROWS as u64 || !readable(batch_sampler) {
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
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "a sample came twice");
    }
}
