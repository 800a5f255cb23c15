//! A kernel launch: the kernel, its grid and its parameters.

use std::ffi::c_void;

use crate::backend::types::KernelId;

/// The launch dimensions of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: (u32, u32, u32),
    /// Threads per block, in x, y and z.
    pub threads: (u32, u32, u32),
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// A one-dimensional grid with one thread per element: blocks of `threads` threads, at most `max`
    /// blocks. The grid has at least one block and one thread.
    pub fn linear(elements: usize, threads: u32, max: u32) -> Self {
        let threads = threads.max(1);
        let blocks = elements.div_ceil(threads as usize).min(max as usize).max(1) as u32;
        Self { blocks: (blocks, 1, 1), threads: (threads, 1, 1), shared_bytes: 0 }
    }
}

/// A kernel and its parameters, for [`Backend::launch`](crate::backend::Backend::launch).
pub struct Launch<'a> {
    /// The kernel, loaded by the same backend.
    pub kernel: KernelId,
    /// The kernel's name, for errors.
    pub name: &'a str,
    /// The launch dimensions.
    pub grid: Grid,
    /// Pointers to the parameter values.
    pub parameters: &'a mut [*mut c_void],
}
