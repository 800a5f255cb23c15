//! A program loaded on a device, with its kernels by name.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::cuda::{Cuda, Function, Module};

use crate::cache::Cache;
use crate::compile::Arch;
use crate::ptx;
use crate::source::Program;

/// A loaded program and its kernels.
pub(crate) struct Loaded {
    functions: Vec<Function>,
}

/// Loads a program and returns its kernel `name`.
pub(crate) fn load(cuda: &Cuda, program: &'static Program, name: &str) -> Result<Function> {
    Loaded::new(cuda, program)?.function(name).cloned()
}

impl Loaded {
    /// Finds or compiles the PTX of a program and loads it.
    pub(crate) fn new(cuda: &Cuda, program: &'static Program) -> Result<Self> {
        let (major, minor) = cuda.compute_capability()?;
        let arch = Arch::new(major.unsigned_abs(), minor.unsigned_abs());
        let module: Arc<Module> =
            ptx::load(program, arch, Cache::of_user().as_ref(), |ptx| cuda.load_ptx(ptx))?.value;
        let functions =
            program.kernels().map(|kernel| cuda.function(&module, kernel.name)).collect::<Result<_>>()?;
        Ok(Self { functions })
    }

    /// The kernel called `name`.
    pub(crate) fn function(&self, name: &str) -> Result<&Function> {
        self.functions.iter().find(|function| function.name() == name).ok_or_else(|| missing(name))
    }
}

/// The error for a kernel that is not loaded.
pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the kernel {name} is not loaded"))
}
