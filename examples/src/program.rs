//! What the programs have in common: how they begin and end, and the device that `--device` names.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use feedline::{Device, Error, ErrorKind, Result};

/// Runs the program `name` with its options, or prints its `help` if there are none.
pub fn main<O, E: Display>(
    name: &str,
    help: &str,
    options: Result<Option<O>, E>,
    run: impl FnOnce(O) -> Result<()>,
) -> ExitCode {
    let ran = match options {
        Ok(Some(options)) => run(options).map_err(|error| error.to_string()),
        Ok(None) => {
            println!("{help}");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    };
    let Err(why) = ran else { return ExitCode::SUCCESS };
    // Not `eprintln`, which panics if standard error is closed: the exit code still shows the result.
    let _ = writeln!(std::io::stderr(), "{name}: {why}");
    ExitCode::from(2)
}

/// An error of the command line.
pub fn usage(error: impl Display) -> Error {
    Error::new(ErrorKind::Config, format!("{error}: see --help"))
}

/// The device that `--device` names.
///
/// # Errors
/// `Config` for another name; a device failure.
pub fn device(name: &str) -> Result<Device> {
    match name {
        "auto" => Device::best(),
        "cuda" => Device::cuda(0),
        "host" => Ok(Device::new_host()),
        other => {
            let why = format!("--device is {other:?}: give auto, cuda or host");
            Err(Error::new(ErrorKind::Config, why))
        }
    }
}
