//! Tests of decoders and transforms.

mod bounds;
mod epochs;
mod moves;
mod pillow;
mod scaled;
mod transforms;
mod verdicts;
