//! Finds hosts that wait for work that no call runs.
//!
//! Work runs only in calls of the device. A host that waits for the result of work on a channel, a condition
//! variable or a flag would wait for ever. One thread watches all simulated devices of the process. It
//! reports such a wait, and then runs the work, so that the wait ends and the finding reaches the test.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::memory::misuse;
use super::schedule::Shared;

/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(50);

struct Watched {
    devices: Vec<Weak<Shared>>,
    is_watching: bool,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched { devices: Vec::new(), is_watching: false });

/// Notified when a device was dropped.
static DROPPED: Condvar = Condvar::new();

fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a device until it is dropped. If the system refuses to start the thread, nothing is watched.
pub(super) fn add(device: &Arc<Shared>) {
    let mut watched = watched();
    watched.devices.push(Arc::downgrade(device));
    if !watched.is_watching {
        let thread = std::thread::Builder::new().name("fl-sim-watch".to_owned());
        watched.is_watching = thread.spawn(watch).is_ok();
    }
}

/// Ends the thread at once if this was the last device.
impl Drop for Shared {
    fn drop(&mut self) {
        let _watched = watched();
        DROPPED.notify_all();
    }
}

fn watch() {
    loop {
        let alive = |watched: &mut Watched| watched.devices.iter().all(|device| device.strong_count() > 0);
        let waited = DROPPED.wait_timeout_while(watched(), LOOK, alive);
        let mut watched = waited.unwrap_or_else(PoisonError::into_inner).0;
        watched.devices.retain(|device| device.strong_count() > 0);
        if watched.devices.is_empty() {
            watched.is_watching = false;
            return;
        }
        let devices = watched.devices.clone();
        drop(watched);
        devices.iter().filter_map(Weak::upgrade).for_each(|device| look(&device));
    }
}

fn look(device: &Arc<Shared>) {
    let mut state = device.lock();
    let quiet = state.called_at.elapsed();
    if quiet < state.options.stuck_after || !state.is_idle() {
        return;
    }
    let why = format!(
        "stuck: nobody has called the device for {:.1} s, since {}, but work is queued: {}; a thread waits \
         for something that only this work gives, such as a message on a channel, and work runs only in \
         calls: wait by an event or Stream::synchronize. The work is run now. If the host was only busy, \
         raise SimOptions::stuck_after",
        quiet.as_secs_f64(),
        state.call,
        state.waits()
    );
    let error = state.found(misuse(why));
    state.called_at = Instant::now();
    drop(state);
    eprintln!("feedline-sim: {error}");
    // The work runs on a separate thread, because it is user code and may block.
    let device = device.clone();
    let run = std::thread::Builder::new().name("fl-sim-stuck".to_owned()).spawn(move || device.run_all());
    if let Err(error) = run {
        eprintln!("feedline-sim: cannot start a thread to run the work: {error}");
    }
}
