//! What every device must do, asked of each: the host, the simulator under several seeds, and CUDA where there is one.

mod columns;
mod lost;
mod memory;
mod mismatch;
mod order;
mod rig;
mod slots;
mod types;
