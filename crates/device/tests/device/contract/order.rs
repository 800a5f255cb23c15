//! Streams and events: the order of work.

use std::sync::mpsc;

use feedline_core::Result;
use feedline_device::{Buffer, Device, Memory, Pinned, launch_host};

use super::rig::{Ending, LIMIT, everywhere, poll};

const BYTES: usize = 4096;

#[test]
fn an_event_that_was_never_recorded_is_complete() {
    everywhere("an_event_that_was_never_recorded_is_complete", Ending::Clean, |rig| {
        let (stream, event) = (rig.stream("a")?, rig.device.event()?);
        assert!(event.query()?);
        event.synchronize()?;
        stream.wait(&event)?;
        stream.synchronize()
    });
}

#[test]
fn a_wait_keeps_the_recording_of_its_call() {
    everywhere("a_wait_keeps_the_recording_of_its_call", Ending::Clean, |rig| {
        let (slow, fast, late) = (rig.stream("slow")?, rig.stream("fast")?, rig.stream("late")?);
        let (event, passed) = (rig.device.event()?, rig.device.event()?);
        // Wait for a recording that is pending. A later recording that completes at once does not end the
        // wait.
        let gate = rig.gate(&slow)?;
        slow.record(&event)?;
        late.wait(&event)?;
        late.record(&passed)?;
        fast.record(&event)?;
        poll(&event)?;
        assert!(
            (0..100).all(|_| passed.query().is_ok_and(|done| !done)),
            "the wait used the later recording"
        );
        drop(gate);
        poll(&passed)?;
        // Wait for a recording that is complete. A later recording that is pending does not block it.
        fast.record(&event)?;
        fast.synchronize()?;
        late.wait(&event)?;
        late.record(&passed)?;
        let gate = rig.gate(&slow)?;
        slow.record(&event)?;
        passed.synchronize()?;
        assert!(!event.query()?);
        drop(gate);
        slow.synchronize()
    });
}

#[test]
fn a_new_record_makes_a_complete_event_pending() {
    everywhere("a_new_record_makes_a_complete_event_pending", Ending::Clean, |rig| {
        let (stream, event) = (rig.stream("a")?, rig.device.event()?);
        stream.record(&event)?;
        poll(&event)?;
        let gate = rig.gate(&stream)?;
        stream.record(&event)?;
        assert!((0..100).all(|_| event.query().is_ok_and(|done| !done)));
        drop(gate);
        event.synchronize()?;
        assert!(event.query()?);
        Ok(())
    });
}

#[test]
fn a_stream_runs_its_work_in_order() {
    everywhere("a_stream_runs_its_work_in_order", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut buffer = Buffer::<u8>::new(&stream, BYTES)?;
        let results: Vec<Pinned> = (0..5).map(|_| Pinned::new(&rig.device, BYTES)).collect::<Result<_>>()?;
        for (value, to) in (1..).zip(&results) {
            rig.fill(&stream, &mut buffer, value)?;
            rig.fetch((&stream).into(), buffer.view().address(), to)?;
        }
        stream.synchronize()?;
        for (value, to) in (1..).zip(&results) {
            assert_eq!(rig.bytes(to)?, [value; BYTES]);
        }
        Ok(())
    });
}

#[test]
fn an_event_orders_two_streams() {
    everywhere("an_event_orders_two_streams", Ending::Clean, |rig| {
        let (a, b, event) = (rig.stream("a")?, rig.stream("b")?, rig.device.event()?);
        let mut buffer = Buffer::<u8>::new(&a, BYTES)?;
        let to = Pinned::new(&rig.device, BYTES)?;
        let gate = rig.gate(&a)?;
        rig.fill(&a, &mut buffer, 7)?;
        a.record(&event)?;
        b.wait(&event)?;
        rig.fetch((&b).into(), buffer.view().address(), &to)?;
        drop(gate);
        b.synchronize()?;
        assert_eq!(rig.bytes(&to)?, [7; BYTES]);
        Ok(())
    });
}

#[test]
fn streams_do_not_block_each_other() {
    everywhere("streams_do_not_block_each_other", Ending::Clean, |rig| {
        let (a, b) = (rig.stream("a")?, rig.stream("b")?);
        let (end_a, mut buffer) = (rig.device.event()?, Buffer::<u8>::new(&b, BYTES)?);
        let gate = rig.gate(&a)?;
        a.record(&end_a)?;
        rig.fill(&b, &mut buffer, 1)?;
        b.synchronize()?;
        assert!(!end_a.query()?, "b finished its work while a was blocked");
        drop(gate);
        a.synchronize()
    });
}

#[test]
fn two_host_streams_run_concurrently() {
    let device = Device::new_host();
    let (say, said) = mpsc::channel();
    let ((meet_a, met_a), (meet_b, met_b)) = (mpsc::channel(), mpsc::channel());
    let streams = [("a", meet_a, met_b), ("b", meet_b, met_a)].map(|(name, meet, met)| {
        let (stream, say) = (device.stream().expect("a stream"), say.clone());
        let body = move |_: &mut Memory<'_>| {
            meet.send(()).expect("the other task has not ended yet");
            say.send(met.recv_timeout(LIMIT / 2)).expect("the test receives this");
        };
        launch_host(&stream, name, [], [], body).expect("run");
        stream
    });
    drop(say);
    assert_eq!(said.iter().collect::<Vec<_>>(), [Ok(()), Ok(())], "each task met the other while both ran");
    drop(streams);
}
