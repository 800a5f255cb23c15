//! The command line of the benchmarks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use feedline::{Device, Error, ErrorKind, Result, TransferMode};
use feedline_examples::program::{self, usage};
use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};

/// The text of `--help`.
pub const HELP: &str = "\
Measures feedline and its baselines.

usage: benches NAME... [options]
  NAME              handoff, guards, transfer, train, raw, gather, tiny, epoch, start, idle, noisy,
                    overlap, augment, or all; scale; jpeg; jpeg-gpu; devices; tokens; resident; mapped;
                    record; with --features formats: readers, groups, packed
  --json FILE       append the rows to FILE, one JSON object per line
  --device NAME     auto, cuda or host [auto]
  --reps N          timed repetitions of each side [7]
  --seconds X       length of one repetition [0.25]
  --data DIR        IDX files to train on [the built-in digits]
  --images DIR      folder of JPEG files for jpeg and jpeg-gpu, or of folders of them
  --scratch DIR     folder for the record files of raw and gather [the system's temporary folder]
  --file-mib N      size of a record file [4096 with a GPU, 256 without]
  --workers LIST    decode threads for raw, gather, tiny and jpeg, threads of a stage (up to 4) for
                    jpeg-gpu, as in 1,2,4 [1,2,4,8,16 up to the cores]
  --limit X         seconds after which scale starts no new point [none]
  --transfer-mode M staged or zero-copy, for raw, gather, tokens and train [both]; for train also resident
  --batch LIST      batches of train and tiny, as in 128,512 [128,512,4096]
  --format NAME     the only format that readers measures
  --mlp PATH        the built mlp example: start also times its first step, cold and warm
  --smoke           the shortest possible run: shows that the benchmarks work, not how fast";

/// The parsed command line.
pub enum Command {
    /// Run benchmarks.
    Run(Box<Options>),
    /// Print a text, such as the help.
    Print(String),
}

/// The options, with defaults filled in.
#[derive(Clone)]
pub struct Options {
    pub names: Vec<String>,
    pub json: Option<PathBuf>,
    pub device: Device,
    pub reps: usize,
    pub repetition: Duration,
    pub data: Option<PathBuf>,
    pub images: Option<PathBuf>,
    pub scratch: PathBuf,
    pub file_bytes: u64,
    pub workers: Vec<usize>,
    pub limit: Option<Duration>,
    /// The batch sizes of train and tiny.
    pub batches: Vec<usize>,
    /// The transfer modes that raw, gather and train measure, in order.
    pub transfer_modes: Vec<TransferMode>,
    #[cfg_attr(not(feature = "formats"), allow(dead_code))]
    pub format: Option<String>,
    pub mlp: Option<PathBuf>,
    pub smoke: bool,
}

/// Parses the arguments after the program's name and opens the device.
///
/// # Errors
/// `Config` for an invalid option, which the message names; a device failure.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let (mut names, mut device) = (Vec::new(), "auto".to_owned());
    let (mut json, mut data, mut images, mut scratch, mut mlp) = (None, None, None, None, None);
    let (mut reps, mut seconds, mut file_mib, mut workers, mut limit, mut smoke) =
        (None, None, None, None, None, false);
    let (mut transfer_modes, mut batches) = (vec![TransferMode::Staged, TransferMode::ZeroCopy], None);
    let mut format = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        let path = |parser: &mut lexopt::Parser| parser.value().map(PathBuf::from).map_err(usage);
        match argument {
            Value(name) => names.push(name.string().map_err(usage)?),
            Long("json") => json = Some(path(&mut parser)?),
            Long("data") => data = Some(path(&mut parser)?),
            Long("images") => images = Some(path(&mut parser)?),
            Long("scratch") => scratch = Some(path(&mut parser)?),
            Long("mlp") => mlp = Some(path(&mut parser)?),
            Long("format") => format = Some(parser.value().and_then(|v| v.string()).map_err(usage)?),
            Long("device") => device = parser.value().and_then(|v| v.string()).map_err(usage)?,
            Long("reps") => reps = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?),
            Long("seconds") => seconds = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?),
            Long("file-mib") => file_mib = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?),
            Long("limit") => limit = Some(parser.value().and_then(|v| v.parse()).map_err(usage)?),
            Long("workers") => {
                workers = Some(parser.value().and_then(|v| v.parse_with(list)).map_err(usage)?)
            }
            Long("batch") => batches = Some(parser.value().and_then(|v| v.parse_with(list)).map_err(usage)?),
            Long("transfer-mode") => {
                transfer_modes = match parser.value().and_then(|v| v.string()).map_err(usage)?.as_str() {
                    "staged" => vec![TransferMode::Staged],
                    "zero-copy" => vec![TransferMode::ZeroCopy],
                    "resident" => vec![TransferMode::Resident],
                    other => {
                        let why = format!("--transfer-mode is {other:?}: give staged, zero-copy or resident");
                        return Err(Error::new(ErrorKind::Config, why));
                    }
                }
            }
            Long("smoke") => smoke = true,
            Long("help") | Short('h') => return Ok(Command::Print(HELP.to_owned())),
            other => return Err(usage(other.unexpected())),
        }
    }
    let device = program::device(&device)?;
    let gpu = device.kind() == feedline::device::BackendKind::Cuda;
    let (default_reps, default_seconds, default_mib) =
        if smoke { (1, 0.01, 8) } else { (7, 0.25, if gpu { 4096 } else { 256 }) };
    Ok(Command::Run(Box::new(Options {
        names,
        json,
        reps: reps.unwrap_or(default_reps).max(1),
        repetition: duration("--seconds", seconds.unwrap_or(default_seconds))?,
        limit: limit.map(|seconds| duration("--limit", seconds)).transpose()?,
        data,
        images,
        scratch: scratch.unwrap_or_else(std::env::temp_dir),
        file_bytes: file_mib.unwrap_or(default_mib).max(1_u64) << 20,
        workers: workers.unwrap_or_else(|| default_workers(smoke)),
        batches: batches.unwrap_or_else(|| default_batches(smoke)),
        transfer_modes,
        format,
        mlp,
        smoke,
        device,
    })))
}

fn duration(option: &str, seconds: f64) -> Result<Duration> {
    let refused =
        |error| Error::new(ErrorKind::Config, format!("{option} must be 0 or more")).with_source(error);
    Duration::try_from_secs_f64(seconds).map_err(refused)
}

fn list(text: &str) -> std::result::Result<Vec<usize>, std::num::ParseIntError> {
    text.split(',').map(str::parse).collect()
}

fn default_workers(smoke: bool) -> Vec<usize> {
    let cores = cores();
    let max = if smoke { 1 } else { cores };
    [1, 2, 4, 8, 16].into_iter().filter(|&workers| workers <= max).collect()
}

fn default_batches(smoke: bool) -> Vec<usize> {
    if smoke { vec![128] } else { vec![128, 512, 4096] }
}

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
