//! A checkpoint in one safetensors file: model, optimizer, losses, cursor and bad-sample report.

use std::collections::HashMap;
use std::path::Path;

use feedline::sampler::Proof;
use feedline::{BadSampleReport, Error, ErrorKind, Result, World};
use feedline_mlp::State;
pub use feedline_mlp::sealed::seal;
use feedline_mlp::sealed::{CHECKSUM, Cause, checksum, read_file};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::delivered::{Delivered, whole_proof, whole_report};
use super::files::Output;

/// Everything needed to continue a run.
pub struct Checkpoint {
    /// The samples that each rank has delivered.
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

impl Checkpoint {
    /// Writes the checkpoint.
    ///
    /// # Errors
    /// `Data` if it cannot be written; the previous checkpoint is kept.
    pub fn write(&self, output: &Output) -> Result<()> {
        let bytes = self.to_bytes().map_err(|cause| {
            Error::new(ErrorKind::Data, "cannot serialize the checkpoint").with_source(cause)
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
            Error::new(ErrorKind::Data, why).with_source(cause).at_path(path)
        })
    }

    /// The checkpoint in the bytes of the file at `path`.
    ///
    /// # Errors
    /// `Data` for one that is not a checkpoint, damaged, or inconsistent.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::from_bytes(bytes).map_err(|cause| {
            Error::new(ErrorKind::Data, "cannot read the checkpoint").with_source(cause).at_path(path)
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

    /// The position at which a rank of `world` continues. If the number of ranks has changed, all continue at
    /// the position of the first rank.
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
            first.bad_sample_report = BadSampleReport::default();
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
