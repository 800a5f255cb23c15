//! `feedline pack`: as the example `pack`.

use feedline_tools::{Outcome, pack};

use crate::Command;

pub(crate) const COMMAND: Command = Command {
    name: "pack",
    about: "writes any source as Arrow files, which are read fastest",
    help: pack::HELP,
    run: |mut parser| Ok(Outcome::done(pack::run(parser.raw_args()?)?)),
};
