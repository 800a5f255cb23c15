//! Poison is visible to code that skips a wait, and only to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use feedline_core::ErrorKind;
use feedline_device::host::Host;
use feedline_device::{Access, Backend, Memory, StreamId, Task};
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::{pattern, with_watchdog};

use super::hand_off::HandOff;
use super::raw::Raw;
use super::{BYTES, LIMIT};

/// A device on which one copy stops halfway once `stop` is set: the target is overwritten with poison, and
/// has no data yet.
///
/// Also returns a receiver that signals when the stream has stopped, and a sender that resumes it.
fn stopping_chaos(stop: &Arc<AtomicBool>) -> (Raw<Chaos<Host>>, Receiver<()>, Sender<()>) {
    let (reached, stopped) = channel();
    let (resume, resumed) = channel::<()>();
    let (stop, resumed) = (stop.clone(), Arc::new(Mutex::new(resumed)));
    let spin = move |below: &dyn Backend, stream: StreamId, _: Duration| {
        if !stop.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let (reached, resumed) = (reached.clone(), resumed.clone());
        let wait = move |_: &mut Memory<'_>| {
            reached.send(()).ok();
            resumed.lock().unwrap().recv_timeout(LIMIT).ok();
        };
        // SAFETY: the stream belongs to this backend; the task has no spans.
        unsafe { below.run(stream, Task::new("stop", [], [], wait)?) }
    };
    let options = Options { probability: 1.0, spin: Some(Box::new(spin)), ..Options::default() };
    (Raw::new(Chaos::new(Host::new(), options).unwrap()), stopped, resume)
}

/// The bytes that a reader sees while the copy of batch 2 over batch 1 is delayed.
fn read_late_copy(waits: bool) -> Vec<u8> {
    with_watchdog(LIMIT, || {
        let stop = Arc::new(AtomicBool::new(false));
        let (raw, stopped, resume) = stopping_chaos(&stop);
        raw.fill_host(1);
        raw.copy().unwrap();
        assert_eq!(raw.read_after_all(), raw.batch(1));

        raw.fill_host(2);
        stop.store(true, Ordering::SeqCst);
        raw.copy().unwrap();
        if waits {
            raw.reader_waits();
        }
        stopped.recv_timeout(LIMIT).unwrap();
        let bytes = raw.read();
        if waits {
            let early = bytes.recv_timeout(Duration::from_millis(20));
            assert!(early.is_err(), "a reader that waits does not run before the copy");
            resume.send(()).unwrap();
        }
        let seen = bytes.recv_timeout(LIMIT).unwrap();
        if !waits {
            resume.send(()).unwrap();
        }
        assert_eq!(raw.read_after_all(), raw.batch(2));
        seen
    })
}

#[test]
fn a_reader_that_skips_its_wait_sees_poison() {
    assert_eq!(read_late_copy(false), [0xFF; BYTES]);
}

#[test]
fn a_reader_that_waits_sees_the_batch() {
    assert_eq!(read_late_copy(true), pattern::bytes(0, 2).take(BYTES).collect::<Vec<_>>());
}

#[test]
fn a_host_that_skips_its_wait_copies_poison() {
    for waits in [false, true] {
        let raw =
            Raw::new(Chaos::new(Host::new(), Options { poison: Some(0xB7), ..Options::default() }).unwrap());
        raw.fill_host(1);
        let open = raw.stop_copier();
        raw.copy().unwrap();
        if waits {
            open.send(()).unwrap();
            raw.synchronize();
        }
        // The host gets write access, but has not written yet.
        // SAFETY: the block is `BYTES` long. If its copy is not waited for, that is the bug under test.
        unsafe { raw.backend.host_access(raw.host, BYTES, Access::Write) }.unwrap();
        drop(open);
        let expected = if waits { raw.batch(1) } else { vec![0xB7; BYTES] };
        assert_eq!(raw.read_after_all(), expected, "waits: {waits}");
    }
}

#[test]
fn with_all_waits_chaos_changes_nothing() {
    with_watchdog(LIMIT, || {
        for seed in 0..4 {
            let backend =
                Chaos::new(Host::new(), Options { seed, probability: 0.5, ..Options::default() }).unwrap();
            let chaos = backend.handle();
            let hand_off = HandOff::new(&feedline_device::with_backend(backend), "chaos").unwrap();
            (0..20).for_each(|batch| hand_off.step(batch, true).unwrap());
            assert_eq!(hand_off.finish().unwrap(), 0, "seed {seed}: wrong batches");
            assert_eq!(chaos.poisoned(), 40, "once per batch on the host, once on the device");
            assert!(chaos.delayed() > 20, "only {} delays", chaos.delayed());
        }
    });
}

#[test]
fn a_seed_draws_the_same_delays() {
    let delays = |seed| {
        let options =
            Options { seed, host_delay: Duration::ZERO..Duration::from_nanos(1), ..Options::default() };
        let backend = Chaos::new(Host::new(), options).unwrap();
        let chaos = backend.handle();
        (0..200)
            .map(|_| {
                backend.bind().unwrap();
                chaos.delayed()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(delays(1), delays(1));
    assert_ne!(delays(1), delays(2));
}

#[test]
fn invalid_options_are_rejected() {
    let kind = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Chaos::new(Host::new(), options).err().map(|error| error.kind())
    };
    let rejected = Some(ErrorKind::Config);
    assert_eq!(kind(|_| ()), None);
    assert_eq!(kind(|options| options.probability = f64::NAN), rejected);
    assert_eq!(kind(|options| options.probability = -0.1), rejected);
    assert_eq!(kind(|options| options.probability = 1.1), rejected);
    // The range is reversed.
    assert_eq!(kind(|options| options.host_delay.start = Duration::from_secs(1)), rejected);
    assert_eq!(kind(|options| options.device_delay.start = Duration::from_secs(1)), rejected);
    // The delay is longer than any test may take.
    assert_eq!(kind(|options| options.host_delay.end = Duration::MAX), rejected);
    assert_eq!(kind(|options| options.device_delay.end = Duration::MAX), rejected);
}
