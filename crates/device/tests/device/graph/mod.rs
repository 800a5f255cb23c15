//! Graphs: what a recording may contain, what it keeps alive, and that nothing leaks on failures.

mod recorder;
mod submit;

use std::panic::{AssertUnwindSafe, catch_unwind};

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::device_slots::{Reader, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::{Buffer, Device, Pinned, SharedBuffer, Stream, launch_host};
use feedline_sim::interceptors::Faults;
use feedline_sim::interceptors::faults::{Fault, FaultPlan, Mode};
use recorder::{Recorder, Tape};

fn device() -> (Device, Tape) {
    let backend = Recorder::new();
    let tape = backend.tape.clone();
    (feedline_device::with_backend(backend), tape)
}

#[track_caller]
fn assert_empty(device: &Device, tape: &Tape) {
    let stats = device.stats();
    let held =
        [&stats.device_bytes, &stats.pinned_bytes, &stats.streams, &stats.events].map(|gauge| gauge.get());
    assert_eq!(held, [0; 4], "device bytes, pinned bytes, streams, events");
    assert_eq!((tape.graphs().len(), tape.open()), (0, 0), "graphs, recordings");
}

/// Two batches of one ring, with readers on `stream`.
fn two_batches(device: &Device, stream: &Stream) -> [Reader; 2] {
    let host = Ring::<_, ()>::new(vec![Pinned::new(device, 64).unwrap(), Pinned::new(device, 64).unwrap()]);
    let slots = SlotRing::new(device, 2, 64).unwrap();
    let copier = device.stream().unwrap();
    [(); 2].map(|()| {
        let filled = host.acquire().unwrap().ready();
        slots.acquire().unwrap().upload(&copier, filled, 64).unwrap().wait_on(stream).unwrap()
    })
}

fn read(stream: &Stream, batch: &Reader) -> Result<()> {
    launch_host(stream, "read", [batch.view::<u8>(0, 64)?.into()], [], |_| {})
}

fn add_one(stream: &Stream, buffer: &mut Buffer<u32>) -> Result<()> {
    launch_host(stream, "add one", [], [buffer.view_mut().into()], |memory| memory.output::<u32>(0)[0] += 1)
}

#[test]
fn a_recording_holds_the_work_without_running_it() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let mut count = Buffer::<u32>::new(&stream, 1).unwrap();
        let body = || {
            add_one(&stream, &mut count)?;
            add_one(&stream, &mut count)
        };
        let mut graph = feedline_device::record_graph(&stream, None, body).unwrap();
        assert_eq!(tape.graphs(), [(2, 0)]);
        for _ in 0..3 {
            graph.launch(None).unwrap();
        }
        assert_eq!(tape.graphs(), [(2, 3)]);
        assert_eq!(count.read().unwrap(), [0], "recorded work ran");
        // After the recording the stream runs its work again.
        add_one(&stream, &mut count).unwrap();
        assert_eq!(count.read().unwrap(), [1]);
    }
    assert_empty(&device, &tape);
}

#[test]
fn forked_work_is_recorded_and_runs_in_order_without_a_recording() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let (mut first, mut second) =
            (Buffer::<u32>::new(&stream, 1).unwrap(), Buffer::<u32>::new(&stream, 1).unwrap());
        let mut both = |nested: bool| {
            let first = || add_one(&stream, &mut first);
            let second = || add_one(&stream, &mut second);
            if nested {
                // SAFETY: each closure writes its own buffer.
                let inner = || unsafe { stream.fork_join(first, second) };
                // SAFETY: the second closure does nothing.
                unsafe { stream.fork_join(inner, || Ok(())) }
            } else {
                // SAFETY: each closure writes its own buffer.
                unsafe { stream.fork_join(first, second) }
            }
        };
        both(false).unwrap();
        let body = || both(false).and_then(|()| both(true));
        let graph = feedline_device::record_graph(&stream, None, body).unwrap();
        assert_eq!(tape.graphs(), [(4, 0)]);
        drop(graph);
        assert_eq!((first.read().unwrap(), second.read().unwrap()), (vec![1], vec![1]), "recorded work ran");

        let planned = || Error::new(ErrorKind::Data, "planned");
        // SAFETY: nothing is written.
        let body =
            || unsafe { stream.fork_join(|| Err(planned()), || panic!("the second closure is not called")) };
        assert_eq!(feedline_device::record_graph(&stream, None, body).unwrap_err().kind(), ErrorKind::Data);
    }
    assert_empty(&device, &tape);
}

#[test]
fn work_of_other_threads_is_not_recorded() {
    let (device, tape) = device();
    let stream = device.stream().unwrap();
    let mut count = Buffer::<u32>::new(&stream, 1).unwrap();
    let mut other = Buffer::<u32>::new(&stream, 1).unwrap();
    let body = || {
        add_one(&stream, &mut count)?;
        std::thread::scope(|threads| {
            let thread = threads.spawn(|| {
                add_one(&stream, &mut other)?;
                let event = stream.device().event()?;
                stream.record(&event)?;
                event.synchronize()
            });
            thread.join().expect("no panic")
        })
    };
    let _graph = feedline_device::record_graph(&stream, None, body).unwrap();
    assert_eq!(tape.graphs(), [(1, 0)]);
    assert_eq!((count.read().unwrap(), other.read().unwrap()), (vec![0], vec![1]));
}

#[test]
fn calls_that_cannot_be_recorded_are_rejected() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let [first, second] = two_batches(&device, &stream);
        let elsewhere = device.stream().unwrap();
        let (event, mut buffer) = (stream.device().event().unwrap(), Buffer::<u32>::new(&stream, 1).unwrap());
        let buffer = std::cell::RefCell::new(&mut buffer);
        type Case<'a> = (&'a str, &'a dyn Fn() -> Result<()>);
        let cases: [Case<'_>; 10] = [
            ("a batch", &|| read(&stream, &second)),
            ("a batch, in a graph without one", &|| read(&stream, &first)),
            ("its own batch, on another stream", &|| first.also_on(&elsewhere).map(drop)),
            ("record", &|| stream.record(&event)),
            ("wait", &|| stream.wait(&event)),
            ("synchronize", &|| stream.synchronize()),
            ("new buffer", &|| Buffer::<u32>::new(&stream, 1).map(drop)),
            ("write", &|| buffer.borrow_mut().write(&[1])),
            ("read", &|| buffer.borrow().read().map(drop)),
            ("a recording", &|| feedline_device::record_graph(&stream, None, || Ok(())).map(drop)),
        ];
        for (what, case) in cases {
            let batch = (what != "a batch, in a graph without one").then_some(&first);
            let error = feedline_device::record_graph(&stream, batch, case).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Config, "{what}: {error}");
            assert!(error.to_string().contains("cannot be recorded"), "{what}: {error}");
            assert_eq!((tape.graphs().len(), tape.open()), (0, 0), "{what}");
        }
        drop(
            feedline_device::record_graph(&stream, Some(&first), || read(&stream, &first))
                .expect("its own batch"),
        );
    }
    assert_empty(&device, &tape);
}

#[test]
fn a_graph_runs_only_on_the_slot_it_was_recorded_for() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let [first, second] = two_batches(&device, &stream);
        let mut graph =
            feedline_device::record_graph(&stream, Some(&first), || read(&stream, &first)).unwrap();
        assert!(graph.is_for(&first) && !graph.is_for(&second));
        graph.launch(Some(&first)).unwrap();
        let [foreign, _] = two_batches(&device, &stream);
        let (own, other) = (first.index(), second.index());
        assert_eq!(foreign.index(), own, "the same index in another ring");
        for (wrong, part) in [
            (Some(&second), format!("slot {own}, not slot {other}")),
            (Some(&foreign), format!("slot {own}, not slot {own} of another loader")),
            (None, "no batch was given".to_owned()),
        ] {
            let error = graph.launch(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("another slot"), "{error}");
            assert!(error.to_string().contains(&part), "no {part:?} in: {error}");
        }
        let branch = device.stream().unwrap();
        let elsewhere = first.also_on(&branch).unwrap();
        let error = graph.launch(Some(&elsewhere)).unwrap_err();
        assert!(error.to_string().contains("another stream"), "{error}");
        for stream in [&stream, &branch] {
            assert!(error.to_string().contains(&stream.to_string()), "no {stream} in: {error}");
        }
        let error = feedline_device::record_graph(&branch, Some(&first), || Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("an argument of \"a recording\" belongs to stream"), "{error}");
        assert_eq!(tape.graphs(), [(1, 1)]);
    }
    assert_empty(&device, &tape);
}

#[test]
fn graphs_keep_the_memory_that_they_use() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let bytes = || device.stats().device_bytes.get();
        let [batch, other] = two_batches(&device, &stream);
        let slots = bytes();
        let mut buffer = Buffer::<u32>::new(&stream, 256).unwrap();
        let body = || {
            read(&stream, &batch)?;
            add_one(&stream, &mut buffer)
        };
        let first = feedline_device::record_graph(&stream, Some(&batch), body).unwrap();
        let second = feedline_device::record_graph(&stream, None, || Ok(())).unwrap();
        drop(Buffer::<u32>::new(&stream, 64).unwrap());
        assert_eq!(bytes(), slots + 1024, "memory that no graph uses is freed at once");
        drop((buffer, batch, other));
        assert_eq!(bytes(), slots + 1024, "memory was freed under the graph");
        drop(first);
        assert_eq!(bytes(), 1024, "another graph of the stream may use it");
        drop(second);
        assert_eq!(bytes(), 0);
        drop(Buffer::<u32>::new(&stream, 1).unwrap());
        assert_eq!(bytes(), 0, "without a graph a buffer is freed at once");
    }
    assert_empty(&device, &tape);
}

#[test]
fn an_error_or_a_panic_in_a_recording_leaks_nothing() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let mut buffer = Buffer::<u32>::new(&stream, 1).unwrap();
        let planned = || Error::new(ErrorKind::Data, "planned");
        let body = || add_one(&stream, &mut buffer).and(Err(planned()));
        assert_eq!(feedline_device::record_graph(&stream, None, body).unwrap_err().kind(), ErrorKind::Data);
        let body = || -> Result<()> { panic!("planned") };
        catch_unwind(AssertUnwindSafe(|| feedline_device::record_graph(&stream, None, body)))
            .expect_err("the panic is resumed");
        // A buffer that is dropped during the recording is kept until the recording ends.
        let body = || {
            drop(buffer);
            Ok(())
        };
        drop(feedline_device::record_graph(&stream, None, body).unwrap());
        let mut graph = feedline_device::record_graph(&stream, None, || Ok(()))
            .expect("the stream can be recorded again");
        graph.launch(None).unwrap();
    }
    assert_empty(&device, &tape);
}

/// Fails every call of recording, replaying and dropping in turn, once and permanently.
#[test]
fn any_call_can_fail_without_a_leak() {
    let mut failed = 0;
    for mode in [Mode::Once, Mode::Forever] {
        for fault in [Fault::Error, Fault::Late, Fault::DeviceLost] {
            for nth in 1.. {
                let recorder = Recorder::new();
                let tape = recorder.tape.clone();
                let faults = Faults::new(recorder, FaultPlan::NONE);
                let handle = faults.handle();
                let device = feedline_device::with_backend(faults);
                let stream = device.stream().unwrap();
                let mut buffer = Buffer::<u32>::new(&stream, 1).unwrap();
                handle.arm(FaultPlan { nth, mode, fault });
                let outcome = {
                    // SAFETY: the second closure does nothing.
                    let body = || unsafe { stream.fork_join(|| add_one(&stream, &mut buffer), || Ok(())) };
                    feedline_device::record_graph(&stream, None, body)
                }
                .and_then(|mut graph| {
                    graph.launch(None)?;
                    drop(graph);
                    Ok(())
                });
                let fired = handle.fired();
                handle.disarm();
                let reported = device.stats().take_errors().len();
                assert!(
                    outcome.is_err() || !fired || reported > 0,
                    "the failure of call {nth} was not reported"
                );
                assert_eq!(tape.open(), 0, "a recording was left open by call {nth}, {mode:?}, {fault:?}");
                drop((buffer, stream));
                let held = (device.stats().streams.get(), device.stats().events.get());
                assert_eq!(held, (0, 0), "call {nth}, {mode:?}, {fault:?}");
                if !fired {
                    break;
                }
                failed += 1;
            }
        }
    }
    println!("{failed} calls failed");
    assert!(failed >= 30, "{failed}");
}

#[test]
fn a_stream_captured_by_another_library_rejects_all_work() {
    let (device, tape) = device();
    {
        let (stream, copier) = (device.stream().unwrap(), device.stream().unwrap());
        let host =
            Ring::<_, ()>::new(vec![Pinned::new(&device, 64).unwrap(), Pinned::new(&device, 64).unwrap()]);
        let slots = SlotRing::new(&device, 1, 64).unwrap();
        let load = || slots.acquire()?.upload(&copier, host.acquire()?.ready(), 64);
        let batch = load().unwrap().wait_on(&stream).unwrap();
        let mut count = Buffer::<u32>::new(&stream, 1).unwrap();
        let event = device.event().unwrap();
        let mut graph =
            feedline_device::record_graph(&stream, None, || add_one(&stream, &mut count)).unwrap();
        let mut results = feedline_device::Readback::<u32>::new(&stream, 1, 2).unwrap();
        results.begin().unwrap();

        tape.set_captured(true);
        let submitted = [
            ("work", read(&stream, &batch)),
            ("work on a buffer", add_one(&stream, &mut count)),
            ("an event", stream.record(&event)),
            ("a wait", stream.wait(&event)),
            ("another reader", batch.also_on(&stream).map(drop)),
            ("a buffer", Buffer::<u8>::new(&stream, 1).map(drop)),
            ("a write", count.write(&[1])),
            ("a read", count.read().map(drop)),
            ("a graph", graph.launch(None)),
            ("a result", results.send()),
            ("the host's wait", stream.synchronize()),
        ];
        for (what, outcome) in submitted {
            let error = outcome.err().unwrap_or_else(|| panic!("{what} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Config, "{what}: {error}");
            assert!(error.message().contains("record_graph"), "{what}: {error}");
        }
        tape.set_captured(false);

        // After the capture everything works again.
        read(&stream, &batch).unwrap();
        add_one(&stream, &mut count).unwrap();
        assert_eq!(count.read().unwrap(), [1]);
        assert!(device.stats().take_errors().is_empty());
    }
    assert_empty(&device, &tape);
}

#[test]
fn a_batch_dropped_during_a_foreign_capture_loses_its_slot() {
    let (device, tape) = device();
    let stream = device.stream().unwrap();
    let [first, second] = two_batches(&device, &stream);
    tape.set_captured(true);
    drop(first);
    tape.set_captured(false);
    drop(second);
    // It is unknown when the work that reads the slot runs, so its memory is never written again, nor
    // freed.
    let errors = device.stats().take_errors();
    assert_eq!(errors.len(), 2, "the event and the slot: {errors:?}");
    assert_eq!(errors[0].kind(), ErrorKind::Config, "{errors:?}");
    assert!(errors[1].message().contains("leaked"), "{errors:?}");
}

#[test]
fn a_shared_buffer_cannot_be_recorded() {
    let (device, tape) = device();
    {
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut shared = SharedBuffer::<u32>::new(&stream, 2).unwrap();
        let add = |memory: &mut feedline_device::Memory<'_>| memory.output::<u32>(0)[0] += 1;
        // Views that were made before the recording, and parts of them.
        let (mut one, two) = shared.view_mut().unwrap().split_at(1).unwrap();
        let writes = [
            feedline_device::record_graph(&stream, None, || {
                launch_host(&stream, "write", [], [one.reborrow().into()], add)
            }),
            feedline_device::record_graph(&stream, None, || {
                launch_host(&stream, "write", [], [two.into()], add)
            }),
            feedline_device::record_graph(&stream, None, || {
                launch_host(&stream, "read", [one.as_view().into()], [], |_| {})
            }),
        ];
        let view = shared.on(&other).unwrap().slice(0..1).unwrap();
        let read = feedline_device::record_graph(&other, None, || {
            launch_host(&other, "read", [view.into()], [], |_| {})
        });
        for outcome in writes.into_iter().chain([read]) {
            let error = outcome.unwrap_err();
            assert!(error.to_string().contains("it uses a shared buffer"), "{error}");
        }
        // The wait for a reader.
        let join = feedline_device::record_graph(&stream, None, || shared.view_mut().map(drop));
        assert_eq!(join.unwrap_err().kind(), ErrorKind::Config);
        // Without a recording the work runs as usual.
        launch_host(&stream, "write", [], [shared.view_mut().unwrap().into()], add).unwrap();
        launch_host(&other, "read", [shared.on(&other).unwrap().into()], [], |_| {}).unwrap();
        assert_eq!(shared.read().unwrap(), [1, 0]);
    }
    assert_empty(&device, &tape);
}
