//! Mapped batches arrive whole and in order, in every mode, on any number of lanes.

use std::sync::{Arc, Condvar, Mutex};

use feedline::batch::{DeviceBatch, PinnedBatch};
use feedline::{
    BadSamples, Context, DType, Dataset, Device, ErrorKind, InMemory, LastBatch, Loader, LoaderBuilder, Pad,
    ReadError, Row, Spec, Stream, TransferMode, TryNext, Workers, bad_samples::Budget,
};
use feedline_device::{Buffer, launch_host};
use feedline_testkit::fixtures::{Laid, failing};

use crate::common::{LONG, alone, assert_empty};
use crate::inverted::{Way, check, each_way, each_way_in_parts, fine};

const LEN: u64 = 50;
const BATCH: usize = 8;

/// The ids and the random number of each batch of two epochs.
fn run(builder: LoaderBuilder) -> Vec<(Vec<u64>, i64)> {
    let (device, fine) = (Device::new_host(), fine(LEN));
    let compute = device.stream().unwrap();
    let mut loader = builder.epochs(2).build(&device).unwrap();
    let held = loader.memory_use();
    assert_eq!(device.stats().device_bytes.get(), held.device_bytes);
    let mut batches = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            batches.push((batch.ids().to_vec(), check(&fine, &batch)));
        }
    }
    loader.stop(LONG).unwrap();
    drop((loader, compute));
    assert_empty(&device);
    batches
}

fn builder() -> LoaderBuilder {
    Loader::builder(fine(LEN)).batch_size(BATCH).shuffle().seed(3)
}

#[test]
fn batches_are_whole_and_in_order_with_the_same_numbers_on_any_number_of_lanes() {
    each_way_in_parts(|way| {
        let wanted = run(way.inverted(builder(), 1));
        assert_eq!(wanted.len(), 14);
        let mut draws: Vec<i64> = wanted.iter().map(|(_, draw)| *draw).collect();
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 14, "each batch has numbers of its own");
        for (lanes, depth, workers) in [(1, 1, 1), (2, 1, 4), (2, 3, 2), (5, 2, 3), (16, 1, 1), (3, 8, 2)] {
            let builder = builder().depth(depth).workers(Workers::Count(workers));
            assert_eq!(
                run(way.inverted(builder, lanes)),
                wanted,
                "{lanes} lanes, depth {depth}, {workers} workers"
            );
        }
    });
}

#[test]
fn a_set_that_the_device_gathers_is_mapped_too() {
    alone(|| {
        let wanted = run(Way::Map.inverted(builder(), 1));
        for mode in [TransferMode::ZeroCopy, TransferMode::Resident, TransferMode::Staged] {
            // A set in memory has the same bytes in every epoch, so only the first one is compared.
            let set = Laid::columns(&fine(LEN), 0).unwrap();
            let builder =
                Loader::builder(set).batch_size(BATCH).shuffle().seed(3).transfer_mode(mode).epochs(1);
            let (device, fine) = (Device::new_host(), fine(LEN));
            let compute = device.stream().unwrap();
            let mut loader = Way::Map.inverted(builder, 2).build(&device).unwrap();
            let batches = loader.epoch(0).unwrap().map(|batch| {
                let batch = batch.unwrap().wait_on(&compute).unwrap();
                (batch.ids().to_vec(), check(&fine, &batch))
            });
            assert_eq!(batches.collect::<Vec<_>>(), wanted[..7], "{mode:?}");
        }
        // A lane that reads host slots needs the rows there.
        for mode in [TransferMode::ZeroCopy, TransferMode::Resident] {
            let set = Laid::columns(&fine(LEN), 0).unwrap();
            let builder = Loader::builder(set).batch_size(BATCH).transfer_mode(mode);
            let error = Way::Produce.inverted(builder, 2).build(&Device::new_host()).expect_err("refused");
            assert!(error.message().contains("produce reads batches in host memory"), "{error}");
        }
        let set = Laid::columns(&fine(LEN), 0).unwrap();
        let loader = Way::Produce.inverted(Loader::builder(set), 2).build(&Device::new_host()).unwrap();
        assert!(loader.transfer_mode().to_string().starts_with("staged"));
    });
}

/// The first batch of each pair waits on its lane until the second one is mapped by another lane.
#[test]
fn lanes_run_beside_each_other_and_an_overtaken_batch_is_still_delivered_first() {
    each_way(|way| {
        let (pairs, seconds) = (LEN / (2 * BATCH as u64), Arc::new((Mutex::new(0), Condvar::new())));
        let meet = seconds.clone();
        let builder =
            Loader::builder(fine(LEN)).batch_size(BATCH).depth(3).last_batch(LastBatch::Drop).epochs(1);
        let builder = way.before_invert(builder, 2, move |batch| {
            let (pair, is_second) = (batch.step() / 2, batch.step() % 2 == 1);
            let mut done = meet.0.lock().unwrap();
            if is_second {
                *done = pair + 1;
                meet.1.notify_all();
            } else {
                drop(meet.1.wait_while(done, |done| *done <= pair).unwrap());
            }
            Ok(())
        });
        let (device, fine) = (Device::new_host(), fine(LEN));
        let compute = device.stream().unwrap();
        let mut loader = builder.build(&device).unwrap();
        for (step, batch) in (0..).zip(loader.epoch(0).unwrap()) {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            assert_eq!((batch.step(), batch.ids()[0]), (step, step * BATCH as u64));
            check(&fine, &batch);
        }
        assert_eq!(*seconds.0.lock().unwrap(), pairs);
    });
}

/// If a later batch took the only slot first, the consumer would wait for ever for an earlier batch.
#[test]
fn batches_get_their_slots_in_the_order_of_their_delivery() {
    each_way(|way| {
        let builder = Loader::builder(fine(20 * LEN)).batch_size(1).depth(1).epochs(1);
        let (device, fine) = (Device::new_host(), fine(20 * LEN));
        let compute = device.stream().unwrap();
        let mut loader = way.inverted(builder, 8).build(&device).unwrap();
        for (step, batch) in (0..).zip(loader.epoch(0).unwrap()) {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            assert_eq!(batch.step(), step);
            check(&fine, &batch);
        }
    });
}

#[test]
fn ragged_and_padded_fields_are_read_by_a_map_that_has_scratch_memory() {
    alone(|| {
        let texts = ["hello", "", "you", "there", "!"];
        let builder = || {
            let set = InMemory::new().ragged("text", [], 9, texts).unwrap();
            let set = set.ragged("again", [], 9, texts).unwrap();
            Loader::builder(set).batch_size(2).pad("again", Pad::multiple_of(4))
        };
        let spec = Spec::new().field("bytes", DType::U32, []).unwrap();
        let spec = spec.field("again", DType::U32, []).unwrap();
        let mapped = builder().device_map(spec.clone(), |stream: &Stream| {
            let (stream, mut sums) = (stream.clone(), Buffer::<u32>::new(stream, 2)?);
            Ok(move |batch: &mut DeviceBatch<'_>| {
                assert_eq!(batch.spec().fields().len(), 2);
                let text = batch.ragged::<u8>("text")?;
                let scratch = sums.slice_mut(0..batch.len())?;
                launch_host(&stream, "count", [text.offsets.into()], [scratch.into()], |memory| {
                    let (offsets, counts) = (memory.input::<u32>(0), memory.output::<u32>(0));
                    counts.iter_mut().zip(offsets.windows(2)).for_each(|(to, two)| *to = two[1] - two[0]);
                })?;
                batch.output::<u32>("bytes")?.copy_from(sums.slice(0..batch.len())?)?;
                let lengths = batch.padded::<u8>("again")?.lengths;
                batch.output::<u32>("again")?.copy_from(lengths)
            })
        });
        let produced = builder().produce(spec, |stream: &Stream| {
            let stream = stream.clone();
            Ok(move |batch: &mut PinnedBatch<'_>| {
                let ((_, offsets), (values, lengths)) =
                    (batch.ragged::<u8>("text")?, batch.padded::<u8>("again")?);
                assert!(values.len().is_multiple_of(batch.len()) && batch.ragged::<u8>("again").is_err());
                let counts: Vec<u32> = offsets.windows(2).map(|two| two[1] - two[0]).collect();
                let lengths = lengths.to_vec();
                let outputs = [batch.output::<u32>("bytes")?.into(), batch.output::<u32>("again")?.into()];
                launch_host(&stream, "count", [], outputs, move |memory| {
                    memory.output::<u32>(0).copy_from_slice(&counts);
                    memory.output::<u32>(1).copy_from_slice(&lengths);
                })
            })
        });
        for builder in [mapped, produced] {
            let device = Device::new_host();
            let compute = device.stream().unwrap();
            let mut loader = builder.build(&device).unwrap();
            let mut counts = Vec::new();
            for batch in loader.epoch(0).unwrap() {
                let batch = batch.unwrap().wait_on(&compute).unwrap();
                let bytes = batch.to_vec::<u32>("bytes").unwrap();
                assert_eq!(batch.to_vec::<u32>("again").unwrap(), bytes);
                counts.extend(bytes);
            }
            assert!(texts.iter().map(|text| text.len() as u32).eq(counts));
        }
    });
}

/// The output has some of the fields, in its own order, and in the forms that the builder states.
#[test]
fn ragged_fields_are_passed_on_by_a_lane_that_reads_host_slots() {
    alone(|| {
        let texts = ["hello", "", "you", "there", "!"];
        let lengths = [&[3_u32, 4][..], &[], &[5], &[1, 1, 1], &[9]];
        let set = || {
            let spec = Spec::new().ragged("left out", DType::U8, [], 9).unwrap();
            let spec = spec.cumulative("sums", 4).unwrap().field("id", DType::I64, []).unwrap();
            let spec = spec.ragged("text", DType::U8, [], 9).unwrap();
            let set = InMemory::new().ragged("left out", [], 9, texts.map(|text| &text[..text.len() / 2]));
            let set = set.unwrap().ragged("sums", [], 4, lengths).unwrap();
            let set = set.field("id", [], [0_i64, 1, 2, 3, 4]).unwrap().ragged("text", [], 9, texts).unwrap();
            Formed(set, spec)
        };
        let spec = Spec::new().ragged("text", DType::U8, [], 9).unwrap().field("id", DType::I64, []).unwrap();
        let spec = spec.ragged("sums", DType::U32, [], 4).unwrap();
        let produced = |pad: Option<Pad>| {
            let builder = Loader::builder(set()).batch_size(2).shuffle().seed(5);
            let builder = pad.into_iter().fold(builder, |builder, pad| builder.pad("text", pad));
            builder.device_lanes(2).produce(spec.clone(), |_: &Stream| {
                Ok(|batch: &mut PinnedBatch<'_>| {
                    ["id", "sums", "text"].into_iter().try_for_each(|name| batch.copy(name))
                })
            })
        };
        for pad in [None, Some(Pad::multiple_of(4).fill_value(b'.'))] {
            let device = Device::new_host();
            let compute = device.stream().unwrap();
            let mut loader = produced(pad).build(&device).unwrap();
            let mut rows = 0;
            for batch in loader.epoch(0).unwrap() {
                let batch = batch.unwrap().wait_on(&compute).unwrap();
                let ids = batch.to_vec::<i64>("id").unwrap();
                let wanted: Vec<_> = ids.iter().map(|&id| texts[id as usize]).collect();
                let longest = wanted.iter().map(|text| text.len()).max().unwrap_or(0);
                assert_eq!(batch.longest("text").unwrap(), longest);
                if pad.is_some() {
                    let text = batch.padded::<u8>("text").unwrap();
                    let lengths = text.lengths.to_vec().unwrap();
                    assert!(wanted.iter().map(|text| text.len() as u32).eq(lengths));
                    let width = longest.next_multiple_of(4).max(4);
                    let wanted: String = wanted.iter().map(|text| format!("{text:.<width$}")).collect();
                    assert_eq!((text.width, text.values.to_vec().unwrap()), (width, wanted.into_bytes()));
                } else {
                    let text = batch.ragged::<u8>("text").unwrap();
                    assert_eq!(text.values.to_vec().unwrap(), wanted.concat().into_bytes());
                    let mut ends = vec![0];
                    ends.extend(wanted.iter().scan(0, |end, text| {
                        *end += text.len() as u32;
                        Some(*end)
                    }));
                    assert_eq!(text.offsets.to_vec().unwrap(), ends);
                }
                let added: Vec<u32> = ids.iter().flat_map(|&id| lengths[id as usize]).copied().collect();
                let sums = batch.ragged::<u32>("sums").unwrap().values.to_vec().unwrap();
                assert_eq!(sums.len(), added.len() + 1);
                assert!(sums.windows(2).map(|two| two[1] - two[0]).eq(added));
                rows += ids.len();
            }
            assert_eq!(rows, texts.len());
        }
        // Only a field of the batch can be copied.
        for (name, dtype) in [("other", DType::U8), ("text", DType::U16), ("id", DType::I64)] {
            let spec = Spec::new().ragged(name, dtype, [], 9).unwrap();
            let builder = Loader::builder(set()).batch_size(2);
            let builder = builder.produce(spec, |_: &Stream| Ok(|_: &mut PinnedBatch<'_>| Ok(())));
            let error = builder.build(&Device::new_host()).expect_err("an error").to_string();
            assert!(error.contains(&format!("field \"{name}\" is ragged, so it is a copy")), "{error}");
        }
    });
}

/// A set whose fields have the forms of a spec.
struct Formed<D>(D, Spec);

impl<D: Dataset> Dataset for Formed<D> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn spec(&self) -> &Spec {
        &self.1
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.0.read(id, row, context)
    }
}

#[test]
fn loaders_of_the_host_and_of_several_devices_map_their_batches() {
    each_way(|way| {
        let mut loader = way.inverted(builder(), 2).build_host().unwrap();
        let plain: Vec<_> = run(way.inverted(builder(), 1)).into_iter().take(7).map(|(ids, _)| ids).collect();
        let mut taken = Vec::new();
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            assert!(batch.field::<i64>("id").unwrap().iter().map(|&id| id as u64).eq(batch.ids().to_vec()));
            taken.push(batch.ids().to_vec());
        }
        assert_eq!(taken, plain);
        let devices = [Device::new_host(), Device::new_host()];
        let fine = fine(LEN);
        let mut loaders = way.inverted(builder().batch_size(BATCH / 2), 2).build_each(&devices).unwrap();
        let streams = [devices[0].stream().unwrap(), devices[1].stream().unwrap()];
        let mut ids = vec![Vec::new(); plain.len()];
        for (loader, stream) in loaders.iter_mut().zip(&streams) {
            for (step, batch) in loader.epoch(0).unwrap().enumerate() {
                let batch = batch.unwrap().wait_on(stream).unwrap();
                check(&fine, &batch);
                ids[step].extend_from_slice(batch.ids());
            }
        }
        assert_eq!(ids, plain);
    });
}

#[test]
fn substitutes_of_bad_samples_travel_with_the_mapped_batch() {
    each_way(|way| {
        let set = failing(fine(LEN), [3, 20]);
        let builder = Loader::builder(set)
            .batch_size(BATCH)
            .bad_samples(BadSamples::Substitute { budget: Budget::Count(9) });
        let (device, fine) = (Device::new_host(), fine(LEN));
        let compute = device.stream().unwrap();
        let mut loader = way.inverted(builder, 2).build(&device).unwrap();
        let mut substituted = 0;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            substituted += batch.substituted().len();
            check(&fine, &batch);
        }
        assert_eq!((substituted, loader.bad_sample_report().samples().len()), (2, 2));
    });
}

/// A new request comes while lanes have batches of the old one.
#[test]
fn another_epoch_and_a_poll_get_mapped_batches_of_their_own_request() {
    each_way(|way| {
        let (device, fine) = (Device::new_host(), fine(LEN));
        let compute = device.stream().unwrap();
        let mut loader = way.inverted(builder().depth(2), 2).build(&device).unwrap();
        for (epoch, take) in [(0, 1), (5, 2), (5, 9), (2, 0), (7, 3)] {
            let mut batches = loader.epoch(epoch).unwrap();
            for step in 0..take.min(7) {
                let batch = loop {
                    match batches.try_next().unwrap() {
                        TryNext::Batch(batch) => break batch,
                        TryNext::NotYet => std::thread::yield_now(),
                        TryNext::Over => panic!("an epoch of {step} batches"),
                    }
                };
                let batch = batch.wait_on(&compute).unwrap();
                assert_eq!((batch.epoch(), batch.step()), (epoch, step));
                check(&fine, &batch);
            }
        }
    });
}

#[test]
fn a_thread_that_holds_every_slot_is_told() {
    each_way(|way| {
        let device = Device::new_host();
        let held = std::time::Duration::from_millis(50);
        let builder = builder().depth(2).held_timeout(held);
        let mut loader = way.inverted(builder, 2).build(&device).unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let kept = [batches.next().unwrap().unwrap(), batches.next().unwrap().unwrap()];
        let error = batches.next().unwrap().expect_err("every slot is held");
        assert_eq!(error.kind(), ErrorKind::SlotsHeld);
        drop(kept);
        assert_eq!(loader.epoch(1).unwrap().count(), 7);
    });
}
