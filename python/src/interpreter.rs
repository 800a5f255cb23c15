//! Counts the threads that use the interpreter, and makes them leave before it shuts down.
//!
//! CPython before 3.14 kills a thread that takes the interpreter's lock after the interpreter has shut down.
//! It unwinds this thread through Rust code, which ends the process. So every thread with Rust code on its
//! stack is counted while it may take the lock. `leave` lets no more threads in, and waits for the counted
//! threads.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use feedline::{Context, Error, ErrorKind, ReadError};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;

use crate::open::close_all;
use crate::thread_state;

/// How long samples may take to end after a Ctrl-C during the interpreter's shutdown. After this time the
/// process ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time after which `leave` prints what it is waiting for.
const SILENCE: Duration = Duration::from_secs(3);

/// Number of threads that run Python code for a loader, are about to run it, or return to Python.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Whether the interpreter is about to shut down.
static IS_CLOSING: AtomicBool = AtomicBool::new(false);

/// The thread that shuts the interpreter down.
static CLOSED_BY: OnceLock<ThreadId> = OnceLock::new();

/// A thread that is counted in `INSIDE`.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new() -> Self {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // The count must not underflow in a child that was forked meanwhile.
        let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |inside| inside.checked_sub(1));
    }
}

/// Runs `work` with the interpreter's lock. Fails once the interpreter is shutting down.
pub(crate) fn attach<T>(work: impl FnOnce(Python<'_>) -> Result<T, ReadError>) -> Result<T, ReadError> {
    // This thread is counted first, and then checks `IS_CLOSING`. `leave` sets `IS_CLOSING` first, and then
    // waits for the counted threads. So it misses no thread.
    let _inside = Inside::new();
    if IS_CLOSING.load(Ordering::SeqCst) {
        return Err(shutting_down());
    }
    let entered = Python::try_attach(|py| {
        thread_state::keep(py);
        let done = work(py);
        end_if_forked(py);
        done
    });
    entered.unwrap_or_else(|| Err(shutting_down()))
}

/// Runs `work` without the interpreter's lock. Once the interpreter shuts down, only two kinds of threads
/// return from this call: workers, for which `leave` waits, and the thread that shuts the interpreter down.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let may_return = || is_worker() || CLOSED_BY.get() == Some(&std::thread::current().id());
    let (done, returning) = py.detach(|| {
        let done = work();
        loop {
            // This thread is counted before the check, as above, and stays counted until it has the lock.
            let returning = Inside::new();
            if !IS_CLOSING.load(Ordering::SeqCst) || may_return() {
                return (done, returning);
            }
            drop(returning);
            std::thread::park();
        }
    });
    drop(returning);
    done
}

/// Fails if the interpreter shuts down or the loader ends. A worker calls this before each sample.
pub(crate) fn may_go_on(context: &Context) -> Result<(), ReadError> {
    if IS_CLOSING.load(Ordering::Relaxed) { Err(shutting_down()) } else { Ok(context.check_stop()?) }
}

fn shutting_down() -> ReadError {
    Error::new(ErrorKind::Stopped, "the Python interpreter is shutting down").into()
}

/// Whether the calling thread is a thread of a loader.
pub(crate) fn is_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("fl-"))
}

/// Whether the interpreter is about to shut down. Long-running Python code of a worker calls this.
#[pyfunction]
pub(crate) fn is_closing() -> bool {
    IS_CLOSING.load(Ordering::Relaxed)
}

/// Lets no more threads run Python code for a loader, waits for the samples that are being read, and ends the
/// loaders. `atexit` calls it directly, because a signal could interrupt Python code.
///
/// Ctrl-C does not end the wait at once, because the interpreter must not shut down while a worker uses it.
/// If the samples take longer than [`PATIENCE`] after it, the process ends instead.
#[pyfunction]
pub(crate) fn leave(py: Python<'_>) {
    let _ = CLOSED_BY.set(std::thread::current().id());
    IS_CLOSING.store(true, Ordering::SeqCst);
    // Threads that wait for worker processes are not counted. This ends the processes, and so these waits.
    crate::processes::close_all(py);
    let (start, mut is_told) = (Instant::now(), false);
    let mut interrupted: Option<(Instant, PyErr)> = None;
    while INSIDE.load(Ordering::SeqCst) > 0 {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
        if let Err(error) = py.check_signals() {
            interrupted.get_or_insert((Instant::now(), error));
        }
        match &interrupted {
            Some((at, error)) if at.elapsed() >= PATIENCE => end_process(py, error),
            None if !is_told && start.elapsed() >= SILENCE => {
                is_told = true;
                eprintln!("feedline: waiting for the sample that is being read; Ctrl-C ends the process");
            }
            _ => {}
        }
    }
    close_all(py);
    let _ = end_at_next_press(py, interrupted.is_some());
}

/// Lets the next Ctrl-C after the first end the process without another traceback.
fn end_at_next_press(py: Python<'_>, is_interrupted: bool) -> PyResult<()> {
    let sys = py.import("sys")?;
    let is_ended_by_one =
        || sys.getattr("last_type").is_ok_and(|kind| kind.is(py.get_type::<PyKeyboardInterrupt>()));
    let signals = py.import("_signal")?;
    let interrupt = signals.getattr("SIGINT")?;
    let handler = signals.call_method1("getsignal", (&interrupt,))?;
    if (!is_interrupted && !is_ended_by_one()) || !handler.is(signals.getattr("default_int_handler")?) {
        return Ok(());
    }
    for name in ["stdout", "stderr"] {
        let _ = sys.getattr(name)?.call_method0("flush");
    }
    signals.call_method1("signal", (&interrupt, signals.getattr("SIG_DFL")?))?;
    // Handles a Ctrl-C that came before this call.
    let _ = py.check_signals();
    Ok(())
}

/// Ends the process in the way an unhandled `error` does. The rest of the interpreter's shutdown is skipped.
fn end_process(py: Python<'_>, error: &PyErr) {
    let end = || -> PyResult<()> {
        for name in ["stdout", "stderr"] {
            let _ = py.import("sys")?.getattr(name)?.call_method0("flush");
        }
        let os = py.import("os")?;
        if error.is_instance_of::<PyKeyboardInterrupt>(py) && cfg!(unix) {
            let signals = py.import("_signal")?;
            let interrupt = signals.getattr("SIGINT")?;
            signals.call_method1("signal", (&interrupt, signals.getattr("SIG_DFL")?))?;
            os.call_method1("kill", (std::process::id(), interrupt))?;
        }
        let code = match error.is_instance_of::<PySystemExit>(py) {
            true => error.value(py).getattr("code")?.extract().unwrap_or(1),
            false => 1_i32,
        };
        os.call_method1("_exit", (code,)).map(drop)
    };
    if end().is_err() {
        std::process::abort();
    }
}

thread_local! {
    /// Whether this thread was a thread of a loader in the process that was forked.
    static IS_FORKED: Cell<bool> = const { Cell::new(false) };
}

/// Resets the count in a forked child, which has no workers.
#[pyfunction]
pub(crate) fn forget_workers() {
    INSIDE.store(0, Ordering::SeqCst);
    IS_FORKED.set(is_worker());
    crate::turn::forget();
}

/// Ends a child that Python code of a data set has forked, and that returns from this code. It has one thread
/// and copies of the loader's memory and files.
fn end_if_forked(py: Python<'_>) {
    if IS_FORKED.get() {
        let faults = py.import("feedline._workers.faults");
        let _ = faults.and_then(|faults| faults.call_method0("end_forked"));
        std::process::abort();
    }
}
