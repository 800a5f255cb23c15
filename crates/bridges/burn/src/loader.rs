//! burn's `DataLoader` over a host loader of feedline.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use feedline::{Cursor, Error, ErrorKind, HostEpoch, HostLoader, Result};
use self_cell::{MutBorrow, self_cell};

use crate::Fields;

/// Converts a batch to the input of a step.
type Make<O> = dyn Fn(&Fields, &Device) -> Result<O> + Send + Sync;

/// A feedline loader for burn's `Learner`.
///
/// Each call of `iter` begins the next epoch. Batches come in feedline's order: shuffled by the loader's
/// seed, the same in every run. An error of the pipeline is the iterator's last item; burn reports it and
/// ends the training.
pub struct BurnLoader<O> {
    shared: Arc<Shared<O>>,
    device: Device,
    /// Why this loader has no batches.
    refused: Option<Error>,
}

struct Shared<O> {
    state: Mutex<State>,
    make: Box<Make<O>>,
    items: usize,
}

struct State {
    loader: HostLoader,
    epoch: u64,
}

impl<O: 'static> BurnLoader<O> {
    /// Wraps `loader`. `make` converts a batch to the input of the model's step, on the device that burn
    /// trains on.
    ///
    /// burn takes host memory, and copies it to its device. A loader of a device does not compile:
    ///
    /// ```compile_fail,E0308
    /// # fn check(data: feedline::InMemory) -> feedline::Result<()> {
    /// let loader = feedline::Loader::builder(data).build(&feedline::Device::best()?)?;
    /// feedline_burn::BurnLoader::new(loader, |fields, _| fields.data("image"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        loader: HostLoader,
        make: impl Fn(&Fields, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        let sampler = loader.batch_sampler();
        let rank_share = sampler.options().batch as u64;
        let items = sampler.end(0, 0).saturating_mul(rank_share) / sampler.global_batch().max(1);
        let state = State { loader, epoch: 0 };
        let shared = Shared {
            state: Mutex::new(state),
            make: Box::new(make),
            items: usize::try_from(items).unwrap_or(usize::MAX),
        };
        Self { shared: Arc::new(shared), device: Device::default(), refused: None }
    }

    /// Begins with `epoch` instead of epoch 0, for a training that continues. burn counts epochs from 1, so
    /// after its checkpoint 3 the next one is epoch 3 here.
    ///
    /// # Errors
    /// `Config` while an iterator of this loader is alive.
    pub fn starting_at(self, epoch: u64) -> Result<Self> {
        self.lock()?.epoch = epoch;
        Ok(self)
    }

    /// The position after the batches delivered so far: save it with the model.
    ///
    /// # Errors
    /// `Config` while an iterator of this loader is alive.
    pub fn cursor(&self) -> Result<Cursor> {
        Ok(self.lock()?.loader.cursor())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        match self.shared.state.try_lock() {
            Ok(state) => Ok(state),
            // A panic in `make` or in a step leaves the loader as it was.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let why = "another iterator of this loader is alive: drop it first, or build a second loader";
                Err(Error::new(ErrorKind::Config, why))
            }
        }
    }

    fn begin(&self) -> Result<Running<'_>> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        Running::try_new(MutBorrow::new(self.lock()?), |state| {
            let state = &mut **state.borrow_mut();
            let epoch = state.epoch;
            state.epoch += 1;
            state.loader.epoch(epoch)
        })
    }
}

impl<O: 'static> DataLoader<O> for BurnLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let (running, error) = match self.begin() {
            Ok(running) => (Some(running), None),
            Err(error) => (None, Some(error)),
        };
        Box::new(BatchIterator { loader: self, running, error, done: 0 })
    }

    fn num_items(&self) -> usize {
        self.shared.items
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        let (shared, refused) = (self.shared.clone(), self.refused.clone());
        Arc::new(Self { shared, device: device.clone(), refused })
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<O>> {
        let why = "a feedline loader cannot be sliced for several devices: build one loader per device, with \
                   LoaderBuilder::world";
        let refused = Some(Error::new(ErrorKind::Config, why));
        Arc::new(Self { shared: self.shared.clone(), device: self.device.clone(), refused })
    }
}

self_cell!(
    /// The locked loader, and the epoch that borrows it.
    struct Running<'a> {
        owner: MutBorrow<MutexGuard<'a, State>>,
        #[not_covariant]
        dependent: HostEpoch,
    }
);

struct BatchIterator<'a, O> {
    loader: &'a BurnLoader<O>,
    /// `None` once the epoch has ended.
    running: Option<Running<'a>>,
    /// The error of the start.
    error: Option<Error>,
    done: usize,
}

impl<O> BatchIterator<'_, O> {
    fn advance(&mut self) -> Result<Option<O>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let shared = &self.loader.shared;
        let Some(running) = &mut self.running else { return Ok(None) };
        let next = running.with_dependent_mut(|_, epoch| {
            let Some(batch) = epoch.next() else { return Ok(None) };
            let fields = Fields::new(batch?);
            let made = (shared.make)(&fields, &self.loader.device)?;
            // No batch is left.
            let is_over = epoch.size_hint().1 == Some(0);
            Ok(Some((made, fields.batch().len(), is_over)))
        });
        match next {
            Ok(Some((made, rows, is_over))) => {
                self.done = if is_over { shared.items } else { self.done + rows };
                Ok(Some(made))
            }
            ended => {
                self.running = None;
                ended.map(|_| None)
            }
        }
    }
}

impl<O> Iterator for BatchIterator<'_, O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map_err(DatasetError::new).transpose()
    }
}

impl<O> DataLoaderIterator<O> for BatchIterator<'_, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.done, self.loader.shared.items, Some("items".to_owned()))
    }
}

impl<O> std::fmt::Debug for BurnLoader<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BurnLoader({} items on {:?})", self.shared.items, self.device)
    }
}
