//! A loader that Python owns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use feedline::record::{RecordOptions, Recorder};
use feedline::report::ChosenMode;
use feedline::{BadSampleReport, Cursor, Device, Error, ErrorKind, Progress, Result, World};
use feedline_dlpack::Share;
use feedline_report::{Diagnosis, to_json};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::Batch;
use crate::error::raise;
use crate::interpreter::{Inside, detached};
use crate::open::Open;
use crate::options::{Options, Samples, builder};
use crate::running::{Answer, Start, State, TICK};
use crate::turn::Waits;

/// Min wait of a line that is named.
const NOTICED: Duration = Duration::from_micros(100);

/// The factor by which the time limit for held slots grows if other threads may hold them.
const OTHER_THREADS: u32 = 30;

/// Loads batches; see `feedline.Loader`.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Loader {
    open: Arc<Open>,
    about: About,
    held_timeout: Duration,
    /// The step at which the epoch was resumed.
    first_step: AtomicU64,
    /// Number of steps that were delivered since then.
    delivered: AtomicU64,
    /// For a source, the cursor after the last delivered batch and its step, which the cursor lacks. Another
    /// thread may save a state.
    reached: Mutex<Option<(Cursor, u64)>>,
    world: World,
    /// Records the run. `None` once the loader is closed; closing frees the files.
    recorder: Mutex<Option<Recorder>>,
    /// Called with the nanoseconds of a wait.
    waited: Py<PyAny>,
}

/// Facts about a loader that are read while an epoch borrows it.
struct About {
    progress: Progress,
    steps: Option<u64>,
    /// Whether a position of the epoch is a number of samples.
    counts_samples: bool,
    global_batch: u64,
    mode: String,
    memory: (u64, u64),
}

#[pymethods]
impl Loader {
    #[new]
    fn new(py: Python<'_>, data: Samples<'_>, options: Options) -> PyResult<Self> {
        let world = World::new(options.world.0, options.world.1).map_err(raise)?;
        let held_timeout = seconds("held_timeout", options.held_timeout).map_err(raise)?;
        let drop_timeout = seconds("drop_timeout", options.drop_timeout).map_err(raise)?;
        let (gpu, record) = (options.gpu, options.record.clone());
        let waited = options.waited.clone_ref(py);
        let (builder, pictures) = builder(&data, options)?;
        let mut builder = builder.world(world).drop_timeout(drop_timeout);
        let recorder = record
            .map(|(folder, data)| Recorder::new(folder, RecordOptions { data, ..RecordOptions::default() }));
        if let Some(recorder) = &recorder {
            builder = builder.record(recorder);
        }
        let build = || {
            let device = if let Some(gpu) = gpu { Device::cuda(gpu)? } else { Device::new_host() };
            let stream = device.stream()?;
            Ok(State::Idle(Box::new(builder.build(&device)?), stream))
        };
        let mut state = detached(py, build).map_err(raise)?;
        let mode = pictures.map(|pictures| format!("decoded {}", pictures.describe()));
        let describe = |loader: &mut feedline::Loader| {
            let about = About {
                progress: loader.progress(),
                steps: loader.steps_per_epoch(),
                counts_samples: !loader.batch_sampler().options().sampler.names_batches(),
                global_batch: loader.batch_sampler().global_batch(),
                mode: mode.unwrap_or_else(|| mode_of(loader).to_owned()),
                memory: (loader.memory_use().pinned_bytes, loader.memory_use().device_bytes),
            };
            (about, loader.stop_handle())
        };
        let (about, stop) = state.with_loader(describe).map_err(raise)?;
        Ok(Self {
            open: Open::new(state, stop, drop_timeout),
            about,
            held_timeout,
            first_step: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            reached: Mutex::new(None),
            world,
            recorder: Mutex::new(recorder),
            waited,
        })
    }

    /// Fails if `call` comes from a thread that reads samples for the epoch.
    fn check_thread(&self, py: Python<'_>, call: &str) -> PyResult<()> {
        self.with_state(py, |state| state.check_thread(call))
    }

    /// Begins `epoch`, and returns its number of steps.
    fn begin(&self, py: Python<'_>, epoch: u64) -> PyResult<Option<u64>> {
        let steps = while_waiting(py, || self.with_state(py, |state| state.begin(Start::Epoch(epoch))))?;
        self.begin_at(0);
        Ok(steps)
    }

    /// Continues the epoch of a saved cursor, and returns the number of steps left. `step` is the saved step,
    /// because a source's cursor lacks it.
    #[pyo3(signature = (cursor, epoch, step, bad_samples))]
    fn resume(
        &self,
        py: Python<'_>,
        cursor: &[u8],
        epoch: u64,
        step: u64,
        bad_samples: Option<&str>,
    ) -> PyResult<Option<u64>> {
        let cursor = Cursor::from_bytes(cursor).map_err(raise)?;
        if cursor.epoch() != epoch {
            let why = format!(
                "the state is damaged: its epoch is {epoch}, and that of its cursor {}; load another one",
                cursor.epoch()
            );
            return Err(raise(Error::new(ErrorKind::Cursor, why)));
        }
        let report: BadSampleReport = match bad_samples {
            None => BadSampleReport::default(),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                let why = format!("the bad samples of the saved state are damaged: {error}");
                raise(Error::new(ErrorKind::Cursor, why))
            })?,
        };
        let resume = |state: &mut State| {
            let steps = state.begin(Start::Cursor(cursor))?;
            if !report.samples().is_empty() {
                // The report is set first, because setting it would end an epoch that had begun.
                state.with_loader(|loader| loader.set_bad_sample_report(report))?;
                return state.begin(Start::Cursor(cursor));
            }
            Ok(steps)
        };
        let steps = while_waiting(py, || self.with_state(py, resume))?;
        // With another batch size, the number of steps is different.
        self.begin_at(if self.about.steps.is_some() {
            cursor.position().div_ceil(self.about.global_batch)
        } else {
            step
        });
        Ok(steps)
    }

    /// The next batch of the epoch; `None` at its end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if let Some(share) = self.next_at_hand()? {
            return Ok(Some(self.batch(share)));
        }
        while_waiting(py, || self.next_awaited(py))
    }

    /// The next batch if it has arrived. Never waits.
    fn next_ready(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let answer = self.with_state(py, |state| self.next_of(state, Duration::ZERO))?;
        Ok(match answer {
            Answer::Batch(share) => Some(self.batch(share)),
            Answer::NotYet | Answer::Over => None,
        })
    }

    /// Charges time of this thread to the device map. In Python, the device map runs on the thread of the
    /// loop.
    fn add_device_map_time(&self, nanoseconds: u64) {
        self.about.progress.add_device_map_time(Duration::from_nanos(nanoseconds));
    }

    /// The position after the batches delivered so far: the cursor's bytes, its epoch, the step, and the
    /// number of samples of the epoch, which is unknown for a source and for batches of one's own.
    fn cursor<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, u64, u64, Option<u64>) {
        let reached = *self.reached();
        let (cursor, step) =
            reached.unwrap_or_else(|| (self.position().0, self.first_step.load(Ordering::Relaxed)));
        let (step, samples) = match self.about.steps {
            Some(_) => (
                cursor.position().div_ceil(self.about.global_batch),
                self.about.counts_samples.then_some(cursor.position()),
            ),
            None => (step, None),
        };
        (PyBytes::new(py, &cursor.to_bytes()), cursor.epoch(), step, samples)
    }

    /// The hash of the order of all samples delivered so far.
    fn order_hash(&self) -> u64 {
        self.position().0.order_hash()
    }

    /// The samples that could not be read, as JSON; `None` if there are none.
    fn bad_samples(&self) -> Option<String> {
        let (_, report) = self.position();
        if report.samples().is_empty() { None } else { serde_json::to_string(&report).ok() }
    }

    /// The report as text, its diagnosis, its JSON, and its page for a browser. The page shows the lines that
    /// wait, with place, nanoseconds and batches.
    fn report(&self, lines: Vec<(String, u64, u64)>) -> (String, String, String, String) {
        let report = self.about.progress.report();
        let diagnosis = Diagnosis::new(&report);
        let mut history = feedline_report::History::new();
        for (place, waited, batches) in lines {
            history.line(&place, Duration::from_nanos(waited), batches);
        }
        let page = history.page(&report, None);
        (report.to_string(), diagnosis.text, to_json(&report), page)
    }

    #[getter]
    fn steps(&self) -> Option<u64> {
        self.about.steps
    }

    /// Number of rows of a step over all ranks.
    #[getter]
    fn global_batch(&self) -> u64 {
        self.about.global_batch
    }

    #[getter]
    fn world(&self) -> (u32, u32) {
        (self.world.rank(), self.world.size())
    }

    #[getter]
    fn mode(&self) -> &str {
        &self.about.mode
    }

    /// Bytes of pinned memory and of device memory.
    #[getter]
    fn memory(&self) -> (u64, u64) {
        self.about.memory
    }

    /// Lets the loader end, and waits for nothing. Worker processes that end after this are not its failure.
    fn stop(&self) {
        if !self.open.is_forked() {
            self.open.stop();
        }
    }

    /// Ends the loader and its threads. A second call does nothing, and neither does a call in a forked
    /// child.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.open.is_forked() {
            return Ok(());
        }
        let recorder = self.recorder().take();
        detached(py, || {
            let closed = self.open.close();
            drop(recorder);
            closed
        })
        .map_err(raise)
    }

    /// Records a value for the last delivered step.
    fn note(&self, py: Python<'_>, name: &str, value: f64) -> PyResult<()> {
        let Some(recorder) = self.recorder().clone() else {
            let why = "the loader does not record its run, or is closed: give record=FOLDER when it is made";
            return Err(raise(Error::new(ErrorKind::Config, why)));
        };
        detached(py, || recorder.note(name, value)).map_err(raise)
    }

    /// The service times of the last batches, as JSON, for `python -m feedline whatif`.
    fn profile(&self) -> String {
        feedline_report::Profile::new(&self.about.progress).to_json()
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Loader has threads and cannot be pickled: save loader.state_dict()"))
    }
}

impl Loader {
    /// Waits for the next batch of the epoch; `None` at its end.
    fn next_awaited(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let start = Instant::now();
        loop {
            match self.with_state(py, |state| self.next_of(state, TICK))? {
                Answer::Batch(share) => {
                    let batch = self.batch(share);
                    self.tell_wait(py, start.elapsed())?;
                    return Ok(Some(batch));
                }
                Answer::Over => return Ok(None),
                Answer::NotYet => {}
            }
            py.check_signals()?;
            let waited = start.elapsed();
            if waited >= self.held_timeout {
                let is_only_thread = || -> PyResult<bool> {
                    let _inside = Inside::new();
                    let threads: usize = py.import("threading")?.call_method0("active_count")?.extract()?;
                    Ok(threads == 1)
                };
                let on_any = waited >= self.held_timeout.saturating_mul(OTHER_THREADS) || is_only_thread()?;
                self.with_state(py, |state| state.check_slots(on_any).map_err(|_| held(waited)))?;
            }
        }
    }

    /// Reports a wait of the loop, so that its line can be named. Signal handlers run in the first Python
    /// code after the wait. So an error is an interrupt, or the exception of another handler.
    fn tell_wait(&self, py: Python<'_>, waited: Duration) -> PyResult<()> {
        if waited >= NOTICED {
            self.waited.call1(py, (waited.as_nanos() as u64,))?;
        }
        Ok(())
    }

    fn recorder(&self) -> MutexGuard<'_, Option<Recorder>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_at(&self, step: u64) {
        self.first_step.store(step, Ordering::Relaxed);
        self.delivered.store(0, Ordering::Relaxed);
        // Another thread may take a state while the first batch is on its way to the loop.
        *self.reached() = self.about.steps.is_none().then(|| (self.about.progress.cursor(), step));
    }

    fn reached(&self) -> MutexGuard<'_, Option<(Cursor, u64)>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, which counts as delivered.
    fn next_of(&self, state: &mut State, limit: Duration) -> Result<Answer> {
        let answer = state.next(limit)?;
        if matches!(answer, Answer::Batch(_)) {
            self.delivered.fetch_add(1, Ordering::Relaxed);
        }
        if self.about.steps.is_none() && !matches!(answer, Answer::NotYet) {
            let step = self.first_step.load(Ordering::Relaxed) + self.delivered.load(Ordering::Relaxed);
            *self.reached() = Some((self.about.progress.cursor(), step));
        }
        Ok(answer)
    }

    fn batch(&self, share: Share) -> Batch {
        Batch::new(share, self.first_step.load(Ordering::Relaxed))
    }

    /// The position after the batches delivered so far.
    fn position(&self) -> (Cursor, BadSampleReport) {
        (self.about.progress.cursor(), self.about.progress.bad_sample_report())
    }

    /// The next batch if it is ready. Keeps the interpreter's lock, because a thread that reads samples would
    /// otherwise take it for a whole call.
    fn next_at_hand(&self) -> PyResult<Option<Share>> {
        if self.open.is_forked() {
            return Ok(None);
        }
        let Some(mut state) = self.open.try_lock() else { return Ok(None) };
        match self.next_of(&mut state, Duration::ZERO).map_err(raise)? {
            Answer::Batch(share) => Ok(Some(share)),
            Answer::NotYet | Answer::Over => Ok(None),
        }
    }

    /// Calls `work` with the state, without the interpreter's lock.
    fn with_state<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> PyResult<T> {
        if self.open.is_forked() {
            let why = "this process was forked from the one that made the loader and has none of its \
                       threads: make the loader after the fork";
            return Err(raise(Error::new(ErrorKind::Forked, why)));
        }
        detached(py, || work(&mut self.open.lock())).map_err(raise)
    }
}

/// Calls `work`, which waits for the threads of a loader: they may read samples meanwhile that draw from the
/// generators of this process. Returns after them.
fn while_waiting<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let waits = Waits::begin();
    let done = work();
    let is_done = done.is_ok();
    // Without the interpreter's lock, which a sample needs to end.
    detached(py, || if is_done { drop(waits) } else { waits.give_up() });
    done
}

/// Rank and size, from the environment of a launcher.
#[pyfunction]
pub(crate) fn world_of_env() -> PyResult<(u32, u32)> {
    World::from_env().map(|world| (world.rank(), world.size())).map_err(raise)
}

fn mode_of(loader: &feedline::Loader) -> &'static str {
    match loader.transfer_mode() {
        ChosenMode::Resident | ChosenMode::PartlyResident { .. } => "resident",
        ChosenMode::ZeroCopy => "zero copy",
        _ => "staged",
    }
}

fn held(waited: Duration) -> Error {
    let why = format!(
        "batches, or arrays of batches, hold every slot since {:.1} s: drop them before the next batch, copy \
         what you keep (copy=True), or raise prefetch",
        waited.as_secs_f64()
    );
    Error::new(ErrorKind::SlotsHeld, why)
}

fn seconds(name: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::new(ErrorKind::Config, format!("{name} is {seconds}: give seconds, 0 or more")))
}
