//! A checkpoint: model, optimizer, losses so far, cursor and quarantine, in one safetensors file, written whole or not at
//! all.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use feedline::{Cursor, Error, ErrorKind, Quarantine, Result};
use feedline_core::random::splitmix64;
use feedline_examples::mlp::State;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

/// Everything a run goes on from.
pub struct Checkpoint {
    pub cursor: Cursor,
    pub quarantine: Quarantine,
    pub model: State,
    /// Of every step since the run's first beginning.
    pub losses: Vec<f32>,
    /// Samples delivered since then.
    pub samples: u64,
}

/// The parts a model can have.
const PARTS: [&str; 3] = ["parameters", "first", "second"];

/// The note that tells whether the rest is whole.
const CHECKSUM: &str = "checksum";

impl Checkpoint {
    /// Writes the checkpoint beside `path` and moves it there: the file at `path` is always a whole one.
    pub fn write(&self, path: &Path) -> Result<()> {
        let arrays = self.model.parts.iter().map(|(name, values)| (*name, values.as_slice()));
        let mut tensors = Vec::new();
        for (name, values) in arrays.chain([("losses", self.losses.as_slice())]) {
            let view = TensorView::new(Dtype::F32, vec![values.len()], bytemuck::cast_slice(values));
            tensors.push((name, view.map_err(|error| refuse("write", path).caused_by(error))?));
        }
        let json =
            |value: serde_json::Result<String>| value.map_err(|error| refuse("write", path).caused_by(error));
        let mut notes = HashMap::from([
            ("cursor".to_owned(), json(serde_json::to_string(&self.cursor))?),
            ("quarantine".to_owned(), json(serde_json::to_string(&self.quarantine))?),
            ("steps".to_owned(), self.model.steps.to_string()),
            ("samples".to_owned(), self.samples.to_string()),
        ]);
        let sum = checksum(tensors.iter().map(|(name, view)| (*name, view.data())), &notes);
        notes.insert(CHECKSUM.to_owned(), sum);
        let bytes =
            safetensors::serialize(tensors, Some(notes)).map_err(|e| refuse("write", path).caused_by(e))?;
        replace_file(path, &bytes).map_err(|error| refuse("write", path).caused_by(error))
    }

    /// Reads a checkpoint.
    pub fn read(path: &Path) -> Result<Self> {
        let broken = || refuse("read", path);
        let bytes = std::fs::read(path).map_err(|error| {
            let why = "cannot read the checkpoint, give the path of one that --checkpoint has written";
            Error::new(ErrorKind::Data, why).caused_by(error).at_path(path)
        })?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| broken().caused_by(error))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| broken().caused_by(error))?;
        let notes = header.metadata().clone().unwrap_or_default();
        let note = |name: &str| {
            let missing = || {
                broken().caused_by(format!("it has no \"{name}\": it is not a checkpoint of this trainer"))
            };
            notes.get(name).map(String::as_str).ok_or_else(missing)
        };
        let floats = |name: &str| {
            let tensor = tensors.tensor(name).map_err(|error| broken().caused_by(error))?;
            if tensor.dtype() != Dtype::F32 {
                return Err(broken().caused_by(format!("\"{name}\" is {:?}, not F32", tensor.dtype())));
            }
            let bytes = tensor.data().as_chunks::<4>().0;
            Ok(bytes.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        };
        let number = |name: &str| note(name)?.parse::<u64>().map_err(|error| broken().caused_by(error));
        // First, as a file of a newer version may have another checksum, or none.
        let cursor = serde_json::from_str(note("cursor")?).map_err(|error| broken().caused_by(error))?;
        let whole = tensors.iter().map(|(name, view)| (name, view.data()));
        if *note(CHECKSUM)? != checksum(whole, &notes) {
            return Err(broken().caused_by("it is damaged: its checksum does not match"));
        }
        let present = PARTS.into_iter().filter(|name| tensors.tensor(name).is_ok());
        let parts = present.map(|name| Ok((name, floats(name)?))).collect::<Result<_>>()?;
        Ok(Self {
            cursor,
            quarantine: serde_json::from_str(note("quarantine")?)
                .map_err(|error| broken().caused_by(error))?,
            model: State { steps: number("steps")? as u32, parts },
            losses: floats("losses")?,
            samples: number("samples")?,
        })
    }
}

/// Of the names and bytes of all tensors and notes; every step is a bijection, so one changed word is always found.
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

/// Asks whether [`replace_file`] can work, so that it is known before hours of training.
pub fn check_place(path: &Path, what: &str) -> Result<()> {
    let refuse = |why: std::io::Error| {
        let message =
            format!("cannot write the {what}, give a path to a file in a folder that can be written");
        Err(Error::new(ErrorKind::Data, message).caused_by(why).at_path(path))
    };
    if path.as_os_str().is_empty() || path.metadata().is_ok_and(|there| !there.is_file()) {
        return refuse(std::io::Error::other("this is no file"));
    }
    // Asked first for the plainer error. The file has no name: nothing is left of it, however this process ends.
    let place = folder_of(path).metadata().and_then(|_| tempfile::tempfile_in(folder_of(path)));
    place.map_or_else(refuse, |_| Ok(()))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file whole: beside it, to the disk, and then in its place.
pub fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = folder_of(path);
    // Of one name: what a killed run has left of it is written over by the next.
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?);
    name.push(".part");
    let part = folder.join(name);
    let mut file = std::fs::File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&part, path)?;
    // The new name is on the disk only when the folder is.
    std::fs::File::open(folder)?.sync_all()
}

fn refuse(what: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Data, format!("cannot {what} the checkpoint")).at_path(path)
}
