//! The file of a checkpoint: safetensors, sealed with a checksum.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use feedline::{Error, ErrorKind, Result};
use feedline_core::random::splitmix64;
use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

/// The name of the checksum note.
pub const CHECKSUM: &str = "checksum";

/// The largest checkpoint, in bytes; a larger file is not read into memory.
const MAX_BYTES: u64 = 64 << 30;

/// The longest header of a safetensors file.
const MAX_HEADER: u64 = 100_000_000;

/// The reason why a file is not a checkpoint.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The parameters of a checkpoint: the weights and biases of all layers, flat, as
/// [`Mlp::set_parameters`](crate::Mlp::set_parameters) takes them.
///
/// # Errors
/// `Data` for a file that is not a regular file, not a checkpoint, cut short or damaged.
pub fn read_parameters(path: &Path) -> Result<Vec<f32>> {
    let read = || {
        let bytes = read_file(path)?;
        let (_, header) = SafeTensors::read_metadata(&bytes)?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let notes = header.metadata().clone().unwrap_or_default();
        let all = tensors.iter().map(|(name, view)| (name, view.data()));
        if notes.get(CHECKSUM) != Some(&checksum(all, &notes)) {
            return Err("it is damaged, or no checkpoint of this trainer: its checksum does not match".into());
        }
        let parameters = tensors.tensor("parameters")?;
        if parameters.dtype() != Dtype::F32 {
            return Err(format!("\"parameters\" is {:?}, not F32", parameters.dtype()).into());
        }
        let values = parameters.data().as_chunks::<4>().0;
        Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    let failed = |cause: Cause| {
        let why = "cannot read the checkpoint, give the path of one that mlp --checkpoint has written";
        Error::new(ErrorKind::Data, why).with_source(cause).at_path(path)
    };
    read().map_err(failed)
}

/// Opens a regular file for reading; also returns its length.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Checked before opening: opening a named pipe would block until it has a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let file = File::open(path)?;
    // The length of the open file: another process may have replaced the path meanwhile.
    let len = file.metadata()?.len();
    Ok((file, len))
}

/// The bytes of a safetensors file. Reads only what the header announces, so an endless device or a
/// huge file is refused after its first bytes.
///
/// # Errors
/// Why the file is not one.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Cause> {
    let (mut file, len) = open_regular(path)?;
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(|_| format!("it is cut short: it has {len} bytes"))?;
    let header = u64::from_le_bytes(first);
    // The shortest header is "{}".
    if !(2..=MAX_HEADER).contains(&header) || header > len.saturating_sub(8) {
        return Err(format!("it does not begin as a checkpoint, or is cut short at {len} bytes").into());
    }
    let mut bytes = first.to_vec();
    file.by_ref().take(header).read_to_end(&mut bytes)?;
    let metadata: Metadata = serde_json::from_slice(&bytes[8..])?;
    let announced = bytes.len() as u64 + metadata.data_len() as u64;
    if announced != len {
        return Err(format!("it has {len} bytes, but its header announces {announced}").into());
    }
    if len > MAX_BYTES {
        return Err(format!("it has {len} bytes, more than the {MAX_BYTES} of the largest checkpoint").into());
    }
    bytes.try_reserve_exact(metadata.data_len())?;
    file.take(metadata.data_len() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Serializes tensors and notes as a safetensors file, and adds their checksum to the notes.
pub fn seal(
    tensors: Vec<(&str, TensorView<'_>)>,
    mut notes: HashMap<String, String>,
) -> Result<Vec<u8>, SafeTensorError> {
    let sum = checksum(tensors.iter().map(|(name, view)| (*name, view.data())), &notes);
    notes.insert(CHECKSUM.to_owned(), sum);
    safetensors::serialize(tensors, Some(notes))
}

/// A checksum of the names and bytes of all tensors and notes. Every step is a bijection, so a change
/// of one word is always found.
pub fn checksum<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a [u8])>,
    notes: &'a HashMap<String, String>,
) -> String {
    let notes = notes.iter().filter(|(name, _)| *name != CHECKSUM);
    let mut parts: Vec<_> =
        tensors.chain(notes.map(|(name, note)| (name.as_str(), note.as_bytes()))).collect();
    parts.sort_unstable();
    let mut state = 0;
    for bytes in parts.iter().flat_map(|(name, bytes)| [name.as_bytes(), bytes]) {
        state = splitmix64(state ^ bytes.len() as u64);
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            state = splitmix64(state ^ u64::from_le_bytes(padded));
        }
    }
    format!("{state:#018x}")
}
