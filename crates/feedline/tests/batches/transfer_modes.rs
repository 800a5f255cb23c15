//! Transfer modes: the batches are the same in each, the loader reports which mode it uses and why, and no
//! mode leaves anything behind.

use std::ops::Range;

use crate::common::{LONG, alone, assert_empty, elements, one_at_a_time, wait_until};
use feedline::report::ChosenMode;
use feedline::{
    Batch, DType, Dataset, Device, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Ready, Result,
    Sampler, Spec, Stream, TransferMode, Workers, World,
};
use feedline_datasets::{Idx, Records};
use feedline_device::host::Host;
use feedline_device::{Backend, launch_host};
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_sim::interceptors::faults::{Fault, Mode};
use feedline_sim::interceptors::{Call, Count, Intercepted, Interceptor, Op};
use feedline_sim::{Sim, SimOptions};
use feedline_testkit::NullDevice;
use feedline_testkit::audit::audit_columns;
use feedline_testkit::fixtures::{self, Fine, Laid, Wide, counting};
use feedline_testkit::nth::every_fault;
use half::{bf16, f16};

const LEN: u64 = 103;

fn fine(row_bytes: usize) -> Fine {
    Fine::new(LEN, row_bytes).expect("a set")
}

fn records(row_bytes: usize, first: usize, gap: usize) -> Laid {
    Laid::records(&fine(row_bytes), first, gap).expect("a laid set")
}

fn columns(row_bytes: usize, first: usize) -> Laid {
    Laid::columns(&fine(row_bytes), first).expect("a laid set")
}

/// A batch: epoch, step, ids, number of valid rows, and the bytes of every field.
type Contents = (u64, u64, Vec<u64>, usize, Vec<Vec<u8>>);

/// Opens a batch and reads it.
fn contents(stream: &Stream, batch: Result<Batch>, spec: &Spec) -> Result<Contents> {
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
    of!(U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, I64: i64,
        F16: f16, BF16: bf16, F32: f32, F64: f64)
}

/// All batches of `epochs` on `device`, and whether the loader used zero copy.
fn batches_on(device: &Device, builder: LoaderBuilder, epochs: Range<u64>) -> Result<(bool, Vec<Contents>)> {
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

fn batches(builder: LoaderBuilder) -> (bool, Vec<Contents>) {
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
            assert_eq!(assert_same(&set, |b| b.batch_size(300).shuffle(7).depth(depth)), 3 * 7);
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
                assert_same(&set, |b| b.batch_size(7).last_batch(last_batch).shuffle(3));
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
            assert_same(&set, |b| b.batch_size(5).shuffle(9).world(world).skip(1, 2..4));
            assert_same(&set, |b| b.batch_size(5).world(world));
        }
    });
}

#[test]
fn a_run_resumes_in_the_other_mode() {
    alone(|| {
        let set = records(64, 0, 1);
        let builder = |transfer_mode| {
            Loader::builder(set.clone()).batch_size(8).shuffle(5).transfer_mode(transfer_mode)
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
            let error = refused(Loader::source_builder(source).batch_size(8), &device);
            assert!(error.message().contains("source"), "{error}");
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
                let builder = Loader::builder(columns(9, 0)).batch_size(8).shuffle(7);
                let loader = builder.workers(Workers::Count(workers)).build(device).expect("a loader");
                loader.transfer_mode().to_string()
            };
            [mode(2), mode(16)]
        };
        let staged = "staged: 16 workers keep up, and a gather would slow the kernels of a step";
        // A wrapper passes on what the device below it says.
        for wrap in [Device::with_backend as fn(_) -> _, Device::synchronous] {
            let of = |is_coherent| wrap(NullDevice::gpu(is_coherent));
            assert_eq!(modes(&of(false)), ["zero-copy", staged]);
            assert_eq!(modes(&of(true)), ["zero-copy", "zero-copy"]);
            assert_eq!(of(true).pci_address().as_deref(), Some("0000:1b:00.0"));
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
        let null = Device::with_backend(NullDevice::new());
        let error = refused(builder(), &null);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("no device cannot read the set's memory"), "{error}");
        assert_empty(&null);
        for kind in [ErrorKind::Device, ErrorKind::DeviceLost] {
            let device = Device::with_backend(Intercepted::with(Host::new(), Refuse(kind)));
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
            batches(Loader::builder(records()).batch_size(10).shuffle(3).transfer_mode(transfer_mode)).1
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
                batches(if shuffled { builder.shuffle(2) } else { builder }).1
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
            let device = Device::with_backend(driver);
            let builder = Loader::builder(set).batch_size(8).epochs(1).transfer_mode(TransferMode::ZeroCopy);
            batches_on(&device, if shuffled { builder.shuffle(1) } else { builder }, 0..1).expect("batches");
            let made = count.snapshot();
            assert_eq!((made.of(Op::Gather), made.of(Op::CopyToDevice)), (gathers, copies), "{made:?}");
            assert_eq!((made.of(Op::RegisterHost), made.of(Op::UnregisterHost)), (1, 1));
            assert_empty(&device);
        }
    });
}

#[test]
fn no_byte_is_wrong_under_chaos() {
    alone(|| {
        for set in [records(500, 3, 1), columns(500, 0)] {
            for (shuffled, seed) in [(true, 1), (false, 2), (true, 3)] {
                let builder = |transfer_mode| {
                    let builder =
                        Loader::builder(set.clone()).batch_size(8).depth(2).transfer_mode(transfer_mode);
                    if shuffled { builder.shuffle(seed) } else { builder }
                };
                let driver = Chaos::new(Host::new(), Options { seed, ..Options::default() }).unwrap();
                let chaos = driver.handle();
                let device = Device::with_backend(driver);
                let (zero_copy, got) =
                    batches_on(&device, builder(TransferMode::ZeroCopy), 0..3).expect("batches");
                assert!(
                    zero_copy && got == batches(builder(TransferMode::Staged)).1,
                    "shuffled: {shuffled}, seed {seed}"
                );
                assert!(chaos.delayed() > 0 && chaos.poisoned() as usize > 2 * got.len(), "{chaos:?}");
                assert_empty(&device);
            }
        }
    });
}

#[test]
fn nothing_races_on_the_simulator() {
    alone(|| {
        for seed in 0..20 {
            let (device, sim) = feedline_sim::device(seed).expect("a device");
            {
                // The simulator runs queued work on the thread that waits for it.
                let compute = device.stream().expect("a stream");
                let set = if seed % 2 == 0 { columns(40, 0) } else { records(40, 1, 1) };
                let builder = Loader::builder(set).batch_size(8).depth(1 + seed as usize % 3).epochs(2);
                let builder = if seed % 3 == 0 { builder } else { builder.shuffle(seed) };
                let mut loader =
                    builder.transfer_mode(TransferMode::ZeroCopy).build(&device).expect("a loader");
                for epoch in 0..2 {
                    for batch in loader.epoch(epoch).expect("an epoch") {
                        let batch = batch.expect("a batch").wait_on(&compute).expect("a view");
                        let bytes = batch.field::<u8>("bytes").expect("bytes");
                        launch_host(&compute, "step", [bytes.into()], [], |_| ()).expect("a step");
                    }
                }
                loader.stop(LONG).expect("a stop");
            }
            assert_empty(&device);
            sim.finish().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    });
}

/// Takes three batches in zero-copy mode and checks their ids on the device.
fn three_batches(device: &Device, depth: usize) -> Result<()> {
    let set = Laid::records(&Fine::new(12, 33)?, 1, 1).expect("a laid set");
    let builder = Loader::builder(set.clone())
        .batch_size(4)
        .depth(depth)
        .epochs(1)
        .shuffle(1)
        .transfer_mode(TransferMode::ZeroCopy);
    let compute = device.stream()?;
    let mut loader = builder.build(device)?;
    let mut ids = Vec::new();
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?;
        let (field, own) = (batch.field::<i64>("id")?, batch.ids().to_vec());
        launch_host(&compute, "check", [field.into()], [], move |memory| {
            assert!(memory.input::<i64>(0).iter().map(|&id| id as u64).eq(own));
        })?;
        ids.extend_from_slice(batch.ids());
    }
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..12), "a short epoch without an error");
    compute.synchronize()?;
    loader.stop(LONG)
}

#[test]
fn every_device_call_can_fail_in_zero_copy_mode() {
    let _one = one_at_a_time();
    for (fault, mode) in [
        (Fault::Error, Mode::Once),
        (Fault::Error, Mode::Forever),
        (Fault::Late, Mode::Once),
        (Fault::Late, Mode::Forever),
        (Fault::DeviceLost, Mode::Once),
    ] {
        for depth in [1, 2] {
            let host =
                every_fault(fault, mode, LONG, "fl-", Host::new, |device| three_batches(device, depth));
            let sim = || Sim::new(SimOptions::seed(7)).expect("a device").0;
            let sim = every_fault(fault, mode, LONG, "fl-", sim, |device| three_batches(device, depth));
            assert!(host.calls >= 60 && sim.calls >= 60, "{fault:?} {mode:?}: {host:?}, {sim:?}");
        }
    }
}

#[test]
fn an_early_end_leaves_nothing_behind() {
    alone(|| {
        for held in [false, true] {
            for ending in ["dropped", "stopped", "begun again"] {
                let device = Device::new_host();
                {
                    let compute = device.stream().expect("a stream");
                    let set = records(200, 0, 1);
                    let builder = Loader::builder(set.clone())
                        .batch_size(4)
                        .shuffle(1)
                        .depth(2)
                        .transfer_mode(TransferMode::ZeroCopy);
                    let mut loader = builder.build(&device).expect("a loader");
                    let mut batches = loader.epoch(0).expect("an epoch");
                    let first =
                        contents(&compute, batches.next().expect("a batch"), set.spec()).expect("a batch");
                    let mut kept = Some(batches.next().expect("a batch").expect("a batch"));
                    kept = kept.filter(|_| held);
                    match ending {
                        "dropped" => drop(loader),
                        "stopped" => loader.stop(LONG).expect("a stop"),
                        _ => {
                            let again = loader.epoch(0).expect("an epoch").next().expect("a batch");
                            assert_eq!(contents(&compute, again, set.spec()).expect("a batch"), first);
                        }
                    }
                    if let Some(batch) = kept {
                        // Held batches stay valid.
                        let batch = contents(&compute, Ok(batch), set.spec()).expect("a batch");
                        let ids = batch.4[0]
                            .chunks(8)
                            .map(|id| u64::from_ne_bytes(id.try_into().expect("eight bytes")));
                        assert!(ids.eq(batch.2.iter().copied()));
                    }
                }
                wait_until("the pipeline has ended", || device.stats().pinned_bytes.get() == 0);
                assert_empty(&device);
            }
        }
    });
}
