//! `feedline inspect`: as the example `inspect`.

use feedline_tools::{Outcome, inspect};

use crate::Command;

pub(crate) const COMMAND: Command = Command {
    name: "inspect",
    about: "says what a file or folder holds, and the lines that load it",
    help: inspect::HELP,
    run: |mut parser| Ok(Outcome::done(inspect::run(parser.raw_args()?)?)),
};
