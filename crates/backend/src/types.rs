//! Handles, addresses and the other plain values that a backend's calls take.

/// A stream of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// An event of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// A recorded sequence of a stream's work, of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphId(pub u64);

/// A kernel that one backend has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u64);

/// The address of a byte in device memory; on the host and in the simulator a real host address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

/// Which implementation a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// An NVIDIA GPU.
    Cuda,
    /// The machine's own cores: streams are threads.
    Host,
    /// Virtual time and a race checker.
    Sim,
}

/// How urgent a stream's work is beside that of other streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// As other streams.
    #[default]
    Normal,
    /// Before other streams, where the device can.
    High,
}

/// What a host access of page-locked memory does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it.
    Write,
}
