//! The command line of the trainer.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use feedline::report::MAX_WORKERS;
use feedline::{Device, Error, ErrorKind, Result, TransferMode, Workers};
use feedline_datasets::labelled::LabelledOptions;
use lexopt::prelude::{Long, Short};

/// The text of `--help`.
pub const HELP: &str = "\
Trains a multi-layer perceptron on labelled images through feedline.

usage: mlp [options], alone or under torchrun, srun or mpirun
  --data PATH         a folder with MNIST's four IDX files, or a file or folder of another format; a tenth
                      is held out unless there are `train` and `test` [the built-in digits]
  --input NAME        field of the images: bytes of one size, or encoded pictures [by what it holds]
  --label NAME        field of the classes: whole numbers [by what it holds]
  --device NAME       auto, cuda, cuda:N or host; auto and cuda take the GPU of the rank [auto]
  --epochs N          passes over the training set [3]
  --steps N           stop after N steps [no limit]
  --batch N           samples per step and rank [128]
  --hidden N          units per hidden layer [512]
  --classes N         classes [10]
  --optimizer NAME    sgd or adamw [sgd]
  --lr X              learning rate [0.05; 0.001 with adamw]
  --momentum X        momentum of sgd [0.9]
  --workers N         decode threads, or auto: as many as help [one per core]
  --transfer-mode M   how rows get to the device: auto, staged, zero-copy or resident [auto]
  --depth N           batches on the device at a time [3 to 8, by batch size]
  --seed N            seed of the order and the first weights [1]
  --no-shuffle        samples in file order
  --init NAME         first weights: random or reference [random]
  --pinned-budget N   max pinned bytes [2147483648]
  --tf32              matrix products in TF32 on a GPU
  --rank-limit S      seconds that a rank may keep the others waiting [60]
  --check-every N     compare the parameters of all ranks every N steps [1000]
  --bucket-mib X      gradients of a layer from this size on travel on their own [1]
  --servers LIST      decode servers that have --data too, as HOST:PORT,...; the mlp of the folder servers
  --token-file FILE   the bearer token of the servers
  --checkpoint FILE   save model, optimizer and cursor at the end of each epoch and at Ctrl-C
  --every N           also save every N steps
  --resume FILE       continue from a checkpoint
  --trace FILE        write a trace of threads and streams, for ui.perfetto.dev
  --profile FILE      write the stages' service times, for the example whatif
  --report FILE.html  write a page with the run's timeline, waits and diagnosis
  --record RUN        record the run into a folder: its batches and losses, for the program feedline
  --json FILE         write a report; if that fails at the end, it goes to standard output
  --quiet             print errors only
  --help, --version

exit code: 0 done, 2 an error or a sample that was not delivered exactly once,
           130 interrupted: with --checkpoint FILE the run is saved there";

/// The device to train on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// A GPU if there is one, else the host.
    Auto,
    /// The GPU of this rank on its host.
    OwnCuda,
    /// The GPU with this ordinal.
    Cuda(usize),
    /// The host.
    Host,
}

impl Where {
    /// Opens the device, for the rank with this number on its host.
    pub fn open(self, local_rank: usize) -> Result<Device> {
        match self {
            Self::Auto => match own_gpu(local_rank) {
                Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Device::new_host()),
                other => other,
            },
            Self::OwnCuda => own_gpu(local_rank),
            Self::Cuda(ordinal) => Device::cuda(ordinal),
            Self::Host => Ok(Device::new_host()),
        }
    }
}

/// The GPU of the rank with this number on its host.
fn own_gpu(local_rank: usize) -> Result<Device> {
    let missing =
        |device: &Result<Device>| device.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable);
    let own = Device::cuda(local_rank);
    // Some launchers show each process only its own GPU, which is number 0 there.
    if local_rank > 0 && missing(&own) && missing(&Device::cuda(1)) { Device::cuda(0) } else { own }
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Momentum SGD.
    Sgd,
    /// AdamW.
    AdamW,
}

/// The options, given or default.
#[derive(Clone, Debug)]
pub struct Options {
    pub data: Option<PathBuf>,
    pub input: Option<String>,
    pub label: Option<String>,
    pub device: Where,
    pub epochs: u64,
    pub steps: u64,
    pub batch: usize,
    pub hidden: usize,
    pub classes: usize,
    pub method: Method,
    pub lr: Option<f32>,
    pub momentum: f32,
    pub workers: Workers,
    pub transfer_mode: TransferMode,
    pub depth: Option<usize>,
    pub seed: u64,
    pub shuffle: bool,
    pub reference_init: bool,
    pub pinned_budget: usize,
    pub tf32: bool,
    pub rank_limit: Duration,
    pub check_every: u64,
    pub bucket_bytes: usize,
    pub servers: Option<String>,
    pub token_file: Option<PathBuf>,
    pub checkpoint: Option<PathBuf>,
    pub every: Option<u64>,
    pub resume: Option<PathBuf>,
    pub json: Option<PathBuf>,
    pub trace: Option<PathBuf>,
    pub profile: Option<PathBuf>,
    pub page: Option<PathBuf>,
    pub record: Option<PathBuf>,
    pub quiet: bool,
    /// The command line without `--resume`, for the command that continues the run.
    pub command: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            input: None,
            label: None,
            device: Where::Auto,
            epochs: 3,
            steps: u64::MAX,
            batch: 128,
            hidden: 512,
            classes: 10,
            method: Method::Sgd,
            lr: None,
            momentum: 0.9,
            workers: Workers::PerCore,
            transfer_mode: TransferMode::Auto,
            depth: None,
            seed: 1,
            shuffle: true,
            reference_init: false,
            pinned_budget: 2 << 30,
            tf32: false,
            rank_limit: Duration::from_secs(60),
            check_every: 1000,
            bucket_bytes: 1 << 20,
            servers: None,
            token_file: None,
            checkpoint: None,
            every: None,
            resume: None,
            json: None,
            trace: None,
            profile: None,
            page: None,
            record: None,
            quiet: false,
            command: String::new(),
        }
    }
}

/// The action that the command line asks for.
pub enum Command {
    /// Train.
    Train(Box<Options>),
    /// Print a text.
    Print(String),
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// `Config` naming the option and the values it takes.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
    let mut options = Options::default();
    let arguments: Vec<_> = arguments.into_iter().collect();
    options.command = command(&arguments);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Print(HELP.to_owned())),
            Long("version") => return Ok(Command::Print(format!("mlp {}", env!("CARGO_PKG_VERSION")))),
            Long("quiet") | Short('q') => options.quiet = true,
            Long("no-shuffle") => options.shuffle = false,
            Long("tf32") => options.tf32 = true,
            Long(name) => {
                let name = name.to_owned();
                // Checked before its value: an unknown option may come without one.
                if !HELP.lines().any(|line| line.trim_start().starts_with(&format!("--{name} "))) {
                    return Err(unknown(&name));
                }
                let value = parser.value().map_err(usage)?;
                options.set(&name, value)?;
            }
            other => return Err(usage(other.unexpected())),
        }
    }
    if options.servers.is_some() && options.data.is_none() {
        return Err(Error::new(ErrorKind::Config, "--servers without --data: name the data that they have"));
    }
    Ok(Command::Train(Box::new(options)))
}

impl Options {
    /// The fields and classes of the data.
    pub fn labelled(&self) -> LabelledOptions {
        LabelledOptions { input: self.input.clone(), label: self.label.clone(), classes: self.classes }
    }

    /// The options that determine the result; they must be the same on all ranks.
    pub fn decisive(&self) -> String {
        let Self { epochs, steps, batch, hidden, classes, method, lr, momentum, seed, shuffle, .. } = self;
        let lr = lr.map_or("default".to_owned(), |lr| lr.to_string());
        format!(
            "--batch {batch} --epochs {epochs} --steps {steps} --hidden {hidden} --classes {classes} \
             --optimizer {method:?} --lr {lr} --momentum {momentum} --seed {seed} shuffle {shuffle} \
             reference init {} tf32 {} --every {:?} --checkpoint {} --resume {} --check-every {} \
             buckets of {} bytes",
            self.reference_init,
            self.tf32,
            self.every,
            self.checkpoint.is_some(),
            self.resume.is_some(),
            self.check_every,
            self.bucket_bytes
        )
    }

    fn set(&mut self, name: &str, value: OsString) -> Result<()> {
        let path = PathBuf::from(&value);
        let text = value.to_string_lossy();
        match name {
            "data" => self.data = Some(path),
            "input" => self.input = Some(text.into_owned()),
            "label" => self.label = Some(text.into_owned()),
            "servers" => self.servers = Some(text.into_owned()),
            "token-file" => self.token_file = Some(path),
            "checkpoint" => self.checkpoint = Some(path),
            "every" => self.every = Some(number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?),
            "resume" => self.resume = Some(path),
            "json" => self.json = Some(path),
            "trace" => self.trace = Some(path),
            "profile" => self.profile = Some(path),
            "report" => self.page = Some(path),
            "record" => self.record = Some(path),
            "device" => self.device = device(&text)?,
            "epochs" => self.epochs = number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?,
            "steps" => self.steps = number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?,
            "batch" => self.batch = number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?,
            "hidden" => self.hidden = number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?,
            "classes" => {
                self.classes = number(name, &text, "a whole number from 1 to 256", |n| (1..=256).contains(n))?
            }
            "optimizer" => {
                self.method = choice(name, &text, &[("sgd", Method::Sgd), ("adamw", Method::AdamW)])?
            }
            "lr" => {
                self.lr = Some(number(name, &text, "a number above 0", |x: &f32| *x > 0.0 && x.is_finite())?)
            }
            "momentum" => {
                self.momentum = number(name, &text, "a number from 0 up to 1", |x| (0.0..1.0).contains(x))?
            }
            "workers" if text == "auto" => self.workers = Workers::Auto,
            "workers" => {
                let wanted = format!("a whole number from 1 to {MAX_WORKERS}, or auto");
                let fits = |count: &usize| (1..=MAX_WORKERS).contains(count);
                self.workers = Workers::Count(number(name, &text, &wanted, fits)?);
            }
            "transfer-mode" => {
                let modes = [
                    ("auto", TransferMode::Auto),
                    ("staged", TransferMode::Staged),
                    ("zero-copy", TransferMode::ZeroCopy),
                    ("resident", TransferMode::Resident),
                ];
                self.transfer_mode = choice(name, &text, &modes)?;
            }
            "depth" => {
                self.depth = Some(number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?);
            }
            "seed" => self.seed = number(name, &text, "a whole number", |_| true)?,
            "init" => self.reference_init = choice(name, &text, &[("random", false), ("reference", true)])?,
            "rank-limit" => {
                let fits = |seconds: &f64| *seconds >= 0.1 && *seconds <= 1e6;
                let seconds = number(name, &text, "seconds, 0.1 or more", fits)?;
                self.rank_limit = Duration::from_secs_f64(seconds);
            }
            "check-every" => {
                self.check_every = number(name, &text, "a whole number of 1 or more", |n| *n >= 1)?
            }
            "bucket-mib" => {
                let mib: f64 = number(name, &text, "a number of MiB", |mib| (0.0..=1e6).contains(mib))?;
                self.bucket_bytes = (mib * f64::from(1 << 20)) as usize;
            }
            "pinned-budget" => self.pinned_budget = number(name, &text, "a number of bytes", |_| true)?,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// The arguments in shell syntax, without `--resume FILE`.
fn command(arguments: &[OsString]) -> String {
    let mut words = vec!["mlp".to_owned()];
    let mut arguments = arguments.iter().map(|argument| argument.to_string_lossy());
    while let Some(argument) = arguments.next() {
        if argument == "--resume" {
            arguments.next();
        } else if !argument.starts_with("--resume=") {
            words.push(quoted(&argument));
        }
    }
    words.join(" ")
}

/// A word in shell syntax.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::Config, format!("unknown option --{name}: see --help"))
}

fn usage(error: lexopt::Error) -> Error {
    Error::new(ErrorKind::Config, format!("{error}: see --help"))
}

fn number<T: FromStr>(name: &str, text: &str, wanted: &str, fits: impl Fn(&T) -> bool) -> Result<T> {
    text.parse()
        .ok()
        .filter(|value| fits(value))
        .ok_or_else(|| Error::new(ErrorKind::Config, format!("--{name} is \"{text}\": give {wanted}")))
}

fn choice<T: Copy>(name: &str, text: &str, choices: &[(&str, T)]) -> Result<T> {
    choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        Error::new(ErrorKind::Config, format!("--{name} is \"{text}\": give {}", words.join(" or ")))
    })
}

fn device(text: &str) -> Result<Where> {
    match text {
        "auto" => Ok(Where::Auto),
        "host" => Ok(Where::Host),
        "cuda" => Ok(Where::OwnCuda),
        _ => match text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()) {
            Some(ordinal) => Ok(Where::Cuda(ordinal)),
            None => {
                let why = format!("--device is \"{text}\": give auto, cuda, cuda:N or host");
                Err(Error::new(ErrorKind::Config, why))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_continues_a_run_is_what_a_shell_reads() {
        let words = ["--data", "my set", "--resume", "old.ckpt", "--lr=0.1", "--resume=x", "it's"];
        assert_eq!(command(&words.map(OsString::from)), "mlp --data 'my set' --lr=0.1 'it'\\''s'");
    }
}
