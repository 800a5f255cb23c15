//! Loads a program. The PTX comes from the cache, or else from NVRTC, or else it is the embedded PTX.

use std::sync::Arc;

use feedline_core::{Error, ErrorKind, Result};
use feedline_device::cuda::{Cuda, Function, Module};

use crate::cache::Cache;
use crate::compiler::{Arch, Compiler, OPTIONS};
use crate::program::{Program, hash};

/// The oldest architecture on which the embedded PTX runs, as major and minor version.
pub const EMBEDDED_ARCH: (u32, u32) = (8, 0);

/// A program that is loaded on a GPU, with its kernels by name.
#[derive(Debug)]
pub struct LoadedProgram {
    name: &'static str,
    functions: Vec<Function>,
}

impl LoadedProgram {
    /// Loads `program` on the GPU of `cuda`, with the user's cache. If nothing is cached, this blocks for
    /// some tenths of a second to compile.
    ///
    /// # Errors
    /// As [`load`]; a driver failure.
    pub fn new(cuda: &Cuda, program: &'static Program) -> Result<Self> {
        let (major, minor) = cuda.compute_capability()?;
        let arch = Arch::new(major.unsigned_abs(), minor.unsigned_abs());
        let module: Arc<Module> =
            load(program, arch, Cache::user().as_ref(), |ptx| cuda.load_ptx(ptx))?.value;
        let functions =
            program.kernels().map(|kernel| cuda.function(&module, kernel.name)).collect::<Result<_>>()?;
        Ok(Self { name: program.name, functions })
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// `Unavailable` if the program does not list it.
    pub fn kernel(&self, name: &str) -> Result<&Function> {
        self.functions.iter().find(|function| function.name() == name).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, format!("program \"{}\" has no kernel {name}", self.name))
        })
    }
}

/// The source of loaded PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The cache on disk.
    Cache,
    /// NVRTC, which compiled it during this call.
    Compiled,
    /// The program.
    Embedded,
}

/// The accepted PTX.
#[derive(Debug)]
pub struct Accepted<T> {
    /// The result of `accept`.
    pub value: T,
    /// The source of the PTX.
    pub origin: Origin,
    /// Errors of earlier attempts and of writing the cache; usually empty.
    pub warnings: Vec<Error>,
}

/// Passes PTX of `program` for a GPU of `arch` to `accept`, which loads it. Tries the cached or newly
/// compiled PTX first, and then the embedded PTX. A driver may reject PTX of a newer compiler, so the
/// embedded PTX comes from an old compiler.
///
/// If nothing is cached, this blocks for some tenths of a second to compile.
///
/// # Errors
/// `Unavailable` if `accept` accepted none of them. The message gives the reason for each.
pub fn load<T>(
    program: &Program,
    arch: Arch,
    cache: Option<&Cache>,
    mut accept: impl FnMut(&str) -> Result<T>,
) -> Result<Accepted<T>> {
    let mut warnings = Vec::new();
    match compiled(program, arch, cache, &mut warnings) {
        Ok((ptx, origin)) => match accept(&ptx) {
            Ok(value) => return Ok(Accepted { value, origin, warnings }),
            Err(error) => warnings.push(error),
        },
        Err(error) => warnings.push(error),
    }
    match embedded(program, arch).and_then(&mut accept) {
        Ok(value) => Ok(Accepted { value, origin: Origin::Embedded, warnings }),
        Err(error) => {
            warnings.push(error);
            let why: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            let what =
                format!("cannot load program \"{}\" for a GPU of {arch}: {}", program.name, why.join("; "));
            Err(Error::new(ErrorKind::Unavailable, what))
        }
    }
}

fn compiled(
    program: &Program,
    arch: Arch,
    cache: Option<&Cache>,
    warnings: &mut Vec<Error>,
) -> Result<(String, Origin)> {
    let compiler = Compiler::find()?;
    let arch = compiler.best_for(arch)?;
    let text = program.text();
    let key = hash(format!("{text}\0{OPTIONS:?}").as_bytes());
    let name = format!("{}-{arch}-nvrtc{}-{key:016x}.ptx", program.name, compiler.version());
    if let Some(ptx) = cache.and_then(|cache| cache.read(&name)) {
        return Ok((ptx, Origin::Cache));
    }
    let ptx = compiler.compile(program.name, &text, arch)?;
    if let Some(cache) = cache {
        warnings.extend(cache.write(&name, &ptx).err());
    }
    Ok((ptx, Origin::Compiled))
}

/// The PTX that `program` embeds, compiled for [`EMBEDDED_ARCH`].
///
/// # Errors
/// `Unavailable` for an older GPU.
pub fn embedded(program: &Program, arch: Arch) -> Result<&'static str> {
    let oldest = Arch::new(EMBEDDED_ARCH.0, EMBEDDED_ARCH.1);
    if arch < oldest {
        let why = format!("the embedded kernels need {oldest} or newer, the GPU is {arch}: install NVRTC");
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    Ok(program.embedded)
}

/// The first line of an embedded PTX file, with the hash of its source.
pub fn header(program: &Program) -> String {
    format!("// feedline kernels: program {}, source {:016x}", program.name, program.hash())
}
