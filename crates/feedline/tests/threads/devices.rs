//! Loaders for several devices of one process: they share the workers, each sample is read once, and a slow
//! device does not delay the others.

use std::sync::{Arc, Condvar, Mutex};

use crate::common::{LONG, alone, assert_empty, assert_intact, wait_for_threads, wait_until};
use feedline::device::BackendKind;
use feedline::sampler::Proof;
use feedline::{Device, ErrorKind, Loader, LoaderBuilder, Result, WorkerPool, Workers, World};
use feedline_device::{Backend, host::Host};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::fixtures::{Before, Fine};

const LEN: u64 = 101;
const BATCH: usize = 4;

fn fine() -> Fine {
    Fine::new(LEN, 300).unwrap()
}

/// A loader of `fine` that notes which samples are read.
fn builder(reads: &Arc<Mutex<Vec<u64>>>) -> LoaderBuilder {
    let reads = reads.clone();
    let noted = Before::new(fine(), move |id| {
        reads.lock().unwrap().push(id);
        Ok(())
    });
    Loader::builder(noted).batch_size(BATCH).shuffle().seed(7).depth(2).epochs(2)
}

/// The ids of each batch of each device in epoch 0, taken in turns; every byte is checked.
fn epoch(loaders: &mut [Loader]) -> Vec<Vec<Vec<u64>>> {
    let streams: Vec<_> = loaders.iter().map(|loader| loader.device().stream().unwrap()).collect();
    let mut epochs: Vec<_> = loaders.iter_mut().map(|loader| loader.epoch(0).unwrap()).collect();
    let mut all = vec![Vec::new(); epochs.len()];
    loop {
        let mut more = false;
        for ((batches, stream), all) in epochs.iter_mut().zip(&streams).zip(&mut all) {
            let Some(batch) = batches.next() else { continue };
            let batch = batch.unwrap().wait_on(stream).unwrap();
            // The simulator runs work only while the host waits for it.
            if stream.device().kind() == BackendKind::Host {
                assert_intact(&fine(), &batch);
            } else {
                let ids = batch.to_vec::<i64>("id").unwrap();
                assert!(ids.iter().map(|&id| id as u64).eq(batch.ids().iter().copied()), "{ids:?}");
            }
            all.push(batch.ids().to_vec());
            more = true;
        }
        if !more {
            return all;
        }
    }
}

#[test]
fn an_epoch_over_several_devices_reads_every_sample_once_in_a_fixed_order() {
    alone(|| {
        for count in [1, 2, 4] {
            let mut first = None;
            for workers in [1, 3] {
                let devices: Vec<_> = (0..count).map(|_| Device::new_host()).collect();
                let reads = Arc::new(Mutex::new(Vec::new()));
                // Without a second epoch, which would be read ahead.
                let builder = builder(&reads).epochs(1).workers(Workers::Count(workers));
                let mut loaders = builder.build_each(&devices).unwrap();
                let batches = epoch(&mut loaders);
                wait_for_threads("fl-decode", workers);
                let mut reads = std::mem::take(&mut *reads.lock().unwrap());
                reads.sort_unstable();
                assert_eq!(reads, (0..LEN).collect::<Vec<_>>(), "{count} devices");
                let proofs: Vec<_> = loaders.iter().map(|loader| *loader.cursor().proof()).collect();
                assert_eq!(proofs.iter().map(Proof::count).sum::<u64>(), LEN);
                for (device, (loader, batches)) in loaders.iter().zip(&batches).enumerate() {
                    assert_eq!(
                        loader.batch_sampler().options().world,
                        World::new(device as u32, count).unwrap()
                    );
                    let mut wanted = Vec::new();
                    for (step, ids) in batches.iter().enumerate() {
                        loader.batch_sampler().batch(0, 0, step as u64, &mut wanted);
                        assert_eq!(*ids, wanted, "device {device}, step {step}");
                    }
                }
                assert_eq!(*first.get_or_insert_with(|| batches.clone()), batches, "{workers} workers");
                drop(loaders);
                devices.iter().for_each(assert_empty);
            }
        }
    });
}

#[test]
fn devices_of_several_processes_are_ranks_of_one_world() {
    alone(|| {
        let mut ids = Vec::new();
        for rank in 0..2 {
            let reads = Arc::new(Mutex::new(Vec::new()));
            let builder = builder(&reads).world(World::new(rank, 2).unwrap()).workers(Workers::Count(1));
            let mut loaders = builder.build_each(&[Device::new_host(), Device::new_host()]).unwrap();
            let ranks: Vec<_> = loaders.iter().map(|loader| loader.batch_sampler().options().world).collect();
            assert_eq!(ranks, [2 * rank, 2 * rank + 1].map(|rank| World::new(rank, 4).unwrap()));
            ids.extend(epoch(&mut loaders).into_iter().flatten().flatten());
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..LEN).collect::<Vec<_>>());
    });
}

#[test]
fn several_simulated_devices_have_no_race() {
    alone(|| {
        for seed in 0..10 {
            let (devices, sims): (Vec<_>, Vec<_>) =
                (0..3).map(|number| feedline_sim::device(3 * seed + number).unwrap()).unzip();
            let reads = Arc::new(Mutex::new(Vec::new()));
            let mut loaders = builder(&reads).workers(Workers::Count(2)).build_each(&devices).unwrap();
            let mut ids: Vec<_> = epoch(&mut loaders).into_iter().flatten().flatten().collect();
            ids.sort_unstable();
            assert_eq!(ids, (0..LEN).collect::<Vec<_>>(), "seed {seed}");
            drop((loaders, devices));
            sims.iter().for_each(|sim| sim.finish().unwrap());
        }
    });
}

/// Holds up copies to the device while it is closed.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn close(&self, closed: bool) {
        *self.0.0.lock().unwrap() = closed;
        self.0.1.notify_all();
    }
}

impl Interceptor for Gate {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::CopyToDevice {
            drop(self.0.1.wait_while(self.0.0.lock().unwrap(), |closed| *closed).unwrap());
        }
        make()
    }
}

#[test]
fn a_device_that_copies_nothing_does_not_hold_up_the_others() {
    alone(|| {
        let gate = Gate::default();
        let stuck = feedline_device::with_backend(Intercepted::with(Host::new(), gate.clone()));
        let devices = [stuck, Device::new_host(), Device::new_host()];
        let (reads, pool) = (Arc::new(Mutex::new(Vec::new())), WorkerPool::new(Workers::Count(1)).unwrap());
        let mut loaders = builder(&reads).pool(&pool).build_each(&devices).unwrap();
        gate.close(true);
        let (first, others) = loaders.split_first_mut().unwrap();
        let mut held = first.epoch(0).unwrap();
        let steps = held.steps().unwrap() as usize;
        let batches = epoch(others);
        assert!(batches.iter().all(|batches| batches.len() == steps), "{batches:?}");
        // The stuck device has three host slots. Once each has a batch, the workers decode no more for it.
        let ours: Vec<u64> = batches.into_iter().flatten().flatten().collect();
        let theirs = || reads.lock().unwrap().iter().filter(|id| !ours.contains(id)).count();
        wait_until("its slots are full", || theirs() >= 3 * BATCH);
        assert!(held.try_next().unwrap().batch().is_none(), "a batch that was not copied");
        gate.close(false);
        let stream = devices[0].stream().unwrap();
        for _ in 0..steps {
            let batch = held.next_timeout(LONG).unwrap().batch().expect("a batch");
            assert_intact(&fine(), &batch.wait_on(&stream).unwrap());
        }
        assert!(held.next().is_none());
    });
}

#[test]
fn no_devices_and_a_world_that_is_too_large_are_refused() {
    let _one = crate::common::one_at_a_time();
    let refused = |builder: LoaderBuilder, devices: &[Device], part: &str| {
        let error = builder.build_each(devices).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains(part), "{error}");
    };
    let reads = Arc::new(Mutex::new(Vec::new()));
    refused(builder(&reads), &[], "there are no devices");
    let world = World::new(0, 1 << 31).unwrap();
    refused(
        builder(&reads).world(world),
        &[Device::new_host(), Device::new_host()],
        "the world is too large",
    );
    refused(builder(&reads).workers(Workers::Count(0)), &[Device::new_host()], "workers is 0");
}
