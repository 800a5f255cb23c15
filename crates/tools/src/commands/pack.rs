//! `feedline pack`: as the example `pack`.

use crate::{Outcome, pack};

use super::Command;

pub(crate) const COMMAND: Command = Command {
    name: "pack",
    about: "writes any source as Arrow files, which are read fastest",
    help: || pack::HELP.to_owned(),
    run: |mut parser| Ok(Outcome::done(pack::run(parser.raw_args()?)?)),
};
