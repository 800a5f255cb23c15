//! However a pipeline is abandoned or stopped, it ends without a hang and leaves no thread, file or byte
//! behind.

use std::time::Duration;

use crate::common::small::{BATCH, STEPS, builder, fine, on_a_device, take_epoch};
use crate::common::{
    LONG, alone, assert_empty, assert_intact, hush_planned_panics, one_at_a_time, wait_until, wait_until_gone,
};
use feedline::dataset::Random;
use feedline::{Device, ErrorKind, Workers};
use feedline_device::host::Host;
use feedline_sim::interceptors::chaos::{Chaos, Options};
use feedline_testkit::fixtures::{self, Fine};

#[test]
fn an_epoch_abandoned_at_any_step_is_followed_by_a_complete_one() {
    alone(|| {
        for (workers, depth) in [(1, 1), (2, 2), (3, 4)] {
            on_a_device(|device, compute| {
                let builder = builder(fine()).shuffle().seed(3).workers(Workers::Count(workers)).depth(depth);
                let mut loader = builder.build(device).unwrap();
                for abandoned_at in 0..=STEPS as usize {
                    for next in [0, 1, 7] {
                        for batch in loader.epoch(0).unwrap().take(abandoned_at) {
                            assert_intact(&fine(), &batch.unwrap().wait_on(compute).unwrap());
                        }
                        take_epoch(&mut loader, next, compute);
                    }
                }
            });
        }
    });
}

#[test]
fn a_loader_can_be_dropped_after_any_batch() {
    alone(|| {
        on_a_device(|device, _| drop(builder(fine()).build(device).unwrap()));
        on_a_device(|device, _| {
            let _ = builder(fine()).build(device).unwrap().epoch(0).unwrap();
        });
        for taken in 0..=STEPS as usize {
            on_a_device(|device, compute| {
                let mut loader = builder(fine()).build(device).unwrap();
                for batch in loader.epoch(0).unwrap().take(taken) {
                    assert_intact(&fine(), &batch.unwrap().wait_on(compute).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_loader_can_be_dropped_at_any_moment() {
    alone(|| {
        for seed in 0..60 {
            let mut random = Random::from_key(seed);
            let options = Options {
                seed,
                host_delay: Duration::ZERO..Duration::from_micros(300),
                device_delay: Duration::ZERO..Duration::from_millis(1),
                ..Options::default()
            };
            let device = feedline_device::with_backend(Chaos::new(Host::new(), options).unwrap());
            {
                let compute = device.stream().unwrap();
                let depth = 1 + random.below(3) as usize;
                let mut loader = builder(fine()).shuffle().seed(seed).depth(depth).build(&device).unwrap();
                let taken = random.below(STEPS + 1) as usize;
                let mut held = Vec::new();
                for batch in loader.epoch(seed).unwrap().take(taken) {
                    let batch = batch.unwrap().wait_on(&compute).unwrap();
                    assert_intact(&fine(), &batch);
                    held.push(batch);
                    // At least one slot must be left for the next batch.
                    held.truncate(random.below(depth as u64) as usize);
                }
                std::thread::sleep(Duration::from_micros(random.below(2000)));
                drop(loader);
                held.iter().for_each(|batch| assert_intact(&fine(), batch));
            }
            assert_empty(&device);
        }
    });
}

#[test]
fn a_loader_can_be_dropped_during_a_read() {
    alone(|| {
        on_a_device(|device, _| {
            let (data, gate) = fixtures::blocking(fine(), [11]);
            let mut loader = builder(data).build(device).unwrap();
            let _ = loader.epoch(0).unwrap();
            assert!(gate.wait_until_waiting(1, LONG));
            std::thread::scope(|scope| {
                scope.spawn(|| drop(loader));
                gate.open();
            });
        });
    });
}

#[test]
fn held_batches_outlive_the_loader() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut loader = builder(fine()).build(device).unwrap();
            let mut batches = loader.epoch(0).unwrap();
            let open = batches.next().unwrap().unwrap().wait_on(compute).unwrap();
            let unread = batches.next().unwrap().unwrap();
            loader.stop(LONG).unwrap();
            assert_intact(&fine(), &open);
            drop(loader);
            assert_intact(&fine(), &open);
            assert_intact(&fine(), &unread.wait_on(compute).unwrap());
        });
    });
}

#[test]
fn a_consumer_that_stops_taking_batches_stops_the_pipeline_when_all_slots_are_full() {
    alone(|| {
        on_a_device(|device, compute| {
            let (data, reads) = fixtures::counting(Fine::new(10_000, 300).unwrap());
            let depth = 3;
            let mut loader = builder(data).depth(depth).build(device).unwrap();
            let batch = loader.epoch(0).unwrap().next().unwrap().unwrap().wait_on(compute).unwrap();
            // Every slot is full; there is one more host slot than device slots.
            let full = ((2 * depth + 1) * BATCH) as u64;
            wait_until("every slot is full", || reads.total() >= full);
            assert_eq!(reads.total(), full);
            drop(loader);
            assert_eq!(reads.total(), full, "read after every slot was full");
            assert_eq!(batch.ids(), [0, 1, 2, 3, 4, 5, 6, 7]);
        });
    });
}

#[test]
fn a_loader_can_be_stopped_twice_and_before_it_starts() {
    alone(|| {
        on_a_device(|device, compute| {
            let mut unused = builder(fine()).build(device).unwrap();
            unused.stop(LONG).unwrap();
            unused.stop(LONG).unwrap();
            assert_eq!(unused.epoch(0).unwrap_err().kind(), ErrorKind::Stopped);

            for taken in 0..=STEPS as usize {
                let mut loader = builder(fine()).build(device).unwrap();
                for batch in loader.epoch(0).unwrap().take(taken) {
                    drop(batch.unwrap().wait_on(compute).unwrap());
                }
                loader.stop(LONG).unwrap();
                loader.stop(LONG).unwrap();
                // Neither the next epoch nor the same epoch can begin.
                for epoch in [0, 1] {
                    assert_eq!(loader.epoch(epoch).unwrap_err().kind(), ErrorKind::Stopped);
                }
            }
        });
    });
}

#[test]
fn two_loaders_on_one_device_do_not_mix() {
    alone(|| {
        on_a_device(|device, compute| {
            let (one, two) = (fine().seed(1), fine().seed(2));
            let mut first = builder(one.clone()).shuffle().seed(1).build(device).unwrap();
            let mut second = builder(two.clone()).shuffle().seed(2).depth(1).build(device).unwrap();
            for epoch in 0..20 {
                for (a, b) in first.epoch(epoch).unwrap().zip(second.epoch(epoch).unwrap()) {
                    let (a, b) = (a.unwrap().wait_on(compute).unwrap(), b.unwrap().wait_on(compute).unwrap());
                    assert_intact(&two, &b);
                    assert_intact(&one, &a);
                }
            }
            // One may end during an epoch of the other.
            let mut rest = second.epoch(20).unwrap();
            assert_intact(&two, &rest.next().unwrap().unwrap().wait_on(compute).unwrap());
            drop(first);
            for batch in rest {
                assert_intact(&two, &batch.unwrap().wait_on(compute).unwrap());
            }
        });
    });
}

#[test]
fn a_forgotten_batch_costs_only_its_slot() {
    // The leak would show in a census, so the test runs alone and takes none.
    let _one = one_at_a_time();
    let device = Device::new_host();
    {
        let compute = device.stream().unwrap();
        let mut loader = builder(fine()).depth(3).build(&device).unwrap();
        let mut batches = loader.epoch(0).unwrap();
        let open = batches.next().unwrap().unwrap().wait_on(&compute).unwrap();
        let (kept, kept_slot) = (open.also_on(&compute).unwrap(), open.slot());
        std::mem::forget(open);
        let unread = batches.next().unwrap().unwrap();
        let unread_slot = unread.slot();
        std::mem::forget(unread);
        for batch in batches {
            let batch = batch.unwrap().wait_on(&compute).unwrap();
            assert!(![kept_slot, unread_slot].contains(&batch.slot()));
            assert_intact(&fine(), &batch);
        }
        take_epoch(&mut loader, 1, &compute);
        // The bytes of the forgotten batch have not changed.
        assert_intact(&fine(), &kept);
    }
    assert_eq!(device.stats().pinned_bytes.get(), 0);
    wait_until_gone("fl-decode");
    wait_until_gone("fl-transfer");
}

#[test]
fn a_consumer_that_panics_with_a_batch_held_leaves_nothing_behind() {
    hush_planned_panics();
    alone(|| {
        on_a_device(|device, compute| {
            for taken in 1..=STEPS as usize {
                let mut loader = builder(fine()).build(device).unwrap();
                let consumer = std::thread::scope(|scope| {
                    let consume = move || {
                        let mut batches = loader.epoch(0).unwrap();
                        let mut held = None;
                        for _ in 0..taken {
                            held = Some(batches.next().unwrap().unwrap().wait_on(compute).unwrap());
                        }
                        panic!("planned panic while holding {:?}", held.unwrap().step());
                    };
                    scope.spawn(consume).join()
                });
                assert!(consumer.is_err());
            }
        });
    });
}
