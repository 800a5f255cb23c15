//! `Send` and `Sync` of the public types, asserted at compile time.
//!
//! Both follow from the fields, so a new field could change them unnoticed.

use feedline_device::device_slots::{Loaded, Reader, SlotRing, WriteLease};
use feedline_device::host::Host;
use feedline_device::zero_copy::StridedColumns;
use feedline_device::{
    Buffer, Device, DeviceStats, Event, Input, Memory, Output, Pinned, Readback, SharedBuffer, Stream, Task,
    View, ViewMut, launch_host,
};
use feedline_sim::interceptors::{Chaos, Count, Faults};

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

macro_rules! is_both {
    ($($type:ty),+ $(,)?) => {
        const _: () = {$(
            is_send::<$type>();
            is_sync::<$type>();
        )+};
    };
}

// A device, its streams and its events are handles: any thread may use them, several at a time.
is_both!(Device, Stream, Event, DeviceStats);
// Memory can be moved and shared; leases and streams control the access to its bytes.
is_both!(Pinned, StridedColumns, Buffer<f32>, Buffer<u8>, Readback<f32>, SlotRing);
is_both!(SharedBuffer<f32>);
// Leases move between the stages of a pipeline.
is_both!(WriteLease, Loaded, Reader);
// Views and arguments may be made on one thread and used on another.
is_both!(View<'static, f32>, ViewMut<'static, f32>, Input<'static>, Output<'static>);
// Backends are called by every thread.
is_both!(Host, Count<Host>, Chaos<Host>, Faults<Host>);

// A task moves to the thread of its stream and is not shared, so its captures need not be Sync.
const _: () = is_send::<Task>();
is_not!(Sync: Task);

/// The assertions above at run time: two threads share a stream, and a view created on one is used on
/// another.
#[test]
fn a_stream_and_a_view_are_used_from_two_threads() {
    let device = Device::new_host();
    let stream = device.stream().expect("a stream");
    let mut numbers = Buffer::<u32>::new(&stream, 1).expect("a buffer");
    let add = |memory: &mut Memory<'_>| memory.output::<u32>(0)[0] += 1;
    std::thread::scope(|scope| {
        let (view, other) = (numbers.view_mut(), stream.clone());
        scope.spawn(move || launch_host(&other, "add", [], [view.into()], add).expect("work"));
        scope.spawn(|| stream.synchronize().expect("synchronize"));
    });
    assert_eq!(numbers.read().expect("the number"), [1]);
}
