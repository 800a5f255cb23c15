//! What the tests of the pipeline share: one test at a time, under a watchdog, with a look at what it leaves behind;
//! and the bytes of a batch, read back on the stream that waited for it.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod small;

use std::sync::mpsc::channel;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use feedline::{Device, Element, Ready, Stream, View};
use feedline_testkit::{Census, Watchdog, fixtures, watchdog};

/// Holds up the other tests of the binary, and watches over this one, until dropped.
pub fn one_at_a_time() -> impl Sized {
    one_at_a_time_for(watchdog::LIMIT)
}

fn one_at_a_time_for(limit: Duration) -> impl Sized {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
    (Watchdog::new(limit, &name), one)
}

/// What a test waits for at most before it says that something does not happen; only a red test waits as long.
pub const LONG: Duration = Duration::from_secs(30);

/// Runs `work` while no other test of the binary runs, so that a census of the process is one of this test, and checks
/// that the pipeline's threads and the open files are again what they were.
#[track_caller]
pub fn alone(work: impl FnOnce()) {
    alone_for(watchdog::LIMIT, work);
}

/// [`alone`], for a test of many parts that each stand under a watchdog of their own: all of them together may take long.
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

/// Checks that nothing of the device is held any more, and that no drop had an error to tell.
#[track_caller]
pub fn assert_empty(device: &Device) {
    let stats = device.stats();
    let held =
        [&stats.pinned_bytes, &stats.device_bytes, &stats.streams, &stats.events].map(|gauge| gauge.now());
    assert_eq!(held, [0; 4], "pinned bytes, device bytes, streams, events");
    let errors = stats.take_errors();
    assert!(errors.is_empty(), "in drops: {errors:?}");
}

/// The elements of a view, copied out by work on its stream; blocks until that has run.
pub fn elements<T: Element>(stream: &Stream, view: View<'_, T>) -> Vec<T> {
    let (send, receive) = channel();
    let copy = move |memory: &mut feedline::Memory<'_>| drop(send.send(memory.input::<T>(0).to_vec()));
    stream.run("elements", [view.into()], [], copy).expect("work on the stream");
    receive.recv().expect("the work has run")
}

/// Checks every byte of a batch of [`fixtures::Fine`] samples, on the batch's own stream, and that the rows are those its ids
/// say.
#[track_caller]
pub fn assert_whole(fine: &fixtures::Fine, batch: &Ready) {
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

/// Blocks until `happened`, for at most [`LONG`].
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "in {LONG:?} never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks until no thread has a name that begins with `prefix`.
#[track_caller]
pub fn wait_until_gone(prefix: &str) {
    wait_until(&format!("the threads {prefix} are gone"), || {
        Census::of_threads(prefix).is_ok_and(|census| census.threads.is_empty())
    });
}

/// Keeps panics that a test plans out of its output.
pub fn hush_planned_panics() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|text| text.starts_with("planned")) {
                tell(info);
            }
        }));
    });
}
