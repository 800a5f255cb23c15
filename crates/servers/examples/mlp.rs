//! The example trainer with decode servers.
//!
//!     cargo run --release --example mlp -- --data PATH --servers HOST:PORT,...
#![forbid(unsafe_code)]

#[path = "../../../examples/mlp/trainer/program.rs"]
mod trainer;

use feedline::{Error, ErrorKind, LoaderBuilder, Result};
use feedline_decode::Servers;
use feedline_decode::ticket::Form;

fn main() -> std::process::ExitCode {
    trainer::main(Some(add))
}

/// Lets the servers at `list` fill batches.
fn add(builder: LoaderBuilder, list: &str, options: &trainer::Options) -> Result<LoaderBuilder> {
    let data = options.labelled();
    let form = Form::Labelled { input: data.input, label: data.label, classes: data.classes };
    let mut servers = Servers::new(list.split(','))?.form(form);
    if let Some(path) = &options.token_file {
        let unreadable =
            |error| Error::new(ErrorKind::Config, "cannot read the token").with_source(error).at_path(path);
        servers = servers.token(&std::fs::read_to_string(path).map_err(unreadable)?)?;
    }
    Ok(builder.filler(servers))
}
