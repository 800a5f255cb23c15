//! The compiled part of the Python package `feedline`: the module `feedline._feedline`.
//!
//! The package's Python files have the names, defaults and docs that a user sees. This crate has the code
//! that must not run under the interpreter's lock, and the code that cannot be written in Python.
//!
//! | file | what |
//! | --- | --- |
//! | `loader.rs`, `options.rs`, `running.rs` | a loader; its options; the epoch that borrows it |
//! | `open.rs`, `interpreter.rs` | the open loaders; the threads inside the interpreter, and its end |
//! | `thread_state.rs` | the interpreter's state of a loader's thread |
//! | `batch.rs`, `capsule.rs` | a batch, its fields, and their DLPack capsules |
//! | `dataset.rs` | data sets: in memory, and made of others |
//! | `opening.rs` | `feedline.open`, and the options of opening |
//! | `compose.rs` | data sets composed of several |
//! | `own.rs`, `source.rs` | data sets and sources written in Python |
//! | `placed.rs` | long rows of such data sets, copied from their arrays |
//! | `processes/` | worker processes that read such data sets |
//! | `arrow.rs` | tables in memory |
//! | `table.rs` | the steps of a table |
//! | `text.rs` | windows of token ids, packed and unpadded documents, conversations |
//! | `pictures.rs` | pictures that lanes of the loader decode, on the GPU |
//! | `images.rs` | pictures alone, in several views, or with masks, boxes and points |
//! | `sounds.rs` | sounds |
//! | `transforms.rs` | the transforms of pictures |
//! | `sampler.rs` | the order of samples |
//! | `commands.rs` | the commands of `python -m feedline` |
//! | `error.rs` | errors as exceptions |
//!
//! Every call that may wait, read or take a lock first releases the interpreter's lock. A worker may need
//! this lock for a data set written in Python.
#![deny(unsafe_op_in_unsafe_fn)]

use pyo3::prelude::*;

mod arrow;
mod batch;
mod capsule;
mod commands;
mod compose;
mod dataset;
mod error;
mod images;
mod interpreter;
mod loader;
mod open;
mod opening;
mod options;
mod own;
mod pack;
mod pictures;
mod placed;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(not(target_os = "linux"))]
#[path = "processes/other.rs"]
mod processes;
mod room;
mod running;
mod sampler;
mod sounds;
mod source;
mod table;
mod text;
mod thread_state;
mod transforms;
mod turn;

/// `feedline._feedline`.
#[pymodule]
fn _feedline(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<dataset::DataSet>()?;
    module.add_class::<arrow::Table>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::Field>()?;
    module.add_class::<sampler::Sampler>()?;
    module.add_class::<source::Source>()?;
    module.add_class::<own::MapBatch>()?;
    module.add_class::<processes::Processes>()?;
    module.add_class::<processes::Reading>()?;
    module.add_function(wrap_pyfunction!(opening::open, module)?)?;
    module.add_function(wrap_pyfunction!(compose::concat, module)?)?;
    module.add_function(wrap_pyfunction!(compose::zip, module)?)?;
    module.add_function(wrap_pyfunction!(compose::mix, module)?)?;
    module.add_function(wrap_pyfunction!(table::open_table, module)?)?;
    module.add_function(wrap_pyfunction!(table::open_windows, module)?)?;
    module.add_function(wrap_pyfunction!(images::open_images, module)?)?;
    module.add_function(wrap_pyfunction!(sounds::open_sounds, module)?)?;
    module.add_function(wrap_pyfunction!(text::open_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(text::packed, module)?)?;
    module.add_function(wrap_pyfunction!(pack::pack_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(text::open_chats, module)?)?;
    module.add_function(wrap_pyfunction!(text::render_chat, module)?)?;
    module.add_function(wrap_pyfunction!(text::unpadded, module)?)?;
    module.add_function(wrap_pyfunction!(commands::command, module)?)?;
    module.add_function(wrap_pyfunction!(loader::world_of_env, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::leave, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::is_closing, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::forget_workers, module)?)?;
    module.add_function(wrap_pyfunction!(placed::addresses, module)?)?;
    module.add_function(wrap_pyfunction!(placed::are_alike, module)?)?;
    module.add_function(wrap_pyfunction!(placed::are_new, module)?)?;
    module.add_function(wrap_pyfunction!(placed::kept, module)?)?;
    module.add_function(wrap_pyfunction!(placed::sharing, module)?)?;
    module.add_function(wrap_pyfunction!(placed::sharing_at, module)?)?;
    feedline_core::speak_python();
    Ok(())
}
