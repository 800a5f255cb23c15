//! `feedline doctor`: as the example `doctor`, which builds faster.

#[path = "../../../../examples/doctor/mod.rs"]
mod example;

use crate::Outcome;

use super::Command;

pub(crate) const COMMAND: Command = Command {
    name: "doctor",
    about: "inspects the machine, and says what will limit training on it",
    help: example::help,
    run: |parser| Ok(Outcome::done(example::run(parser)?)),
};
