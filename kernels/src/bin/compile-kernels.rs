//! Compiles every `.cu` file without a GPU and checks that it defines the kernels listed in `programs.rs`.
//!
//! `compile-kernels --arch compute_80 --arch compute_90 [--write-ptx ROOT]`. With `--write-ptx` it also
//! writes the PTX of the first architecture into the repository at ROOT. Exit code 3: no NVRTC; 2: any
//! other failure.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use feedline_core::{Error, ErrorKind, Result};
use feedline_kernel_compiler::{Arch, Compiler, EMBEDDED_ARCH, Log, Source, entries, header};
use feedline_kernels::programs::PROGRAMS;

struct Options {
    archs: Vec<Arch>,
    write_ptx: Option<PathBuf>,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compile-kernels: {error}");
            if let Some(log) = error.get_ref().and_then(|cause| cause.downcast_ref::<Log>()) {
                eprintln!("{}", log.0);
            }
            ExitCode::from(if error.kind() == ErrorKind::Unavailable { 3 } else { 2 })
        }
    }
}

fn options() -> Result<Options> {
    let wrong = |error: lexopt::Error| Error::new(ErrorKind::Config, error.to_string());
    let mut options = Options { archs: Vec::new(), write_ptx: None };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next().map_err(wrong)? {
        match argument {
            lexopt::Arg::Long("arch") => {
                let value = arguments.value().map_err(wrong)?;
                options.archs.push(value.to_string_lossy().parse()?);
            }
            lexopt::Arg::Long("write-ptx") => {
                options.write_ptx = Some(arguments.value().map_err(wrong)?.into())
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    if options.archs.is_empty() {
        options.archs.push(Arch::new(EMBEDDED_ARCH.0, EMBEDDED_ARCH.1));
    }
    Ok(options)
}

fn run(options: &Options) -> Result<()> {
    let compiler = Compiler::find()?;
    println!("NVRTC {}", compiler.version());
    for arch in &options.archs {
        for source in PROGRAMS.iter().flat_map(|program| program.sources) {
            compile(&compiler, source, *arch)?;
        }
        for program in PROGRAMS {
            let start = Instant::now();
            let text = compiler.compile(program.name, &program.text(), *arch)?;
            println!(
                "{arch} program {:<16} {:>7} bytes {:>5} ms",
                program.name,
                text.len(),
                start.elapsed().as_millis()
            );
            if let Some(root) = &options.write_ptx
                && *arch == options.archs[0]
            {
                let path = root.join(program.path);
                std::fs::write(&path, format!("{}\n{}\n", header(program), text.trim())).map_err(
                    |error| Error::new(ErrorKind::Data, "cannot write PTX").with_source(error).at_path(&path),
                )?;
            }
        }
    }
    Ok(())
}

fn compile(compiler: &Compiler, source: &Source, arch: Arch) -> Result<()> {
    let start = Instant::now();
    let text = compiler.compile(source.file, source.text, arch)?;
    let mut found: Vec<&str> = entries(&text).collect();
    let mut wanted: Vec<&str> = source.kernels.iter().map(|kernel| kernel.name).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    if found != wanted {
        let why = format!("{} defines {found:?}, but programs.rs lists {wanted:?}", source.file);
        return Err(Error::new(ErrorKind::Config, why));
    }
    println!(
        "{arch} {:<24} {:>7} bytes {:>5} ms  {}",
        source.file,
        text.len(),
        start.elapsed().as_millis(),
        wanted.join(" ")
    );
    Ok(())
}
