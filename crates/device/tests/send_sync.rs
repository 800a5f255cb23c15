//! What may cross a thread, held at compile time: this file tests by compiling.
//!
//! `Send` and `Sync` follow from the fields, so a new field can take them away, or give them, without a word.

use feedline_device::host::Host;
use feedline_device::slot::{Loaded, Reader, SlotRing, WriteLease};
use feedline_device::zero_copy::StridedColumns;
use feedline_device::{
    Buffer, Device, DeviceStats, Event, Input, Memory, Output, Pinned, Readback, Stream, Task, View, ViewMut,
};
use feedline_sim::interceptors::{Chaos, Count, Faults};

const fn is_send<T: Send>() {}
const fn is_sync<T: Sync>() {}

/// Does not compile when `$type` implements `$trait`: then `marker` means two things.
/// The trick is that of the crate static_assertions.
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

// A device, its streams and events are handles: any thread may use them, several at a time.
is_both!(Device, Stream, Event, DeviceStats);
// Memory moves and is shared; who may touch its bytes is the business of leases and streams.
is_both!(Pinned, StridedColumns, Buffer<f32>, Buffer<u8>, Readback<f32>, SlotRing);
// Leases travel from stage to stage.
is_both!(WriteLease, Loaded, Reader);
// Views and arguments may be made on one thread and used on another.
is_both!(View<'static, f32>, ViewMut<'static, f32>, Input<'static>, Output<'static>);
// Backends are called by every thread.
is_both!(Host, Count<Host>, Chaos<Host>, Faults<Host>);

// Work goes to the thread of its stream, and is nobody else's: what it captured need not be shared.
const _: () = is_send::<Task>();
is_not!(Sync: Task);

/// The pins above, seen at work: threads share a stream, and a view made on one is used on another.
#[test]
fn a_stream_and_a_view_are_used_from_two_threads() {
    let device = Device::host();
    let stream = device.stream().expect("a stream");
    let mut numbers = stream.buffer::<u32>(1).expect("a buffer");
    let add = |memory: &mut Memory<'_>| memory.output::<u32>(0)[0] += 1;
    std::thread::scope(|scope| {
        let (view, other) = (numbers.view_mut(), stream.clone());
        scope.spawn(move || other.run("add", [], [view.into()], add).expect("work"));
        scope.spawn(|| stream.synchronize().expect("its end"));
    });
    assert_eq!(numbers.read().expect("the number"), [1]);
}
