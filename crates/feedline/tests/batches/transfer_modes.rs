//! Transfer modes: the batches are the same in each, the loader reports which mode it uses and why, and no
//! mode leaves anything behind.

use std::ops::Range;

use crate::common::{LONG, alone, assert_empty, elements, wait_until};
use feedline::report::ChosenMode;
use feedline::{
    Batch, DType, Dataset, Device, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Ready, Result,
    Sampler, Spec, Stream, TransferMode, Workers, World,
};
use feedline_datasets::{Idx, Records};
use feedline_device::Backend;
use feedline_device::host::Host;
use feedline_sim::interceptors::{Call, Count, Intercepted, Interceptor, Op};
use feedline_testkit::NullDevice;
use feedline_testkit::audit::audit_columns;
use feedline_testkit::fixtures::{self, Fine, Laid, Wide, counting};
use half::{bf16, f16};

const LEN: u64 = 103;

fn fine(row_bytes: usize) -> Fine {
    Fine::new(LEN, row_bytes).expect("a set")
}

pub(crate) fn records(row_bytes: usize, first: usize, gap: usize) -> Laid {
    Laid::records(&fine(row_bytes), first, gap).expect("a laid set")
}

pub(crate) fn columns(row_bytes: usize, first: usize) -> Laid {
    Laid::columns(&fine(row_bytes), first).expect("a laid set")
}

/// A batch: epoch, step, ids, number of valid rows, and the bytes of every field.
pub(crate) type Contents = (u64, u64, Vec<u64>, usize, Vec<Vec<u8>>);

/// Opens a batch and reads it.
pub(crate) fn contents(stream: &Stream, batch: Result<Batch>, spec: &Spec) -> Result<Contents> {
    let batch = batch?;
    let valid = batch.valid_rows();
    let batch = batch.wait_on(stream)?;
    let fields = spec.fields().iter().enumerate();
    let bytes = fields.map(|(index, field)| bytes(stream, &batch, index, field.dtype())).collect();
    Ok((batch.epoch(), batch.step(), batch.ids().to_vec(), valid, bytes))
}

/// The bytes of a field, whatever its type.
fn bytes(stream: &Stream, batch: &Ready, index: usize, dtype: DType) -> Vec<u8> {
    macro_rules! of {
        ($($name:ident: $type:ty),*) => {
            match dtype {
                $(DType::$name => {
                    let values = elements::<$type>(stream, batch.field_at(index).expect("a field"));
                    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
                })*
            }
        };
    }
    of!(U8: u8, Bool: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, I64: i64,
        F16: f16, BF16: bf16, F32: f32, F64: f64)
}

/// All batches of `epochs` on `device`, and whether the loader used zero copy.
pub(crate) fn batches_on(
    device: &Device,
    builder: LoaderBuilder,
    epochs: Range<u64>,
) -> Result<(bool, Vec<Contents>)> {
    let compute = device.stream()?;
    let mut loader = builder.build(device)?;
    let spec = loader.layout().spec().clone();
    let mut all = Vec::new();
    for epoch in epochs {
        for batch in loader.epoch(epoch)? {
            all.push(contents(&compute, batch, &spec)?);
        }
    }
    assert_eq!(loader.bad_sample_report().samples().len(), 0);
    let zero_copy = *loader.transfer_mode() == ChosenMode::ZeroCopy;
    loader.stop(LONG)?;
    Ok((zero_copy, all))
}

pub(crate) fn batches(builder: LoaderBuilder) -> (bool, Vec<Contents>) {
    let device = Device::new_host();
    let all = batches_on(&device, builder, 0..3).expect("batches");
    assert_empty(&device);
    all
}

/// Asserts that both modes deliver the same batches. Returns their number.
#[track_caller]
fn assert_same<D: Dataset + Clone>(set: &D, with: impl Fn(LoaderBuilder) -> LoaderBuilder) -> usize {
    let by = |transfer_mode| batches(with(Loader::builder(set.clone())).transfer_mode(transfer_mode));
    let ((staged, want), (zero_copy, got)) = (by(TransferMode::Staged), by(TransferMode::ZeroCopy));
    assert_eq!((staged, zero_copy), (false, true), "whether zero copy was used");
    assert!(!want.is_empty() && got == want, "{} batches, {} when staged", got.len(), want.len());
    got.len()
}

#[test]
fn both_modes_deliver_the_same_batches_in_any_order() {
    alone(|| {
        for sampler in [Sampler::Sequential, Sampler::Shuffle, Sampler::block(4, 16).expect("an order")] {
            for set in [records(33, 0, 0), records(7, 5, 3), columns(16, 0), columns(100, 1)] {
                for depth in [1, 3] {
                    let steps =
                        assert_same(&set, |b| b.batch_size(8).sampler(sampler.clone()).seed(7).depth(depth));
                    assert_eq!(steps, 3 * 13, "the last batch is short");
                }
            }
        }
    });
}

#[test]
fn both_modes_deliver_the_same_batches_of_distant_columns() {
    alone(|| {
        let set = Laid::far(&Fine::new(2000, 24).expect("a set"), 600 << 20).expect("a laid set");
        for depth in [1, 3] {
            // Seven batches; the last has 200 rows, too few to be sorted.
            assert_eq!(assert_same(&set, |b| b.batch_size(300).shuffle().seed(7).depth(depth)), 3 * 7);
            assert_same(&set, |b| {
                b.batch_size(300).sampler(Sampler::block(4, 16).expect("an order")).depth(depth)
            });
        }
        assert_same(&set, |b| b.batch_size(300));
        let device = Device::new_host();
        let builder =
            Loader::builder(set.clone()).batch_size(300).depth(3).transfer_mode(TransferMode::ZeroCopy);
        let held = builder.build(&device).expect("a loader").memory_use();
        assert_eq!(held.pinned_bytes, 4 * 300 * (8 + 4) + set.block_bytes() as u64);
        wait_until("the pipeline has ended", || device.stats().pinned_bytes.get() == 0);
    });
}

#[test]
fn both_modes_deliver_fields_of_every_type_and_every_last_batch() {
    alone(|| {
        let wide = Wide::new(50).expect("a set");
        for set in [Laid::records(&wide, 3, 1), Laid::columns(&wide, 0)] {
            let set = set.expect("a laid set");
            for last_batch in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
                assert_same(&set, |b| b.batch_size(7).last_batch(last_batch).shuffle().seed(3));
                assert_same(&set, |b| b.batch_size(7).last_batch(last_batch));
            }
        }
    });
}

#[test]
fn both_modes_deliver_the_same_ranks_and_skips() {
    alone(|| {
        let set = records(20, 1, 2);
        for rank in 0..3 {
            let world = World::new(rank, 3).expect("a world");
            assert_same(&set, |b| b.batch_size(5).shuffle().seed(9).world(world).skip(1, 2..4));
            assert_same(&set, |b| b.batch_size(5).world(world));
        }
    });
}

#[test]
fn a_run_resumes_in_the_other_mode() {
    alone(|| {
        let set = records(64, 0, 1);
        let builder = |transfer_mode| {
            Loader::builder(set.clone()).batch_size(8).shuffle().seed(5).transfer_mode(transfer_mode)
        };
        let (_, want) = batches(builder(TransferMode::Staged));
        let modes = [
            (TransferMode::ZeroCopy, TransferMode::Staged),
            (TransferMode::Staged, TransferMode::ZeroCopy),
            (TransferMode::ZeroCopy, TransferMode::ZeroCopy),
        ];
        for (first, then) in modes {
            for stop in [1, 6, 12] {
                let device = Device::new_host();
                {
                    let compute = device.stream().expect("a stream");
                    let take = |epoch: feedline::Epoch<'_>, max| -> Vec<Contents> {
                        let all = epoch.take(max).map(|batch| contents(&compute, batch, set.spec()));
                        all.collect::<Result<_>>().expect("batches")
                    };
                    let mut loader = builder(first).build(&device).expect("a loader");
                    assert_eq!(take(loader.epoch(0).expect("an epoch"), stop), want[..stop]);
                    let cursor = loader.cursor();
                    drop(loader);
                    let mut loader = builder(then).build(&device).expect("a loader");
                    let mut rest = take(loader.resume(cursor).expect("the rest"), usize::MAX);
                    // Steps count from where the run resumed.
                    rest.iter_mut().for_each(|batch| batch.1 += stop as u64);
                    assert_eq!(rest, want[stop..13], "{first:?}, then {then:?}, after {stop}");
                    assert_eq!(take(loader.epoch(1).expect("the next"), usize::MAX), want[13..26]);
                }
                assert_empty(&device);
            }
        }
    });
}

/// The error that says why zero copy is not possible.
fn refused(builder: LoaderBuilder, device: &Device) -> Error {
    let error =
        builder.transfer_mode(TransferMode::ZeroCopy).build(device).expect_err("zero copy is not possible");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[test]
fn a_loader_reports_its_transfer_mode_and_why() {
    alone(|| {
        let device = Device::new_host();
        {
            let build = |set: Laid, transfer_mode| {
                Loader::builder(set)
                    .batch_size(8)
                    .depth(3)
                    .transfer_mode(transfer_mode)
                    .build(&device)
                    .expect("a loader")
            };
            let transfer_mode = |set, transfer_mode| build(set, transfer_mode).transfer_mode().to_string();
            assert_eq!(transfer_mode(columns(9, 0), TransferMode::ZeroCopy), "zero-copy");
            assert_eq!(transfer_mode(columns(9, 0), TransferMode::Staged), "staged");
            assert_eq!(transfer_mode(columns(9, 0), TransferMode::Auto), "staged: host is not a GPU");
            let zero_copy = build(columns(9, 0), TransferMode::ZeroCopy);
            assert_eq!(*zero_copy.transfer_mode(), ChosenMode::ZeroCopy);
            // Four slots of eight ids, and the data set.
            assert_eq!(zero_copy.memory_use().pinned_bytes, 4 * 8 * 8 + LEN * (8 + 9));
            assert_eq!(zero_copy.memory_use().pinned_bytes, device.stats().pinned_bytes.get());
            drop(zero_copy);

            let no_table = Loader::builder(fine(9)).batch_size(8);
            let error = refused(no_table, &device);
            assert_eq!(
                (error.kind(), error.message()),
                (
                    ErrorKind::Config,
                    "zero copy is not possible, field \"id\" has no column: ask for auto or staged"
                )
            );
            let (counted, _) = counting(columns(9, 0));
            assert!(refused(Loader::builder(counted).batch_size(8), &device).message().contains("no column"));
            let source = fixtures::streams::Generator::new([3, 10]).expect("a source");
            let loader = Loader::source_builder(source).batch_size(8).build(&device).expect("a loader");
            assert!(matches!(loader.transfer_mode(), ChosenMode::Staged { .. }));
        }
        assert_empty(&device);
    });
}

/// The GPU is simulated: no machine with a Grace CPU has run this.
#[test]
fn auto_gathers_over_a_coherent_link_whatever_the_order_and_the_workers() {
    alone(|| {
        let modes = |device: &Device| {
            let mode = |workers| {
                let builder = Loader::builder(columns(9, 0)).batch_size(8).shuffle().seed(7);
                let loader = builder.workers(Workers::Count(workers)).build(device).expect("a loader");
                loader.transfer_mode().to_string()
            };
            [mode(2), mode(16)]
        };
        let staged = "staged: 16 workers keep up, and a gather would slow the kernels of a step";
        // A wrapper passes on the answers of the device below it.
        for wrap in [feedline_device::with_backend as fn(_) -> _, feedline_device::Device::synchronous] {
            let of = |is_coherent| wrap(NullDevice::gpu(is_coherent));
            assert_eq!(modes(&of(false)), ["zero-copy", staged]);
            assert_eq!(modes(&of(true)), ["zero-copy", "zero-copy"]);
            assert_eq!(feedline_device::backend(&of(true)).pci_address().as_deref(), Some("0000:1b:00.0"));
        }
    });
}

/// Refuses to register memory.
struct Refuse(ErrorKind);

impl Interceptor for Refuse {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::RegisterHost { Err(Error::new(self.0, "planned refusal")) } else { make() }
    }
}

#[test]
fn memory_that_cannot_be_registered_is_an_error_that_leaves_nothing_behind() {
    alone(|| {
        let builder = || Loader::builder(columns(9, 0)).batch_size(8);
        let null = feedline_device::with_backend(NullDevice::new());
        let error = refused(builder(), &null);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("no device cannot read the set's memory"), "{error}");
        assert_empty(&null);
        for kind in [ErrorKind::Device, ErrorKind::DeviceLost] {
            let device = feedline_device::with_backend(Intercepted::with(Host::new(), Refuse(kind)));
            let error = refused(builder(), &device);
            assert_eq!((error.kind(), error.message()), (kind, "planned refusal"));
            assert_empty(&device);
        }
    });
}

#[test]
fn the_data_set_counts_against_the_budget() {
    alone(|| {
        let set = columns(9, 0);
        let need = 4 * 8 * 8 + set.block_bytes();
        let device = Device::new_host();
        let build = |bytes| {
            Loader::builder(set.clone())
                .batch_size(8)
                .pinned_budget(bytes)
                .transfer_mode(TransferMode::ZeroCopy)
                .build(&device)
        };
        drop(build(need).expect("it fits"));
        let error = build(need - 1).expect_err("it does not");
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(error.message().contains(&format!("{} bytes", set.block_bytes())), "{error}");
        assert_empty(&device);
    });
}

#[test]
fn both_modes_deliver_the_same_batches_of_files() {
    alone(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("records");
        std::fs::write(&path, (0..77 * 7).map(|at| (at * 31 % 251) as u8).collect::<Vec<_>>())
            .expect("a file");
        let spec =
            Spec::new().field("wide", DType::U16, [2]).and_then(|spec| spec.field("narrow", DType::U8, [3]));
        let records = || Records::open(&path, spec.clone().expect("a spec")).expect("records");
        (0..77).for_each(|id| audit_columns(&records(), id).unwrap());
        let by = |transfer_mode| {
            batches(Loader::builder(records()).batch_size(10).shuffle().seed(3).transfer_mode(transfer_mode))
                .1
        };
        assert!(by(TransferMode::ZeroCopy) == by(TransferMode::Staged));

        let (images, labels) = (dir.path().join("images"), dir.path().join("labels"));
        let pixels = (0..50 * 15).map(|at| (at * 7 % 256) as u8);
        std::fs::write(
            &images,
            [0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 3, 0, 0, 0, 5].into_iter().chain(pixels).collect::<Vec<_>>(),
        )
        .expect("a file");
        std::fs::write(
            &labels,
            [0, 0, 8, 1, 0, 0, 0, 50].into_iter().chain((0..50).map(|id| id % 10)).collect::<Vec<u8>>(),
        )
        .expect("a file");
        let idx = || Idx::open(&images, &labels).expect("a set");
        (0..50).for_each(|id| audit_columns(&idx(), id).unwrap());
        for shuffled in [false, true] {
            let by = |transfer_mode| {
                let builder = Loader::builder(idx()).batch_size(8).transfer_mode(transfer_mode);
                batches(if shuffled { builder.shuffle().seed(2) } else { builder }).1
            };
            assert!(by(TransferMode::ZeroCopy) == by(TransferMode::Staged));
        }
    });
}

#[test]
fn contiguous_rows_are_copied_and_others_gathered() {
    alone(|| {
        for (set, shuffled, gathers, copies) in [
            (columns(9, 0), false, 0, 2 * 13),
            (columns(9, 0), true, 13, 0),
            (records(9, 0, 0), false, 13, 0),
        ] {
            let driver = Count::new(Host::new());
            let count = driver.handle();
            let device = feedline_device::with_backend(driver);
            let builder = Loader::builder(set).batch_size(8).epochs(1).transfer_mode(TransferMode::ZeroCopy);
            batches_on(&device, if shuffled { builder.shuffle().seed(1) } else { builder }, 0..1)
                .expect("batches");
            let made = count.snapshot();
            assert_eq!((made.of(Op::Gather), made.of(Op::CopyToDevice)), (gathers, copies), "{made:?}");
            assert_eq!((made.of(Op::RegisterHost), made.of(Op::UnregisterHost)), (1, 1));
            assert_empty(&device);
        }
    });
}
