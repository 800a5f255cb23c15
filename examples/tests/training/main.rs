//! Tests of the trainer, as a process.

mod changed_files;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/checkpoint.rs"]
mod checkpoint;
mod data;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/delivered.rs"]
mod delivered;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/drawn.rs"]
mod drawn;
mod errors;
mod exactly_once;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/files.rs"]
mod files;
mod forged;
mod json;
mod kill;
mod launchers;
mod limits;
mod output_files;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/pace.rs"]
mod pace;
#[path = "../program/mod.rs"]
mod program;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/progress.rs"]
mod progress;
mod rank_faults;
mod ranks;
mod record;
mod reference;
#[allow(dead_code, reason = "the tests use a part of it")]
#[path = "../../mlp/trainer/report.rs"]
mod report;
mod resume;
mod see;
mod terminal;
#[path = "../trainer/mod.rs"]
mod trainer;
#[path = "../world/mod.rs"]
mod world;
