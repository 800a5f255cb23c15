//! The roads that rows take to the device, and which of them a loader takes.

use std::sync::Arc;

use crate::decode::{Input, Workers};
use feedline_core::{Error, ErrorKind, Layout, Order, Result};
use feedline_device::zero_copy::{Tables, Visits};
use feedline_device::{Device, Kind};

/// How rows get to the device; [`LoaderBuilder::road`](crate::LoaderBuilder::road).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Road {
    /// On a GPU the direct road, where it can be taken; else workers. Workers too, where there are at least 8 and the order is
    /// not sequential: so many keep a training step fed, and a gather on the GPU would take multiprocessors from it. For a loop
    /// that does nothing but read short rows the direct road is the faster one, all the same: ask for it.
    #[default]
    Auto,
    /// Workers read each sample into page-locked memory, which is copied.
    Workers,
    /// The device reads the rows where they lie: no worker, no copy on the host. For sets that say where that is
    /// ([`Dataset::table`](crate::Dataset::table)).
    ///
    /// Rows that follow each other in memory go by the copy engine, others by a kernel that gathers them.
    Direct,
}

/// The road a loader took; [`Loader::road`](crate::Loader::road).
///
/// Displays as `direct`, `workers`, or `workers: WHY` where the direct road could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoadTaken {
    direct: bool,
    why: Option<String>,
}

impl RoadTaken {
    /// Whether the device reads the rows itself.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Why workers read them, where nobody had asked for that: one short sentence.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

impl std::fmt::Display for RoadTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.direct, &self.why) {
            (true, _) => f.write_str("direct"),
            (false, None) => f.write_str("workers"),
            (false, Some(why)) => write!(f, "workers: {why}"),
        }
    }
}

/// The refusal of a road that was asked for; a device failure stays as it is.
fn cannot(error: Error) -> Error {
    match error.kind() {
        kind @ (ErrorKind::Config | ErrorKind::Budget | ErrorKind::Unavailable) => {
            let why = format!("cannot take the direct road, {}: ask for auto or workers", error.message());
            Error::new(kind, why)
        }
        _ => error,
    }
}

/// As many workers as keep a training step fed.
const FILL: usize = 8;

/// Why workers are the better road, for what the loader does on its device.
pub(crate) fn against_direct(
    (kind, name): (Kind, String),
    order: &Order,
    workers: Workers,
) -> Option<String> {
    if kind != Kind::Cuda {
        // The copy stream of the host is one thread: workers are more.
        return Some(format!("{name} is no GPU"));
    }
    let workers = workers.count().unwrap_or(0);
    let gathers = !matches!(order, Order::Sequential);
    let why = || format!("{workers} of them keep a step fed, and leave the GPU to it");
    (gathers && workers >= FILL).then(why)
}

/// What a loader needs to know of its road.
pub(crate) struct Chosen {
    pub(crate) taken: RoadTaken,
    /// Of the direct road.
    pub(crate) tables: Option<Arc<Tables>>,
    /// Bytes of a host slot: a batch of samples, or of visits.
    pub(crate) slot_bytes: usize,
}

/// The options that the choice depends on.
pub(crate) struct Choice<'a> {
    pub(crate) road: Road,
    /// Why `Auto` is not to try the direct road.
    pub(crate) against: Option<String>,
    pub(crate) input: &'a Input,
    pub(crate) layout: &'a Layout,
    /// The samples that the plan is made for.
    pub(crate) samples: u64,
    pub(crate) host_slots: usize,
    pub(crate) pinned_budget: usize,
}

impl Choice<'_> {
    /// Takes the direct road where it can and may be taken.
    pub(crate) fn take(&self, device: &Device) -> Result<Chosen> {
        let why = match self.road {
            Road::Workers => None,
            Road::Auto if self.against.is_some() => self.against.clone(),
            Road::Auto | Road::Direct => match self.direct(device) {
                Ok(tables) => return self.by(None, Some(tables)),
                Err(error) if error.is_device_lost() => return Err(error),
                Err(error) if self.road == Road::Direct => return Err(cannot(error)),
                Err(error) => Some(error.message().to_owned()),
            },
        };
        self.by(why, None)
    }

    fn direct(&self, device: &Device) -> Result<Tables> {
        let Input::Dataset(dataset) = self.input else {
            return Err(Error::new(ErrorKind::Config, "a source is read in sequence, by a worker"));
        };
        let room = self.pinned_budget.saturating_sub(self.slots_bytes(self.ids_bytes()));
        let tables = Tables::new(device, dataset, self.layout, room)?;
        // The set was asked for its length before, and again for its tables.
        if tables.samples() < self.samples {
            let why = format!(
                "the data set had {} samples, and its tables have {} rows: a set keeps its length",
                self.samples,
                tables.samples()
            );
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(tables)
    }

    fn by(&self, why: Option<String>, tables: Option<Tables>) -> Result<Chosen> {
        let slot_bytes = if tables.is_some() { self.ids_bytes() } else { self.layout.bytes() };
        self.check_budget(slot_bytes)?;
        let taken = RoadTaken { direct: tables.is_some(), why };
        Ok(Chosen { taken, tables: tables.map(Arc::new), slot_bytes })
    }

    fn ids_bytes(&self) -> usize {
        Visits::slot_bytes(self.layout.capacity())
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
                "{slots} host slots of {slot_bytes} bytes need {asked} page-locked bytes, the budget is {budget}: take a \
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
    use feedline_testkit::zoo::{Fine, Laid};

    use super::*;

    /// The road that `Auto` takes where a GPU is, with `room` bytes beside four slots of eight ids.
    fn auto(set: Arc<dyn Dataset>, device: &Device, room: usize) -> Result<String> {
        let layout = Layout::new(set.spec(), 8)?;
        let samples = set.len();
        let pinned_budget = 4 * 8 * size_of::<u64>() + room;
        let choice = Choice {
            road: Road::Auto,
            against: None,
            input: &Input::Dataset(set),
            layout: &layout,
            samples,
            host_slots: 4,
            pinned_budget,
        };
        choice.take(device).map(|chosen| chosen.taken.to_string())
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
    fn auto_takes_the_direct_road_where_it_can_and_else_says_why() {
        let host = Device::host();
        assert_eq!(auto(laid(), &host, 6000).expect("a road"), "direct");
        let why = auto(laid(), &host, 5999).expect("a road");
        assert_eq!(why, "workers: the set has 6000 bytes, the budget of page-locked memory has 5999 left");
        let fine = Arc::new(Fine::new(50, 4).expect("a set"));
        assert_eq!(auto(fine, &host, 6000).expect("a road"), "workers: field \"id\" has no table");
        let absent = Device::with_backend(NullDevice::new());
        assert_eq!(
            auto(laid(), &absent, 6000).expect("a road"),
            "workers: no device cannot read the set's memory"
        );
        let refuses = |kind| Device::with_backend(Intercepted::with(Host::new(), Refuse(kind)));
        assert_eq!(auto(laid(), &refuses(ErrorKind::Device), 6000).expect("a road"), "workers: planned");
        let lost = auto(laid(), &refuses(ErrorKind::DeviceLost), 6000).expect_err("a lost device");
        assert_eq!(lost.kind(), ErrorKind::DeviceLost);
        // What was registered for a road that was not taken is given back.
        assert_eq!(host.ledger().pinned_bytes.now(), 0);
    }

    #[test]
    fn auto_leaves_a_shuffled_set_to_workers_that_keep_a_step_fed() {
        let against = |kind, order: &Order, workers| {
            against_direct((kind, "it".to_owned()), order, Workers::Count(workers))
        };
        assert_eq!(against(Kind::Host, &Order::Sequential, 1).expect("a reason"), "it is no GPU");
        assert!(
            against(Kind::Cuda, &Order::Shuffle, 8)
                .expect("a reason")
                .starts_with("8 of them keep a step fed")
        );
        assert_eq!(against(Kind::Cuda, &Order::Shuffle, 7), None);
        assert_eq!(against(Kind::Cuda, &Order::Sequential, 64), None);
    }

    #[test]
    fn slots_beyond_the_budget_are_refused_on_every_road() {
        let spec = Spec::new().field("x", DType::U8, [100]).expect("a spec");
        let layout = Layout::new(&spec, 8).expect("a layout");
        let input = Input::Dataset(laid());
        let choice = |road, pinned_budget| {
            let choice = Choice {
                road,
                against: None,
                input: &input,
                layout: &layout,
                samples: 500,
                host_slots: 4,
                pinned_budget,
            };
            choice.take(&Device::host()).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(choice(Road::Workers, 4 * layout.bytes()), Ok(()));
        assert_eq!(choice(Road::Workers, 4 * layout.bytes() - 1), Err(ErrorKind::Budget));
        assert_eq!(choice(Road::Auto, 0), Err(ErrorKind::Budget));
    }
}
