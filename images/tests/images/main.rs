//! Tests of decoders and transforms.

mod bounds;
mod epochs;
mod pillow;
mod scaled;
mod transforms;
mod verdicts;
