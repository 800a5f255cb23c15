//! Workers prefetch samples before they read them, and samples of later batches while idle. Every batch
//! arrives, whatever a set answers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use feedline::dataset::Prefetched;
use feedline::{
    Context, DType, Dataset, Device, HostLoader, Loader, LoaderBuilder, ReadError, Row, Sampler, Spec,
    Workers, from_fn,
};
use feedline_core::Storage;

use crate::common::{alone, hush_planned_panics, wait_until};

const LEN: u64 = 240;
const BATCH: usize = 8;
/// Samples that are prepared together.
const GROUP: u64 = 20;

/// A set's answer for some ids of an epoch.
type Answer = dyn Fn(&Groups, &[u64], u64) -> Prefetched + Send + Sync;

/// A set that prepares groups, and forgets them at the next epoch.
struct Groups {
    spec: Spec,
    answer: Box<Answer>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    /// Epoch and number of each group.
    prepared: Mutex<BTreeSet<(u64, u64)>>,
    /// In the order in which they were prepared.
    order: Mutex<Vec<(u64, u64)>>,
    /// Samples that were read before they were prepared.
    unprepared: AtomicUsize,
}

impl Groups {
    fn new(answer: impl Fn(&Self, &[u64], u64) -> Prefetched + Send + Sync + 'static) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        let spec = Spec::new().field("id", DType::I64, []).expect("a spec");
        (Self { spec, answer: Box::new(answer), seen: seen.clone() }, seen)
    }

    /// Prepares the group of the first of `ids` that is not prepared.
    fn prepare(&self, ids: &[u64], epoch: u64) -> Prefetched {
        let mut prepared = self.seen.prepared.lock().expect("groups");
        match ids.iter().map(|id| (epoch, id / GROUP)).find(|group| prepared.insert(*group)) {
            Some(group) => {
                self.seen.order.lock().expect("groups").push(group);
                Prefetched::Prepared
            }
            None => Prefetched::Ready,
        }
    }
}

impl Dataset for Groups {
    fn len(&self) -> u64 {
        LEN
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let is_prepared = self.seen.prepared.lock().expect("groups").contains(&(context.epoch(), id / GROUP));
        self.seen.unprepared.fetch_add(usize::from(!is_prepared), Ordering::SeqCst);
        row.field_mut::<i64>(0)?[0] = id as i64;
        Ok(())
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for Groups {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.seen.calls.fetch_add(1, Ordering::SeqCst);
        (self.answer)(self, ids, context.epoch())
    }
}

fn loader(set: impl Dataset, workers: usize) -> LoaderBuilder {
    Loader::builder(set).batch_size(BATCH).workers(Workers::Count(workers)).depth(2)
}

/// The ids of an epoch, as the batches hold them.
fn ids(loader: &mut HostLoader, epoch: u64) -> Vec<u64> {
    let batches = loader.epoch(epoch).expect("an epoch").map(|batch| batch.expect("a batch"));
    let ids = batches.flat_map(|batch| batch.field::<i64>("id").expect("ids").to_vec());
    ids.map(|id| id as u64).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

#[test]
fn every_sample_is_prepared_before_it_is_read() {
    alone(|| {
        let samplers = [Sampler::Sequential, Sampler::block(GROUP, 3 * GROUP).unwrap(), Sampler::Shuffle];
        for (sampler, workers) in
            samplers.into_iter().flat_map(|sampler| [1, 3].map(|n| (sampler.clone(), n)))
        {
            let (set, seen) = Groups::new(Groups::prepare);
            let mut loader = loader(set, workers).sampler(sampler).epochs(2).build_host().expect("a loader");
            for epoch in 0..2 {
                assert_eq!(sorted(ids(&mut loader, epoch)), Vec::from_iter(0..LEN));
            }
            let (unprepared, order) = (&seen.unprepared, seen.order.lock().expect("groups"));
            assert_eq!((unprepared.load(Ordering::SeqCst), order.len()), (0, 2 * (LEN / GROUP) as usize));
        }
    });
}

#[test]
fn samples_of_later_batches_are_prepared_in_their_order_before_a_batch_is_taken() {
    alone(|| {
        for workers in [1, 3] {
            let (set, seen) = Groups::new(Groups::prepare);
            let sampler = Sampler::block(GROUP, GROUP).unwrap();
            let device = Device::new_host();
            let mut loader = loader(set, workers).sampler(sampler).seed(3).build(&device).expect("a loader");
            let want: Vec<u64> = {
                let sampler = loader.batch_sampler();
                let (mut ids, mut groups) = (Vec::new(), Vec::new());
                for step in 0..sampler.steps(0, 0) {
                    sampler.batch(0, 0, step, &mut ids);
                    groups.extend(ids.iter().map(|id| id / GROUP));
                }
                groups.dedup();
                groups
            };
            let epoch = loader.epoch(0).expect("an epoch");
            let prepared = || seen.order.lock().expect("groups").len();
            // All of this epoch and the next, but no more.
            let all = (LEN / GROUP) as usize;
            wait_until("the next epoch is prepared", || prepared() >= 2 * all);
            drop(epoch);
            drop(loader);
            assert_eq!(prepared(), 2 * all);
            let order = seen.order.lock().expect("groups");
            if workers == 1 {
                assert_eq!(order[..all], Vec::from_iter(want.iter().map(|&group| (0, group))));
            }
            assert!(order[all..].iter().all(|(epoch, _)| *epoch == 1), "{order:?}");
        }
    });
}

#[test]
fn whatever_a_set_answers_every_batch_arrives() {
    alone(|| {
        hush_planned_panics();
        let steps = (LEN as usize).div_ceil(BATCH);
        let always = |outcome| Groups::new(move |_, _, _| outcome);
        let panics = Groups::new(|_, _, _| panic!("planned"));
        for (what, (set, seen), workers, most) in [
            // Each worker may be in its first call.
            ("never", always(Prefetched::Never), 3, 3),
            ("a panic", panics, 3, 3),
            // Two calls per batch: one for it, one after it. More workers would join a slow batch and call
            // too.
            ("full", always(Prefetched::Full), 1, 2 * steps),
            ("ready", always(Prefetched::Ready), 3, 4 * steps),
            ("pending", always(Prefetched::Pending), 3, usize::MAX),
            // A set that claims to prepare something at every call.
            ("prepared", always(Prefetched::Prepared), 3, usize::MAX),
        ] {
            let mut loader = loader(set, workers).shuffle().seed(1).epochs(1).build_host().expect("a loader");
            assert_eq!(sorted(ids(&mut loader, 0)), Vec::from_iter(0..LEN), "{what}");
            drop(loader);
            let calls = seen.calls.load(Ordering::SeqCst);
            assert!((1..=most).contains(&calls), "{what}: {calls} calls");
        }
    });
}

#[test]
fn a_new_request_is_prepared_from_its_own_position() {
    alone(|| {
        let (set, seen) = Groups::new(Groups::prepare);
        let mut loader = loader(set, 2).epochs(1).build_host().expect("a loader");
        let prepared = || seen.prepared.lock().expect("groups").len();
        let all = (LEN / GROUP) as usize;
        let mut epoch = loader.epoch(0).expect("an epoch");
        assert!(epoch.next().expect("a batch").is_ok());
        wait_until("the epoch is prepared", || prepared() == all);
        drop(epoch);
        // The same epoch from its beginning: only calls for the new request can prepare the groups again.
        seen.prepared.lock().expect("groups").clear();
        assert_eq!(ids(&mut loader, 0), Vec::from_iter(0..LEN));
        assert_eq!(prepared(), all);
    });
}

#[test]
fn compositions_pass_the_ids_on() {
    alone(|| {
        type Compose = fn(Groups) -> Box<dyn Dataset>;
        let compositions: [(&str, Compose); 8] = [
            ("as it is", |set| Box::new(set)),
            ("repeat", |set| Box::new(set.repeat(2).unwrap())),
            ("subset", |set| Box::new(set.subset(Vec::from_iter((0..LEN).rev())).unwrap())),
            ("skip", |set| Box::new(set.skip(7))),
            ("concat", |set| Box::new(from_fn(9, zeros(), |_, row, _| zero(row)).concat(set).unwrap())),
            ("zip", |set| {
                let spec = Spec::new().field("other", DType::I64, []).unwrap();
                Box::new(set.zip(from_fn(LEN, spec, |_, row, _| zero(row))).unwrap())
            }),
            ("map", |set| Box::new(set.map(zeros(), |_, row, _| zero(row)).unwrap())),
            ("shared", |set| Box::new(Arc::new(set))),
        ];
        for (name, compose) in compositions {
            let (set, seen) = Groups::new(Groups::prepare);
            let mut loader =
                loader(compose(set), 2).shuffle().seed(1).epochs(1).build_host().expect("a loader");
            assert!(!ids(&mut loader, 0).is_empty());
            assert_eq!(seen.unprepared.load(Ordering::SeqCst), 0, "{name}");
        }
    });
}

fn zeros() -> Spec {
    Spec::new().field("id", DType::I64, []).expect("a spec")
}

fn zero(row: &mut Row<'_, '_>) -> Result<(), ReadError> {
    row.field_mut::<i64>(0)?[0] = 0;
    Ok(())
}
