//! Worker processes that read a data set written in Python. `feedline/_workers/` is the other end.
//!
//! A worker thread of the loader requests the samples of its rows from a process, and waits without the
//! interpreter's lock. Then it copies the rows from a block of shared memory into its slot. So order,
//! position, substitutes and records are the loader's own, and nothing is lost when a process dies.
//!
//! | file | what |
//! | --- | --- |
//! | `mod.rs` | a data set that processes may read |
//! | `pool.rs` | the processes: which of them reads, and what happens when one dies |
//! | `lane.rs` | requests and answers |
//! | `block.rs` | the shared memory |

mod block;
mod lane;
mod pool;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedline::dataset::{RowError, Rows};
use feedline::{Context, Error, ErrorKind, ReadError};
use pyo3::prelude::*;

use crate::error::raise;
use crate::interpreter::is_worker;

pub(crate) use pool::close_all;
use pool::{Pool, Unread, Wanted};

/// The readers of a data set written in Python: processes, or threads of this process.
#[derive(Default)]
pub(crate) struct ReadBy(Mutex<Users>);

#[derive(Default)]
struct Users {
    /// The processes, and the number that identifies the data set in them.
    pool: Option<(Arc<Pool>, u32)>,
    /// The number of open loaders that read the data set by processes.
    processes: usize,
    /// The number of open loaders that read the data set by threads.
    threads: usize,
    /// Whether the last loader that read the set by processes has ended.
    has_ended: bool,
}

/// The current readers of a data set.
enum Who {
    /// Processes, and the number of the data set in them.
    Processes(Arc<Pool>, u32),
    /// The calling thread.
    Here,
    /// Nobody, because the loader has ended its processes, and its threads are about to end.
    Nobody,
}

impl ReadBy {
    fn who(&self) -> Who {
        let users = self.lock();
        match &users.pool {
            // The interpreter is ending: no loader will choose other readers.
            Some((pool, _)) if pool.is_closed() => Who::Nobody,
            Some((pool, number)) => Who::Processes(pool.clone(), *number),
            None if users.threads == 0 && users.has_ended => Who::Nobody,
            None => Who::Here,
        }
    }

    /// Lets a process read samples, each with a key of random numbers, and blocks until they are read; `None`
    /// if the calling thread must read them. `is_seeded` says that the generators are seeded. `is_whole` says
    /// that one process reads all samples in one call.
    pub(crate) fn read(
        &self,
        (ids, keys): (&[u64], &[u64]),
        rows: &mut Rows<'_>,
        context: &mut Context,
        (is_seeded, is_whole): (bool, bool),
    ) -> Option<Result<(), RowError>> {
        // The calling thread reads a sample that the user indexes.
        if !is_worker() {
            return None;
        }
        loop {
            let (pool, set) = match self.who() {
                Who::Processes(pool, set) => (pool, set),
                Who::Here => return None,
                Who::Nobody => return Some(Err((0, ended()))),
            };
            let wanted = Wanted { set, ids, keys, epoch: context.key_epoch(), is_seeded, is_whole };
            match pool.read(&wanted, rows) {
                Ok(took) => {
                    context.add_elsewhere(took.ns);
                    if took.is_random {
                        // This marks the sample as dependent on the epoch, so that it is not cached.
                        context.epoch();
                    }
                    return Some(Ok(()));
                }
                Err(Unread::Sample(index, error)) => return Some(Err((index, error))),
                // Another loader may have ended the processes that this loader used.
                Err(Unread::Closed) => {}
            }
        }
    }

    /// Lets a process call a function on the fixed-size fields of a batch, with the random key `key`. Blocks
    /// until the function has returned; `None` if the calling thread must call it.
    pub(crate) fn map(&self, key: u64, rows: &mut Rows<'_>) -> Option<Result<(), ReadError>> {
        loop {
            let (pool, number) = match self.who() {
                Who::Processes(pool, number) => (pool, number),
                Who::Here => return None,
                Who::Nobody => return Some(Err(ended())),
            };
            match pool.map((number, key), rows) {
                Ok(()) => return Some(Ok(())),
                Err(Unread::Sample(_, error)) => return Some(Err(error)),
                Err(Unread::Closed) => {}
            }
        }
    }

    /// Whether processes read the set.
    pub(crate) fn has_processes(&self) -> bool {
        self.lock().pool.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Users> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> ReadError {
    Error::new(ErrorKind::Stopped, "the worker processes have ended").into()
}

/// Worker processes for the data sets of one loader.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Processes(Arc<Pool>);

#[pymethods]
impl Processes {
    /// Starts `count` processes of a `_workers.start.Server`. Blocks until one of them has loaded the data
    /// set.
    #[new]
    fn new(py: Python<'_>, server: Py<PyAny>, count: usize) -> PyResult<Self> {
        Pool::start(py, server, count).map(Self)
    }

    /// Ends the processes.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }
}

/// The registration of a loader that reads a data set. `leave` ends it.
#[pyclass(frozen, module = "feedline._feedline")]
pub(crate) struct Reading {
    set: Arc<ReadBy>,
    /// The processes that read the set; the inner `None` if threads do. `leave` takes the value out.
    by: Mutex<Option<Option<Arc<Pool>>>>,
}

impl Reading {
    /// Registers a loader that reads the set by `count` processes, or by threads if `count` is 0. If
    /// processes already read the set, the loader uses them. Otherwise it uses those of `new`, which know the
    /// set by the given number.
    pub(crate) fn begin(
        py: Python<'_>,
        set: &Arc<ReadBy>,
        count: usize,
        new: Option<(&Processes, u32)>,
    ) -> PyResult<Self> {
        let mut users = set.lock();
        if count == 0 {
            users.threads += 1;
            return Ok(Self { set: set.clone(), by: Mutex::new(Some(None)) });
        }
        let new = new.map(|(Processes(pool), number)| (pool.clone(), number));
        let Some((pool, number)) = users.pool.take().or(new) else {
            return Err(raise(Error::new(ErrorKind::Config, "no processes read the data set")));
        };
        users.pool = Some((pool.clone(), number));
        users.processes += 1;
        drop(users);
        pool.enter();
        let reading = Self { set: set.clone(), by: Mutex::new(Some(Some(pool.clone()))) };
        pool.grow(py, count)?;
        Ok(reading)
    }

    fn end(&self, py: Python<'_>) {
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner).take();
        match by {
            None => {}
            Some(None) => self.set.lock().threads -= 1,
            Some(Some(pool)) => {
                let mut users = self.set.lock();
                users.processes -= 1;
                if users.processes == 0 {
                    users.pool = None;
                    users.has_ended = true;
                }
                drop(users);
                if pool.leave() {
                    pool.close(py);
                }
            }
        }
    }
}

#[pymethods]
impl Reading {
    /// Ends the registration, because the loader is about to end. Processes that no other loader uses end
    /// now.
    fn leave(&self, py: Python<'_>) {
        self.end(py);
    }

    /// The number of processes that read the set; `None` if threads read it.
    #[getter]
    fn workers(&self) -> Option<usize> {
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        by.as_ref().and_then(|by| by.as_ref().map(|pool| pool.workers()))
    }

    /// Number of processes that died and were replaced.
    #[getter]
    fn deaths(&self) -> usize {
        let by = self.by.lock().unwrap_or_else(PoisonError::into_inner);
        by.as_ref().and_then(|by| by.as_ref().map(|pool| pool.deaths())).unwrap_or(0)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // When the interpreter shuts down, the processes end with their sockets.
        Python::try_attach(|py| self.end(py));
    }
}
