//! Tests of streams, buffers, slots and graphs, on the host, the simulator and a GPU.

mod contract;
mod graph;
mod host;
mod send_sync;
mod shared_event;
