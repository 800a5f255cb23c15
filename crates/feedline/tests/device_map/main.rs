//! `device_map`: its outputs, its failures, resuming, and its part of the report.

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod inverted;
mod outputs;
mod resuming;
mod seen;
