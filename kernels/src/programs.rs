//! The CUDA programs: which files of `cu/` are compiled together, and the kernels that each file defines.

use feedline_kernel_compiler::{Kernel, Program, Source};

/// A file of `cu/`, or several files as one text, with a line between two of them.
macro_rules! source {
    ($file:literal, $(($name:literal, $threads:literal)),+ $(,)?) => {
        source!($file = [$file], $(($name, $threads)),+)
    };
    ($file:literal = [$first:literal $(, $part:literal)*], $(($name:literal, $threads:literal)),+ $(,)?) => {
        Source {
            file: $file,
            text: concat!(
                include_str!(concat!("../cu/", $first))
                $(, "\n", include_str!(concat!("../cu/", $part)))*
            ),
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
            "classifier_fused.cu",
            ("classifier_fused_12", 512),
            ("classifier_fused_16", 512),
            ("classifier_fused_sums", 512)
        ),
        source!("cast.cu", ("cast_u8", 256), ("cast_u8_with_transpose", 256)),
    ],
    embedded: include_str!("../ptx/step.ptx"),
    path: "kernels/ptx/step.ptx",
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
    embedded: include_str!("../ptx/gemm.ptx"),
    path: "kernels/ptx/gemm.ptx",
};

/// Transforms of pictures after the copy.
pub static AUGMENT: Program = Program {
    name: "augment",
    sources: &[source!(
        "augment.cu" = [
            "augment/samples.cu",
            "augment/scaled.cu",
            "augment/colors.cu",
            "augment/fours.cu",
            "augment/kernels.cu"
        ],
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
    embedded: include_str!("../ptx/augment.ptx"),
    path: "kernels/ptx/augment.ptx",
};

/// Kernels for tests and benches: delays and self-describing bytes.
pub static PROBE: Program = Program {
    name: "probe",
    sources: &[
        source!("pattern.cu", ("pattern_fill", 256), ("pattern_check", 256)),
        source!("spin.cu", ("spin", 32)),
    ],
    embedded: include_str!("../ptx/probe.ptx"),
    path: "kernels/ptx/probe.ptx",
};

/// The gathers from registered host memory and from device memory. The CUDA backend embeds and loads it; this
/// crate compiles and checks it.
pub static GATHER: Program = Program {
    name: "gather",
    sources: &[Source {
        file: "gather.cu",
        text: feedline_device::cuda::GATHER_SOURCE,
        kernels: &[
            Kernel { name: "gather_fields", threads: 512 },
            Kernel { name: "gather_resident", threads: 256 },
            Kernel { name: "gather_resident_few", threads: 256 },
        ],
    }],
    embedded: feedline_device::cuda::GATHER_PTX,
    path: "crates/device/src/cuda/driver/gather.ptx",
};

/// All programs.
pub static PROGRAMS: [&Program; 5] = [&STEP, &GEMM, &AUGMENT, &PROBE, &GATHER];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_table_and_includes_nothing() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        let mut files: Vec<String> = ["cu", "../crates/device/src/cuda/driver"]
            .into_iter()
            .flat_map(|folder| std::fs::read_dir(format!("{root}{folder}")).unwrap())
            .map(|entry| entry.unwrap())
            .filter_map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                // The files of a folder are one text.
                let file = if entry.path().is_dir() { format!("{name}.cu") } else { name };
                file.ends_with(".cu").then_some(file)
            })
            .collect();
        let mut known: Vec<&str> =
            PROGRAMS.iter().flat_map(|program| program.sources).map(|source| source.file).collect();
        files.sort();
        known.sort_unstable();
        assert_eq!(files, known);
        for source in PROGRAMS.iter().flat_map(|program| program.sources) {
            assert!(!source.text.contains("#include"), "{} includes a header", source.file);
        }
        let parts = std::fs::read_dir(format!("{root}cu/augment")).unwrap();
        let parts: Vec<_> =
            parts.map(|part| std::fs::read_to_string(part.unwrap().path()).unwrap()).collect();
        let lines = parts.iter().map(|part| part.lines().count() + 1).sum::<usize>() - 1;
        assert_eq!(AUGMENT.sources[0].text.lines().count(), lines, "every file of the folder is in the text");
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
                        format!("\nCLASSIFIER_FUSED({stem},"),
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
}
