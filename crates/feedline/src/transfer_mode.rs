//! How rows get to the device, and which way a loader chooses.

use std::sync::Arc;

use crate::decode::{Input, Workers};
use feedline_core::{Error, ErrorKind, Layout, Result, Sampler};
use feedline_device::zero_copy::{GatherOrder, StridedColumns};
use feedline_device::{BackendKind, Device};

/// How rows get to the device; [`LoaderBuilder::transfer_mode`](crate::LoaderBuilder::transfer_mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransferMode {
    /// Zero copy on a GPU where it is possible, staged otherwise.
    ///
    /// Staged too with 8 workers or more and an order that is not sequential: the CPU keeps up then, and a gather on the
    /// GPU would slow your kernels. A loop that does nothing but read short rows is faster by zero copy all the same:
    /// ask for it.
    #[default]
    Auto,
    /// Workers read each sample into pinned memory, which is copied to the device.
    Staged,
    /// The device reads the rows from host memory itself: no decoding, no copy on the host. For sets that give columns
    /// ([`Dataset::column`](crate::Dataset::column)).
    ///
    /// Rows that follow each other in memory are copied by the copy engine, others by a kernel that gathers them.
    ZeroCopy,
}

/// The transfer mode that a loader uses; [`Loader::transfer_mode`](crate::Loader::transfer_mode).
///
/// Displays as `zero-copy`, `staged`, or `staged: WHY` where zero copy was not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenMode {
    zero_copy: bool,
    why: Option<String>,
}

impl ChosenMode {
    /// Whether the device reads the rows itself.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Why the mode is staged although nobody asked for that, in a short sentence.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

impl std::fmt::Display for ChosenMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.zero_copy, &self.why) {
            (true, _) => f.write_str("zero-copy"),
            (false, None) => f.write_str("staged"),
            (false, Some(why)) => write!(f, "staged: {why}"),
        }
    }
}

/// The refusal of zero copy where it was asked for; a device failure stays as it is.
fn cannot(error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Config | ErrorKind::Budget | ErrorKind::Unavailable) => {
            let why = format!("zero copy is not possible, {}: ask for auto or staged", error.message());
            Error::new(kind, why)
        }
        _ => error,
    }
}

/// As many workers keep a training step fed.
const ENOUGH_WORKERS: usize = 8;

/// Why staged copies are better here, if they are.
pub(crate) fn against_zero_copy(
    (kind, name): (BackendKind, String),
    sampler: &Sampler,
    workers: Workers,
) -> Option<String> {
    if kind != BackendKind::Cuda {
        // The copy stream of the host is one thread; there are more workers.
        return Some(format!("{name} is not a GPU"));
    }
    let workers = workers.count().unwrap_or(0);
    let gathers = !matches!(sampler, Sampler::Sequential);
    let why = || format!("{workers} workers keep up, and a gather would slow the kernels of a step");
    (gathers && workers >= ENOUGH_WORKERS).then(why)
}

/// The mode, and what the loader needs for it.
pub(crate) struct Chosen {
    pub(crate) taken: ChosenMode,
    /// In zero-copy mode.
    pub(crate) columns: Option<Arc<StridedColumns>>,
    /// Bytes of a host slot: a batch of samples, or of ids.
    pub(crate) slot_bytes: usize,
}

/// The options that the choice depends on.
pub(crate) struct Choice<'a> {
    pub(crate) transfer_mode: TransferMode,
    /// Why `Auto` does not try zero copy.
    pub(crate) against: Option<String>,
    pub(crate) input: &'a Input,
    pub(crate) layout: &'a Layout,
    /// The samples that the batch sampler is made for.
    pub(crate) samples: u64,
    pub(crate) host_slots: usize,
    pub(crate) pinned_budget: usize,
}

impl Choice<'_> {
    /// Chooses zero copy where it is possible and wanted.
    pub(crate) fn choose(&self, device: &Device) -> Result<Chosen> {
        let why = match self.transfer_mode {
            TransferMode::Staged => None,
            TransferMode::Auto if self.against.is_some() => self.against.clone(),
            TransferMode::Auto | TransferMode::ZeroCopy => match self.register(device) {
                Ok(columns) => return self.by(None, Some(columns)),
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) if self.transfer_mode == TransferMode::ZeroCopy => return Err(cannot(error)),
                Err(error) => Some(error.message().to_owned()),
            },
        };
        self.by(why, None)
    }

    fn register(&self, device: &Device) -> Result<StridedColumns> {
        let Input::Dataset(dataset) = self.input else {
            return Err(Error::new(ErrorKind::Config, "a source is read in sequence, by a worker"));
        };
        let room = self.pinned_budget.saturating_sub(self.slots_bytes(self.ids_bytes()));
        let columns = StridedColumns::new(device, dataset, self.layout, room)?;
        // The set was asked for its length before, and again for its tables.
        if columns.samples() < self.samples {
            let why = format!(
                "the data set had {} samples, and its tables have {} rows: a set keeps its length",
                self.samples,
                columns.samples()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(columns)
    }

    fn by(&self, why: Option<String>, columns: Option<StridedColumns>) -> Result<Chosen> {
        let slot_bytes = if columns.is_some() { self.ids_bytes() } else { self.layout.bytes() };
        self.check_budget(slot_bytes)?;
        let taken = ChosenMode { zero_copy: columns.is_some(), why };
        Ok(Chosen { taken, columns: columns.map(Arc::new), slot_bytes })
    }

    fn ids_bytes(&self) -> usize {
        GatherOrder::slot_bytes(self.layout.capacity())
    }

    fn slots_bytes(&self, slot_bytes: usize) -> usize {
        slot_bytes.saturating_mul(self.host_slots)
    }

    fn check_budget(&self, slot_bytes: usize) -> Result<()> {
        let (slots, budget, asked) = (self.host_slots, self.pinned_budget, self.slots_bytes(slot_bytes));
        if asked <= budget {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Budget,
            format!(
                "{slots} host slots of {slot_bytes} bytes need {asked} pinned bytes, the budget is {budget}: take a \
                 smaller batch or depth, or raise the budget"
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

    /// What `Auto` chooses on a GPU, with `room` bytes beside four slots of eight ids.
    fn auto(set: Arc<dyn Dataset>, device: &Device, room: usize) -> Result<String> {
        let layout = Layout::new(set.spec(), 8)?;
        let samples = set.len();
        let pinned_budget = 4 * 8 * size_of::<u64>() + room;
        let choice = Choice {
            transfer_mode: TransferMode::Auto,
            against: None,
            input: &Input::Dataset(set),
            layout: &layout,
            samples,
            host_slots: 4,
            pinned_budget,
        };
        choice.choose(device).map(|chosen| chosen.taken.to_string())
    }

    fn laid() -> Arc<dyn Dataset> {
        Arc::new(Laid::records(&Fine::new(500, 4).expect("a set"), 0, 0).expect("a laid set"))
    }

    struct Refuse(ErrorKind);

    impl Interceptor for Refuse {
        fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
            if call.op == Op::RegisterHost { Err(Error::new(self.0, "planned")) } else { make() }
        }
    }

    #[test]
    fn auto_chooses_zero_copy_where_it_can_and_otherwise_says_why() {
        let host = Device::host();
        assert_eq!(auto(laid(), &host, 6000).expect("a mode"), "zero-copy");
        let why = auto(laid(), &host, 5999).expect("a mode");
        assert_eq!(why, "staged: the set has 6000 bytes, the budget of pinned memory has 5999 left");
        let fine = Arc::new(Fine::new(50, 4).expect("a set"));
        assert_eq!(auto(fine, &host, 6000).expect("a mode"), "staged: field \"id\" has no column");
        let absent = Device::with_backend(NullDevice::new());
        assert_eq!(
            auto(laid(), &absent, 6000).expect("a mode"),
            "staged: no device cannot read the set's memory"
        );
        let refuses = |kind| Device::with_backend(Intercepted::with(Host::new(), Refuse(kind)));
        assert_eq!(auto(laid(), &refuses(ErrorKind::Device), 6000).expect("a mode"), "staged: planned");
        let lost = auto(laid(), &refuses(ErrorKind::DeviceLost), 6000).expect_err("a lost device");
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        // What was registered for a mode that was not chosen is released.
        assert_eq!(host.stats().pinned_bytes.now(), 0);
    }

    #[test]
    fn auto_leaves_a_shuffled_set_to_workers_that_keep_a_step_fed() {
        let against = |kind, sampler: &Sampler, workers| {
            against_zero_copy((kind, "it".to_owned()), sampler, Workers::Count(workers))
        };
        assert_eq!(against(BackendKind::Host, &Sampler::Sequential, 1).expect("a reason"), "it is not a GPU");
        assert!(
            against(BackendKind::Cuda, &Sampler::Shuffle, 8)
                .expect("a reason")
                .starts_with("8 workers keep up")
        );
        assert_eq!(against(BackendKind::Cuda, &Sampler::Shuffle, 7), None);
        assert_eq!(against(BackendKind::Cuda, &Sampler::Sequential, 64), None);
    }

    #[test]
    fn slots_beyond_the_budget_are_refused_in_every_mode() {
        let spec = Spec::new().field("x", DType::U8, [100]).expect("a spec");
        let layout = Layout::new(&spec, 8).expect("a layout");
        let input = Input::Dataset(laid());
        let choice = |transfer_mode, pinned_budget| {
            let choice = Choice {
                transfer_mode,
                against: None,
                input: &input,
                layout: &layout,
                samples: 500,
                host_slots: 4,
                pinned_budget,
            };
            choice.choose(&Device::host()).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(choice(TransferMode::Staged, 4 * layout.bytes()), Ok(()));
        assert_eq!(choice(TransferMode::Staged, 4 * layout.bytes() - 1), Err(ErrorKind::Budget));
        assert_eq!(choice(TransferMode::Auto, 0), Err(ErrorKind::Budget));
    }
}
