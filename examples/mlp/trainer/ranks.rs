//! The trainer's operations that involve the other ranks of its run; with one rank, almost nothing.

use std::io::Write;
use std::time::Duration;

use feedline::{Dataset, Device, Error, ErrorKind, Result, Stream, World};
use feedline_core::random::key;
use feedline_datasets::labelled::LabelledSets;
use feedline_dist::{Collectives, Exchange, Group, Launch};
use feedline_mlp::{Average, Mlp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::data;
use super::delivered::Delivered;
use super::options::Options;
use super::pace::{Pace, slow_rank};

/// Steps between two agreements about stopping.
const SIGNAL: u64 = 16;

/// The time in which a rank must end by itself after the run has failed: longer than any step.
const END: Duration = Duration::from_secs(10);

/// The ranks of this run.
pub struct Ranks {
    group: Group,
    launch: Launch,
    /// The agreement that was begun most recently.
    signal: Option<Exchange>,
}

impl Ranks {
    /// Joins the ranks that the launcher has started, with the same options.
    pub fn join(options: &Options) -> Result<Self> {
        let launch = Launch::from_env()?;
        let group = Group::join(&launch, options.rank_limit)?;
        let ranks = Self { group, launch, signal: None };
        if ranks.world().size() > 1 {
            ranks.group.on_failure(|error| {
                // Usually the main thread ends first, with this error. It cannot if a driver never returns.
                std::thread::sleep(END);
                let _ = writeln!(std::io::stderr(), "mlp: {error}");
                std::process::exit(2);
            });
            ranks.group.agree("the command line", &options.decisive())?;
        }
        Ok(ranks)
    }

    /// Rank and number of ranks.
    pub fn world(&self) -> World {
        self.group.world()
    }

    /// Whether this rank writes files, draws the bar and prints.
    pub fn is_first(&self) -> bool {
        self.world().rank() == 0
    }

    /// The device that the options name; without a number, the GPU of this rank on its host.
    pub fn device(&self, options: &Options) -> Result<Device> {
        options.device.open(self.launch.local_rank())
    }

    /// Opens the data; rank 0 first, which draws the digits if they are missing.
    pub fn open(&self, options: &Options) -> Result<LabelledSets> {
        let options = Options { quiet: options.quiet || !self.is_first(), ..options.clone() };
        let open = || data::open(&options);
        let first = if self.is_first() { Some(open()?) } else { None };
        self.group.barrier()?;
        let data = first.map_or_else(open, Ok)?;
        for (name, set) in [("the training set", &data.train), ("the test set", &data.test)] {
            self.group.agree(name, &format!("fingerprint {:#x}", set.fingerprint()))?;
        }
        Ok(data)
    }

    /// Makes `model`, which works on `compute`, average its gradients over all ranks. Returns the name of the
    /// transport.
    pub fn connect(&self, options: &Options, compute: &Stream, model: &mut Mlp) -> Result<String> {
        let collectives = Collectives::new(&self.group, compute)?;
        let connection = collectives.describe();
        if self.world().size() > 1 {
            model.average(Average::new(collectives, options.bucket_bytes))?;
        }
        Ok(connection)
    }

    /// The bytes that rank 0 reads, on all ranks.
    pub fn read_once(&self, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let bytes = if self.is_first() { read()? } else { Vec::new() };
        if self.world().size() == 1 { Ok(bytes) } else { self.group.broadcast(&bytes) }
    }

    /// Whether to stop after this step, because Ctrl-C was `pressed` on some rank. All ranks stop after the
    /// same step, 16 to 32 steps later, without waiting for each other meanwhile.
    pub fn should_stop(&mut self, steps: u64, pressed: bool) -> Result<bool> {
        if self.world().size() == 1 {
            return Ok(pressed);
        }
        if let Some(error) = self.group.error() {
            return Err(error);
        }
        self.group.progress(steps);
        if !steps.is_multiple_of(SIGNAL) {
            return Ok(false);
        }
        let ticket = self.group.post(&[u8::from(pressed)])?;
        let Some(before) = self.signal.replace(ticket) else { return Ok(false) };
        Ok(self.group.collect(before)?.concat().contains(&1))
    }

    /// Replaces the losses of this rank by their means over all ranks.
    pub fn average(&self, losses: &mut [f32]) -> Result<()> {
        if self.world().size() == 1 {
            return Ok(());
        }
        let all = self.group.all_gather(bytemuck::cast_slice(losses))?;
        for (index, loss) in losses.iter_mut().enumerate() {
            let of =
                |bytes: &Vec<u8>| bytes.as_chunks::<4>().0.get(index).map(|loss| f32::from_le_bytes(*loss));
            let sum: f64 = all.iter().filter_map(of).map(f64::from).sum();
            *loss = (sum / all.len() as f64) as f32;
        }
        Ok(())
    }

    /// The samples that each rank has delivered.
    pub fn delivered(&self, own: Delivered) -> Result<Vec<Delivered>> {
        self.exchange(own)
    }

    /// The rank that slows down the others, if any.
    pub fn slow_rank(&self, wait_share: f64, diagnosis: String) -> Result<Option<Pace>> {
        self.exchange(Pace { rank: self.world().rank(), wait_share, diagnosis }).map(slow_rank)
    }

    /// The value of every rank.
    fn exchange<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<Vec<T>> {
        if self.world().size() == 1 {
            return Ok(vec![own]);
        }
        let wrong = |error: serde_json::Error| {
            Error::new(ErrorKind::Data, "the ranks cannot read each other's state").with_source(error)
        };
        let all = self.group.all_gather(&serde_json::to_vec(&own).map_err(wrong)?)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(wrong)).collect()
    }

    /// The sums of `numbers` over all ranks.
    pub fn sums<const N: usize>(&self, numbers: [u64; N]) -> Result<[u64; N]> {
        let all = self.group.all_gather(bytemuck::cast_slice(&numbers))?;
        let of =
            |bytes: &[u8], index: usize| bytes.as_chunks::<8>().0.get(index).map(|n| u64::from_le_bytes(*n));
        Ok(std::array::from_fn(|index| all.iter().filter_map(|bytes| of(bytes, index)).sum()))
    }

    /// Checks that all ranks have the same parameters, bit by bit. Blocks until they are computed.
    pub fn check_parameters(&self, model: &Mlp) -> Result<()> {
        if self.world().size() == 1 {
            return Ok(());
        }
        let hash = model.parameters()?.iter().fold(0, |hash, value| key(&[hash, u64::from(value.to_bits())]));
        self.group.agree_on_hash("the parameters", hash)
    }

    /// Ends the run. After `Ok` or an interrupt, ends together with the other ranks; otherwise sends them the
    /// error. Returns the first cause: another rank's error, if this one's is only a consequence.
    pub fn end<T>(self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(error) if error.kind() != ErrorKind::Stopped => {
                let cause = self.group.error().unwrap_or(error);
                self.group.fail(&cause);
                Err(cause)
            }
            ended => self.group.finish().and(ended),
        }
    }
}
