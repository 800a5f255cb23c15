//! The loader's cost per sample for small samples and no device, against a bare gather on one thread.

use std::sync::Arc;

use feedline::dataset::{RowError, Rows};
use feedline::{
    Context, DType, Dataset, Device, Error, ErrorKind, Loader, ReadError, Result, Row, Spec, Workers,
};
use feedline_core::random::splitmix64;
use feedline_testkit::NullDevice;
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};
use crate::setting::DEPTH;

const SAMPLES: u64 = 60_000;
const BYTES: usize = 784;

/// Runs the benchmark.
///
/// # Errors
/// An error of the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let memory = Memory::new();
    for &batch in &options.batches {
        for &workers in &options.workers {
            let point =
                Point { length: SAMPLES, row_bytes: BYTES, batch, workers, depth: DEPTH, batches: None };
            one(options, report, &memory, point)?;
        }
    }
    Ok(())
}

/// One point of measurement.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    /// Samples of the set.
    pub length: u64,
    pub row_bytes: usize,
    pub batch: usize,
    pub workers: usize,
    pub depth: usize,
    /// Batches per repetition. Default: as many as fit its time.
    pub batches: Option<usize>,
}

/// Measures one point.
///
/// # Errors
/// An error of the pipeline.
pub(crate) fn one(options: &Options, report: &mut Report, memory: &Memory, point: Point) -> Result<()> {
    let Point { batch, workers, depth, row_bytes, .. } = point;
    let device: Device = feedline_device::with_backend(NullDevice::new());
    let compute = device.stream()?;
    let builder = Loader::builder(Table::new(memory, point)?)
        .batch_size(batch)
        .shuffle()
        .seed(1)
        .last_batch(feedline::LastBatch::Drop);
    let mut loader = builder.depth(depth).workers(Workers::Count(workers)).build(&device)?;
    let memory_use = loader.memory_use();
    let epoch_steps = usize::try_from(loader.batch_sampler().steps(0, 0)).unwrap_or(usize::MAX);
    if epoch_steps == 0 {
        return Err(Error::new(ErrorKind::Config, "the set holds no whole batch"));
    }
    let mut epoch = 0;
    let feed = |steps: usize| {
        let mut left = steps;
        while left > 0 {
            for batch in loader.epoch(epoch)?.take(left) {
                drop(batch?.wait_on(&compute)?);
                left -= 1;
            }
            epoch += 1;
        }
        Ok(())
    };
    let mut bare = Gather::new(memory, point)?;
    let wanted = match point.batches {
        Some(batches) => batches,
        None => steps(options, |steps| bare.run(steps))?,
    };
    // Whole epochs where a repetition holds one: an aborted epoch wastes its prefetched batches.
    let short = point.batches.is_none() && epoch_steps <= wanted.saturating_mul(4);
    let (lead, steps) =
        if short { (epoch_steps, wanted.div_ceil(epoch_steps) * epoch_steps) } else { (wanted / 8, wanted) };
    let sides = sides(options, (lead, steps), feed, |steps| bare.run(steps))?;
    let ns_per_sample = |seconds: f64| seconds * 1e9 / batch as f64;
    let more = json!({
        "samples_per_s": batch as f64 / sides.value.median(),
        "baseline_samples_per_s": batch as f64 / sides.baseline.median(),
        "ns_per_sample": ns_per_sample(sides.value.median()),
        "steps": steps, "batches": steps, "length": point.length, "row_bytes": row_bytes, "depth": depth,
        "pinned_bytes": memory_use.pinned_bytes, "device_bytes": memory_use.device_bytes,
    });
    // The target covers one point only: batch 4096, one worker.
    let target = if batch == 4096 && workers == 1 { Target::AtMost(30.0) } else { Target::None };
    report.add(
        "tiny",
        Entry {
            parameters: json!({ "batch": batch, "workers": workers }),
            value: sides.difference.map(ns_per_sample),
            unit: "ns/sample over",
            baseline: Some(ns_per_sample(sides.baseline.median())),
            ratio: Some(sides.ratio.median()),
            target,
            more,
        },
    )
}

/// Pseudo-random bytes, more than the caches hold; all sets share them.
#[derive(Clone)]
pub(crate) struct Memory(Arc<[u8]>);

impl Memory {
    pub(crate) fn new() -> Self {
        const WORDS: u64 = 1 << 23;
        Self((0..WORDS).flat_map(|word| splitmix64(word).to_le_bytes()).collect())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Samples in memory, stored back to back; a set longer than the memory repeats them.
pub(crate) struct Table {
    spec: Spec,
    memory: Memory,
    row_bytes: usize,
    length: u64,
    /// The number of rows in memory, a power of two, minus one.
    mask: u64,
}

impl Table {
    pub(crate) fn new(memory: &Memory, Point { length, row_bytes, .. }: Point) -> Result<Self> {
        let spec = Spec::new().field("bytes", DType::U8, [row_bytes])?;
        let rows = (memory.0.len() / row_bytes).checked_ilog2().ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("samples of {row_bytes} bytes exceed the memory of tiny"))
        })?;
        Ok(Self { spec, memory: memory.clone(), row_bytes, length, mask: (1 << rows) - 1 })
    }

    fn sample(&self, id: u64) -> &[u8] {
        &self.memory.0[(id & self.mask) as usize * self.row_bytes..][..self.row_bytes]
    }
}

impl Dataset for Table {
    fn len(&self) -> u64 {
        self.length
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        row.write(0, self.sample(id));
        Ok(())
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, _: &mut Context) -> Result<(), RowError> {
        rows.write(0, ids.iter().map(|&id| self.sample(id)));
        Ok(())
    }
}

/// The baseline: one thread gathers into one buffer by ids shuffled beforehand.
struct Gather {
    table: Table,
    ids: Vec<u64>,
    next: usize,
    buffer: Vec<u8>,
}

impl Gather {
    fn new(memory: &Memory, point: Point) -> Result<Self> {
        let table = Table::new(memory, point)?;
        let mut ids: Vec<u64> = (0..point.length.min(table.mask + 1)).collect();
        ids.sort_by_cached_key(|&id| splitmix64(id));
        Ok(Self { table, ids, next: 0, buffer: vec![0; point.batch * point.row_bytes] })
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        let row_bytes = self.table.row_bytes;
        let rows = self.buffer.len() / row_bytes;
        for _ in 0..steps {
            if self.next + rows > self.ids.len() {
                self.next = 0;
            }
            for (&id, row) in self.ids[self.next..].iter().zip(self.buffer.chunks_exact_mut(row_bytes)) {
                row.copy_from_slice(self.table.sample(id));
            }
            std::hint::black_box(&mut self.buffer);
            self.next += rows;
        }
        Ok(())
    }
}
