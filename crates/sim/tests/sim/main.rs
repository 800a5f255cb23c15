//! Tests of the simulated device and its interceptors.

mod csan;
mod device;
mod interceptors;
