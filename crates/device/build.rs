//! Refuses two CUDA versions in one line, before cudarc fails to build with hundreds of errors.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_on = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    if is_on("CUDA_12") && is_on("CUDA_13") {
        println!(
            "cargo::error=cuda-12 and cuda-13 are both on, and a build has one CUDA version; cuda-13 is a \
             default feature: write feedline = {{ version = \"{}\", default-features = false, features = \
             [\"cuda-12\"] }}, and the same for every other feedline crate",
            env!("CARGO_PKG_VERSION")
        );
    }
}
