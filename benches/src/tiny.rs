//! What the loader costs a sample when samples are small and there is no device: against a bare gather on one thread.

use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Result, Row, Rows, Spec, Workers};
use feedline_core::random::splitmix64;
use feedline_device::floor::Absent;
use serde_json::json;

use crate::measure::{sides, steps};
use crate::options::Options;
use crate::row::{Entry, Report, Target};

const SAMPLES: usize = 60_000;
const BYTES: usize = 784;
const BATCHES: [usize; 3] = [128, 512, 4096];

/// Runs the benchmark.
///
/// # Errors
/// Whatever the pipeline ends with.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let batches = if options.smoke { &BATCHES[..1] } else { &BATCHES };
    for &batch in batches {
        for &workers in &options.workers {
            one(options, report, batch, workers)?;
        }
    }
    Ok(())
}

fn one(options: &Options, report: &mut Report, batch: usize, workers: usize) -> Result<()> {
    let device: Device = Device::with_driver(Absent::new());
    let compute = device.stream()?;
    let builder = Loader::builder(Table::new()?).batch_size(batch).shuffle(1).drop_last(true);
    let mut loader = builder.workers(Workers::Count(workers)).build(&device)?;
    let an_epoch = loader.plan().steps(0, 0).max(1) as usize;
    let mut epoch = 0;
    let feed = |steps: usize| {
        for _ in 0..steps / an_epoch {
            for batch in loader.epoch(epoch)? {
                drop(batch?.wait_on(&compute)?);
            }
            epoch += 1;
        }
        Ok(())
    };
    let mut bare = Gather::new(batch)?;
    let whole = steps(options, |steps| bare.run(steps))?.div_ceil(an_epoch) * an_epoch;
    let sides = sides(options, (an_epoch, whole), feed, |steps| bare.run(steps))?;
    let ns_a_sample = |seconds: f64| seconds * 1e9 / batch as f64;
    let more = json!({
        "samples_per_s": batch as f64 / sides.value.median(),
        "floor_samples_per_s": batch as f64 / sides.floor.median(),
        "ns_a_sample": ns_a_sample(sides.value.median()),
        "steps": whole,
    });
    // What was asked for is one figure: at batch 4096.
    let target = if batch == 4096 && workers == 1 { Target::AtMost(30.0) } else { Target::None };
    report.add(
        "tiny",
        Entry {
            parameters: json!({ "batch": batch, "workers": workers }),
            value: sides.difference.map(ns_a_sample),
            unit: "ns/sample over",
            floor: Some(ns_a_sample(sides.floor.median())),
            ratio: Some(sides.ratio.median()),
            target,
            more,
        },
    )
}

/// Samples in memory, one after the other.
struct Table {
    spec: Spec,
    bytes: Vec<u8>,
}

impl Table {
    fn new() -> Result<Self> {
        let bytes = (0..SAMPLES * BYTES / 8).flat_map(|word| splitmix64(word as u64).to_le_bytes()).collect();
        Ok(Self { spec: Spec::new().field("bytes", DType::U8, [BYTES])?, bytes })
    }

    fn sample(&self, id: u64) -> &[u8] {
        &self.bytes[id as usize * BYTES..][..BYTES]
    }
}

impl Dataset for Table {
    fn len(&self) -> u64 {
        SAMPLES as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> std::result::Result<(), ReadError> {
        row.bytes_mut(0).copy_from_slice(self.sample(id));
        Ok(())
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        _: &mut Context,
    ) -> std::result::Result<(), (usize, ReadError)> {
        for (&id, row) in ids.iter().zip(rows.column_mut(0).chunks_exact_mut(BYTES)) {
            row.copy_from_slice(self.sample(id));
        }
        Ok(())
    }
}

/// The floor: one thread, one buffer, ids that were shuffled beforehand.
struct Gather {
    table: Table,
    ids: Vec<u64>,
    next: usize,
    buffer: Vec<u8>,
}

impl Gather {
    fn new(batch: usize) -> Result<Self> {
        let mut ids: Vec<u64> = (0..SAMPLES as u64).collect();
        ids.sort_by_key(|&id| splitmix64(id));
        Ok(Self { table: Table::new()?, ids, next: 0, buffer: vec![0; batch * BYTES] })
    }

    fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            let rows = self.buffer.len() / BYTES;
            if self.next + rows > self.ids.len() {
                self.next = 0;
            }
            for (&id, row) in self.ids[self.next..].iter().zip(self.buffer.chunks_exact_mut(BYTES)) {
                row.copy_from_slice(self.table.sample(id));
            }
            std::hint::black_box(&mut self.buffer);
            self.next += rows;
        }
        Ok(())
    }
}
