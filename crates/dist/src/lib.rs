//! From one process to many: ranks, rendezvous and collectives, on existing launchers.
//!
//! feedline has no launcher and no transport of its own. torchrun, srun, mpirun or Kubernetes start the
//! processes and set environment variables; NCCL moves data between GPUs.
//!
//! | part | file |
//! | --- | --- |
//! | [`Launch`]: rank, world and rendezvous, from the launcher's variables | `launch/` |
//! | [`Store`]: keys and values that all ranks share, in the protocol of torch's TCPStore | `store/` |
//! | [`Group`]: the ranks that run together; finds ranks that ended, failed or fell silent | `group/` |
//! | [`Collectives`]: all-reduce, broadcast, all-gather and barrier on streams | `collectives/` |
//!
//! A world of one process opens no socket, starts no thread, and its collectives do nothing. The same program
//! runs alone and under any launcher:
//!
//! ```
//! use std::time::Duration;
//! use feedline_device::{Buffer, Device};
//! use feedline_dist::{Collectives, Group, Launch, Reduce};
//!
//! let launch = Launch::from_env()?;
//! let group = Group::join(&launch, Duration::from_secs(60))?; // blocks until all ranks have joined
//! let stream = Device::new_host().stream()?; // on a GPU: Device::cuda(launch.local_rank())
//! let collectives = Collectives::new(&group, &stream)?;
//! let mut gradients = Buffer::<f32>::new(&stream, 1000)?;
//! collectives.all_reduce(gradients.view_mut(), Reduce::Average)?;
//! group.finish()?;
//! # Ok::<(), feedline_core::Error>(())
//! ```
//!
//! # Limits
//!
//! Every wait of the host has the limit that was given to [`Group::join`]. The group notices at once that a
//! rank's process has ended, and after the limit that a rank is stopped, stuck or unreachable. All other
//! ranks then get an error that names it.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_op_in_unsafe_fn)]

mod collectives;
mod group;
mod launch;
mod store;
mod timed;

pub use collectives::{Collectives, Overlap, Reduce};
pub use group::{Exchange, Group};
pub use launch::{Launch, Rendezvous};
pub use store::{Server, Store};

use feedline_core::{Error, ErrorKind};

/// An error of the command line, the environment or a call.
fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}
