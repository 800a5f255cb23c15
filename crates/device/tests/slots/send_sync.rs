//! `Send` and `Sync` of the public types, checked at compile time.
//!
//! Both follow from the fields, so a new field can silently add or remove them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

use feedline_device::slots::{Counts, FillLease, HeapMemory, ReadyLease, Ring};

type Memory = HeapMemory;

const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}

/// Does not compile if `$type` implements `$trait`, because `marker` is then ambiguous. The crate
/// static_assertions uses this technique.
macro_rules! is_not {
    ($trait:ident: $($type:ty),+ $(,)?) => {$(
        const _: () = {
            trait Ambiguous<Marker> {
                fn marker() {}
            }
            struct Always;
            struct IfImplemented;
            impl<T: ?Sized> Ambiguous<Always> for T {}
            impl<T: ?Sized + $trait> Ambiguous<IfImplemented> for T {}
            let _ = <$type as Ambiguous<_>>::marker;
        };
    )+};
}

// An info that is Send and Sync: everything is Send and Sync.
const _: () = {
    is_send::<HeapMemory>();
    is_sync::<HeapMemory>();
    is_send::<Counts>();
    is_sync::<Counts>();
    is_send::<Ring<Memory, Vec<u64>>>();
    is_sync::<Ring<Memory, Vec<u64>>>();
    is_send::<FillLease<Memory, Vec<u64>>>();
    is_sync::<FillLease<Memory, Vec<u64>>>();
    is_send::<ReadyLease<Memory, Vec<u64>>>();
    is_sync::<ReadyLease<Memory, Vec<u64>>>();
};

// An info that is only Send: one thread accesses it at a time, so the ring is Sync; a lease is not, because
// it returns `&T`.
const _: () = {
    is_send::<Ring<Memory, Cell<u8>>>();
    is_sync::<Ring<Memory, Cell<u8>>>();
    is_send::<FillLease<Memory, Cell<u8>>>();
    is_send::<ReadyLease<Memory, Cell<u8>>>();
};
is_not!(Sync: FillLease<Memory, Cell<u8>>, ReadyLease<Memory, Cell<u8>>);

// The info is neither Send nor Sync, so no type is.
is_not!(Send: Ring<Memory, Rc<u8>>, FillLease<Memory, Rc<u8>>, ReadyLease<Memory, Rc<u8>>);
is_not!(Sync: Ring<Memory, Rc<u8>>, FillLease<Memory, Rc<u8>>, ReadyLease<Memory, Rc<u8>>);

// The info is Sync but not Send.
is_not!(Send: Ring<Memory, MutexGuard<'static, u8>>, ReadyLease<Memory, MutexGuard<'static, u8>>);

/// A lease is filled on one thread and read on another.
#[test]
fn a_lease_moves_between_threads() {
    let ring: Ring<Memory, Cell<u8>> = Ring::new(vec![HeapMemory::new(16).expect("16 bytes")]);
    let mut lease = ring.acquire().expect("a free slot");
    let ready = std::thread::spawn(move || {
        lease.bytes_mut().fill(3);
        lease.info_mut().set(4);
        lease.ready()
    });
    let ready = ready.join().expect("no panic");
    assert_eq!((ready.bytes(), ready.info().get()), (&[3; 16][..], 4));
}
