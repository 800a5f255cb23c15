//! The example trainer: trains an MLP on labelled images through feedline.
#![forbid(unsafe_code)]

#[path = "program.rs"]
mod trainer;

fn main() -> std::process::ExitCode {
    trainer::main(None)
}
