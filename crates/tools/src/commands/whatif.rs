//! `feedline whatif`: as the example `whatif`, which builds faster.

#[path = "../../../../examples/whatif/mod.rs"]
mod example;

use crate::Outcome;

use super::Command;

pub(crate) const COMMAND: Command = Command {
    name: "whatif",
    about: "predicts what other settings would give, from the service times of a run",
    help: example::help,
    run: |parser| Ok(Outcome::done(example::run(parser)?)),
};
