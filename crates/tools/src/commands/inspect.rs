//! `feedline inspect`: as the example `inspect`.

use crate::{Outcome, inspect};

use super::Command;

pub(crate) const COMMAND: Command = Command {
    name: "inspect",
    about: "says what a file or folder holds, and the lines that load it",
    help: || inspect::HELP.to_owned(),
    run: |mut parser| Ok(Outcome::done(inspect::run(parser.raw_args()?)?)),
};
