//! Shared by the pipeline's tests: run one test at a time under a watchdog, check that it leaks nothing, and
//! read back the bytes of a batch on the stream that waited for it.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod small;

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use feedline::dataset::Element;
use feedline::{Device, Ready, Stream, View};
use feedline_device::launch_host;
use feedline_testkit::{Census, Watchdog, exclusive, fixtures, watchdog};

/// Until dropped, blocks the other tests of the binary and keeps this one under a watchdog.
pub fn one_at_a_time() -> impl Sized {
    one_at_a_time_for(watchdog::LIMIT)
}

/// [`one_at_a_time`] with a longer limit, for a test of many parts.
pub fn one_at_a_time_in_parts() -> impl Sized {
    one_at_a_time_for(30 * watchdog::LIMIT)
}

fn one_at_a_time_for(limit: Duration) -> impl Sized {
    let one = exclusive();
    let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
    (Watchdog::new(limit, &name), one)
}

/// The longest wait for something that should happen. Only a failing test waits this long.
pub const LONG: Duration = Duration::from_secs(30);

/// Runs `work` while no other test of the binary runs, then checks that the pipeline's threads and the open
/// files are the same as before.
#[track_caller]
pub fn alone(work: impl FnOnce()) {
    alone_for(watchdog::LIMIT, work);
}

/// [`alone`] with a longer limit, for a test of many parts, each of which has its own watchdog.
#[track_caller]
pub fn alone_in_parts(work: impl FnOnce()) {
    alone_for(30 * watchdog::LIMIT, work);
}

#[track_caller]
fn alone_for(limit: Duration, work: impl FnOnce()) {
    let _one = one_at_a_time_for(limit);
    let before = Census::of_threads("fl-").expect("a census");
    work();
    before.assert_same();
}

/// Calls `work` with every item, on four threads; for work that mostly sleeps. Returns its results in any
/// order.
pub fn on_four_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    let part = |first| move || items.iter().skip(first).step_by(4).map(work).collect::<Vec<R>>();
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|first| scope.spawn(part(first)));
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Checks that the device holds nothing any more and that no drop reported an error.
#[track_caller]
pub fn assert_empty(device: &Device) {
    let stats = device.stats();
    let held =
        [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events].map(|gauge| gauge.get());
    assert_eq!(held, [0; 4], "pinned bytes, device bytes, streams, events");
    let errors = stats.take_errors();
    assert!(errors.is_empty(), "errors in drops: {errors:?}");
}

/// Copies out the elements of a view on its stream, and blocks until that work has run.
pub fn elements<T: Element>(stream: &Stream, view: View<'_, T>) -> Vec<T> {
    let (send, receive) = channel();
    let copy = move |memory: &mut feedline_device::Memory<'_>| drop(send.send(memory.input::<T>(0).to_vec()));
    launch_host(stream, "elements", [view.into()], [], copy).expect("work on the stream");
    receive.recv().expect("the work has run")
}

/// Checks every byte of a batch of [`fixtures::Fine`] samples on the batch's own stream, and that the rows
/// match the batch's ids.
#[track_caller]
pub fn assert_intact(fine: &fixtures::Fine, batch: &Ready) {
    let stream = batch.stream();
    let ids = elements(stream, batch.field::<i64>("id").expect("the ids"));
    assert!(
        ids.iter().map(|&id| id as u64).eq(batch.ids().iter().copied()),
        "{ids:?} in {batch:?}, {:?}",
        batch.ids()
    );
    let bytes = elements(stream, batch.field::<u8>("bytes").expect("the bytes"));
    let width = bytes.len() / ids.len().max(1);
    for (&id, row) in batch.ids().iter().zip(bytes.chunks(width.max(1))) {
        if let Err(wrong) = feedline_testkit::pattern::check(row, fine.key(batch.epoch()), id) {
            panic!("{batch:?}: {wrong}");
        }
    }
}

/// Blocks until `happened` returns true, for at most [`LONG`].
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks until no thread's name begins with `prefix`.
#[track_caller]
pub fn wait_until_gone(prefix: &str) {
    wait_until(&format!("the threads {prefix} are gone"), || {
        Census::of_threads(prefix).is_ok_and(|census| census.threads.is_empty())
    });
}

/// Blocks until `count` threads have names that begin with `prefix`. On a busy machine a new thread has its
/// parent's name for long.
#[track_caller]
pub fn wait_for_threads(prefix: &str, count: usize) {
    wait_until(&format!("{count} threads {prefix}"), || {
        Census::of_threads(prefix).is_ok_and(|census| census.threads.len() == count)
    });
}

/// The calling thread, for [`wait_until_asleep`].
pub fn this_thread() -> PathBuf {
    Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap_or_default())
}

/// Blocks until `thread` sleeps in the kernel: it waits for something. Where there is no `/proc`, returns at
/// once.
#[track_caller]
pub fn wait_until_asleep(thread: &Path) {
    wait_until("the thread sleeps", || match std::fs::read_to_string(thread.join("stat")) {
        // The state follows the name, which is in parentheses.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S')),
        Err(_) => true,
    });
}

/// Keeps panics whose message begins with "planned" out of the output.
pub fn hush_planned_panics() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|text| text.starts_with("planned")) {
                report(info);
            }
        }));
    });
}
