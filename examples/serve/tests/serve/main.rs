//! Tests of the example server.

mod program;
#[path = "../running/mod.rs"]
mod running;
mod server;
