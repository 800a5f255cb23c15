//! Safetensors files. A file has named tensors. Their first dimension is the number of samples.

use std::collections::HashSet;
use std::path::Path;

use feedline_core::{DType, ElementType, Error, Result};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::OpenOptions;
use crate::error::{data, one_line};
use crate::formats::arrays::{Array, Arrays, Coding};
use crate::formats::json::entries;
use crate::io::bytes::Content;
use crate::io::disk::DiskFile;

/// Bytes before the header. They hold its length.
const LENGTH: u64 = 8;
/// Max bytes of the header, as in the reference implementation.
const MAX_HEADER: u64 = 100_000_000;

/// Opens a safetensors file. Its tensors are the fields, in the order of their bytes.
///
/// Files of up to [`MEMORY_LIMIT`](crate::MEMORY_LIMIT) are held in memory. Larger files stay on disk. If the
/// tensors have the same first dimension, it is the number of samples. Otherwise the file is one sample, such
/// as the weights of a model, see [`Arrays`].
///
/// # Errors
/// `Data` if the file is missing, damaged or cut short, a tensor has a type that batches cannot hold, or two
/// tensors have the same name. The error names the file, and the byte or the tensor.
pub fn open(path: impl AsRef<Path>) -> Result<Arrays> {
    open_with(path, &OpenOptions::default())
}

/// As [`open`], with [`OpenOptions::memory_limit`].
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Arrays> {
    let path = path.as_ref();
    options
        .check("safetensors", false)
        .and_then(|()| read(path, options.memory_limit))
        .map_err(|error| error.at_path(path))
}

fn read(path: &Path, limit: u64) -> Result<Arrays> {
    of_content(path, Content::OnDisk(DiskFile::open(path)?.into()), limit)
}

/// The tensors in `content`. A plain file of up to `limit` bytes is read into memory.
pub(crate) fn of_content(path: &Path, content: Content, limit: u64) -> Result<Arrays> {
    // This finds a damaged header before the file is read into memory.
    header(&content)?;
    let content = content.within(limit)?;
    let (metadata, first) = header(&content)?;
    let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
    // Tensors without elements share an offset, so equal offsets are sorted by name.
    tensors.sort_by(|(one, a), (two, b)| a.data_offsets.cmp(&b.data_offsets).then_with(|| one.cmp(two)));
    let mut arrays = Vec::new();
    for (name, tensor) in tensors {
        let Some(element) = element(tensor.dtype) else {
            let why = format!("tensor \"{}\" is of type {:?}", one_line(&name), tensor.dtype);
            return Err(data(why + ", which is not read: store it as another type"));
        };
        arrays.push(Array {
            name,
            element,
            coding: Coding::Plain,
            item: element.size(),
            dims: tensor.shape.clone(),
            fortran: false,
            block: 0,
            first: first + tensor.data_offsets.0 as u64,
            record: None,
        });
    }
    Arrays::new("safetensors", path, vec![content], arrays)
}

/// Reads and checks the header. Also returns the offset of the first byte after it.
fn header(file: &Content) -> Result<(Metadata, u64)> {
    let mut length = [0; LENGTH as usize];
    if file.len() < LENGTH {
        return Err(data("the file ends within its first 8 bytes: fetch it again").at_offset(file.len()));
    }
    file.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    let max = (file.len() - LENGTH).min(MAX_HEADER);
    if length > max {
        let why = format!("the header claims {length} bytes, max {max} are possible: fetch the file again");
        return Err(data(why).at_offset(0));
    }
    let text = file.read(LENGTH, length as usize)?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
    // If two tensors have one name, the crate keeps the last one.
    let mut names = HashSet::new();
    entries(&text, |name, _| {
        if names.insert(name.to_owned()) {
            return Ok(());
        }
        let why = format!("there are two tensors \"{}\": write the file again", one_line(name));
        Err(data(why).at_offset(LENGTH))
    })?;
    let first = LENGTH + length;
    let (claimed, found) = (metadata.data_len() as u64, file.len() - first);
    if claimed != found {
        let why =
            format!("the header claims {claimed} bytes of tensors, found {found}: fetch the file again");
        return Err(data(why).at_offset(first.saturating_add(claimed.min(found))));
    }
    Ok((metadata, first))
}

fn damaged(error: &serde_json::Error) -> Error {
    data("the header is damaged: fetch the file again").with_source(one_line(error)).at_offset(LENGTH)
}

fn element(dtype: Dtype) -> Option<ElementType> {
    Some(ElementType::Number(match dtype {
        Dtype::BOOL => return Some(ElementType::Bool),
        Dtype::U64 => return Some(ElementType::U64),
        Dtype::C64 => return Some(ElementType::Complex64),
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::U16 => DType::U16,
        Dtype::I16 => DType::I16,
        Dtype::U32 => DType::U32,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    }))
}
