//! Work of another library: its target stream, and the arguments that are rejected.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use feedline_core::ErrorKind;
use feedline_device::{Buffer, Device, StreamId, Submission, submit};

use super::{assert_empty, device, two_batches};

#[test]
fn a_submission_names_the_stream_that_takes_the_work() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let own = StreamId::from(&stream);
        let ask = || submit(&stream, "ask", &[], &[], Ok);
        let plain = Submission { stream: own, recorded: false, side: false };
        assert_eq!(ask().unwrap(), plain);

        let seen = Cell::new(None);
        let body = || {
            let main = ask()?;
            // SAFETY: neither closure writes anything.
            unsafe {
                stream.fork_join(|| ask().map(drop), || ask().map(|side| seen.set(Some((main, side)))))
            }?;
            assert_eq!(ask()?, main);
            Ok(())
        };
        drop(feedline_device::record_graph(&stream, None, body).unwrap());
        let (main, side) = seen.get().expect("the recording ran");
        assert!(main.recorded && !main.side && main.stream != own, "{main:?}");
        assert!(side.recorded && side.side && side.stream != main.stream, "{side:?}");
        assert_eq!(ask().unwrap(), plain);
    }
    assert_empty(&device, &tape);
}

#[test]
fn arguments_of_another_stream_are_rejected_before_the_library_is_called() {
    let device = Device::new_host();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut foreign = Buffer::<f32>::new(&other, 4).unwrap();
    let input = foreign.view().into();
    let read =
        submit(&stream, "product", &[input], &[], |_| -> feedline_core::Result<()> { panic!("called") });
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Config);
    let output = foreign.view_mut().into();
    let write =
        submit(&stream, "product", &[], &[output], |_| -> feedline_core::Result<()> { panic!("called") });
    assert_eq!(write.unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn a_library_cannot_record_the_batch_of_another_slot() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let [mine, other] = two_batches(&device, &stream);
        let body = || {
            submit(&stream, "product", &[mine.view::<u8>(0, 64)?.into()], &[], |_| Ok(()))?;
            submit(&stream, "product", &[other.view::<u8>(0, 64)?.into()], &[], |_| Ok(()))
        };
        let error = feedline_device::record_graph(&stream, Some(&mine), body).unwrap_err();
        assert!(error.to_string().contains("other than the one being recorded"), "{error}");
        drop([mine, other]);
    }
    assert_empty(&device, &tape);
}

#[test]
fn a_graph_keeps_the_resources_of_its_recording() {
    let (device, tape) = device();
    {
        let stream = device.stream().unwrap();
        let handle: Arc<dyn Any + Send + Sync> = Arc::new(7_u8);
        let keep = || stream.keep_with_graph(|| handle.clone());
        keep();
        assert_eq!(Arc::strong_count(&handle), 1, "without a recording nothing is kept");
        let body = || {
            keep();
            keep();
            Ok(())
        };
        let graph = feedline_device::record_graph(&stream, None, body).unwrap();
        assert_eq!(Arc::strong_count(&handle), 2, "kept once, however often it was requested");
        drop(graph);
        assert_eq!(Arc::strong_count(&handle), 1);
    }
    assert_empty(&device, &tape);
}
