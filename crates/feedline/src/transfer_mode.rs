//! The transfer mode, and how a loader chooses it.

use std::sync::Arc;

use crate::builder::LoaderOptions;
use crate::decode::{Input, Workers};
use feedline_core::{Error, ErrorKind, Field, Layout, Result, Sampler, Spec, StableDataset, named};
use feedline_device::zero_copy::{GatherOrder, Rest, StridedColumns};
use feedline_device::{BackendKind, Device};

/// The path of rows to the device; set by
/// [`LoaderBuilder::transfer_mode`](crate::LoaderBuilder::transfer_mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferMode {
    /// Zero copy on a GPU where it is possible, staged otherwise.
    ///
    /// Also staged with 8 or more workers and an order that is not sequential, if rows are shorter than 64
    /// KiB: the CPU keeps up, and a gather on the GPU would slow your kernels. A loop that only reads is
    /// still faster with [`ZeroCopy`](Self::ZeroCopy).
    ///
    /// A GPU that reads host memory through the host's page tables (beside a Grace CPU, by NVLink) gathers in
    /// every order, with any number of workers. This was only simulated, never run on such a machine.
    #[default]
    Auto,
    /// Workers read each sample into pinned memory, which is copied to the device.
    Staged,
    /// The device reads the rows from host memory itself: no decoding, no copy on the host. Needs a set with
    /// columns ([`Storage::column`](crate::dataset::Storage::column)).
    ///
    /// The copy engine copies contiguous rows and, with a driver of CUDA 13, rows of 64 KiB or more in any
    /// order. A kernel gathers the others.
    ZeroCopy,
    /// The set is read once, while the loader is built, and kept in device memory; batches are gathered
    /// there, and only their ids cross the bus. For any set that writes the same bytes in every epoch; never
    /// chosen by `Auto`.
    ///
    /// If the set is larger than [`resident_budget`](crate::LoaderBuilder::resident_budget), only the first
    /// samples that fit are kept. Workers read the others, and only those cross the bus. The batches are the
    /// same.
    Resident,
}

/// The transfer mode that a loader uses; returned by [`Loader::transfer_mode`](crate::Loader::transfer_mode).
///
/// Displays as `zero-copy`, `resident`, `resident: N of M samples`, `staged`, or `staged: WHY` if `Auto` did
/// not choose zero copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChosenMode {
    /// Workers read each sample into pinned memory.
    Staged {
        /// Why `Auto` chose this mode, in a short sentence; `None` if it was requested.
        why: Option<String>,
    },
    /// The device reads the rows from host memory itself.
    ZeroCopy,
    /// The set is on the device.
    Resident,
    /// The samples with the smallest ids are on the device; workers read the others.
    PartlyResident {
        /// Samples on the device.
        kept: u64,
        /// Samples of the set.
        samples: u64,
    },
}

impl ChosenMode {
    /// Whether workers only write ids.
    pub(crate) fn needs_no_decoding(&self) -> bool {
        matches!(self, Self::Resident | Self::ZeroCopy)
    }
}

impl std::fmt::Display for ChosenMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ZeroCopy => f.write_str("zero-copy"),
            Self::Resident => f.write_str("resident"),
            Self::PartlyResident { kept, samples } => write!(f, "resident: {kept} of {samples} samples"),
            Self::Staged { why: None } => f.write_str("staged"),
            Self::Staged { why: Some(why) } => write!(f, "staged: {why}"),
        }
    }
}

/// The error for a requested `mode` that is not possible. Keeps a device failure as it is.
fn cannot(mode: &str, error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Config | ErrorKind::Budget | ErrorKind::Unavailable) => {
            let why = format!("{mode} is not possible, {}: ask for auto or staged", error.message());
            Error::new(kind, why)
        }
        _ => error,
    }
}

/// Number of workers that can feed a training step by staged copies.
const ENOUGH_WORKERS: usize = 8;

/// The reason why `Auto` prefers staged copies, if it does.
pub(crate) fn against_zero_copy(
    device: &Device,
    spec: &Spec,
    sampler: &Sampler,
    workers: Workers,
) -> Option<String> {
    if device.kind() != BackendKind::Cuda {
        // The host device copies on one thread, but several workers can copy at a time.
        return Some(format!("{} is not a GPU", device.name()));
    }
    let backend = feedline_device::backend(device);
    if backend.has_coherent_host_memory() {
        // The link is about as fast as host memory, so a gather is quick.
        return None;
    }
    // A label has negligibly few bytes, compared with a picture.
    let copied = spec.fields().iter().map(Field::row_bytes).filter(|&bytes| backend.copies_rows_of(bytes));
    let copied = copied.fold(0, usize::saturating_add);
    if copied > 0 && copied >= spec.sample_bytes() / 100 * 99 {
        return None;
    }
    let workers = workers.threads().unwrap_or(0);
    let gathers = !matches!(sampler, Sampler::Sequential);
    let why = || format!("{workers} workers keep up, and a gather would slow the kernels of a step");
    (gathers && workers >= ENOUGH_WORKERS).then(why)
}

/// The mode that a loader uses, and the columns of the set if the device gathers its rows.
pub(crate) type Chosen = (ChosenMode, Option<Arc<StridedColumns>>);

/// Bytes per host slot, for the samples of a batch, for its ids if the device gathers them, or for both.
pub(crate) fn slot_bytes(layout: &Layout, columns: Option<&StridedColumns>) -> usize {
    match columns {
        None => layout.bytes(),
        Some(columns) if columns.rest().is_some() => Rest::slot_bytes(layout),
        Some(_) => GatherOrder::slot_bytes(layout.capacity()),
    }
}

impl LoaderOptions {
    /// Chooses zero copy if it is wanted and possible. `against` is the reason why `Auto` does not try it.
    pub(crate) fn choose(&self, device: &Device, layout: &Layout, against: Option<String>) -> Result<Chosen> {
        let why = match self.transfer_mode {
            TransferMode::Staged => None,
            TransferMode::Resident => {
                let columns = self.keep(device, layout).map_err(|error| cannot("resident", error))?;
                let mode = columns.rest().map_or(ChosenMode::Resident, |rest| ChosenMode::PartlyResident {
                    kept: rest.kept(),
                    samples: rest.samples(),
                });
                return self.chosen(layout, mode, Some(columns));
            }
            TransferMode::Auto if against.is_some() => against,
            TransferMode::Auto | TransferMode::ZeroCopy => match self.register(device, layout) {
                Ok(columns) => return self.chosen(layout, ChosenMode::ZeroCopy, Some(columns)),
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                Err(error) if self.transfer_mode == TransferMode::ZeroCopy => {
                    return Err(cannot("zero copy", error));
                }
                Err(error) => Some(error.message().to_owned()),
            },
        };
        self.chosen(layout, ChosenMode::Staged { why }, None)
    }

    /// Copies the set to the device.
    fn keep(&self, device: &Device, layout: &Layout) -> Result<StridedColumns> {
        let (dataset, threads) = (self.gathered()?, self.workers.threads()?);
        StridedColumns::resident(device, dataset, layout.capacity(), self.resident_budget, threads)
    }

    fn register(&self, device: &Device, layout: &Layout) -> Result<StridedColumns> {
        let slots = GatherOrder::slot_bytes(layout.capacity()).saturating_mul(self.host_slots(layout));
        let room = self.pinned_budget.saturating_sub(slots);
        StridedColumns::new(device, self.gathered()?, layout.capacity(), room)
    }

    /// The data set, if the device may gather its batches.
    fn gathered(&self) -> Result<&Arc<StableDataset>> {
        let Input::Dataset(dataset) = &self.input else {
            return Err(Error::new(ErrorKind::Config, "a source is read in sequence, by a worker"));
        };
        if self.map_batch.is_some() {
            return Err(Error::new(ErrorKind::Config, "map_batch needs the batch in host memory"));
        }
        if self.reads_host() {
            return Err(Error::new(ErrorKind::Config, "produce reads batches in host memory"));
        }
        if self.filler.is_some() {
            return Err(Error::new(ErrorKind::Config, "a filler writes batches into host memory"));
        }
        Ok(dataset)
    }

    /// Fails if the slots do not fit the budget; otherwise the chosen mode with its memory.
    fn chosen(&self, layout: &Layout, mode: ChosenMode, columns: Option<StridedColumns>) -> Result<Chosen> {
        let slot_bytes = slot_bytes(layout, columns.as_ref());
        let (slots, budget) = (self.host_slots(layout), self.pinned_budget);
        let asked = slot_bytes.saturating_mul(slots);
        if asked <= budget {
            return Ok((mode, columns.map(Arc::new)));
        }
        Err(Error::new(
            ErrorKind::Budget,
            format!(
                "{slots} host slots of {slot_bytes} bytes need {asked} pinned bytes, the budget is {budget}: \
                 take a smaller batch or {}, or raise the budget{}",
                named("depth", "prefetch"),
                named("", " by pinned_budget=")
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use feedline_core::{DType, Dataset, Spec};
    use feedline_device::Backend;
    use feedline_device::host::Host;
    use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
    use feedline_testkit::NullDevice;
    use feedline_testkit::fixtures::{Fine, Laid};

    use super::*;
    use crate::LoaderBuilder;

    /// The mode that `Auto` chooses on a GPU. The budget is `room` bytes and four slots of eight ids.
    fn auto(set: Arc<StableDataset>, device: &Device, room: usize) -> Result<String> {
        let layout = Layout::new(set.spec(), 8)?;
        let builder = LoaderBuilder::<dyn Dataset>::new(Input::Dataset(set)).batch_size(8).depth(3);
        let builder = builder.pinned_budget(4 * 8 * size_of::<u64>() + room);
        builder.options.choose(device, &layout, None).map(|(mode, _)| mode.to_string())
    }

    fn stable(set: impl Dataset) -> Arc<StableDataset> {
        Arc::new(StableDataset::new(Arc::new(set)))
    }

    fn laid() -> Arc<StableDataset> {
        stable(Laid::records(&Fine::new(500, 4).expect("a set"), 0, 0).expect("a laid set"))
    }

    struct Refuse(ErrorKind);

    impl Interceptor for Refuse {
        fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
            if call.op == Op::RegisterHost { Err(Error::new(self.0, "planned")) } else { make() }
        }
    }

    #[test]
    fn auto_chooses_zero_copy_if_possible_and_otherwise_says_why() {
        let host = Device::new_host();
        assert_eq!(auto(laid(), &host, 6000).expect("a mode"), "zero-copy");
        let why = auto(laid(), &host, 5999).expect("a mode");
        assert_eq!(why, "staged: the set has 6000 bytes, the budget of pinned memory has 5999 left");
        let fine = stable(Fine::new(50, 4).expect("a set"));
        assert_eq!(auto(fine, &host, 6000).expect("a mode"), "staged: field \"id\" has no column");
        let absent = feedline_device::with_backend(NullDevice::new());
        assert_eq!(
            auto(laid(), &absent, 6000).expect("a mode"),
            "staged: no device cannot read the set's memory"
        );
        let refuses = |kind| feedline_device::with_backend(Intercepted::with(Host::new(), Refuse(kind)));
        assert_eq!(auto(laid(), &refuses(ErrorKind::Device), 6000).expect("a mode"), "staged: planned");
        let lost = auto(laid(), &refuses(ErrorKind::DeviceLost), 6000).expect_err("a lost device");
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        // Memory registered for a mode that was not chosen is released.
        assert_eq!(host.stats().pinned_bytes.get(), 0);
    }

    #[test]
    fn auto_stages_a_shuffled_set_if_the_workers_keep_up() {
        let (host, gpu) = (Device::new_host(), feedline_device::with_backend(NullDevice::gpu(false)));
        let spec = |bytes| {
            let spec = Spec::new().field("image", DType::U8, [bytes]).expect("a spec");
            spec.field("label", DType::I64, []).expect("a spec")
        };
        let against = |device: &Device, sampler: &Sampler, workers| {
            against_zero_copy(device, &spec(784), sampler, Workers::Count(workers))
        };
        assert_eq!(against(&host, &Sampler::Sequential, 1).expect("a reason"), "host is not a GPU");
        assert!(against(&gpu, &Sampler::Shuffle, 8).expect("a reason").starts_with("8 workers keep up"));
        assert_eq!(against(&gpu, &Sampler::Shuffle, 7), None);
        assert_eq!(against(&gpu, &Sampler::Sequential, 64), None);
        // The copy engine moves long rows: no kernel is slowed. But it must move nearly all bytes.
        let long = |device: &Device, spec: &Spec| {
            against_zero_copy(device, spec, &Sampler::Shuffle, Workers::Count(64)).is_none()
        };
        assert!(long(&gpu, &spec(NullDevice::LONG_ROW)) && !long(&gpu, &spec(NullDevice::LONG_ROW - 1)));
        assert!(!long(&host, &spec(NullDevice::LONG_ROW)) && !long(&gpu, &Spec::new()));
        assert!(!long(
            &gpu,
            &spec(NullDevice::LONG_ROW)
                .field("other", DType::U8, [NullDevice::LONG_ROW - 1])
                .expect("a spec")
        ));
    }

    #[test]
    fn slots_beyond_the_budget_are_refused_in_every_mode() {
        let spec = Spec::new().field("x", DType::U8, [100]).expect("a spec");
        let layout = Layout::new(&spec, 8).expect("a layout");
        let choice = |transfer_mode, pinned_budget| {
            let builder = LoaderBuilder::<dyn Dataset>::new(Input::Dataset(laid())).batch_size(8).depth(3);
            let builder = builder.transfer_mode(transfer_mode).pinned_budget(pinned_budget);
            let chosen = builder.options.choose(&Device::new_host(), &layout, None);
            chosen.map(drop).map_err(|error| error.kind())
        };
        assert_eq!(choice(TransferMode::Staged, 4 * layout.bytes()), Ok(()));
        assert_eq!(choice(TransferMode::Staged, 4 * layout.bytes() - 1), Err(ErrorKind::Budget));
        assert_eq!(choice(TransferMode::Auto, 0), Err(ErrorKind::Budget));
    }
}
