//! A checkpoint in one safetensors file: model, optimizer, losses, cursor and bad-sample report.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use feedline::{BadSampleReport, Error, ErrorKind, Proof, Result, World};
use feedline_core::random::splitmix64;
use feedline_examples::mlp::State;
use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use crate::delivered::{Delivered, whole_proof, whole_report};
use crate::files::{Output, open_regular};

/// Everything needed to continue a run.
pub struct Checkpoint {
    /// What each rank has delivered.
    pub delivered: Vec<Delivered>,
    /// The expected proof of the epochs before the cursor's.
    pub expected: Proof,
    pub model: State,
    /// The loss of every step, over all parts of the run.
    pub losses: Vec<f32>,
    /// Samples delivered, over all parts of the run and all ranks.
    pub samples: u64,
}

/// The names of a model's parts.
const PARTS: [&str; 3] = ["parameters", "first", "second"];

/// The name of the note about the other ranks.
const OTHERS: &str = "other_ranks";

/// The name of the checksum note.
const CHECKSUM: &str = "checksum";

/// The largest checkpoint, in bytes; a larger file is not read into memory.
const MAX_BYTES: u64 = 64 << 30;

/// The longest header of a safetensors file.
const MAX_HEADER: u64 = 100_000_000;

impl Checkpoint {
    /// Writes the checkpoint.
    ///
    /// # Errors
    /// `Data` if it cannot be written; the previous checkpoint is kept.
    pub fn write(&self, output: &Output) -> Result<()> {
        let bytes = self.to_bytes().map_err(|cause| {
            Error::new(ErrorKind::Data, "cannot serialize the checkpoint").caused_by(cause)
        })?;
        output.replace(&bytes)
    }

    fn to_bytes(&self) -> Result<Vec<u8>, Cause> {
        let arrays = self.model.parts.iter().map(|(name, values)| (*name, values.as_slice()));
        let mut tensors = Vec::new();
        for (name, values) in arrays.chain([("losses", self.losses.as_slice())]) {
            let view = TensorView::new(Dtype::F32, vec![values.len()], bytemuck::cast_slice(values))?;
            tensors.push((name, view));
        }
        let Some((first, others)) = self.delivered.split_first() else {
            return Err("there is no rank".into());
        };
        let mut notes = HashMap::from([
            ("cursor".to_owned(), serde_json::to_string(&first.cursor)?),
            ("bad_samples".to_owned(), serde_json::to_string(&first.bad_sample_report)?),
            ("expected".to_owned(), serde_json::to_string(&self.expected)?),
            ("steps".to_owned(), self.model.steps.to_string()),
            ("samples".to_owned(), self.samples.to_string()),
        ]);
        if !others.is_empty() {
            notes.insert(OTHERS.to_owned(), serde_json::to_string(others)?);
        }
        Ok(seal(tensors, notes)?)
    }

    /// Reads the bytes of a checkpoint.
    ///
    /// # Errors
    /// `Data` for a file that is not a regular file, does not begin as a checkpoint, or is cut short.
    pub fn read(path: &Path) -> Result<Vec<u8>> {
        read_file(path).map_err(|cause| {
            let why = "cannot read the checkpoint, give the path of one that --checkpoint has written";
            Error::new(ErrorKind::Data, why).caused_by(cause).at_path(path)
        })
    }

    /// The checkpoint in the bytes of the file at `path`.
    ///
    /// # Errors
    /// `Data` for one that is not a checkpoint, damaged, or inconsistent.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::from_bytes(bytes).map_err(|cause| {
            Error::new(ErrorKind::Data, "cannot read the checkpoint").caused_by(cause).at_path(path)
        })
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Cause> {
        let (_, header) = SafeTensors::read_metadata(bytes)?;
        let tensors = SafeTensors::deserialize(bytes)?;
        let notes = header.metadata().clone().unwrap_or_default();
        let note = |name: &str| {
            let missing = || format!("it has no \"{name}\": it is not a checkpoint of this trainer");
            notes.get(name).map(String::as_str).ok_or_else(missing)
        };
        let floats = |name: &str| -> Result<Vec<f32>, Cause> {
            let tensor = tensors.tensor(name)?;
            if tensor.dtype() != Dtype::F32 {
                return Err(format!("\"{name}\" is {:?}, not F32", tensor.dtype()).into());
            }
            let values = tensor.data().as_chunks::<4>().0;
            Ok(values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        // Before the checksum: a file of a newer version may have another checksum, or none.
        let cursor = serde_json::from_str(note("cursor")?)?;
        let whole = tensors.iter().map(|(name, view)| (name, view.data()));
        if *note(CHECKSUM)? != checksum(whole, &notes) {
            return Err("it is damaged: its checksum does not match".into());
        }
        let others: Vec<Delivered> = match notes.get(OTHERS) {
            Some(others) => serde_json::from_str(others)?,
            None => Vec::new(),
        };
        let first = Delivered { cursor, bad_sample_report: serde_json::from_str(note("bad_samples")?)? };
        let present = PARTS.into_iter().filter(|name| tensors.tensor(name).is_ok());
        let parts = present.map(|name| Ok((name, floats(name)?))).collect::<Result<_, Cause>>()?;
        let steps = note("steps")?;
        let steps = steps.parse().map_err(|error| format!("\"steps\" is {steps}: {error}"))?;
        let samples = note("samples")?;
        let checkpoint = Self {
            delivered: [vec![first], others].concat(),
            expected: serde_json::from_str(note("expected")?)?,
            model: State { steps, parts },
            losses: floats("losses")?,
            samples: samples.parse().map_err(|error| format!("\"samples\" is {samples}: {error}"))?,
        };
        checkpoint.check().map(|()| checkpoint)
    }

    /// Where a rank of `world` goes on. With another number of ranks, the first one goes on for all.
    pub fn of_rank(&self, world: World) -> Delivered {
        let (all, rank) = (&self.delivered, world.rank() as usize);
        if all.len() == world.size() as usize {
            return all[rank].clone();
        }
        let mut first = all[0].clone();
        if rank == 0 {
            all[1..].iter().for_each(|other| first.cursor.merge_proof(other.cursor.proof()));
            first.bad_sample_report = whole_report(all);
        } else {
            first.bad_sample_report = BadSampleReport::new();
        }
        first
    }

    /// Whether the parts belong to one run.
    fn check(&self) -> Result<(), Cause> {
        let Self { delivered, model, losses, samples, .. } = self;
        let counted = if model.parts.iter().any(|(name, _)| *name == "second") { losses.len() } else { 0 };
        if model.steps as usize != counted {
            let steps = model.steps;
            return Err(format!("its optimizer has counted {steps} steps, and should have {counted}").into());
        }
        let count = whole_proof(delivered).count();
        if count != *samples {
            return Err(format!("it says {samples} samples, but its cursor counts {count}").into());
        }
        Ok(())
    }
}

/// Why a file is not a checkpoint.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The bytes of a safetensors file. Reads only what the header announces, so an endless device or a
/// huge file is refused after its first bytes.
fn read_file(path: &Path) -> Result<Vec<u8>, Cause> {
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
fn checksum<'a>(
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
