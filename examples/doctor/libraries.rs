//! CUDA's libraries: their locations, and the consequences of missing ones.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A library and its location.
#[derive(Debug, Serialize)]
pub struct Library {
    pub name: &'static str,
    pub path: Option<PathBuf>,
    /// The consequence if it is missing.
    pub missing: &'static str,
}

/// The name, the beginning of the file's name, and the consequence if it is missing.
const LIBRARIES: [(&str, &str, &str); 5] = [
    ("driver library", "libcuda.so", "no GPU can be used; it comes with the NVIDIA driver"),
    ("NVRTC", "libnvrtc.so", "kernels cannot be compiled, except those that were compiled before"),
    ("cuBLASLt", "libcublasLt.so", "matrix products are slower"),
    ("nvJPEG", "libnvjpeg.so", "images are decoded by the CPU"),
    ("NCCL", "libnccl.so", "several GPUs cannot exchange gradients"),
];

pub fn look() -> Vec<Library> {
    let folders = folders();
    LIBRARIES
        .into_iter()
        .map(|(name, file, missing)| {
            let path = folders.iter().find_map(|folder| find(folder, file));
            Library { name, path, missing }
        })
        .collect()
}

/// The first file in `folder` whose name begins with `name`.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(name))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Folders that may contain libraries: the folders of the dynamic loader, of CUDA, and of Python's wheels.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        env::var_os("LD_LIBRARY_PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    for path in [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
    ] {
        folders.push(path.into());
    }
    let below = |folder: &Path| -> Vec<PathBuf> {
        let mut entries: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        entries
    };
    for cuda in below(Path::new("/usr/local")) {
        if cuda.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda")) {
            folders.push(cuda.join("lib64"));
        }
    }
    for python in ["/usr/lib", "/usr/local/lib"].iter().flat_map(|lib| below(Path::new(lib))) {
        for packages in ["site-packages/nvidia", "dist-packages/nvidia"] {
            folders.extend(below(&python.join(packages)).into_iter().map(|wheel| wheel.join("lib")));
        }
    }
    folders
}
