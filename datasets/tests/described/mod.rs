//! Describes a reader's samples in the form of the golden files.
#![allow(dead_code)] // each test binary uses a part

use feedline_core::{Dataset, Values};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// The output of `inspect` for a reader; reads every sample.
pub(crate) fn describe(reader: &dyn Dataset) -> Json {
    let fields = reader.spec().fields().iter();
    let fields: Vec<_> = fields
        .map(|field| json!({"name": field.name(), "dtype": field.element().name(), "shape": field.dims()}))
        .collect();
    let mut values = Values::new();
    let mut hashes = Vec::new();
    for sample in 0..reader.len() {
        values.read(reader, sample).unwrap();
        for (value, field) in values.fields().iter().zip(reader.spec().fields()) {
            let elements: usize = value.shape.iter().product();
            assert_eq!(value.bytes.len(), elements * field.element().size(), "sample {sample}: {field}");
            assert_eq!(value.shape.len(), field.dims().len());
            let fits = |(is, says): (&usize, &Option<usize>)| says.is_none_or(|says| says == *is);
            assert!(value.shape.iter().zip(field.dims()).all(fits), "sample {sample}: {field}");
        }
        if sample == 0 || sample + 1 == reader.len() {
            let mut hash = Sha256::new();
            values.fields().iter().for_each(|value| hash.update(&value.bytes));
            hashes.push(hex(&hash.finalize()));
        }
    }
    assert!(values.read(reader, reader.len()).is_err(), "a sample beyond the last one");
    json!({
        "format": reader.about().format, "samples": reader.len(), "fields": fields,
        "first": hashes.first(), "last": hashes.last(),
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
