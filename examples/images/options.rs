//! The command line.

use std::ffi::OsString;
use std::io::{ErrorKind as Io, Write};
use std::path::PathBuf;

use feedline::{Error, ErrorKind, Result};
use feedline_examples::program::usage;
use feedline_images::Chroma;
use feedline_pictures::Decode;
use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};

pub const HELP: &str = "\
Trains a small classifier on a folder of pictures, one folder per class.

usage: images FOLDER [options]
  --sheet FILE    writes a contact sheet (PNG): pictures, and what the model sees of them
  --epochs N      0 for the sheet alone [20]
  --batch N       [64]
  --size N        height and width of what the model sees [32]
  --hidden N      units of each hidden layer [256]
  --lr X          learning rate of momentum SGD [0.02]
  --seed N        [7]
  --plain         without augmentation
  --decode BY     workers of the loader; cpu, gpu or auto: lanes of the loader, ahead of the step [workers]
  --lanes N       batches that lanes decode at a time [3]
  --chroma WAY    interpolated or nearest: how the colours of JPEG files are enlarged [interpolated]
  --device NAME   auto, cuda or host [auto]
  --help

A fifth of the files, chosen by their number, is held out; the accuracy on them is printed. At the end
comes the share of the training's time in which the device waited for data: compare it for each --decode.
exit code: 0 done, 2 an error, on one line: what is wrong and where";

pub struct Options {
    pub folder: PathBuf,
    pub sheet: Option<PathBuf>,
    pub epochs: u64,
    pub batch: usize,
    pub size: usize,
    pub hidden: usize,
    pub lr: f32,
    pub seed: u64,
    pub plain: bool,
    /// `None`: the loader's workers decode.
    pub decode: Option<Decode>,
    pub lanes: usize,
    pub chroma: Chroma,
    pub device: String,
}

/// The options; `None` if help is requested.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Options>> {
    let mut options = Options {
        folder: PathBuf::new(),
        sheet: None,
        epochs: 20,
        batch: 64,
        size: 32,
        hidden: 256,
        lr: 0.02,
        seed: 7,
        plain: false,
        decode: None,
        lanes: 3,
        chroma: Chroma::Interpolated,
        device: "auto".into(),
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        let value = |parser: &mut lexopt::Parser| parser.value().map_err(usage);
        match argument {
            Value(folder) if options.folder.as_os_str().is_empty() => options.folder = folder.into(),
            Long("sheet") => options.sheet = Some(value(&mut parser)?.into()),
            Long("epochs") => options.epochs = value(&mut parser)?.parse().map_err(usage)?,
            Long("batch") => options.batch = value(&mut parser)?.parse().map_err(usage)?,
            Long("size") => options.size = value(&mut parser)?.parse().map_err(usage)?,
            Long("hidden") => options.hidden = value(&mut parser)?.parse().map_err(usage)?,
            Long("lr") => options.lr = value(&mut parser)?.parse().map_err(usage)?,
            Long("seed") => options.seed = value(&mut parser)?.parse().map_err(usage)?,
            Long("plain") => options.plain = true,
            Long("decode") => options.decode = decode(&value(&mut parser)?.string().map_err(usage)?)?,
            Long("lanes") => options.lanes = value(&mut parser)?.parse().map_err(usage)?,
            Long("chroma") => options.chroma = chroma(&value(&mut parser)?.string().map_err(usage)?)?,
            Long("device") => options.device = value(&mut parser)?.string().map_err(usage)?,
            Long("help") | Short('h') => return Ok(None),
            argument => return Err(usage(argument.unexpected())),
        }
    }
    if options.folder.as_os_str().is_empty() {
        return Err(Error::new(ErrorKind::Config, "there is no folder: give one, see --help"));
    }
    Ok(Some(options))
}

fn decode(name: &str) -> Result<Option<Decode>> {
    match name {
        "workers" => Ok(None),
        "cpu" => Ok(Some(Decode::Cpu)),
        "gpu" => Ok(Some(Decode::Gpu)),
        "auto" => Ok(Some(Decode::Auto)),
        other => {
            let why = format!("--decode is {other:?}: give workers, cpu, gpu or auto");
            Err(Error::new(ErrorKind::Config, why))
        }
    }
}

fn chroma(name: &str) -> Result<Chroma> {
    match name {
        "interpolated" => Ok(Chroma::Interpolated),
        "nearest" => Ok(Chroma::Nearest),
        other => {
            let why = format!("--chroma is {other:?}: give interpolated or nearest");
            Err(Error::new(ErrorKind::Config, why))
        }
    }
}

/// Prints to standard output. A closed pipe is not an error.
pub fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != Io::BrokenPipe => {
            Err(Error::new(ErrorKind::Data, "cannot write to standard output").with_source(error))
        }
        _ => Ok(()),
    }
}
