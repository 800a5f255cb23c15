//! The embedded CUDA sources: the programs, their files and kernels, and a hash.

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
    /// The file's name in `cu/`.
    pub file: &'static str,
    /// The file's text.
    pub text: &'static str,
    /// The kernels it defines.
    pub kernels: &'static [Kernel],
}

/// Sources that are compiled and loaded together.
///
/// ```
/// use feedline_kernels::source::{PROGRAMS, STEP};
/// assert!(STEP.kernels().any(|kernel| kernel.name == "softmax_xent_u8"));
/// assert_eq!(PROGRAMS.len(), 5);
/// ```
#[derive(Debug)]
pub struct Program {
    /// The program's name in file names and messages.
    pub name: &'static str,
    /// The program's files, in order.
    pub sources: &'static [Source],
    /// Path of the PTX in the repository.
    pub ptx: &'static str,
}

macro_rules! source {
    ($file:literal, $(($name:literal, $threads:literal)),+ $(,)?) => {
        Source {
            file: $file,
            text: include_str!(concat!("../cu/", $file)),
            kernels: &[$(Kernel { name: $name, threads: $threads }),+],
        }
    };
}

/// The operators of a training step, without the matrix products.
pub static STEP: Program = Program {
    name: "step",
    sources: &[
        source!("adamw.cu", ("adamw", 256), ("adamw_tick", 32)),
        source!("argmax.cu", ("argmax_hits_u8", 256), ("argmax_hits_i64", 256)),
        source!(
            "backward.cu",
            ("relu_bias_backward", 512),
            ("relu_bias_backward_transposed", 512),
            ("classifier_backward_16", 512),
            ("classifier_backward_32", 512),
        ),
        source!("fill.cu", ("fill_f32", 256)),
        source!("sgd.cu", ("sgd", 256)),
        source!(
            "softmax_xent.cu",
            ("softmax_xent_u8", 256),
            ("softmax_xent_i64", 256),
            ("classifier_16", 128),
            ("classifier_16_wide", 128),
            ("classifier_32", 128),
            ("classifier_32_wide", 128),
        ),
        source!(
            "through.cu",
            ("classifier_through_12", 512),
            ("classifier_through_16", 512),
            ("classifier_through_sums", 512)
        ),
        source!("widen.cu", ("widen_u8", 256), ("widen_u8_both", 256)),
    ],
    ptx: "kernels/ptx/step.ptx",
};

/// The matrix products, for machines without cuBLAS. Separate, because they take most of the compile time.
pub static GEMM: Program = Program {
    name: "gemm",
    sources: &[source!(
        "gemm.cu",
        ("gemm_nt_32", 128),
        ("gemm_nn_32", 128),
        ("gemm_tn_32", 128),
        ("gemm_nt_64", 256),
        ("gemm_nn_64", 256),
        ("gemm_tn_64", 256),
        ("gemm_nt_128", 256),
        ("gemm_nn_128", 256),
        ("gemm_tn_128", 256),
    )],
    ptx: "kernels/ptx/gemm.ptx",
};

/// Transforms of pictures after the copy.
pub static AUGMENT: Program = Program {
    name: "augment",
    sources: &[source!(
        "augment.cu",
        ("augment_copy_u8_u8", 256),
        ("augment_copy_u8_f32", 256),
        ("augment_copy_u8_f16", 256),
        ("augment_copy_u8_bf16", 256),
        ("augment_copy_u16_f32", 256),
        ("augment_copy_u16_f16", 256),
        ("augment_copy_u16_bf16", 256),
        ("augment_copy_f16_f32", 256),
        ("augment_copy_f16_f16", 256),
        ("augment_copy_f16_bf16", 256),
        ("augment_copy_bf16_f32", 256),
        ("augment_copy_bf16_f16", 256),
        ("augment_copy_bf16_bf16", 256),
        ("augment_work_u8_u8", 512),
        ("augment_work_u8_f32", 512),
        ("augment_work_u8_f16", 512),
        ("augment_work_u8_bf16", 512),
    )],
    ptx: "kernels/ptx/augment.ptx",
};

/// Kernels for tests and benches: delays and self-describing bytes.
pub static PROBE: Program = Program {
    name: "probe",
    sources: &[
        source!("pattern.cu", ("pattern_fill", 256), ("pattern_check", 256)),
        source!("spin.cu", ("spin", 32)),
    ],
    ptx: "kernels/ptx/probe.ptx",
};

/// The gathers from registered host memory and from device memory. The CUDA backend embeds and loads it; this
/// crate compiles and checks it.
pub static GATHER: Program = Program {
    name: "gather",
    sources: &[Source {
        file: "gather.cu",
        text: feedline_cuda::GATHER_SOURCE,
        kernels: &[
            Kernel { name: "gather_fields", threads: 512 },
            Kernel { name: "gather_resident", threads: 512 },
            Kernel { name: "gather_resident_few", threads: 512 },
        ],
    }],
    ptx: "crates/cuda/src/gather.ptx",
};

/// All programs.
pub static PROGRAMS: [&Program; 5] = [&STEP, &GEMM, &AUGMENT, &PROBE, &GATHER];

impl Program {
    /// All files as one text; compiler messages keep the line numbers of the files.
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
    fn every_file_is_in_the_table_and_includes_nothing() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        let mut files: Vec<String> = ["cu", "../crates/cuda/src"]
            .into_iter()
            .flat_map(|folder| std::fs::read_dir(format!("{root}{folder}")).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file.ends_with(".cu"))
            .collect();
        let mut known: Vec<&str> =
            PROGRAMS.iter().flat_map(|program| program.sources).map(|source| source.file).collect();
        files.sort();
        known.sort_unstable();
        assert_eq!(files, known);
        for source in PROGRAMS.iter().flat_map(|program| program.sources) {
            assert!(!source.text.contains("#include"), "{} includes a header", source.file);
        }
    }

    #[test]
    fn the_table_names_the_kernels_of_each_text() {
        for source in PROGRAMS.iter().flat_map(|program| program.sources) {
            let mut count = 0;
            for kernel in source.kernels {
                // gemm.cu appends the tile size to the name.
                let stem = kernel.name.trim_end_matches(|c: char| c.is_ascii_digit());
                let stem = if source.file == "gemm.cu" { stem } else { kernel.name };
                assert!(
                    [
                        format!("\n{stem}("),
                        format!("    {stem}##TILE("),
                        format!("\nCLASSIFIER({stem},"),
                        format!("\nTHROUGH({stem},"),
                        format!("\nAUGMENT_COPY({stem},"),
                        format!("\nAUGMENT_WORK({stem},"),
                    ]
                    .iter()
                    .any(|definition| source.text.contains(definition)),
                    "{} has no {}",
                    source.file,
                    kernel.name
                );
                count += 1;
            }
            assert!(count > 0, "{} defines no kernel", source.file);
        }
    }

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
