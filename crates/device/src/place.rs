//! Types that keep devices and streams apart at compile time.
//!
//! A program with one device and one compute stream never sees these: the defaults [`Main`] and [`Compute`] stand in
//! every signature. A second stream, or a second device, gets a type of its own, and then a batch that was waited on
//! for one does not compile with the other. Two streams of the same lane are still told apart, at run time.
//!
//! ```
//! use feedline_device::{Device, lane};
//! lane!(Branch);                                      // a second compute stream
//! let device = Device::host();
//! let compute = device.stream()?;
//! let branch = device.stream_in::<Branch>()?;
//! # let _ = (compute, branch);
//! # Ok::<(), feedline_core::Error>(())
//! ```

/// A device's type: one for each device of a program.
pub trait Place: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// The lane of streams that are not told otherwise.
    type Stream: Lane<Place = Self>;
}

/// A stream's type: one for each compute stream of a program.
pub trait Lane: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// The device it runs on.
    type Place: Place;
}

/// The one device of most programs.
#[derive(Clone, Copy, Debug)]
pub enum Main {}

/// The one compute stream of most programs.
#[derive(Clone, Copy, Debug)]
pub enum Compute {}

impl Place for Main {
    type Stream = Compute;
}

impl Lane for Compute {
    type Place = Main;
}

/// Declares a lane: `lane!(Branch)` on the main device, `lane!(Branch on Second)` on another.
#[macro_export]
macro_rules! lane {
    ($visibility:vis $name:ident) => {
        $crate::lane!($visibility $name on $crate::Main);
    };
    ($visibility:vis $name:ident on $place:ty) => {
        /// A stream of its own.
        #[derive(Clone, Copy, Debug)]
        $visibility enum $name {}
        impl $crate::Lane for $name {
            type Place = $place;
        }
    };
}

/// Declares a place and its first lane: `place!(Second, SecondCompute)`.
#[macro_export]
macro_rules! place {
    ($visibility:vis $name:ident, $lane:ident) => {
        /// A device of its own.
        #[derive(Clone, Copy, Debug)]
        $visibility enum $name {}
        impl $crate::Place for $name {
            type Stream = $lane;
        }
        $crate::lane!($visibility $lane on $name);
    };
}
