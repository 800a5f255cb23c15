//! The worker processes of a loader. The pool assigns requests, and replaces workers that die.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use feedline::dataset::Rows;
use feedline::{Error, ErrorKind, ReadError, Spec};
use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;

use super::block::{bytes_of, fixed_bytes, room};
use super::lane::{End, Failed, Lane, Lost, Request};
use crate::error::{Raised, raise};
use crate::interpreter::{attach, detached};
use crate::room::Longer;

/// Max requests per worker. The next request is already on its way while the worker reads for one.
const LANES: usize = 2;

/// The number of workers that may die while they read a sample, until the sample counts as unreadable; and
/// the number that may die one after another while they load the data.
const DEATHS: u32 = 3;

/// Max bytes of fixed-size fields per request, so that rows are still in a cache when they are copied.
const CHUNK: u64 = 4 << 20;

/// Max bytes of a block. Most of the room for ragged fields is never touched, so this room takes no memory.
const MOST: u64 = 256 << 20;

/// Max samples per request.
const SAMPLES: usize = 8192;

/// The samples of one read.
pub(crate) struct Wanted<'a> {
    /// The number of the data set in its pool.
    pub(crate) set: u32,
    pub(crate) ids: &'a [u64],
    /// The key of random numbers of each sample.
    pub(crate) keys: &'a [u64],
    pub(crate) epoch: u64,
    pub(crate) is_seeded: bool,
    /// Whether one worker reads all samples in one call.
    pub(crate) is_whole: bool,
}

/// Worker processes, and the fork server that starts them: a `_workers.start.Server`.
pub(crate) struct Pool {
    server: Py<PyAny>,
    state: Mutex<State>,
    /// Notified when a lane is free, a worker has started, or the pool is closed.
    changed: Condvar,
    /// The number of data sets that the pool reads for open loaders.
    users: AtomicUsize,
    deaths: AtomicUsize,
    is_closed: AtomicBool,
    /// The process that has the sockets.
    process: u32,
}

#[derive(Default)]
struct State {
    workers: Vec<Worker>,
    /// Number of workers started so far.
    started: u64,
    /// Number of workers that are being started.
    starting: usize,
    /// The reason why no worker could be started.
    broken: Option<String>,
    /// How the last lost worker ended, as the end of a sentence.
    last_end: String,
}

struct Worker {
    number: u64,
    free: Vec<Lane>,
    ends: Vec<Arc<End>>,
    /// The number of workers in whose place it was started, one after another, that died while they loaded
    /// the data.
    failures: u32,
}

/// Facts about a completed read.
#[derive(Default)]
pub(crate) struct Took {
    /// Whether the data set uses global random generators.
    pub(crate) is_random: bool,
    /// The time of the workers, in nanoseconds.
    pub(crate) ns: u64,
}

impl Took {
    fn add(&mut self, other: Self) {
        self.is_random |= other.is_random;
        self.ns += other.ns;
    }
}

/// The pools of this process.
static ALL: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

/// Ends the workers of all loaders when the interpreter ends.
pub(crate) fn close_all(py: Python<'_>) {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    all.iter().filter_map(Weak::upgrade).for_each(|pool| pool.close(py));
}

/// The reason that samples were not read.
pub(crate) enum Unread {
    /// The pool was closed.
    Closed,
    /// A sample that cannot be read: its index, and the reason.
    Sample(usize, ReadError),
}

/// The outcome of a request.
enum Asked {
    Read(Took),
    /// The worker died while it read.
    Died,
    /// The worker died before it began.
    NotBegun,
}

impl Pool {
    /// Starts `count` workers of `server`. Blocks until one of them has loaded the data set.
    pub(crate) fn start(py: Python<'_>, server: Py<PyAny>, count: usize) -> PyResult<Arc<Self>> {
        let pool = Arc::new(Self {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
            users: AtomicUsize::new(0),
            deaths: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            process: std::process::id(),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pool| pool.strong_count() > 0);
        all.push(Arc::downgrade(&pool));
        drop(all);
        match pool.start_all(py, count) {
            Ok(()) => Ok(pool),
            Err(error) => {
                pool.close(py);
                Err(error)
            }
        }
    }

    fn start_all(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.grow(py, count)?;
        detached(py, || self.check()).map_err(raise)
    }

    /// Waits until a worker has loaded the data.
    fn check(&self) -> Result<(), Error> {
        loop {
            let Some(mut lane) = self.take() else { return Ok(()) };
            match lane.hello() {
                Ok(answer) => {
                    self.give_back(lane);
                    let Some(failed) = answer.failed else { return Ok(()) };
                    let why = "worker processes cannot load the data";
                    return Err(Error::new(ErrorKind::Config, why).with_source(raised(&failed, &Spec::new())));
                }
                Err(lost) => match self.replace(lane, &lost) {
                    Ok(_) => {}
                    Err(_) if self.is_closed() => return Ok(()),
                    Err(why) => return Err(Error::new(ErrorKind::Config, why)),
                },
            }
        }
    }

    /// Starts workers until there are `count`.
    pub(crate) fn grow(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        while self.lock().workers.len() < count {
            self.add(py, 0)?;
        }
        Ok(())
    }

    /// Starts a worker in place of `failures` that died while they loaded the data.
    fn add(&self, py: Python<'_>, failures: u32) -> PyResult<()> {
        let number = {
            let mut state = self.lock();
            state.started += 1;
            state.started
        };
        let lanes = (0..LANES).map(|_| Lane::new(number)).collect::<io::Result<Vec<_>>>();
        // With the number of the error, which a plain conversion drops.
        let lanes = lanes.map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?;
        let files: Vec<_> =
            lanes.iter().flat_map(|(lane, its)| [its.as_raw_fd(), lane.end.block.as_raw_fd()]).collect();
        let own: Vec<_> = lanes.iter().map(|(lane, _)| lane.end.socket.as_raw_fd()).collect();
        let process = self.server.bind(py).call_method1(intern!(py, "start_worker"), (files, own))?;
        let process = process.extract()?;
        let mut free: Vec<_> = lanes.into_iter().map(|(lane, _)| lane).collect();
        free.iter_mut().for_each(|lane| lane.process = process);
        let ends: Vec<_> = free.iter().map(|lane| lane.end.clone()).collect();
        let mut state = self.lock();
        if self.is_closed() {
            ends.iter().for_each(|end| end.shut());
        } else {
            state.workers.push(Worker { number, free, ends, failures });
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Reads samples into `rows`.
    pub(crate) fn read(&self, wanted: &Wanted<'_>, rows: &mut Rows<'_>) -> Result<Took, Unread> {
        let (mut first, mut all) = (0, Took::default());
        while first < wanted.ids.len() {
            let left = wanted.ids.len() - first;
            let count = if wanted.is_whole { left } else { chunk(rows.spec()).min(left) };
            all.add(self.read_part(wanted, rows, (first, count))?);
            first += count;
        }
        Ok(all)
    }

    fn read_part(
        &self,
        wanted: &Wanted<'_>,
        rows: &mut Rows<'_>,
        (first, count): (usize, usize),
    ) -> Result<Took, Unread> {
        let at_once = if wanted.is_whole { DEATHS } else { 1 };
        if let Some(took) = answered(at_once, || self.ask(wanted, rows, (first, count)))? {
            return Ok(took);
        }
        if wanted.is_whole {
            return Err(self.unreadable(first + count, "read it"));
        }
        // The sample that killed the worker is unknown, so from here on each request has one sample.
        (first..first + count).try_fold(Took::default(), |mut all, one| {
            let took = answered(DEATHS - 1, || self.ask(wanted, rows, (one, 1)))?;
            all.add(took.ok_or_else(|| self.unreadable(one, "read it"))?);
            Ok(all)
        })
    }

    /// Lets a worker read `count` samples from `first` on.
    fn ask(
        &self,
        wanted: &Wanted<'_>,
        rows: &mut Rows<'_>,
        (first, count): (usize, usize),
    ) -> Result<Asked, Unread> {
        let Some(mut lane) = self.take() else { return Err(self.why_none(first)) };
        let range = first..first + count;
        let reserved = lane.block.reserve(bytes_of(rows.spec(), count));
        let bytes = match reserved {
            Ok(bytes) => bytes,
            Err(error) => {
                self.give_back(lane);
                return Err(Unread::Sample(first, error.into()));
            }
        };
        let room = Vec::from_iter(room(rows.spec()));
        let request = Request {
            set: wanted.set,
            room: &room,
            count,
            ids: &wanted.ids[range.clone()],
            keys: &wanted.keys[range],
            epoch: wanted.epoch,
            is_seeded: wanted.is_seeded,
            bytes,
        };
        let answer = match lane.read(&request) {
            Ok(answer) => answer,
            Err(lost) => return self.lost(lane, &lost, first),
        };
        let copied = lane.block.copy((answer.read.min(count), count), rows, first);
        self.give_back(lane);
        copied.map_err(|(row, error)| Unread::Sample(first + row, error))?;
        match answer.failed {
            None => Ok(Asked::Read(Took { is_random: answer.is_random, ns: answer.ns })),
            Some(failed) => {
                // An error of a whole batch is at the index behind its last sample.
                let last = if wanted.is_whole { count } else { count - 1 };
                Err(Unread::Sample(first + answer.read.min(last), raised(&failed, rows.spec())))
            }
        }
    }

    /// Replaces a lost worker, and returns the outcome of its request.
    fn lost(&self, lane: Lane, lost: &Lost, first: usize) -> Result<Asked, Unread> {
        if self.is_closed() {
            return Err(Unread::Closed);
        }
        match self.replace(lane, lost) {
            Ok(true) => Ok(Asked::Died),
            Ok(false) => Ok(Asked::NotBegun),
            Err(_) if self.is_closed() => Err(Unread::Closed),
            Err(why) => Err(Unread::Sample(first, Error::new(ErrorKind::Sample, why).into())),
        }
    }

    /// Lets a worker call function number `set` on the fixed-size fields of a batch, with the random key
    /// `key`.
    pub(crate) fn map(&self, (set, key): (u32, u64), rows: &mut Rows<'_>) -> Result<(), Unread> {
        let ran = answered(DEATHS, || self.ask_to_map((set, key), rows))?;
        ran.map(|_| ()).ok_or_else(|| self.unreadable(0, "ran it"))
    }

    /// The error for a sample that has killed workers while they did `what`.
    fn unreadable(&self, index: usize, what: &str) -> Unread {
        let end = self.lock().last_end.clone();
        let why = format!("{DEATHS} worker processes died while they {what}: the last one {end}");
        Unread::Sample(index, Error::new(ErrorKind::Sample, why).into())
    }

    fn ask_to_map(&self, (set, key): (u32, u64), rows: &mut Rows<'_>) -> Result<Asked, Unread> {
        let Some(mut lane) = self.take() else { return Err(self.why_none(0)) };
        let reserved = lane.block.reserve(fixed_bytes(rows.spec(), rows.len()));
        let bytes = match reserved.and_then(|bytes| lane.block.write_fixed(rows).map(|()| bytes)) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.give_back(lane);
                return Err(Unread::Sample(0, error.into()));
            }
        };
        let count = rows.len();
        let (ids, room) = (&[], &[]);
        let request = Request { set, count, ids, keys: &[key], room, epoch: 0, is_seeded: true, bytes };
        let answer = match lane.map(&request) {
            Ok(answer) => answer,
            Err(lost) => return self.lost(lane, &lost, 0),
        };
        let read = match answer.failed {
            None => lane.block.read_fixed(rows).map_err(ReadError::from),
            Some(failed) => Err(raised(&failed, rows.spec())),
        };
        self.give_back(lane);
        read.map_err(|error| Unread::Sample(0, error))?;
        Ok(Asked::Read(Took::default()))
    }

    /// Waits for a free lane of the least busy worker; `None` once the pool is closed or broken.
    fn take(&self) -> Option<Lane> {
        let mut state = self.lock();
        loop {
            if self.is_closed() {
                return None;
            }
            let worker = state.workers.iter_mut().max_by_key(|worker| worker.free.len());
            if let Some(lane) = worker.and_then(|worker| worker.free.pop()) {
                return Some(lane);
            }
            if state.workers.is_empty() && state.starting == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, lane: Lane) {
        let mut state = self.lock();
        // The worker no longer exists if its other lane has noticed its end.
        if let Some(worker) = state.workers.iter_mut().find(|worker| worker.number == lane.worker) {
            worker.free.push(lane);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn why_none(&self, index: usize) -> Unread {
        let broken = self.lock().broken.clone();
        match broken {
            Some(why) if !self.is_closed() => {
                Unread::Sample(index, Error::new(ErrorKind::Sample, why).into())
            }
            _ => Unread::Closed,
        }
    }

    /// Replaces the worker of `lane` if it is not replaced yet. Returns whether the worker had begun the
    /// lane's request.
    fn replace(&self, lane: Lane, lost: &Lost) -> Result<bool, String> {
        let has_begun = lane.end.does().is_some();
        let worker = {
            let mut state = self.lock();
            let found = state.workers.iter().position(|worker| worker.number == lane.worker);
            let Some(found) = found else { return Ok(has_begun) };
            state.starting += 1;
            state.workers.swap_remove(found)
        };
        worker.ends.iter().for_each(|end| end.shut());
        let own: Vec<_> = worker.ends.iter().map(|end| end.socket.as_raw_fd()).collect();
        let does: Vec<_> = worker.ends.iter().filter_map(|end| end.does()).collect();
        // A worker that has neither answered nor begun a request was loading the data.
        let is_new = does.is_empty() && !worker.ends.iter().any(|end| end.has_answered());
        let failures = if is_new { worker.failures + 1 } else { 0 };
        self.deaths.fetch_add(1, Ordering::Relaxed);
        let replaced = attach(|py| {
            let raised = |error| -> ReadError { Raised::new(py, error).into() };
            let server = self.server.bind(py);
            let process = lane.process;
            let told = server.call_method1(intern!(py, "end_of"), (process, own)).map_err(raised)?;
            let told: String = match lost {
                Lost::Ended => told.extract().map_err(raised)?,
                Lost::Stopped => "was stopped by a signal for 2 s, and killed".to_owned(),
                Lost::Confused => "answered another request than its last one, and was killed".to_owned(),
            };
            self.lock().last_end.clone_from(&told);
            if self.is_closed() {
                return Ok(());
            }
            if failures == DEATHS {
                let why = format!(
                    "{DEATHS} worker processes died one after another while they loaded the data: the last \
                     one {told}"
                );
                return Err(Error::new(ErrorKind::Sample, why).into());
            }
            server.call_method1(intern!(py, "lost"), (process, told, &does)).map_err(raised)?;
            self.add(py, failures).map_err(raised)
        });
        let mut state = self.lock();
        state.starting -= 1;
        let replaced = replaced.map_err(|error| match failures {
            DEATHS => error.to_string(),
            _ => format!("no new worker process can be started: {error}"),
        });
        if let Err(why) = &replaced {
            state.broken = Some(why.clone());
        }
        drop(state);
        self.changed.notify_all();
        replaced.map(|()| has_begun)
    }

    /// Whether the workers have ended, or are about to.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.lock().workers.len()
    }

    /// Number of workers that died and were replaced.
    pub(crate) fn deaths(&self) -> usize {
        self.deaths.load(Ordering::Relaxed)
    }

    /// Counts a data set of an open loader.
    pub(super) fn enter(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a data set from the count. Returns whether it was the last one.
    pub(super) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Ends the workers. A running request fails at once. Does nothing in a forked child.
    pub(crate) fn close(&self, py: Python<'_>) {
        if self.process != std::process::id() {
            // This process is a forked child, which shares the sockets with its parent.
            return;
        }
        self.is_closed.store(true, Ordering::SeqCst);
        let workers = std::mem::take(&mut self.lock().workers);
        self.changed.notify_all();
        let ends = || workers.iter().flat_map(|worker| &worker.ends);
        ends().for_each(|end| end.shut());
        let own: Vec<_> = ends().map(|end| end.socket.as_raw_fd()).collect();
        let server = self.server.bind(py);
        // If a process still runs, it ends when its sockets close.
        let _ = server.call_method1(intern!(py, "forget"), (own,));
        let _ = server.call_method0(intern!(py, "end"));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_closed() {
            // When the interpreter shuts down, the processes end with their sockets.
            Python::try_attach(|py| self.close(py));
        }
    }
}

/// Asks until a worker answers. `None` if `most` workers die while they do what is asked.
fn answered(most: u32, mut ask: impl FnMut() -> Result<Asked, Unread>) -> Result<Option<Took>, Unread> {
    let mut deaths = 0;
    while deaths < most {
        match ask()? {
            Asked::Read(took) => return Ok(Some(took)),
            Asked::NotBegun => {}
            Asked::Died => deaths += 1,
        }
    }
    Ok(None)
}

/// The error of a worker that read rows of `spec`.
fn raised(failed: &Failed, spec: &Spec) -> ReadError {
    let payload = match failed {
        Failed::Sample(payload) | Failed::Unusable(payload) => payload,
        Failed::Longer(place, items) => {
            let field = spec.fields().get(*place).map(|field| Longer::error(field, *items));
            return field.unwrap_or_else(|| Error::new(ErrorKind::Sample, "a worker names no field")).into();
        }
    };
    let raised = attach(|py| {
        Ok(match rebuilt(py, payload) {
            Ok((text, error)) => Raised::with_text(text, error),
            Err(error) => Raised::new(py, error),
        })
    });
    raised.map_or_else(|ended| ended, Into::into)
}

/// Max samples per request.
fn chunk(spec: &Spec) -> usize {
    let row: u64 = spec.fields().iter().map(|field| field.row_bytes() as u64).sum();
    let block = bytes_of(spec, 1).max(1);
    let is_ragged = spec.is_ragged();
    let most = if is_ragged { MOST / block } else { CHUNK / row.max(1) };
    usize::try_from(most).unwrap_or(SAMPLES).clamp(1, SAMPLES)
}

/// Unpacks the text and the exception of a worker.
fn rebuilt(py: Python<'_>, payload: &[u8]) -> PyResult<(String, PyErr)> {
    let faults = py.import(intern!(py, "feedline._workers.faults"))?;
    let (text, error): (String, Bound<'_, PyAny>) =
        faults.call_method1(intern!(py, "rebuilt"), (payload,))?.extract()?;
    Ok((text, PyErr::from_value(error)))
}
