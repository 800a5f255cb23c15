//! Threads that decode pieces of batches, in the order of the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use feedline::{Context, Dataset, Error, ErrorKind, Result};
use feedline_core::{Layout, Scratch, catch_panic, panic_text};

use crate::set::{Content, Set};
use crate::shared::{Asked, Batch};
use crate::wire::Piece;

/// Bytes of a piece. A piece is copied several times on its way, and larger buffers are slower to copy.
const PIECE_BYTES: usize = 1 << 20;

/// A range of rows to decode: piece `index` of `batch`.
pub(crate) struct Work {
    pub(crate) batch: Arc<Batch>,
    pub(crate) index: usize,
}

/// The threads `decode-N`, which end when this is dropped.
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    work: Mutex<(VecDeque<Work>, bool)>,
    added: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Work>, bool)> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next work; `None` once the queue is closed.
    fn next(&self) -> Option<Work> {
        let mut work = self.lock();
        loop {
            if work.1 {
                return None;
            }
            if let Some(next) = work.0.pop_front() {
                return Some(next);
            }
            work = self.added.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Pool {
    /// Starts `workers` threads.
    pub(crate) fn new(workers: usize) -> Result<Self> {
        let queue = Arc::new(Queue::default());
        let spawn = |index| {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("decode-{index}")).spawn(move || run(&queue))
        };
        let threads = (0..workers).map(spawn).collect::<std::io::Result<_>>().map_err(|error| {
            let why = format!("cannot start {workers} threads: take fewer --workers");
            Error::new(ErrorKind::Config, why).with_source(error)
        })?;
        Ok(Self { queue, threads })
    }

    /// Number of threads.
    pub(crate) fn workers(&self) -> usize {
        self.threads.len()
    }

    /// Queues every piece of `batch`.
    pub(crate) fn add(&self, batch: &Arc<Batch>) {
        let pieces = (0..batch.pieces()).map(|index| Work { batch: batch.clone(), index });
        self.queue.lock().0.extend(pieces);
        self.queue.added.notify_all();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let left = {
            let mut work = self.queue.lock();
            work.1 = true;
            std::mem::take(&mut work.0)
        };
        self.queue.added.notify_all();
        drop(left);
        for thread in self.threads.drain(..) {
            // The payload of a panic may panic when it is dropped.
            if let Err(panic) = thread.join() {
                panic_text(panic);
            }
        }
    }
}

fn run(queue: &Queue) {
    let mut scratch = Scratch::new();
    while let Some(Work { batch, index }) = queue.next() {
        if batch.is_unwanted() {
            batch.set(index, Err("no trainer waits for it any more".to_owned()));
            continue;
        }
        let range = batch.range(index);
        let decoded = decode(&batch, range, &mut scratch);
        // The cause is left out, because it may name files of this server. The trainer's own workers then
        // read the sample and report their error.
        batch.set(
            index,
            decoded.map_err(|error| match error.sample() {
                Some(id) => format!("cannot read sample {id}"),
                None => error.message().to_owned(),
            }),
        );
    }
}

/// Reads rows `range` of `batch` by one call, as the workers of a loader do. After a panic, the next call has
/// new scratch memory.
fn decode(batch: &Batch, range: std::ops::Range<usize>, scratch: &mut Scratch) -> Result<Piece> {
    let Batch { set, asked: Asked { seed, epoch, ids, draws, records }, .. } = batch;
    let (ids, draws) = (&ids[range.clone()], draws.get(range.clone()).unwrap_or_default());
    let layout = Layout::new(set.spec(), ids.len())?;
    let start = Instant::now();
    let mut slab = vec![0; layout.bytes()];
    let context = Context::new(*seed, *epoch).with_scratch(std::mem::take(scratch));
    let mut context = context.with_draws(draws);
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, ids.len());
    let read = catch_panic("the data set panicked", || match set.content() {
        Content::Dataset(dataset) => rows.read_by(|rows| dataset.read_many(ids, rows, &mut context)),
        Content::Source(source) => {
            let records = records.iter().flatten().skip(range.start);
            ids.iter().zip(records).enumerate().try_for_each(|(index, (&id, record))| {
                let mut row = rows.row(index);
                let decode = |context: &mut Context| row.read_by(|row| source.decode(record, row, context));
                context.sample(index, id, decode).map_err(|error| (index, error))
            })
        }
    });
    let unreadable = |index: usize, error: feedline::ReadError| {
        let id = ids.get(index).copied().unwrap_or_default();
        Error::new(ErrorKind::Sample, "cannot read a sample").with_source(error).at_sample(id)
    };
    read?.map_err(|(index, error)| unreadable(index, error))?;
    drop(rows);
    *scratch = context.into_scratch();
    let busy = start.elapsed();
    set.measured(busy, ids.len());
    Ok(Piece::of_slab(&layout, slab, range.start, busy.as_nanos() as u64))
}

/// Rows of a piece: few enough that every thread gets some, but at least a fifth of a millisecond of work,
/// and at most [`PIECE_BYTES`].
pub(crate) fn piece_rows(set: &Set, rows: usize, workers: usize) -> usize {
    const SHORTEST_NS: u64 = 200_000;
    let per_thread = rows.div_ceil(2 * workers).max(1);
    let shortest = match set.row_ns() {
        0 => 1,
        row_ns => usize::try_from(SHORTEST_NS / row_ns.max(1)).unwrap_or(rows).max(1),
    };
    let largest = (PIECE_BYTES / set.spec().sample_bytes().max(1)).max(1);
    per_thread.max(shortest).min(largest).min(rows.max(1))
}
