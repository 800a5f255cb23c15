//! Interceptors of backend calls. They make a call fail, disturb the timing, or count.
//!
//! | backend | effect | file |
//! | --- | --- | --- |
//! | [`Faults`] | fails the n-th call, once or permanently | `faults.rs` |
//! | [`Chaos`] | delays calls and streams, poisons memory that is about to be overwritten | `chaos.rs` |
//! | [`Count`] | counts calls, by operation and by thread | `count.rs` |
//! | [`SlowCopies`] | makes copies slower by a known time | `slow.rs` |
//!
//! Each interceptor is a [`Backend`], so they nest: `Faults::new(Count::new(Host::new()), plan)` counts the
//! calls that `Faults` passes on. All of them are an [`Intercepted`], which sends every call of the trait
//! through one function, [`Interceptor::intercept`]. A new interceptor implements this function. Calls that
//! bypass the trait (cuBLAS on a cudarc stream) are not seen.

pub mod chaos;
pub mod count;
pub mod faults;
pub mod slow;

use feedline_core::{Error, Result};
use feedline_device::backend::{
    Access, Address, Backend, BackendKind, EventId, Gather, GraphId, Launch, Priority, Span, StreamId, Task,
};

pub use chaos::Chaos;
pub use count::Count;
pub use faults::Faults;
pub use slow::SlowCopies;

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The fallible methods of [`Backend`], one variant each; only `host_access` has two.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Op { $($(#[doc = $doc])* $name,)* }

        impl Op {
            /// Every operation, in order.
            pub const ALL: &[Op] = &[$(Op::$name,)*];
        }
    };
}

operations! {
    /// `bind`.
    Bind,
    /// `create_stream`.
    CreateStream,
    /// `destroy_stream`.
    DestroyStream,
    /// `synchronize_stream`.
    SynchronizeStream,
    /// `create_event`.
    CreateEvent,
    /// `destroy_event`.
    DestroyEvent,
    /// `record`.
    Record,
    /// `wait`.
    Wait,
    /// `query`.
    Query,
    /// `synchronize`.
    Synchronize,
    /// `elapsed_ms`.
    Elapsed,
    /// `alloc_host`.
    AllocHost,
    /// `free_host`.
    FreeHost,
    /// `alloc_device`.
    AllocDevice,
    /// `free_device`.
    FreeDevice,
    /// `copy_to_device`.
    CopyToDevice,
    /// `copy_to_host`.
    CopyToHost,
    /// `copy_on_device`.
    CopyOnDevice,
    /// `fill`.
    Fill,
    /// `register_host`.
    RegisterHost,
    /// `unregister_host`.
    UnregisterHost,
    /// `gather`.
    Gather,
    /// `run`.
    Run,
    /// `launch`.
    Launch,
    /// `begin_capture`.
    BeginCapture,
    /// `end_capture`.
    EndCapture,
    /// `launch_graph`.
    LaunchGraph,
    /// `destroy_graph`.
    DestroyGraph,
    /// `host_access` to read.
    HostRead,
    /// `host_access` to write.
    HostWrite,
}

impl Op {
    /// The number of operations.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether the call creates something that a later call releases.
    pub fn creates(self) -> bool {
        matches!(
            self,
            Self::CreateStream
                | Self::CreateEvent
                | Self::AllocHost
                | Self::AllocDevice
                | Self::RegisterHost
                | Self::EndCapture
        )
    }

    /// Whether the call releases something that a creating call made.
    pub fn releases(self) -> bool {
        matches!(
            self,
            Self::DestroyStream
                | Self::DestroyEvent
                | Self::FreeHost
                | Self::FreeDevice
                | Self::UnregisterHost
                | Self::DestroyGraph
        )
    }

    /// Whether the call blocks the calling thread until the device has done something.
    pub fn blocks(self) -> bool {
        matches!(self, Self::SynchronizeStream | Self::Synchronize)
    }

    /// Whether the call reaches the device. `host_access` only informs race checkers, and costs nothing
    /// elsewhere.
    pub fn is_driver_call(self) -> bool {
        !matches!(self, Self::HostRead | Self::HostWrite)
    }
}

/// One call on its way to the backend below.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The operation.
    pub op: Op,
    /// The stream, for calls that submit work.
    pub stream: Option<StreamId>,
    /// The memory that a copy, a gather, a fill or the host is about to overwrite.
    pub target: Option<Span>,
}

impl Call {
    fn new(op: Op) -> Self {
        Self { op, stream: None, target: None }
    }

    fn on(op: Op, stream: StreamId) -> Self {
        Self { stream: Some(stream), ..Self::new(op) }
    }

    fn writing(self, address: Address, bytes: usize) -> Self {
        Self { target: Some(Span { address, bytes }), ..self }
    }

    fn host(ptr: *const u8, bytes: usize, access: Access) -> Self {
        match access {
            Access::Read => Self::new(Op::HostRead),
            Access::Write => Self::new(Op::HostWrite).writing(Address(ptr as u64), bytes),
        }
    }
}

/// The action that replaces each call.
pub trait Interceptor: Send + Sync + 'static {
    /// Replaces the call `call` on `below`. Runs the call by `make()`, at most once, or returns an error
    /// instead.
    ///
    /// # Errors
    /// The error of `make`, or one of the interceptor.
    fn intercept<R>(&self, below: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R>;

    /// The error that lost the device, if the interceptor lost it.
    fn lost(&self) -> Option<Error> {
        None
    }
}

/// A backend that passes every call through the interceptor `I` to the backend `B` below.
#[derive(Debug)]
pub struct Intercepted<B, I> {
    below: B,
    interceptor: I,
}

impl<B: Backend, I: Interceptor> Intercepted<B, I> {
    /// Wraps `below` with `interceptor`.
    pub fn with(below: B, interceptor: I) -> Self {
        Self { below, interceptor }
    }

    /// The backend below.
    pub fn below(&self) -> &B {
        &self.below
    }
}

/// Forwards the fallible methods of [`Backend`]. Each entry has the signature, then the [`Call`].
macro_rules! forward {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $call:expr;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> Result<$out> {
            self.interceptor.intercept(&self.below, $call, || self.below.$name($($arg),*))
        }
    )*};
    (unsafe $(fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $call:expr;)*) => {$(
        unsafe fn $name(&self, $($arg: $type),*) -> Result<$out> {
            // SAFETY: the caller's contract: the handles and the memory belong to this backend, and so to
            // the one below.
            self.interceptor.intercept(&self.below, $call, || unsafe { self.below.$name($($arg),*) })
        }
    )*};
}

// SAFETY: every `Ok` value comes from the backend below, from the method of the same name:
// `Interceptor::intercept` has no other source of an `R`.
unsafe impl<B: Backend, I: Interceptor> Backend for Intercepted<B, I> {
    forward! {
        fn bind() -> () = Call::new(Op::Bind);
        fn create_stream(name: &str, priority: Priority) -> StreamId = Call::new(Op::CreateStream);
        fn create_event(timing: bool) -> EventId = Call::new(Op::CreateEvent);
        fn alloc_host(bytes: usize) -> *mut u8 = Call::new(Op::AllocHost);
        fn alloc_device(bytes: usize) -> Address = Call::new(Op::AllocDevice);
    }

    forward! { unsafe
        fn host_access(ptr: *const u8, bytes: usize, access: Access) -> () = Call::host(ptr, bytes, access);
        fn destroy_stream(stream: StreamId) -> () = Call::new(Op::DestroyStream);
        fn synchronize_stream(stream: StreamId) -> () = Call::new(Op::SynchronizeStream);
        fn destroy_event(event: EventId) -> () = Call::new(Op::DestroyEvent);
        fn record(event: EventId, stream: StreamId) -> () = Call::on(Op::Record, stream);
        fn wait(stream: StreamId, event: EventId) -> () = Call::on(Op::Wait, stream);
        fn query(event: EventId) -> bool = Call::new(Op::Query);
        fn synchronize(event: EventId) -> () = Call::new(Op::Synchronize);
        fn elapsed_ms(start: EventId, end: EventId) -> f32 = Call::new(Op::Elapsed);
        fn free_host(ptr: *mut u8, bytes: usize) -> () = Call::new(Op::FreeHost);
        fn free_device(address: Address, bytes: usize) -> () = Call::new(Op::FreeDevice);
        fn copy_to_device(stream: StreamId, from: *const u8, to: Address, bytes: usize) -> ()
            = Call::on(Op::CopyToDevice, stream).writing(to, bytes);
        fn copy_to_host(stream: StreamId, from: Address, to: *mut u8, bytes: usize) -> ()
            = Call::on(Op::CopyToHost, stream).writing(Address(to as u64), bytes);
        fn copy_on_device(stream: StreamId, from: Address, to: Address, bytes: usize) -> ()
            = Call::on(Op::CopyOnDevice, stream).writing(to, bytes);
        fn fill(stream: StreamId, to: Address, value: u8, bytes: usize) -> ()
            = Call::on(Op::Fill, stream).writing(to, bytes);
        fn register_host(ptr: *const u8, bytes: usize) -> Option<Address> = Call::new(Op::RegisterHost);
        fn unregister_host(ptr: *const u8, bytes: usize) -> () = Call::new(Op::UnregisterHost);
        fn gather(stream: StreamId, gather: &Gather) -> () = {
            let Span { address, bytes } = gather.target();
            Call::on(Op::Gather, stream).writing(address, bytes)
        };
        fn run(stream: StreamId, task: Task) -> () = Call::on(Op::Run, stream);
        fn launch(stream: StreamId, launch: &mut Launch<'_>) -> () = Call::on(Op::Launch, stream);
        // This call has no stream: starting and ending a capture submits no work, and nothing may be
        // inserted.
        fn begin_capture(stream: StreamId) -> () = Call::new(Op::BeginCapture);
        fn end_capture(stream: StreamId) -> GraphId = Call::new(Op::EndCapture);
        fn launch_graph(graph: GraphId, stream: StreamId) -> () = Call::on(Op::LaunchGraph, stream);
        fn destroy_graph(graph: GraphId) -> () = Call::new(Op::DestroyGraph);
    }

    fn kind(&self) -> BackendKind {
        self.below.kind()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn pci_address(&self) -> Option<String> {
        self.below.pci_address()
    }

    fn has_coherent_host_memory(&self) -> bool {
        self.below.has_coherent_host_memory()
    }

    fn copies_rows_of(&self, row_bytes: usize) -> bool {
        self.below.copies_rows_of(row_bytes)
    }

    fn records(&self) -> bool {
        self.below.records()
    }

    unsafe fn is_captured(&self, stream: StreamId) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.below.is_captured(stream) }
    }

    fn name_memory(&self, address: u64, name: &str) {
        self.below.name_memory(address, name);
    }

    fn lost(&self) -> Option<Error> {
        self.interceptor.lost().or_else(|| self.below.lost())
    }

    fn below(&self) -> Option<&dyn Backend> {
        Some(&self.below)
    }
}
