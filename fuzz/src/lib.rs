//! What the fuzz targets check, as plain functions over bytes.
//!
//! | target | what comes from anywhere |
//! | --- | --- |
//! | [`idx_bytes`] | the bytes of an IDX file, plain or gzip |
//! | [`cursor_bytes`] | the bytes or the JSON of a cursor |
//! | [`spec_layout`] | fields, shapes and a batch size |
//! | [`order_params`] | orders, lengths, seeds, worlds and positions |
//!
//! A file in `fuzz_targets/` hands each to libFuzzer; `tests/replay.rs` runs them over the seeds with any compiler.
#![forbid(unsafe_code)]

pub mod cursor_bytes;
pub mod idx_bytes;
pub mod order_params;
pub mod spec_layout;

/// With this variable set, a target panics at the bytes `sentinel NAME` when NAME is its own: so a script can tell
/// that it runs the target it names.
pub const SENTINEL: &str = "FEEDLINE_FUZZ_SENTINEL";

/// What a target does with its input; it panics when that breaks a promise.
pub type Check = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Check); 4] = [
    ("idx_bytes", idx_bytes::check),
    ("cursor_bytes", cursor_bytes::check),
    ("spec_layout", spec_layout::check),
    ("order_params", order_params::check),
];

/// One run of the target `name`.
pub fn run(name: &str, check: Check, data: &[u8]) {
    let is_sentinel = data.strip_prefix(b"sentinel ").is_some_and(|rest| rest == name.as_bytes());
    assert!(!is_sentinel || std::env::var_os(SENTINEL).is_none(), "sentinel: this is the target {name}");
    check(data);
}

/// Defines the target `NAME` over the module of that name.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::run(stringify!($name), $crate::$name::check, data));
    };
}
