//! Compiles CUDA C++ to PTX with NVRTC, which is loaded at run time.

use std::fmt;
use std::str::FromStr;

use cudarc::nvrtc::CompileOptions;
use feedline_core::{Error, ErrorKind, Result};

use crate::nvrtc;

/// A virtual GPU architecture, such as `compute_90`.
///
/// ```
/// use feedline_kernel_compiler::Arch;
/// assert_eq!(Arch::new(9, 0).to_string(), "compute_90");
/// assert_eq!("compute_80".parse::<Arch>()?, Arch::new(8, 0));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arch(u32);

impl Arch {
    /// The architecture of a GPU of compute capability `major.minor`.
    pub fn new(major: u32, minor: u32) -> Self {
        Self(major * 10 + minor)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "compute_{}", self.0)
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix("compute_").and_then(|number| number.parse().ok()).map(Self);
        number.ok_or_else(|| {
            let why = format!("\"{text}\" is not an architecture: write compute_90, for example");
            Error::new(ErrorKind::Config, why)
        })
    }
}

/// NVRTC's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version, the same as CUDA's.
    pub major: i32,
    /// Minor version.
    pub minor: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The log of a failed compilation, as NVRTC wrote it.
#[derive(Clone, Debug)]
pub struct Log(pub String);

impl fmt::Display for Log {
    /// Shows the first line that names an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.lines().filter(|line| !line.trim().is_empty());
        let first = lines.clone().find(|line| line.contains("error")).or_else(|| lines.next());
        f.write_str(first.unwrap_or("no log").trim())
    }
}

impl std::error::Error for Log {}

/// The NVRTC library of this machine.
///
/// [`find`](Self::find) loads the library, which takes some milliseconds. The library stays loaded.
#[derive(Clone, Debug)]
pub struct Compiler {
    version: Version,
    archs: Vec<Arch>,
}

/// Compiler options of every kernel, without the architecture. Fast-math is off, because it would lose NaNs.
pub const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=true"];

impl Compiler {
    /// Loads the library.
    ///
    /// # Errors
    /// `Unavailable` if it is missing or its calls fail.
    pub fn find() -> Result<Self> {
        let (major, minor) = nvrtc::version()?;
        let archs =
            nvrtc::archs()?.into_iter().filter_map(|arch| u32::try_from(arch).ok()).map(Arch).collect();
        Ok(Self { version: Version { major, minor }, archs })
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The newest architecture that this library supports and that a GPU of `arch` can run. PTX runs on newer
    /// GPUs, but not on older ones.
    ///
    /// # Errors
    /// `Unavailable` if there is none.
    pub fn best_for(&self, arch: Arch) -> Result<Arch> {
        self.archs.iter().copied().filter(|known| *known <= arch).max().ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("NVRTC {} does not support GPUs of {arch}: install an older NVRTC", self.version),
            )
        })
    }

    /// Compiles `text` to PTX. `name` is its file name in messages.
    ///
    /// # Errors
    /// `Device` if the text does not compile. The error's source is the [`Log`].
    pub fn compile(&self, name: &str, text: &str, arch: Arch) -> Result<String> {
        let mut options: Vec<String> = OPTIONS.iter().map(ToString::to_string).collect();
        options.push(format!("--gpu-architecture={arch}"));
        let options = CompileOptions { options, name: Some(name.to_owned()), ..CompileOptions::default() };
        let failed = |log: String| {
            let why = format!("{name} does not compile for {arch} with NVRTC {}", self.version);
            Error::new(ErrorKind::Device, why).with_source(Log(log))
        };
        if text.contains('\0') || name.contains('\0') {
            return Err(failed("a zero byte in the text".to_owned()));
        }
        match cudarc::nvrtc::compile_ptx_with_opts(text, options) {
            Ok(ptx) => Ok(ptx.to_src()),
            Err(cudarc::nvrtc::CompileError::CompileError { log, .. }) => {
                Err(failed(log.to_string_lossy().into_owned()))
            }
            Err(other) => Err(failed(other.to_string())),
        }
    }
}
