//! The baseline: as many threads as workers, each with a plain loop that fills blocks and sends them.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use feedline::{Error, ErrorKind, Result};
use feedline_core::random::splitmix64;
use feedline_core::{Dataset, Values};

use super::{Order, Outcome};
use crate::baseline::Bare;
use crate::measure::each;
use crate::options::Options;
use crate::setting::DEPTH;

/// A loop over a file: writes its samples into blocks until all blocks are full.
pub type Plain = Box<dyn Fn(&mut Sink<'_>) -> Outcome<()> + Send + Sync>;

/// A loop with random access: `put` puts each sample that a block asks for. A turn has its own buffers `B`.
pub fn by_id<B: Default>(
    put: impl Fn(&mut Block<'_>, u64, &mut B) -> Outcome<()> + Send + Sync + 'static,
) -> Plain {
    Box::new(move |sink| {
        let mut buffers = B::default();
        while let Some(mut block) = sink.next()? {
            while !block.is_full() {
                let id = block.id();
                put(&mut block, id, &mut buffers)?;
            }
        }
        Ok(())
    })
}

/// Plain threads.
pub struct Threads {
    plain: Plain,
    order: Order,
    /// Bytes of each field of a sample.
    sizes: Vec<usize>,
    batch: usize,
    samples: u64,
    bare: Vec<Mutex<Bare>>,
    /// The blocks that the threads have filled so far.
    blocks: AtomicU64,
    cpu_ns: AtomicU64,
}

/// Gives a thread its next block to fill.
pub struct Sink<'a> {
    threads: &'a Threads,
    bare: &'a mut Bare,
    next: &'a AtomicUsize,
    steps: usize,
    /// Blocks that were filled here.
    turn: usize,
    /// The samples in the last block.
    ids: Vec<u64>,
}

/// A batch in pinned memory: its fields, one after the other.
pub struct Block<'a> {
    threads: &'a Threads,
    bytes: &'a mut [u8],
    step: u64,
    ids: &'a mut Vec<u64>,
}

impl Threads {
    /// Each thread has as many blocks as the loader has slots: both write to memory outside the caches.
    pub fn new(
        options: &Options,
        plain: Plain,
        order: Order,
        sizes: Vec<usize>,
        (batch, samples): (usize, u64),
        threads: usize,
    ) -> Result<Self> {
        let bytes = batch * sizes.iter().sum::<usize>();
        let bare = |_| Ok(Mutex::new(Bare::new(&options.device, DEPTH, bytes)?));
        let bare = (0..threads).map(bare).collect::<Result<_>>()?;
        let (blocks, cpu_ns) = Default::default();
        Ok(Self { plain, order, sizes, batch, samples, bare, blocks, cpu_ns })
    }

    /// Fills and sends `steps` blocks. Blocks until all have arrived.
    ///
    /// # Errors
    /// An error of the loop or the device.
    pub fn run(&self, steps: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        each(&self.bare, |bare| self.thread(bare, &next, steps).map(|_| ()))
    }

    /// Returns the samples of the last block.
    fn thread(&self, bare: &mut Bare, next: &AtomicUsize, steps: usize) -> Result<Vec<u64>> {
        let mut sink = Sink { threads: self, bare, next, steps, turn: 0, ids: Vec::new() };
        let before = cpu_of(Path::new("/proc/thread-self"));
        let read = (self.plain)(&mut sink);
        let cpu = cpu_of(Path::new("/proc/thread-self")).saturating_sub(before);
        self.cpu_ns.fetch_add(cpu, Ordering::Relaxed);
        self.blocks.fetch_add(sink.turn as u64, Ordering::Relaxed);
        read.map_err(|why| Error::new(ErrorKind::Data, "a plain loop failed").with_source(why))?;
        let ids = sink.ids;
        bare.finish()?;
        Ok(ids)
    }

    /// Checks that the loop has the bytes that `reader` has.
    ///
    /// # Errors
    /// `Data` for the first sample that differs.
    pub fn check(&self, reader: &dyn Dataset) -> Result<()> {
        let mut bare = self.bare[0].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ids = self.thread(&mut bare, &AtomicUsize::new(0), 1)?;
        let (block, mut values) = (bare.fill(0)?, Values::new());
        for (row, &id) in ids.iter().enumerate() {
            values.read(reader, id)?;
            for (field, value) in values.fields().iter().enumerate() {
                if block[self.place(field, row)..][..self.sizes[field]] != value.bytes {
                    let why = format!("the plain loop has another value of field {field}");
                    return Err(Error::new(ErrorKind::Data, why).at_sample(id));
                }
            }
        }
        let all = ids.len() == self.batch;
        if all { Ok(()) } else { Err(Error::new(ErrorKind::Data, "the plain loop ended early")) }
    }

    /// CPU time of the threads per block so far, in seconds.
    pub fn cpu_per_block(&self) -> f64 {
        let [cpu, blocks] = [&self.cpu_ns, &self.blocks].map(|of| of.load(Ordering::Relaxed));
        cpu as f64 / 1e9 / blocks.max(1) as f64
    }

    /// Where a row of a field begins in a block.
    fn place(&self, field: usize, row: usize) -> usize {
        self.batch * self.sizes[..field].iter().sum::<usize>() + row * self.sizes[field]
    }
}

impl Sink<'_> {
    /// Sends the last block and takes the next one; `None` when the turn is over.
    pub fn next(&mut self) -> Outcome<Option<Block<'_>>> {
        if self.turn > 0 {
            self.bare.send(self.turn - 1)?;
        }
        let step = self.next.fetch_add(1, Ordering::Relaxed);
        if step >= self.steps {
            return Ok(None);
        }
        self.turn += 1;
        self.ids.clear();
        let bytes = self.bare.fill(self.turn - 1)?;
        Ok(Some(Block { threads: self.threads, bytes, step: step as u64, ids: &mut self.ids }))
    }
}

impl Block<'_> {
    /// The sample of the next row, for loops with random access.
    pub fn id(&self) -> u64 {
        let position = self.step * self.threads.batch as u64 + self.ids.len() as u64;
        match self.threads.order {
            Order::Sequential => position % self.threads.samples,
            Order::Shuffled => splitmix64(position) % self.threads.samples,
        }
    }

    /// Puts the next row: sample `id` with these fields.
    pub fn put(&mut self, id: u64, values: &[&[u8]]) -> Outcome<()> {
        let row = self.ids.len();
        for (field, value) in values.iter().enumerate() {
            let size = self.threads.sizes[field];
            if value.len() != size {
                return Err(format!("field {field} has {} bytes instead of {size}", value.len()).into());
            }
            self.bytes[self.threads.place(field, row)..][..size].copy_from_slice(value);
        }
        self.ids.push(id);
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.ids.len() == self.threads.batch
    }
}

/// CPU time of this process's decode threads so far, in seconds.
pub fn cpu_of_workers() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|task| task.path());
    let is_worker = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("fl-decode"))
    };
    tasks.filter(is_worker).map(|task| cpu_of(&task)).sum::<u64>() as f64 / 1e9
}

/// CPU time of a thread, in nanoseconds; 0 where the system does not say.
fn cpu_of(task: &Path) -> u64 {
    let text = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}
