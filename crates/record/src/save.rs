//! A batch as a file of tensors, in the format safetensors.

use feedline::{HostBatch, Result};
use serde_json::{Map, Value, json};

use crate::field_values;

/// The fields of `batch` as a safetensors file: a tensor per field, `NAME.offsets` or `NAME.lengths` for
/// ragged ones, and `ids` with the sample of each row.
///
/// # Errors
/// The loss of the device.
pub fn safetensors(batch: &HostBatch) -> Result<Vec<u8>> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    let mut tensor = |name: &str, dtype: &str, shape: Vec<usize>, bytes: &[u8]| {
        let range = [data.len(), data.len() + bytes.len()];
        data.extend_from_slice(bytes);
        header.insert(name.to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": range}));
    };
    for field in field_values(batch)? {
        let rows = batch.len();
        let item: &[usize] = field.shape;
        let items = field.bytes.len() / field.item_bytes().max(1);
        let shape = match field.numbers {
            None => [&[rows], item].concat(),
            Some((_, true)) => [&[rows, items / rows.max(1)], item].concat(),
            Some((_, false)) => [&[items], item].concat(),
        };
        tensor(field.name, &field.dtype.name().to_uppercase(), shape, field.bytes);
        if let Some((numbers, is_padded)) = field.numbers {
            let name = format!("{}.{}", field.name, if is_padded { "lengths" } else { "offsets" });
            tensor(&name, "U32", vec![numbers.len()], bytemuck::cast_slice(numbers));
        }
    }
    tensor("ids", "U64", vec![batch.len()], bytemuck::cast_slice(batch.ids()));
    let mut json = Value::Object(header).to_string();
    // The data begins at a multiple of 8 bytes.
    json.extend(std::iter::repeat_n(' ', json.len().next_multiple_of(8) - json.len()));
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend(json.as_bytes());
    file.extend(data);
    Ok(file)
}
