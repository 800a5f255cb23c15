//! The commands of the program `feedline`, and of the Python package. Each is a file, and a line in the table
//! below.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;

use lexopt::prelude::{Long, Short, Value};

use crate::Outcome;

mod common;
mod diff;
mod doctor;
mod inspect;
mod pack;
mod replay;
mod sightings;
mod spikes;
mod verify;
mod whatif;

/// A command of the program.
struct Command {
    name: &'static str,
    /// What it does, in a line.
    about: &'static str,
    /// The options of the command, for `--help`.
    help: fn() -> String,
    run: fn(lexopt::Parser) -> Result<Outcome, Box<dyn Error>>,
}

const COMMANDS: [Command; 9] = [
    inspect::COMMAND,
    pack::COMMAND,
    replay::COMMAND,
    diff::COMMAND,
    sightings::COMMAND,
    spikes::COMMAND,
    verify::COMMAND,
    doctor::COMMAND,
    whatif::COMMAND,
];

/// Runs the command that `arguments` name, without the name of the program.
///
/// # Errors
/// One line for the user: an unknown command or option, or the command's failure.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, Box<dyn Error>> {
    let mut parser = lexopt::Parser::from_args(arguments.iter());
    let name = match parser.next()? {
        None | Some(Long("help") | Short('h')) => return Ok(Outcome::done(help())),
        Some(Long("version")) => {
            return Ok(Outcome::done(concat!("feedline ", env!("CARGO_PKG_VERSION"), "\n").into()));
        }
        Some(Value(name)) => name.to_string_lossy().into_owned(),
        Some(argument) => return Err(argument.unexpected().into()),
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(format!("no command {name:?}: see feedline --help").into());
    };
    // Checked first, so that other options need not be valid.
    if arguments.iter().skip(1).any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Outcome::done(format!("{}\n\n{}\n{EXIT}", command.about, (command.help)())));
    }
    (command.run)(parser)
}

const EXIT: &str = "\
exit code: 0 equal, or done; 1 a difference, which is named; 2 an error, on one line\n";

fn help() -> String {
    let mut text = "What data holds, what a training run has seen, and what limits it.\n\n\
         usage: feedline COMMAND [options]\n"
        .to_owned();
    for Command { name, about, .. } in &COMMANDS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<9} {about}");
    }
    text + "\nEvery command takes --help, and all but pack --json.\n" + EXIT
}
