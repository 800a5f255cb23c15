//! Handles, addresses and the other plain values that a backend's calls take.

/// A stream handle; valid on the backend that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// An event handle; valid on the backend that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// A recorded graph of stream work; valid on the backend that recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphId(pub u64);

/// A loaded kernel; valid on the backend that loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u64);

/// The address of a byte in device memory. On the host and in the simulator it is a real host address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

/// Which implementation a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendKind {
    /// An NVIDIA GPU.
    Cuda,
    /// The machine's own cores: streams are threads.
    Host,
    /// A simulated device with virtual time and a race checker.
    Sim,
}

/// The scheduling priority of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// The same priority as other streams.
    #[default]
    Normal,
    /// Work runs before the work of other streams, if the device supports priorities.
    High,
}

/// How the host accesses pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The host reads the memory.
    Read,
    /// The host writes the memory.
    Write,
}
