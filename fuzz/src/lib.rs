//! The checks of the fuzz targets, as functions over bytes.
//!
//! | target | untrusted input |
//! | --- | --- |
//! | [`idx_bytes`] | the bytes of an IDX file, plain or gzip |
//! | [`cursor_bytes`] | the bytes or the JSON of a cursor |
//! | [`spec_layout`] | fields, shapes and a batch size |
//! | [`sampler_params`] | samplers, lengths, seeds, worlds and positions |
//! | [`npy_bytes`] | the bytes of a `.npy` file, plain or gzip |
//! | [`npz_bytes`] | the bytes of a `.npz` archive |
//! | [`safetensors_bytes`] | the bytes of a safetensors file |
//! | [`tar_bytes`] | the bytes of a tar archive, plain or gzip |
//! | [`cifar_bytes`] | the bytes of a file, a gzip file or an archive of CIFAR |
//! | [`open_bytes`] | the bytes of a file of any kind |
//! | [`token_bytes`] | the bytes of a token stream, after the options |
//! | [`index_bytes`] | the bytes of the index of a `.bin` of token ids |
//! | [`template_bytes`] | a chat template, and the messages for it |
//! | [`tfrecord_bytes`] | the bytes of a TFRecord file |
//! | [`mds_bytes`] | the bytes of an MDS shard |
//! | [`zarr_bytes`] | the metadata of a Zarr array, and its chunks |
//! | [`arrow_bytes`] | the bytes of an Arrow file or stream |
//! | [`parquet_bytes`] | the bytes of a Parquet file |
//! | [`csv_bytes`] | the bytes of a table of comma-separated values |
//! | [`jsonl_bytes`] | the bytes of a JSON Lines file |
//! | [`sound_bytes`] | the bytes of a sound of any format |
//! | [`coco_bytes`], [`voc_bytes`], [`yolo_bytes`] | annotations of pictures |
//! | [`jpeg_bytes`], [`png_bytes`], [`webp_bytes`], [`bmp_bytes`], [`gif_bytes`] | the bytes of a picture |
//!
//! The files in `fuzz_targets/` pass them to libFuzzer; `tests/replay.rs` runs them over the seeds with
//! any compiler.
#![forbid(unsafe_code)]

mod annotations;
pub mod arrow_bytes;
pub mod cifar_bytes;
pub mod coco_bytes;
pub mod csv_bytes;
pub mod cursor_bytes;
pub mod idx_bytes;
pub mod index_bytes;
pub mod jsonl_bytes;
pub mod mds_bytes;
pub mod npy_bytes;
pub mod npz_bytes;
pub mod open_bytes;
pub mod parquet_bytes;
pub mod picture;
mod reader;
pub mod safetensors_bytes;
pub mod sampler_params;
pub mod sound_bytes;
pub mod spec_layout;
pub mod tar_bytes;
pub mod template_bytes;
pub mod tfrecord_bytes;
pub mod token_bytes;
pub mod voc_bytes;
pub mod yolo_bytes;
pub mod zarr_bytes;

// One check serves all formats; each format has a target, with seeds of its own.
pub use picture as bmp_bytes;
pub use picture as gif_bytes;
pub use picture as jpeg_bytes;
pub use picture as png_bytes;
pub use picture as webp_bytes;

/// If this environment variable is set, the target NAME panics at the bytes `sentinel NAME`. A script can
/// check that way that it runs the intended target.
pub const SENTINEL: &str = "FEEDLINE_FUZZ_SENTINEL";

/// The check of a target; it panics if the input breaks a guarantee.
pub type Check = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Check); 29] = [
    ("idx_bytes", idx_bytes::check),
    ("cursor_bytes", cursor_bytes::check),
    ("spec_layout", spec_layout::check),
    ("sampler_params", sampler_params::check),
    ("npy_bytes", npy_bytes::check),
    ("npz_bytes", npz_bytes::check),
    ("safetensors_bytes", safetensors_bytes::check),
    ("tar_bytes", tar_bytes::check),
    ("cifar_bytes", cifar_bytes::check),
    ("open_bytes", open_bytes::check),
    ("token_bytes", token_bytes::check),
    ("index_bytes", index_bytes::check),
    ("template_bytes", template_bytes::check),
    ("tfrecord_bytes", tfrecord_bytes::check),
    ("mds_bytes", mds_bytes::check),
    ("csv_bytes", csv_bytes::check),
    ("jsonl_bytes", jsonl_bytes::check),
    ("arrow_bytes", arrow_bytes::check),
    ("parquet_bytes", parquet_bytes::check),
    ("coco_bytes", coco_bytes::check),
    ("voc_bytes", voc_bytes::check),
    ("yolo_bytes", yolo_bytes::check),
    ("jpeg_bytes", jpeg_bytes::check),
    ("png_bytes", png_bytes::check),
    ("webp_bytes", webp_bytes::check),
    ("bmp_bytes", bmp_bytes::check),
    ("gif_bytes", gif_bytes::check),
    ("sound_bytes", sound_bytes::check),
    ("zarr_bytes", zarr_bytes::check),
];

/// Runs the target `name` once.
pub fn run(name: &str, check: Check, data: &[u8]) {
    let is_sentinel = data.strip_prefix(b"sentinel ").is_some_and(|rest| rest == name.as_bytes());
    assert!(!is_sentinel || std::env::var_os(SENTINEL).is_none(), "sentinel: this is the target {name}");
    check(data);
}

/// Defines the target `NAME` from the module of that name.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::run(stringify!($name), $crate::$name::check, data));
    };
}
