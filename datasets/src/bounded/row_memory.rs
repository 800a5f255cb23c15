//! The rows of a table in memory. Each is decoded once, so that a row of a shuffled batch is one copy.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

use feedline_core::{Context, Dataset, Prefetched, Result, Row, Rows, Sink, Spec};

use crate::io::buffers::Buffers;
use crate::io::memory::Memory;

/// Default for the max bytes of a table's rows in memory.
pub(crate) const CACHE_BYTES: u64 = 512 << 20;

/// Bytes of rows that a worker decodes at a time, if the inner set decodes samples one by one.
const PART_BYTES: usize = 4 << 20;

/// The index of parts has an entry for every 2^SHIFT samples.
const SHIFT: u32 = 10;

/// Max fields that are copied from columns in memory.
const COLUMNS: usize = 4;

/// The rows of a data set in parts. A part is decoded when one of its samples is first read.
pub(crate) struct RowMemory {
    /// The bytes of each field in a row.
    fields: Vec<Range<usize>>,
    stride: usize,
    parts: Vec<Part>,
    /// The part of each 2^SHIFTth sample.
    first: Vec<usize>,
    /// The number of parts that are not decoded.
    missing: AtomicUsize,
}

struct Part {
    samples: Range<u64>,
    rows: OnceLock<Decoded>,
    /// Locked while a worker decodes the part.
    decoding: Mutex<()>,
    /// Whether decoding failed. The inner set then reads the samples one by one, and reports the error.
    failed: AtomicBool,
}

struct Decoded {
    rows: Memory,
    /// The samples whose read is an error, ascending.
    unread: Vec<u64>,
}

impl RowMemory {
    /// The memory for the rows of `inner`, with the fields of `spec`. `None` if the inner set has the rows in
    /// memory already, or if they take more than its [`row_memory`](feedline_core::About::row_memory).
    pub(crate) fn new(inner: &dyn Dataset, spec: &Spec) -> Option<Self> {
        let budget = inner.about().row_memory;
        if budget == 0 || spec.fields().is_empty() || bytes(inner, spec) > budget {
            return None;
        }
        let is_column = |field: usize| inner.storage().column(field).is_some();
        if spec.fields().len() <= COLUMNS && (0..spec.fields().len()).all(is_column) {
            return None;
        }
        Some(Self::of_reader(inner, spec))
    }

    /// The memory for the rows of `inner`, of any size.
    fn of_reader(inner: &dyn Dataset, spec: &Spec) -> Self {
        let mut stride = 0;
        let fields = spec.fields().iter().map(|field| {
            stride += field.row_bytes();
            stride - field.row_bytes()..stride
        });
        let fields = fields.collect();
        let together = (PART_BYTES / stride.max(1)).max(1 << SHIFT) as u64;
        let (mut parts, mut start) = (Vec::new(), 0);
        while start < inner.len() {
            let group = inner.storage().group(start);
            let is_group = group.start == start && group.end > start + 1;
            let end = if is_group { group.end } else { start + together }.min(inner.len());
            let part = Part {
                samples: start..end,
                rows: OnceLock::new(),
                decoding: Mutex::new(()),
                failed: false.into(),
            };
            parts.push(part);
            start = end;
        }
        let part_of = |sample: u64| parts.partition_point(|part| part.samples.end <= sample);
        let first = (0..inner.len()).step_by(1 << SHIFT).map(part_of).collect();
        let missing = AtomicUsize::new(parts.len());
        Self { fields, stride, parts, first, missing }
    }

    /// Decodes all rows of `inner` now, on all cores.
    #[cfg(feature = "tabular")]
    pub(crate) fn decoded_now(inner: &dyn Dataset, spec: &Spec) -> Self {
        let memory = Self::of_reader(inner, spec);
        let next = AtomicUsize::new(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(memory.parts.len());
        feedline_core::on_threads(cores, "fl-table", || {
            while let Some(part) = memory.parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _decoding = part.decoding.lock().unwrap_or_else(PoisonError::into_inner);
                memory.decode(inner, part);
            }
        });
        memory
    }

    /// The place of field `field` in a [row](Self::row).
    #[cfg(feature = "tabular")]
    pub(crate) fn field(&self, field: usize) -> Range<usize> {
        self.fields[field].clone()
    }

    /// The part of a sample.
    fn part(&self, sample: u64) -> Option<&Part> {
        let mut at = *self.first.get(usize::try_from(sample >> SHIFT).ok()?)?;
        while self.parts.get(at)?.samples.end <= sample {
            at += 1;
        }
        self.parts.get(at)
    }

    /// Copies the rows of the samples `ids`. If one of them cannot be read, copies no row and returns false.
    pub(crate) fn copy(&self, inner: &dyn Dataset, ids: &[u64], rows: &mut Rows<'_>) -> bool {
        let found = ids.iter().map_while(|&id| self.row(inner, id));
        let found = Vec::from_iter(found);
        if found.len() < ids.len() {
            return false;
        }
        for (index, field) in self.fields.iter().enumerate() {
            rows.write(index, found.iter().map(|row| &row[field.clone()]));
        }
        true
    }

    /// Copies one sample. Returns false if it cannot be read.
    pub(crate) fn copy_one(&self, inner: &dyn Dataset, id: u64, to: &mut Row<'_, '_>) -> bool {
        let Some(row) = self.row(inner, id) else { return false };
        let fields = self.fields.iter().enumerate();
        fields.for_each(|(index, field)| to.write(index, &row[field.clone()]));
        true
    }

    /// The fields of a sample, side by side. Decodes the sample's part, or waits for the worker that decodes
    /// it. `None` if the sample cannot be read.
    pub(crate) fn row(&self, inner: &dyn Dataset, sample: u64) -> Option<&[u8]> {
        let part = self.part(sample)?;
        if part.rows.get().is_none() {
            let _decoding = part.decoding.lock().unwrap_or_else(PoisonError::into_inner);
            self.decode(inner, part);
        }
        let decoded = part.rows.get()?;
        if !decoded.unread.is_empty() && decoded.unread.binary_search(&sample).is_ok() {
            return None;
        }
        let start = (sample - part.samples.start) as usize * self.stride;
        decoded.rows.bytes().get(start..start + self.stride)
    }

    /// Decodes one part of the samples `ids`: the first that is missing and that no other worker decodes.
    pub(crate) fn prefetch(&self, inner: &dyn Dataset, ids: &[u64]) -> Prefetched {
        if self.missing.load(Ordering::Relaxed) == 0 {
            return Prefetched::Never;
        }
        let mut outcome = Prefetched::Ready;
        for part in ids.iter().filter_map(|&id| self.part(id)) {
            if part.rows.get().is_some() || part.failed.load(Ordering::Relaxed) {
                continue;
            }
            let _decoding = match part.decoding.try_lock() {
                Ok(decoding) => decoding,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    outcome = Prefetched::Pending;
                    continue;
                }
            };
            self.decode(inner, part);
            return Prefetched::Prepared;
        }
        outcome
    }

    /// Decodes a part, unless it is decoded or has failed. The caller holds the part's lock.
    fn decode(&self, inner: &dyn Dataset, part: &Part) {
        if part.rows.get().is_some() || part.failed.load(Ordering::Relaxed) {
            return;
        }
        match self.decoded(inner, &part.samples) {
            Ok(decoded) => {
                if part.rows.set(decoded).is_ok() {
                    self.missing.fetch_sub(1, Ordering::Relaxed);
                }
            }
            Err(_) => part.failed.store(true, Ordering::Relaxed),
        }
        // The rows are copied, so the inner set can drop its decoded groups.
        let mut sample = part.samples.start;
        while sample < part.samples.end {
            inner.storage().forget(sample);
            sample = inner.storage().group(sample).end.max(sample + 1);
        }
    }

    /// Decodes the rows of `samples`. An error, such as a damaged group, applies to all of these rows.
    fn decoded(&self, inner: &dyn Dataset, samples: &Range<u64>) -> Result<Decoded> {
        let count = samples.end - samples.start;
        let mut rows = Memory::new((count * self.stride as u64).max(1))?;
        let mut unread = Vec::new();
        let mut is_written = vec![false; count as usize];
        if let Some(whole) =
            inner.storage().decoded(samples.start)?.filter(|whole| whole.samples() == *samples)
        {
            is_written.fill(true);
            for (index, field) in self.fields.iter().enumerate() {
                let mut row = 0;
                while row < is_written.len() {
                    let to = &mut rows.bytes_mut()[row * self.stride + field.start..];
                    row += whole.write(samples.start + row as u64, index, field.len(), (to, self.stride));
                    // The row that stopped the run is read alone.
                    if let Some(is_written) = is_written.get_mut(row) {
                        *is_written = false;
                    }
                    row += 1;
                }
            }
        }
        let mut context = Context::new(0, 0);
        context.scratch::<Buffers>().ahead.group();
        let all = samples.clone().zip(rows.bytes_mut().chunks_exact_mut(self.stride)).zip(is_written);
        for ((sample, row), _) in all.filter(|(_, is_written)| !is_written) {
            if !self.read(inner, sample, &mut context, row) {
                unread.push(sample);
            }
        }
        // If a file was changed, no row is valid.
        context.scratch::<Buffers>().ahead.end_group()?;
        Ok(Decoded { rows, unread })
    }

    /// Reads one sample into `row`. Returns false for an error. The next read of the sample finds the error
    /// again.
    fn read(&self, inner: &dyn Dataset, sample: u64, context: &mut Context, row: &mut [u8]) -> bool {
        let mut is_right = true;
        let mut write = |index: usize, bytes: &[u8], _: Option<&[usize]>| {
            let to = self.fields.get(index).map(|field| &mut row[field.clone()]);
            match to {
                Some(to) if to.len() == bytes.len() => to.copy_from_slice(bytes),
                _ => is_right = false,
            }
            Ok(())
        };
        let visited = inner.visit(sample, &mut Sink::new(&mut write), context);
        visited.is_ok() && is_right
    }
}

/// The bytes that the rows of `inner` take.
pub(crate) fn bytes(inner: &dyn Dataset, spec: &Spec) -> u64 {
    let row: u64 = spec.fields().iter().map(|field| field.row_bytes() as u64).sum();
    inner.len().saturating_mul(row)
}

impl fmt::Debug for RowMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowMemory({} parts, {} bytes per row)", self.parts.len(), self.stride)
    }
}
