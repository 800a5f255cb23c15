//! A program: CUDA sources that are compiled together, their kernels, and their embedded PTX.

/// One kernel: an `extern "C"` entry of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The entry's name.
    pub name: &'static str,
    /// Threads per block; the launch bound.
    pub threads: u32,
}

/// One `.cu` file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The file's name, for messages.
    pub file: &'static str,
    /// The file's text.
    pub text: &'static str,
    /// The kernels it defines.
    pub kernels: &'static [Kernel],
}

/// Sources that are compiled and loaded together.
///
/// ```
/// use feedline_kernel_compiler::{Kernel, Program, Source};
/// static FILL: Program = Program {
///     name: "fill",
///     sources: &[Source {
///         file: "fill.cu",
///         text: "extern \"C\" __global__ void fill() {}",
///         kernels: &[Kernel { name: "fill", threads: 256 }],
///     }],
///     embedded: "",
///     path: "fill.ptx",
/// };
/// assert_eq!(FILL.kernel("fill").map(|kernel| kernel.threads), Some(256));
/// ```
#[derive(Debug)]
pub struct Program {
    /// The program's name in file names and messages.
    pub name: &'static str,
    /// The program's files, in order.
    pub sources: &'static [Source],
    /// The embedded PTX, compiled by NVRTC 12.8 for compute_80.
    pub embedded: &'static str,
    /// The path of the embedded PTX in the repository.
    pub path: &'static str,
}

impl Program {
    /// All files as one text. Compiler messages keep the line numbers of the files.
    pub fn text(&self) -> String {
        self.sources.iter().map(|source| format!("#line 1 \"{}\"\n{}\n", source.file, source.text)).collect()
    }

    /// All kernels of all files.
    pub fn kernels(&self) -> impl Iterator<Item = &'static Kernel> {
        self.sources.iter().flat_map(|source| source.kernels)
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&'static Kernel> {
        self.kernels().find(|kernel| kernel.name == name)
    }

    /// A hash of the text.
    pub fn hash(&self) -> u64 {
        hash(self.text().as_bytes())
    }
}

/// 64-bit FNV-1a (Fowler, Noll, Vo 1991); not a cryptographic hash.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The names of the `.entry` functions of a PTX text, in order.
pub fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| {
        let rest = line.split_once(".entry")?.1.trim_start();
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().filter(|name| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_ptx() {
        let ptx = ".version 8.7\n.visible .entry one(\n.param .u64 one_0\n)\n.entry two_2(\n";
        assert_eq!(entries(ptx).collect::<Vec<_>>(), ["one", "two_2"]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Known values from the authors' test set.
        assert_eq!(
            (hash(b""), hash(b"a"), hash(b"foobar")),
            (0xcbf29ce484222325, 0xaf63dc4c8601ec8c, 0x85944171f73967e8)
        );
    }
}
