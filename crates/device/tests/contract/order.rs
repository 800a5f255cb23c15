//! Streams and events: what runs before what.

use std::sync::mpsc;

use feedline_core::Result;
use feedline_device::{Device, Memory, Pinned};

use crate::rig::{Ending, LIMIT, ask, everywhere};

const BYTES: usize = 4096;

#[test]
fn an_event_never_recorded_is_done() {
    everywhere("an_event_never_recorded_is_done", Ending::Clean, |rig| {
        let (stream, event) = (rig.stream("a")?, rig.device.event(false)?);
        assert!(event.query()?);
        event.synchronize()?;
        stream.wait(&event)?;
        stream.synchronize()
    });
}

#[test]
fn a_wait_keeps_the_mark_of_its_call() {
    everywhere("a_wait_keeps_the_mark_of_its_call", Ending::Clean, |rig| {
        let (slow, fast, late) = (rig.stream("slow")?, rig.stream("fast")?, rig.stream("late")?);
        let (event, passed) = (rig.device.event(false)?, rig.device.event(false)?);
        // Waits for a mark that is not reached; a new mark, reached at once, does not free it.
        let gate = rig.gate(&slow)?;
        slow.record(&event)?;
        late.wait(&event)?;
        late.record(&passed)?;
        fast.record(&event)?;
        ask(&event)?;
        assert!((0..100).all(|_| passed.query().is_ok_and(|done| !done)), "the wait went to the later mark");
        drop(gate);
        ask(&passed)?;
        // Waits for a mark that is reached; a new mark, not reached, does not bind it.
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
fn a_new_record_makes_a_done_event_undone() {
    everywhere("a_new_record_makes_a_done_event_undone", Ending::Clean, |rig| {
        let (stream, event) = (rig.stream("a")?, rig.device.event(false)?);
        stream.record(&event)?;
        ask(&event)?;
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
fn a_stream_works_in_order() {
    everywhere("a_stream_works_in_order", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut buffer = stream.buffer::<u8>(BYTES)?;
        let results: Vec<Pinned> = (0..5).map(|_| rig.device.pinned(BYTES)).collect::<Result<_>>()?;
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
        let (a, b, event) = (rig.stream("a")?, rig.stream("b")?, rig.device.event(false)?);
        let mut buffer = a.buffer::<u8>(BYTES)?;
        let to = rig.device.pinned(BYTES)?;
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
fn streams_do_not_hold_each_other_up() {
    everywhere("streams_do_not_hold_each_other_up", Ending::Clean, |rig| {
        let (a, b) = (rig.stream("a")?, rig.stream("b")?);
        let (end_a, mut buffer) = (rig.device.event(false)?, b.buffer::<u8>(BYTES)?);
        let gate = rig.gate(&a)?;
        a.record(&end_a)?;
        rig.fill(&b, &mut buffer, 1)?;
        b.synchronize()?;
        assert!(!end_a.query()?, "b ended its work while a stood still");
        drop(gate);
        a.synchronize()
    });
}

#[test]
fn two_streams_of_the_host_run_at_once() {
    let device = Device::host();
    let (say, said) = mpsc::channel();
    let ((meet_a, met_a), (meet_b, met_b)) = (mpsc::channel(), mpsc::channel());
    let streams = [("a", meet_a, met_b), ("b", meet_b, met_a)].map(|(name, meet, met)| {
        let (stream, say) = (device.stream().expect("a stream"), say.clone());
        let body = move |_: &mut Memory<'_>| {
            meet.send(()).expect("the other has not run yet, or waits for this");
            say.send(met.recv_timeout(LIMIT / 2)).expect("the test waits for this");
        };
        stream.run(name, [], [], body).expect("run");
        stream
    });
    drop(say);
    assert_eq!(said.iter().collect::<Vec<_>>(), [Ok(()), Ok(())], "each met the other while it ran");
    drop(streams);
}
