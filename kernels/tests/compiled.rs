//! The embedded PTX matches its sources; with NVRTC installed, so does freshly compiled PTX.
#![cfg(feature = "cuda")]

use feedline_core::{Error, ErrorKind, Result};
use feedline_kernel_compiler::{
    Arch, Cache, Compiler, Log, Origin, Program, embedded, entries, header, load,
};
use feedline_kernels::programs::{PROGRAMS, STEP};

fn kernels(program: &Program) -> Vec<&str> {
    let mut names: Vec<&str> = program.kernels().map(|kernel| kernel.name).collect();
    names.sort_unstable();
    names
}

fn sorted(ptx: &str) -> Vec<&str> {
    let mut names: Vec<&str> = entries(ptx).collect();
    names.sort_unstable();
    names
}

fn arch() -> Arch {
    Arch::new(9, 0)
}

/// NVRTC; without it, prints that `test` was not run.
fn compiler(test: &str) -> Option<Compiler> {
    match Compiler::find() {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            eprintln!("not run: {test}: {error}");
            None
        }
    }
}

#[test]
fn the_embedded_ptx_matches_the_sources() {
    for program in PROGRAMS {
        let text = embedded(program, arch()).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(
            first,
            header(program),
            "run: cargo run -p feedline-kernels --bin compile-kernels -- --arch compute_80 --write-ptx ."
        );
        assert_eq!(sorted(text), kernels(program));
        assert!(text.contains("\n.version 8.7\n") && text.contains("\n.target sm_80\n"));
    }
}

#[test]
fn a_gpu_older_than_the_embedded_ptx_is_refused() {
    let error = embedded(&STEP, Arch::new(7, 5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("compute_75"), "{error}");
}

#[test]
fn launch_bounds_in_the_ptx_match_the_table() {
    for program in PROGRAMS {
        let text = embedded(program, arch()).unwrap();
        for kernel in program.kernels() {
            let (_, rest) = text.split_once(&format!(".entry {}(", kernel.name)).unwrap();
            let bound =
                rest.split_once(".maxntid ").unwrap().1.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            assert_eq!(bound.parse(), Ok(kernel.threads), "{}", kernel.name);
        }
    }
}

#[test]
fn load_falls_back_to_the_embedded_ptx() {
    let refuse_others = |text: &str| -> Result<()> {
        let own = text.starts_with("// feedline kernels: program step");
        own.then_some(()).ok_or_else(|| Error::new(ErrorKind::Device, "PTX newer than the driver"))
    };
    let loaded = load(&STEP, arch(), None, refuse_others).unwrap();
    assert_eq!((loaded.origin, loaded.warnings.len()), (Origin::Embedded, 1));
}

#[test]
fn a_failed_load_gives_the_reason_of_each_attempt() {
    let refuse = |_: &str| -> Result<()> { Err(Error::new(ErrorKind::Device, "no such GPU")) };
    let error = load(&STEP, arch(), None, refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let line = error.to_string();
    assert!(
        line.contains("no such GPU") && line.contains("compute_90") && line.contains("\"step\""),
        "{line}"
    );
}

#[test]
fn every_program_compiles_once_and_then_loads_from_the_cache() {
    let Some(compiler) = compiler("compiling and caching") else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("new"));
    for program in PROGRAMS {
        let run = || load(program, arch(), Some(&cache), |text| Ok(text.to_owned())).unwrap();
        let start = std::time::Instant::now();
        let first = run();
        let cold = start.elapsed();
        let second = run();
        eprintln!(
            "{}: {cold:.0?} cold, {:.0?} warm, NVRTC {}",
            program.name,
            start.elapsed() - cold,
            compiler.version()
        );
        assert_eq!((first.origin, second.origin), (Origin::Compiled, Origin::Cache));
        assert!(first.warnings.is_empty() && second.warnings.is_empty());
        assert_eq!(first.value, second.value);
        assert_eq!(sorted(&first.value), kernels(program));
        assert!(first.value.contains(".target sm_90"));
    }
    // A damaged entry is compiled again.
    for entry in std::fs::read_dir(folder.path().join("new")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() / 2);
        std::fs::write(path, bytes).unwrap();
    }
    let again = load(&STEP, arch(), Some(&cache), |_| Ok(())).unwrap();
    assert_eq!(again.origin, Origin::Compiled);
}

#[test]
fn an_unwritable_cache_adds_a_warning() {
    if compiler("a cache that cannot be written").is_none() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let loaded = load(&STEP, arch(), Some(&Cache::at(file.path())), |_| Ok(())).unwrap();
    assert_eq!((loaded.origin, loaded.warnings.len()), (Origin::Compiled, 1));
}

#[test]
fn a_compile_error_names_file_and_line() {
    let Some(compiler) = compiler("the compiler's messages") else { return };
    let error = compiler
        .compile("bad.cu", "extern \"C\" __global__ void bad() {\n    nothing();\n}\n", arch())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    let line = error.to_string();
    assert!(line.contains("bad.cu(2)") && line.contains("nothing") && !line.contains('\n'), "{line}");
    let log = error.get_ref().and_then(|cause| cause.downcast_ref::<Log>()).unwrap();
    assert!(log.0.lines().count() > 1);
    let error = compiler.compile("zero.cu", "\0", arch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
}

#[test]
fn best_for_a_newer_gpu_is_the_newest_architecture() {
    let Some(compiler) = compiler("architectures") else { return };
    let newest = compiler.best_for(Arch::new(99, 9)).unwrap();
    assert!(newest >= Arch::new(9, 0), "{newest}");
    assert_eq!(compiler.best_for(Arch::new(8, 0)).unwrap(), Arch::new(8, 0));
    assert_eq!(compiler.best_for(Arch::new(1, 0)).unwrap_err().kind(), ErrorKind::Unavailable);
}
