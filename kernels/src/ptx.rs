//! The PTX of a program: from the cache, else compiled here, else what this crate carries.

use feedline_core::{Error, ErrorKind, Result};

use crate::cache::Cache;
use crate::compile::{Arch, Compiler, OPTIONS};
use crate::source::{Program, hash};

/// The oldest architecture that the PTX in this crate runs on.
pub const EMBEDDED_ARCH: (u32, u32) = (8, 0);

/// Where PTX came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file that an earlier run wrote.
    Cache,
    /// NVRTC, just now.
    Compiled,
    /// This crate.
    Embedded,
}

/// What was loaded, and why not something better.
#[derive(Debug)]
pub struct Loaded<T> {
    /// What the caller made of the PTX.
    pub value: T,
    /// Where the PTX came from.
    pub origin: Origin,
    /// What failed on the way; empty in the normal case.
    pub notes: Vec<Error>,
}

/// Gives the PTX of `program` for a GPU of `arch` to `accept`, which loads it: the cached, else a fresh compilation, else the
/// embedded, the first that is there and accepted. A driver may refuse PTX of a compiler newer than itself; the embedded PTX is
/// of an old compiler for that reason.
///
/// Blocks for the compiler, some tenths of a second, when nothing is cached.
///
/// # Errors
/// `Unavailable` when nothing was accepted; says why for each.
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
            let what = format!("no kernels \"{}\" for a GPU of {arch}: {}", program.name, why.join("; "));
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

/// The PTX that this crate carries, of NVRTC 12.8 for compute_80.
///
/// # Errors
/// `Unavailable` for a GPU older than that.
pub fn embedded(program: &Program, arch: Arch) -> Result<&'static str> {
    let oldest = Arch::new(EMBEDDED_ARCH.0, EMBEDDED_ARCH.1);
    if arch < oldest {
        let why =
            format!("the kernels in this crate are for {oldest} and newer, the GPU is {arch}: install NVRTC");
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    match program.name {
        "step" => Ok(include_str!("../ptx/step.ptx")),
        "gemm" => Ok(include_str!("../ptx/gemm.ptx")),
        "probe" => Ok(include_str!("../ptx/probe.ptx")),
        "gather" => Ok(feedline_cuda::GATHER_PTX),
        other => {
            Err(Error::new(ErrorKind::Unavailable, format!("this crate carries no PTX for \"{other}\"")))
        }
    }
}

/// The first line of an embedded PTX file: what it was made from.
pub fn header(program: &Program) -> String {
    format!("// feedline kernels: program {}, source {:016x}", program.name, program.hash())
}
