//! Work of another library: where it goes, and what it is refused.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use feedline_core::ErrorKind;
use feedline_device::{Device, StreamId, Submission};

use crate::{assert_empty, device, two_batches};

#[test]
fn a_submission_names_the_stream_that_takes_the_work() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let own = StreamId::from(&stream);
        let ask = || stream.submit("ask", &[], &[], Ok);
        let plain = Submission { stream: own, recorded: false, aside: false };
        assert_eq!(ask().unwrap(), plain);

        let seen = Cell::new(None);
        let body = || {
            let main = ask()?;
            // SAFETY: neither writes anything.
            unsafe {
                stream.fork_join(|| ask().map(drop), || ask().map(|aside| seen.set(Some((main, aside)))))
            }?;
            assert_eq!(ask()?, main);
            Ok(())
        };
        drop(stream.record_graph(None, body).unwrap());
        let (main, aside) = seen.get().expect("the recording ran");
        assert!(main.recorded && !main.aside && main.stream != own, "{main:?}");
        assert!(aside.recorded && aside.aside && aside.stream != main.stream, "{aside:?}");
        assert_eq!(ask().unwrap(), plain);
    }
    assert_empty(&device, &tape);
}

#[test]
fn arguments_of_another_stream_are_refused_before_the_library_is_called() {
    let device = Device::host();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut foreign = other.buffer::<f32>(4).unwrap();
    let input = foreign.view().into();
    let read = stream.submit("product", &[input], &[], |_| -> feedline_core::Result<()> { panic!("called") });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Config);
    let output = foreign.view_mut().into();
    let write =
        stream.submit("product", &[], &[output], |_| -> feedline_core::Result<()> { panic!("called") });
    assert_eq!(write.unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn a_recording_refuses_a_library_the_batch_of_another_slot() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let [mine, other] = two_batches(&device, &stream);
        let body = || {
            stream.submit("product", &[mine.view::<u8>(0, 64)?.into()], &[], |_| Ok(()))?;
            stream.submit("product", &[other.view::<u8>(0, 64)?.into()], &[], |_| Ok(()))
        };
        let error = stream.record_graph(Some(&mine), body).unwrap_err();
        assert!(error.to_string().contains("not the one this recording is for"), "{error}");
        drop([mine, other]);
    }
    assert_empty(&device, &tape);
}

#[test]
fn a_graph_keeps_what_its_recording_asked_for_and_nothing_else_does() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let handle: Arc<dyn Any + Send + Sync> = Arc::new(7_u8);
        let keep = || stream.keep_with_graph(|| handle.clone());
        keep();
        assert_eq!(Arc::strong_count(&handle), 1, "no recording, nothing to keep it for");
        let body = || {
            keep();
            keep();
            Ok(())
        };
        let graph = stream.record_graph(None, body).unwrap();
        assert_eq!(Arc::strong_count(&handle), 2, "once, whatever it was asked for");
        drop(graph);
        assert_eq!(Arc::strong_count(&handle), 1);
    }
    assert_empty(&device, &tape);
}
