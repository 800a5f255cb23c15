//! The location of the built examples.

use std::path::PathBuf;

/// The binary of the example `name`: in the folder `FEEDLINE_EXAMPLES`, or next to this test's binary. A full
/// `cargo test` rebuilds it, `cargo test --test` does not.
pub fn example(name: &str) -> PathBuf {
    let folder = match std::env::var_os("FEEDLINE_EXAMPLES") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let this = std::env::current_exe().expect("this test's own path");
            this.ancestors().nth(2).expect("the build folder").join("examples")
        }
    };
    let path = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.exists(), "no {}: cargo build -p feedline-examples --examples", path.display());
    // Absolute, because it may run in another folder.
    std::path::absolute(path).expect("a path")
}
