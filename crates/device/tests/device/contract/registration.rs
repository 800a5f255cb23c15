//! Zero-copy transfer whose memory cannot be registered, or stays registered: nothing is leaked or freed
//! early.

use std::sync::Arc;

use feedline_core::{
    Context, DType, Dataset, Error, ErrorKind, ReadError, Result, Row, Spec, StableDataset, Storage,
    StridedColumn,
};
use feedline_device::Backend;
use feedline_device::zero_copy::StridedColumns;
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_sim::{Sim, SimOptions};
use feedline_testkit::fixtures::{Fine, Laid};

use super::columns::{BATCH, ROOM, ZeroCopy, shuffled, stable};
use super::rig::{Ending, Rig, everywhere};

#[test]
fn a_set_that_cannot_be_registered_returns_the_reason_and_leaks_nothing() {
    everywhere(
        "a_set_that_cannot_be_registered_returns_the_reason_and_leaks_nothing",
        Ending::Clean,
        |rig| {
            let why = |set: Arc<StableDataset>, room| {
                let error = StridedColumns::new(&rig.device, &set, BATCH, room)
                    .expect_err("the set cannot be registered");
                assert_eq!(rig.device.stats().pinned_bytes.get(), 0);
                (error.kind(), error.message().to_owned())
            };
            let fine = Fine::new(60, 100)?;
            let (kind, text) = why(stable(fine.clone()), ROOM);
            assert_eq!((kind, &*text), (ErrorKind::Config, "field \"id\" has no column"));
            let laid = Laid::records(&fine, 0, 0).expect("a set with columns");
            let (kind, text) = why(stable(laid.clone()), laid.block_bytes() - 1);
            assert_eq!(kind, ErrorKind::Budget);
            assert!(text.contains(&format!("{} bytes", laid.block_bytes())), "{text}");
            /// Its columns differ in size from its spec.
            struct Other(Laid, u64, Spec);
            impl Dataset for Other {
                fn len(&self) -> u64 {
                    self.1
                }
                fn spec(&self) -> &Spec {
                    &self.2
                }
                fn read(
                    &self,
                    id: u64,
                    row: &mut Row<'_, '_>,
                    context: &mut Context,
                ) -> Result<(), ReadError> {
                    self.0.read(id, row, context)
                }

                fn storage(&self) -> &dyn Storage {
                    self
                }
            }

            impl Storage for Other {
                fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
                    self.0.storage().column(field)
                }
            }
            let wide = Spec::new().field("id", DType::I64, [2])?;
            for other in [Other(laid.clone(), 60, wide), Other(laid, 61, fine.spec().clone())] {
                let (kind, text) = why(stable(other), ROOM);
                assert_eq!(kind, ErrorKind::Config);
                assert!(text.contains("60 rows of 8 bytes"), "{text}");
            }
            Ok(())
        },
    );
}

/// Submits every gather, and then returns an error.
struct FailsLate;

impl Interceptor for FailsLate {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        let made = make()?;
        if call.op == Op::Gather { Err(Error::new(ErrorKind::Device, "planned")) } else { Ok(made) }
    }
}

#[test]
fn memory_stays_registered_under_a_gather_that_failed_late() {
    for seed in 0..10 {
        let (backend, sim) = Sim::new(SimOptions::seed(seed)).expect("a device");
        let rig = Rig {
            device: feedline_device::with_backend(Intercepted::with(backend, FailsLate)),
            sim: Some(sim.clone()),
        };
        let laid = Laid::records(&Fine::new(60, 100).expect("a set"), 0, 1).expect("a set with columns");
        let zero_copy = ZeroCopy::new(&rig, laid, 2, 2).expect("columns");
        assert!(zero_copy.load(&shuffled(1, BATCH, 60)).is_err());
        // The host slot also waits for its stream, so it is dropped last.
        let ZeroCopy { columns, slots, host, .. } = zero_copy;
        drop((columns, slots));
        assert_eq!(sim.races().len(), 0, "seed {seed}: {:?}", sim.races());
        drop(host);
    }
}

/// Fails every unregistration, without unregistering.
struct KeepsRegistered;

impl Interceptor for KeepsRegistered {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::UnregisterHost {
            return Err(Error::new(ErrorKind::Device, "planned: still registered"));
        }
        make()
    }
}

#[test]
fn memory_that_stays_registered_is_never_freed() {
    let backend = Intercepted::with(feedline_device::host::Host::new(), KeepsRegistered);
    let device = feedline_device::with_backend(backend);
    let set = stable(Laid::records(&Fine::new(60, 100).expect("a set"), 0, 1).expect("a set"));
    let columns = StridedColumns::new(&device, &set, BATCH, ROOM).expect("columns");
    let held = Arc::downgrade(&set);
    drop(set);
    drop(columns);
    assert!(held.upgrade().is_some(), "the set's memory was freed while the driver had it registered");
    let errors = device.stats().take_errors();
    assert!(errors.iter().any(|error| error.message() == "planned: still registered"), "{errors:?}");
    assert_eq!(device.stats().pinned_bytes.get(), 0);
}
