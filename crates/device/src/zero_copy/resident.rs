//! Resident memory: the columns of a data set, copied to the device once and kept there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use feedline_core::layout::ALIGN;
use feedline_core::{
    Context, Dataset, Error, ErrorKind, Layout, Result, Spec, StableDataset, catch_panic, on_threads,
};

use crate::backend::{Address, Priority, fits_launch};
use crate::device_core::Core;
use crate::event::EventPool;
use crate::slots::Ring;
use crate::stream::StreamCore;
use crate::{Device, Pinned, Stream};

/// Max bytes and max samples that are decoded before they are copied.
const AT_ONCE: (usize, usize) = (4 << 20, 1 << 16);

/// Device memory that holds every sample of a data set: one column per field, without gaps between rows.
/// After the columns is room for the ids of a batch.
pub(crate) struct Resident {
    device: Arc<Core>,
    address: Address,
    bytes: usize,
    /// The byte offset of each column.
    offsets: Vec<usize>,
    /// The byte offset of the room for the ids.
    ids: usize,
    /// The rows of each column.
    rows: usize,
    /// The stream that has copied the samples.
    writer: Stream,
    /// The only stream that reads the samples, set when it is first used.
    reader: OnceLock<Arc<StreamCore>>,
}

impl Resident {
    /// Reads the first `len` samples of `dataset` on `threads` threads, and copies them to the device. After
    /// them is room for `more` rows and for the ids of `batch` rows. Blocks until all samples are on the
    /// device.
    pub(crate) fn new(
        device: &Device,
        dataset: &StableDataset,
        (len, more, batch): (u64, u64, u64),
        threads: usize,
    ) -> Result<Self> {
        let (offsets, ids, bytes) = place(dataset.spec(), len.saturating_add(more), batch)?;
        let writer = device.named_stream("resident", Priority::Normal)?;
        let core = device.core().clone();
        let address = core.backend.alloc_device(bytes)?;
        core.stats.device_bytes.add(bytes as u64);
        let rows = usize::try_from(len.saturating_add(more)).unwrap_or(usize::MAX);
        let resident =
            Self { device: core, address, bytes, offsets, ids, rows, writer, reader: OnceLock::new() };
        Load::new(&resident, device, dataset, len, threads)?.run(threads)?;
        resident.writer.synchronize()?;
        Ok(resident)
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The offset of the column of field `field`.
    pub(crate) fn offset(&self, field: usize) -> usize {
        self.offsets[field]
    }

    /// The room for the ids of a batch of `rows` rows; `None` if the launch itself carries the ids.
    pub(crate) fn ids(&self, rows: usize) -> Option<Address> {
        (!fits_launch(rows, self.rows)).then(|| self.device(self.ids))
    }

    /// The device address of byte `offset`.
    pub(crate) fn device(&self, offset: usize) -> Address {
        Address(self.address.0 + offset as u64)
    }

    /// Makes `stream` the only stream that reads the memory. Returns an error for a second stream, and for a
    /// stream of another device.
    pub(crate) fn accepts(&self, stream: &Arc<StreamCore>) -> Result<()> {
        stream.own(&self.reader, &self.device, "resident memory is read")
    }
}

/// The number of samples to keep in `budget` bytes of device memory. It is `len` if all samples fit, and
/// otherwise the number that fits beside the rows of a batch of `batch`.
pub(crate) fn fitting(spec: &Spec, len: u64, batch: u64, budget: usize) -> Result<u64> {
    let (_, _, bytes) = place(spec, len, batch)?;
    if bytes <= budget {
        return Ok(len);
    }
    let fits =
        |kept: u64| place(spec, kept.saturating_add(batch), batch).is_ok_and(|(_, _, bytes)| bytes <= budget);
    let (mut kept, mut too_many) = (0, len);
    while too_many - kept > 1 {
        let middle = kept + (too_many - kept) / 2;
        if fits(middle) { kept = middle } else { too_many = middle }
    }
    if kept == 0 {
        let why = format!(
            "the set takes {bytes} bytes on the device, and its budget of {budget} is too small for a sample \
             beside the rows of a batch"
        );
        return Err(Error::new(ErrorKind::Budget, why));
    }
    Ok(kept)
}

/// For `len` samples, returns the offset of each field's column, the offset of the ids of `batch` rows, and
/// the total bytes.
fn place(spec: &Spec, len: u64, batch: u64) -> Result<(Vec<usize>, usize, usize)> {
    let mut end = 0_usize;
    let mut offsets = Vec::with_capacity(spec.fields().len());
    for field in spec.fields() {
        if field.as_ragged().is_some() {
            let why = format!("field \"{}\" is ragged, and a gather copies rows of one size", field.name());
            return Err(Error::new(ErrorKind::Config, why));
        }
        offsets.push(end);
        let bytes = usize::try_from(len).ok().and_then(|len| len.checked_mul(field.row_bytes()));
        let after = bytes.and_then(|bytes| end.checked_add(bytes)?.checked_next_multiple_of(ALIGN));
        end = after.filter(|&end| end <= isize::MAX as usize).ok_or_else(|| {
            let why = format!("{len} samples of {} bytes exceed the address space", spec.sample_bytes());
            Error::new(ErrorKind::Budget, why)
        })?;
    }
    if end == 0 {
        return Err(Error::new(ErrorKind::Config, "the data set is empty"));
    }
    let [rows, samples] = [batch, len].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let ids = if fits_launch(rows, samples) { 0 } else { rows.saturating_mul(size_of::<u64>()) };
    Ok((offsets, end, end.saturating_add(ids)))
}

impl Drop for Resident {
    fn drop(&mut self) {
        let drained = self.writer.synchronize();
        let drained = drained.and_then(|()| self.reader.get().map_or(Ok(()), |stream| stream.synchronize()));
        // If a stream cannot be drained, work may still use the memory, so the memory is leaked.
        let freed = drained.and_then(|()| {
            // SAFETY: from `alloc_device` with this size, freed once; the streams that use it are drained.
            unsafe { self.device.backend.free_device(self.address, self.bytes) }
        });
        if let Err(error) = freed {
            self.device.stats.report(error);
        }
        self.device.stats.device_bytes.subtract(self.bytes as u64);
    }
}

/// The state of copying a set, shared by the threads that read it.
struct Load<'a> {
    resident: &'a Resident,
    dataset: &'a StableDataset,
    len: u64,
    /// The layout of the samples that are read in one call.
    layout: Layout,
    staging: Ring<crate::Pinned>,
    events: EventPool,
    /// The next sample to read.
    next: AtomicU64,
    is_failed: AtomicBool,
    /// The error of the failed piece with the smallest first sample, and this sample.
    error: Mutex<Option<(u64, Error)>>,
}

impl<'a> Load<'a> {
    fn new(
        resident: &'a Resident,
        device: &Device,
        dataset: &'a StableDataset,
        len: u64,
        threads: usize,
    ) -> Result<Self> {
        let rows = (AT_ONCE.0 / dataset.spec().sample_bytes().max(1)).clamp(1, AT_ONCE.1);
        let layout = Layout::new(dataset.spec(), rows.min(usize::try_from(len).unwrap_or(usize::MAX)))?;
        // A thread fills one block while the other block is copied.
        let blocks =
            (0..2 * threads).map(|_| Pinned::new(device, layout.bytes())).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            resident,
            dataset,
            len,
            layout,
            staging: Ring::new(blocks),
            events: EventPool::new(device.core(), 2 * threads + 1)?,
            next: AtomicU64::new(0),
            is_failed: AtomicBool::new(false),
            error: Mutex::new(None),
        })
    }

    /// Reads and copies all samples, on `threads` threads.
    fn run(&self, threads: usize) -> Result<()> {
        on_threads(threads, "fl-resident", || self.work());
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Reads and copies pieces until all are done.
    fn work(&self) {
        let mut context = Context::new(0, 0);
        let mut ids = Vec::with_capacity(self.layout.capacity());
        while !self.is_failed.load(Ordering::Relaxed) {
            let first = self.next.fetch_add(self.layout.capacity() as u64, Ordering::Relaxed);
            if first >= self.len {
                return;
            }
            ids.clear();
            ids.extend((first..self.len).take(self.layout.capacity()));
            if let Err(error) = self.piece(&ids, &mut context) {
                self.is_failed.store(true, Ordering::Relaxed);
                let mut earliest = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                // Pieces are taken in order, so the same data gives the same error.
                if earliest.as_ref().is_none_or(|(sample, _)| first < *sample) {
                    *earliest = Some((first, error));
                }
            }
        }
    }

    /// Reads the samples `ids`, which are consecutive, and queues their copies.
    fn piece(&self, ids: &[u64], context: &mut Context) -> Result<()> {
        // Waits until the copy out of the block has ended.
        let mut lease = self.staging.acquire()?;
        self.read(ids, lease.bytes_mut(), context)?;
        let (stream, first) =
            (self.resident.writer.core(), ids.first().copied().unwrap_or_default() as usize);
        let event = self.events.take(&self.resident.device)?;
        lease.ready().submit(|pinned, _| {
            pinned.read_by(stream, &event, |from| {
                for (index, field) in self.layout.spec().fields().iter().enumerate() {
                    let from = from.wrapping_add(self.layout.offset(index));
                    let to = self.resident.device(self.resident.offset(index) + first * field.row_bytes());
                    // SAFETY: the block holds a column of `ids.len()` rows at the field's offset, and the
                    // device memory one of `len` rows, of which these are rows `first..` (`place`). `submit`
                    // keeps the host away from the block, and nothing else uses the memory before
                    // `Resident::new` has drained the stream.
                    unsafe {
                        stream.device.backend.copy_to_device(
                            stream.id(),
                            from,
                            to,
                            ids.len() * field.row_bytes(),
                        )
                    }?;
                }
                Ok(())
            })
        })
    }

    fn read(&self, ids: &[u64], slab: &mut [u8], context: &mut Context) -> Result<()> {
        let mut rows = feedline_core::Rows::new(&self.layout, slab, ids.len());
        rows.poison();
        let read = catch_panic("the data set panicked", || {
            rows.read_by(|rows| self.dataset.read_many(ids, rows, context))
        });
        let at = |error: Error, index: usize| {
            let Some(&id) = ids.get(index) else { return error };
            let path = catch_panic("the path of a sample", || self.dataset.path(id)).ok().flatten();
            path.map_or(error.clone(), |path| error.at_path(path)).at_sample(id)
        };
        let read = read.map_err(|error| at(error, context.current().map_or(0, |(index, _)| index)))?;
        read.map_err(|(index, error)| {
            at(Error::new(ErrorKind::Sample, "cannot read a sample").with_source(error), index)
        })?;
        if context.varies() {
            let why = "its samples differ between epochs, because its read uses random numbers or the epoch";
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }
}
