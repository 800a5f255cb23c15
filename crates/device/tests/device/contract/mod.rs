//! The contract of every device, tested on the host, on the simulator with several seeds, and on CUDA if
//! there is a GPU.

mod columns;
mod lost;
mod memory;
mod mismatch;
mod order;
mod produce;
mod produce_from;
mod registration;
mod resident;
mod rig;
mod shared;
mod slots;
mod types;
