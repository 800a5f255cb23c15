//! The PTX of a program: from the cache, else compiled by NVRTC, else embedded in this crate.

use feedline_core::{Error, ErrorKind, Result};

use crate::cache::Cache;
use crate::compile::{Arch, Compiler, OPTIONS};
use crate::source::{Program, hash};

/// The oldest architecture that the embedded PTX runs on.
pub const EMBEDDED_ARCH: (u32, u32) = (8, 0);

/// Where PTX came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The cache on disk.
    Cache,
    /// NVRTC compiled it now.
    Compiled,
    /// This crate.
    Embedded,
}

/// A loaded program.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The result of `accept`.
    pub value: T,
    /// Where the PTX came from.
    pub origin: Origin,
    /// Errors of the attempts before; usually empty.
    pub notes: Vec<Error>,
}

/// Passes PTX of `program` for a GPU of `arch` to `accept`, which loads it. Tries the cached, then a
/// freshly compiled, then the embedded PTX until one is accepted. A driver may reject PTX of a newer
/// compiler; the embedded PTX comes from an old one for that reason.
///
/// Blocks for some tenths of a second to compile if nothing is cached.
///
/// # Errors
/// `Unavailable` if none was accepted; the message gives the reason for each.
pub fn load<T>(
    program: &Program,
    arch: Arch,
    cache: Option<&Cache>,
    mut accept: impl FnMut(&str) -> Result<T>,
) -> Result<Loaded<T>> {
    let mut notes = Vec::new();
    match compiled(program, arch, cache, &mut notes) {
        Ok((ptx, origin)) => match accept(&ptx) {
            Ok(value) => return Ok(Loaded { value, origin, notes }),
            Err(error) => notes.push(error),
        },
        Err(error) => notes.push(error),
    }
    match embedded(program, arch).and_then(&mut accept) {
        Ok(value) => Ok(Loaded { value, origin: Origin::Embedded, notes }),
        Err(error) => {
            notes.push(error);
            let why: Vec<String> = notes.iter().map(ToString::to_string).collect();
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
    notes: &mut Vec<Error>,
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
        notes.extend(cache.write(&name, &ptx).err());
    }
    Ok((ptx, Origin::Compiled))
}

/// The embedded PTX, compiled by NVRTC 12.8 for compute_80.
///
/// # Errors
/// `Unavailable` for an older GPU.
pub fn embedded(program: &Program, arch: Arch) -> Result<&'static str> {
    let oldest = Arch::new(EMBEDDED_ARCH.0, EMBEDDED_ARCH.1);
    if arch < oldest {
        let why = format!("the embedded kernels need {oldest} or newer, the GPU is {arch}: install NVRTC");
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    match program.name {
        "step" => Ok(include_str!("../ptx/step.ptx")),
        "gemm" => Ok(include_str!("../ptx/gemm.ptx")),
        "augment" => Ok(include_str!("../ptx/augment.ptx")),
        "probe" => Ok(include_str!("../ptx/probe.ptx")),
        "gather" => Ok(feedline_cuda::GATHER_PTX),
        other => Err(Error::new(ErrorKind::Unavailable, format!("program \"{other}\" has no embedded PTX"))),
    }
}

/// The first line of an embedded PTX file, with the hash of its source.
pub fn header(program: &Program) -> String {
    format!("// feedline kernels: program {}, source {:016x}", program.name, program.hash())
}
