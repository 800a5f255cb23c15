//! `device_map`: what it makes, how it fails, how a run resumes with it, and what the report says of it.

#[path = "../common/mod.rs"]
mod common;
mod errors;
mod inverted;
mod outputs;
mod resuming;
mod seen;
