//! The description of a tensor, the release of its batch, and refused calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use feedline::device::BackendKind;
use feedline::{DType, Device, ErrorKind, InMemory, Loader, Pad, Stream};
use feedline_device::Buffer;
use feedline_dlpack::ffi::{
    CPU, DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor, READ_ONLY, VERSION,
};
use feedline_dlpack::{Consumer, Exported, Imported, Share, StreamHandle};
use feedline_testkit::fixtures::Wide;

fn shares(device: &Device, stream: &Stream, check: impl Fn(&Share)) {
    let loader = Loader::builder(Wide::new(40).unwrap()).batch_size(8).shuffle().seed(5).depth(2);
    let mut loader = loader.held_timeout(Duration::from_millis(300)).build(device).unwrap();
    for batch in loader.epoch(0).unwrap() {
        check(&Share::new(batch.unwrap().wait_on(stream).unwrap()));
    }
}

/// Takes a field back and compares it with the samples.
fn check_field<T: feedline::dataset::Element + Into<f64>>(share: &Share, name: &str) {
    let raw = share.tensor(name, Consumer::Cpu).unwrap().into_raw();
    // SAFETY: a tensor that nothing else has taken.
    let taken = unsafe { Imported::from_raw(raw) }.unwrap();
    let field = share.batch().spec().index_of(name).unwrap();
    assert_eq!(taken.dtype(), share.batch().spec().fields()[field].dtype());
    assert_eq!(taken.shape()[1..], *share.batch().spec().fields()[field].shape());
    let values = taken.to_vec::<T>().unwrap();
    let width = values.len() / share.batch().len();
    for (&id, row) in share.batch().ids().iter().zip(values.chunks(width)) {
        for (k, &value) in row.iter().enumerate() {
            assert_eq!(value.into(), f64::from(Wide::value(id, field, k)), "{name} of sample {id}");
        }
    }
}

#[test]
fn a_share_is_in_use_while_a_tensor_of_it_is_alive() {
    let device = Device::new_host();
    shares(&device, &device.stream().unwrap(), |share| {
        assert!(!share.is_in_use());
        let [one, other] = ["u8", "f32"].map(|name| share.tensor(name, Consumer::Cpu).unwrap());
        drop(one);
        assert!(share.is_in_use());
        drop(other);
        assert!(!share.is_in_use());
    });
}

#[test]
fn every_type_goes_out_and_comes_back() {
    let simulated = feedline_sim::device(14).unwrap().0;
    for device in [Device::new_host(), simulated] {
        let stream = device.stream().unwrap();
        shares(&device, &stream, |share| {
            assert_eq!(share.device(), DLDevice { device_type: CPU, device_id: 0 });
            check_field::<u8>(share, "u8");
            check_field::<i8>(share, "i8");
            check_field::<u16>(share, "u16");
            check_field::<i16>(share, "i16");
            check_field::<u32>(share, "u32");
            check_field::<i32>(share, "i32");
            check_field::<half::f16>(share, "f16");
            check_field::<half::bf16>(share, "bf16");
            check_field::<f32>(share, "f32");
            check_field::<f64>(share, "f64");
            check_field::<u8>(share, "bool");
            let numbers = share.tensor("i64", Consumer::Cpu).unwrap();
            let managed = numbers.get();
            assert_eq!((managed.version, managed.flags), (VERSION, READ_ONLY));
            assert_eq!(managed.dl_tensor.dtype, DLDataType { code: 0, bits: 64, lanes: 1 });
        });
    }
}

#[test]
fn a_tensor_keeps_its_batch_and_its_drop_releases_it() {
    let device = Device::new_host();
    let stream = device.stream().unwrap();
    let loader = Loader::builder(Wide::new(80).unwrap()).batch_size(8).depth(2);
    let mut loader = loader.held_timeout(Duration::from_millis(300)).build(&device).unwrap();
    let mut kept = Vec::new();
    let mut batches = loader.epoch(0).unwrap();
    let error = loop {
        match batches.next().unwrap() {
            Ok(batch) => {
                let share = Share::new(batch.wait_on(&stream).unwrap());
                // Two tensors of one batch; the batch itself is dropped first.
                kept.push([share.tensor("u8", Consumer::Cpu), share.tensor("f32", Consumer::Cpu)]);
            }
            Err(error) => break error,
        }
    };
    assert_eq!((kept.len(), error.kind()), (2, ErrorKind::SlotsHeld), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    kept.clear();
    assert!(batches.next().is_none(), "an error ends the epoch");
    assert_eq!(loader.epoch(1).unwrap().map(|batch| drop(batch.unwrap())).count(), 10);
}

/// The shares of texts "", "a", "bb", "ccc", ... in batches of four.
fn texts(pad: Option<Pad>, check: impl Fn(&Share)) {
    let rows = (0..12_u8).map(|id| vec![b'a' + id; usize::from(id)]);
    let texts = InMemory::new().ragged("text", [], 20, rows).unwrap();
    let texts = texts.field("id", [], (0..12_u8).collect::<Vec<_>>()).unwrap();
    let builder = Loader::builder(texts).batch_size(4);
    let builder = if let Some(pad) = pad { builder.pad("text", pad) } else { builder };
    let device = Device::new_host();
    let (stream, mut loader) = (device.stream().unwrap(), builder.build(&device).unwrap());
    for batch in loader.epoch(0).unwrap() {
        check(&Share::new(batch.unwrap().wait_on(&stream).unwrap()));
    }
}

fn taken(tensor: feedline::Result<Exported>) -> Imported {
    // SAFETY: a tensor that nothing else has taken.
    unsafe { Imported::from_raw(tensor.unwrap().into_raw()) }.unwrap()
}

#[test]
fn a_ragged_field_goes_out_as_values_and_offsets() {
    texts(None, |share| {
        let ids = share.batch().ids();
        let lengths: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let (values, offsets) = (share.tensor("text", Consumer::Cpu), share.offsets("text", Consumer::Cpu));
        let (values, offsets) = (taken(values), taken(offsets));
        assert_eq!((offsets.dtype(), offsets.shape()), (DType::I32, &[5][..]));
        let offsets = offsets.to_vec::<i32>().unwrap();
        assert_eq!(offsets[0], 0);
        assert!(offsets.windows(2).map(|ends| ends[1] - ends[0]).eq(lengths));
        let wanted: Vec<u8> = ids.iter().flat_map(|&id| vec![b'a' + id as u8; id as usize]).collect();
        assert_eq!((values.shape(), values.to_vec::<u8>().unwrap()), (&[wanted.len()][..], wanted));
        for refused in [share.lengths("text", Consumer::Cpu), share.offsets("id", Consumer::Cpu)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
        }
    });
}

#[test]
fn a_padded_field_goes_out_as_rows_and_lengths() {
    texts(Some(Pad::multiple_of(4).fill_value(b'.')), |share| {
        let width = share.batch().ids().iter().max().unwrap().next_multiple_of(4) as usize;
        let (values, lengths) = (share.tensor("text", Consumer::Cpu), share.lengths("text", Consumer::Cpu));
        let (values, lengths) = (taken(values), taken(lengths).to_vec::<i32>().unwrap());
        assert_eq!(values.shape(), [4, width]);
        let values = values.to_vec::<u8>().unwrap();
        for ((&id, row), length) in share.batch().ids().iter().zip(values.chunks(width)).zip(lengths) {
            assert_eq!(length, id as i32);
            let letter = |at| if at < id as usize { b'a' + id as u8 } else { b'.' };
            assert!(row.iter().enumerate().all(|(at, &byte)| byte == letter(at)), "{row:?}");
        }
        assert_eq!(share.offsets("text", Consumer::Cpu).unwrap_err().kind(), ErrorKind::Config);
    });
}

#[test]
fn an_unversioned_tensor_is_the_same_and_keeps_its_batch() {
    let device = Device::new_host();
    let stream = device.stream().unwrap();
    let loader = Loader::builder(Wide::new(80).unwrap()).batch_size(8).depth(2);
    let mut loader = loader.held_timeout(Duration::from_millis(300)).build(&device).unwrap();
    let mut batches = loader.epoch(0).unwrap();
    let mut kept = Vec::new();
    for batch in batches.by_ref().take(2) {
        let share = Share::new(batch.unwrap().wait_on(&stream).unwrap());
        let versioned = share.tensor("f32", Consumer::Cpu).unwrap();
        let raw = share.tensor("f32", Consumer::Cpu).unwrap().into_raw_unversioned();
        // SAFETY: alive until its deleter is called below.
        let (tensor, wanted) = (unsafe { &(*raw).dl_tensor }, &versioned.get().dl_tensor);
        assert_eq!((tensor.data, tensor.ndim, tensor.dtype), (wanted.data, wanted.ndim, wanted.dtype));
        // SAFETY: the shape lives as long as the tensor.
        assert_eq!(unsafe { *tensor.shape }, 8);
        kept.push(raw);
    }
    let held = batches.next().unwrap().unwrap_err();
    assert_eq!(held.kind(), ErrorKind::SlotsHeld);
    for raw in kept {
        // SAFETY: not deleted before.
        let delete = unsafe { (*raw).deleter }.unwrap();
        // SAFETY: the only call.
        unsafe { delete(raw) };
    }
    assert_eq!(loader.epoch(1).unwrap().map(|batch| drop(batch.unwrap())).count(), 10);
}

#[test]
fn a_consumer_elsewhere_is_refused_in_one_line() {
    let device = Device::new_host();
    let stream = device.stream().unwrap();
    assert_eq!(device.kind(), BackendKind::Host);
    // SAFETY: never used as a stream, since the batch is on the host.
    let handle = unsafe { StreamHandle::new(77) };
    shares(&device, &stream, |share| {
        for consumer in [Consumer::DefaultStream, Consumer::CudaStream(handle), Consumer::BatchStream] {
            let error = share.tensor("u8", consumer).unwrap_err();
            assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1), "{error}");
        }
        assert!(share.tensor("nothing", Consumer::Cpu).is_err());
    });
}

#[test]
fn pythons_stream_argument_follows_the_protocol() {
    let read = |stream, is_cuda| {
        // SAFETY: the result is compared, not used.
        unsafe { Consumer::from_python(stream, is_cuda) }.map_err(|error| error.to_string())
    };
    assert_eq!(read(None, false), Ok(Consumer::Cpu));
    assert_eq!(read(None, true), Ok(Consumer::DefaultStream));
    assert_eq!(read(Some(1), true), Ok(Consumer::DefaultStream));
    assert_eq!(read(Some(-1), true), Ok(Consumer::BatchStream));
    let Ok(Consumer::CudaStream(handle)) = read(Some(0x7F00), true) else { panic!("a handle") };
    assert_eq!(handle.get(), 0x7F00);
    for (stream, is_cuda, part) in [
        (Some(7), false, "stream=None"),
        (Some(0), true, "stream=0"),
        (Some(2), true, "per-thread"),
        (Some(-9), true, "negative"),
    ] {
        let error = read(stream, is_cuda).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

/// A tensor of a library that counts the calls of its deleter.
struct Foreign {
    managed: DLManagedTensorVersioned,
    values: Vec<f32>,
    numbers: [Vec<i64>; 2],
    deleted: Arc<AtomicUsize>,
}

fn foreign(change: impl FnOnce(&mut Foreign)) -> (*mut DLManagedTensorVersioned, Arc<AtomicUsize>) {
    unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
        // SAFETY: valid until this deletion.
        let context = unsafe { (*tensor).manager_ctx };
        // SAFETY: `manager_ctx` is the box made below, and this is its one deletion.
        let foreign = unsafe { Box::from_raw(context.cast::<Foreign>()) };
        foreign.deleted.fetch_add(1, Ordering::SeqCst);
    }
    let deleted = Arc::new(AtomicUsize::new(0));
    let dl_tensor = DLTensor {
        data: std::ptr::null_mut(),
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: 2,
        dtype: DType::F32.into(),
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 4,
    };
    let managed = DLManagedTensorVersioned {
        version: VERSION,
        manager_ctx: std::ptr::null_mut(),
        deleter: Some(delete),
        flags: 0,
        dl_tensor,
    };
    let values = (0..13).map(|number| number as f32).collect();
    // Two columns of four rows: 1 4 7 10 and 2 5 8 11, transposed.
    let numbers = [vec![2, 4], vec![1, 3]];
    let mut foreign = Box::new(Foreign { managed, values, numbers, deleted: deleted.clone() });
    foreign.managed.dl_tensor.data = foreign.values.as_mut_ptr().cast();
    foreign.managed.dl_tensor.shape = foreign.numbers[0].as_mut_ptr();
    foreign.managed.dl_tensor.strides = foreign.numbers[1].as_mut_ptr();
    change(&mut foreign);
    let foreign = Box::into_raw(foreign);
    // SAFETY: valid, and used by nothing else yet.
    let managed = unsafe { &raw mut (*foreign).managed };
    // SAFETY: as above. Through the pointer itself, so that it stays valid for the deleter.
    unsafe { (*managed).manager_ctx = foreign.cast() };
    (managed, deleted)
}

#[test]
fn a_foreign_tensor_is_read_by_its_strides_and_deleted_once() {
    let (raw, deleted) = foreign(|_| {});
    // SAFETY: valid, and taken once.
    let taken = unsafe { Imported::from_raw(raw) }.unwrap();
    let expected = [1.0, 4.0, 7.0, 10.0, 2.0, 5.0, 8.0, 11.0];
    assert_eq!((taken.shape(), taken.to_vec::<f32>().unwrap()), (&[2, 4][..], expected.to_vec()));
    let stream = Device::new_host().stream().unwrap();
    let mut buffer = Buffer::<f32>::new(&stream, 8).unwrap();
    taken.copy_to(&mut buffer).unwrap();
    assert_eq!(buffer.read().unwrap(), expected);
    assert!(
        taken.copy_to(&mut Buffer::<f32>::new(&stream, 7).unwrap()).unwrap_err().message().contains("of 7")
    );
    let wrong = taken.to_vec::<i32>().unwrap_err();
    assert_eq!((wrong.kind(), wrong.message()), (ErrorKind::Config, "the tensor is f32, not i32"));
    assert_eq!(deleted.load(Ordering::SeqCst), 0);
    drop(taken);
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
}

#[test]
#[cfg_attr(miri, ignore = "under miri an allocation that fails ends the program")]
fn a_tensor_with_more_elements_than_memory_is_an_error() {
    let shaped = |shape: Vec<i64>, strides: Option<Vec<i64>>| {
        let (raw, _) = foreign(|foreign| {
            foreign.managed.dl_tensor.ndim = shape.len() as i32;
            foreign.numbers = [shape, strides.clone().unwrap_or_default()];
            foreign.managed.dl_tensor.shape = foreign.numbers[0].as_mut_ptr();
            foreign.managed.dl_tensor.strides = match strides {
                Some(_) => foreign.numbers[1].as_mut_ptr(),
                None => std::ptr::null_mut(),
            };
        });
        // SAFETY: valid, and taken once.
        unsafe { Imported::from_raw(raw) }.unwrap()
    };
    // One number, broadcast.
    let error = shaped(vec![1 << 60], Some(vec![0])).to_vec::<f32>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.message().contains("no memory for the 1152921504606846976 elements"), "{error}");
    // No elements, but strides that exceed `i64`.
    assert!(shaped(vec![0, 1 << 62, 1 << 62], None).to_vec::<f32>().unwrap().is_empty());
}

type Change = fn(&mut Foreign);

#[test]
fn what_cannot_be_read_is_refused_and_given_back() {
    let changes: [(Change, usize, &str); 6] = [
        (|foreign| foreign.managed.version = DLPackVersion { major: 2, minor: 0 }, 0, "DLPack 2.0"),
        (|foreign| foreign.managed.dl_tensor.dtype.lanes = 4, 1, "no type"),
        (|foreign| foreign.managed.dl_tensor.ndim = -1, 1, "-1 dimensions"),
        (|foreign| foreign.numbers[0][1] = -4, 1, "the shape [2, -4]"),
        (|foreign| foreign.numbers[0] = vec![i64::MAX, i64::MAX], 1, "the shape"),
        (|foreign| foreign.managed.dl_tensor.shape = std::ptr::null_mut(), 1, "no shape"),
    ];
    for (change, deletions, part) in changes {
        let (raw, deleted) = foreign(|foreign| {
            change(foreign);
            if !foreign.managed.dl_tensor.shape.is_null() {
                foreign.managed.dl_tensor.shape = foreign.numbers[0].as_mut_ptr();
            }
        });
        // SAFETY: taken once; what is invalid is refused before it is used.
        let error = unsafe { Imported::from_raw(raw) }.unwrap_err();
        assert!(error.message().contains(part), "no {part:?} in: {error}");
        assert_eq!(deleted.load(Ordering::SeqCst), deletions, "{error}");
    }
    // SAFETY: null is refused.
    assert!(unsafe { Imported::from_raw(std::ptr::null_mut()) }.unwrap_err().message().contains("null"));
    let (elsewhere, _) = foreign(|foreign| foreign.managed.dl_tensor.device.device_type = 8);
    // SAFETY: valid, and taken once.
    let elsewhere = unsafe { Imported::from_raw(elsewhere) }.unwrap();
    assert!(elsewhere.to_vec::<f32>().is_err());
    let stream = Device::new_host().stream().unwrap();
    let error = elsewhere.copy_to(&mut Buffer::<f32>::new(&stream, 8).unwrap()).unwrap_err();
    assert!(error.message().contains("neither the host nor a GPU"), "{error}");
}
