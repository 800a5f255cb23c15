//! Decode servers for feedline: batches that other machines decode, over Arrow Flight.
//!
//! A batch is a function of the data, the seed, the epoch and the samples in it. So a server needs no state,
//! and any server can make any batch: [`Server`] decodes the samples that a [`ticket`] names, and [`Servers`]
//! is the [filler](feedline::filler::BatchFiller) of a loader that asks them. The order is the loader's own,
//! and every batch is compared with its order hash and the hashes of its rows before it is delivered.
//!
//! | part | file |
//! | --- | --- |
//! | what a trainer asks for, and what both sides must agree on | `ticket.rs` |
//! | rows as Arrow columns, and back | `wire.rs` |
//! | messages without a copy | `direct.rs`, `chunks.rs` |
//! | the server: options, TLS, token, drain; its Flight service | `server.rs`, `service.rs` |
//! | its data, its threads, its counters | `set.rs`, `pool.rs`, `metrics.rs` |
//! | batches shared by several trainers | `shared.rs` |
//! | the trainer's side: the filler, connections, one request | `client.rs`, `network.rs`, `fetch.rs` |
//! | the choice of a server, and names of servers | `table.rs`, `hosts.rs` |
#![forbid(unsafe_code)]

mod chunks;
mod client;
mod direct;
mod fetch;
mod hosts;
mod metrics;
mod network;
mod pool;
mod server;
mod service;
mod set;
mod shared;
mod table;
pub mod ticket;
mod wire;

pub use client::Servers;
pub use hosts::expand_hosts;
pub use server::{Running, Server};
pub use table::ServerStatus;
