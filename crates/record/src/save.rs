//! A batch as a file of tensors, in the safetensors format.

use std::collections::BTreeSet;

use feedline::{HostBatch, Result};
use feedline_core::ragged::Form;
use serde_json::{Map, Value, json};

use crate::field_values;

/// The name of the format's own entry. It is not a tensor.
const METADATA: &str = "__metadata__";

/// The fields of `batch` as a safetensors file. It has a tensor per field, a tensor `NAME.offsets` or
/// `NAME.lengths` per ragged field, and a tensor `ids` with the sample of each row.
///
/// A field keeps its name. If a field has the name of another tensor, that other tensor gets `_` appended
/// until its name is free: `ids_` beside a field `ids`. A field `__metadata__` also gets `_` appended,
/// because the format reserves this name.
///
/// # Errors
/// The loss of the device.
pub fn safetensors(batch: &HostBatch) -> Result<Vec<u8>> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    let fields = field_values(batch)?;
    let mut taken: BTreeSet<String> = fields.iter().map(|field| field.name.to_owned()).collect();
    taken.insert(METADATA.to_owned());
    let mut free = |name: &str| {
        let mut name = name.to_owned();
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        name
    };
    let mut tensor = |name: String, dtype: &str, shape: Vec<usize>, bytes: &[u8]| {
        let range = [data.len(), data.len() + bytes.len()];
        data.extend_from_slice(bytes);
        header.insert(name, json!({"dtype": dtype, "shape": shape, "data_offsets": range}));
    };
    for field in fields {
        let rows = batch.len();
        let item: &[usize] = field.shape;
        let items = field.bytes.len() / field.item_bytes().max(1);
        let shape = match field.numbers {
            None => [&[rows], item].concat(),
            Some((_, Form::Padded(_))) => [&[rows, items / rows.max(1)], item].concat(),
            Some(_) => [&[items], item].concat(),
        };
        let name = if field.name == METADATA { free(METADATA) } else { field.name.to_owned() };
        tensor(name, &field.dtype.name().to_uppercase(), shape, field.bytes);
        if let Some((numbers, form)) = field.numbers {
            let of_rows = if let Form::Padded(_) = form { "lengths" } else { "offsets" };
            let name = format!("{}.{of_rows}", field.name);
            tensor(free(&name), "U32", vec![numbers.len()], bytemuck::cast_slice(numbers));
        }
    }
    tensor(free("ids"), "U64", vec![batch.len()], bytemuck::cast_slice(batch.ids()));
    let mut json = Value::Object(header).to_string();
    // The data begins at a multiple of 8 bytes.
    json.extend(std::iter::repeat_n(' ', json.len().next_multiple_of(8) - json.len()));
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json.as_bytes());
    file.extend(data);
    Ok(file)
}
