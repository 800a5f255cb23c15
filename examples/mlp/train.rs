//! The training loop: batches in, losses out, checkpoints on the way.

use std::time::{Duration, Instant};

use feedline::report::{Account, History};
use feedline::trace::{StreamTrace, Trace};
use feedline::{Cursor, Error, ErrorKind, Loader, Proof, Readback, Replay, Result, Stream, WaitMeter};
use feedline_examples::mlp::Mlp;
use indicatif::ProgressBar;

use crate::checkpoint::Checkpoint;
use crate::expected::Expected;
use crate::files::Output;
use crate::interrupt::Interrupt;
use crate::options::{Options, quoted};
use crate::progress::{self, Rate, Smoothed};

/// Results in flight from the device; at least one per device slot. Large enough that the host never
/// waits for one.
const RESULTS: usize = 256;

/// Steps between two updates of the progress bar.
const SHOW: u64 = 16;

/// The state of a training run.
pub struct Training {
    epochs: u64,
    /// The step to stop after, counted over all parts of the run.
    last_step: u64,
    checkpoint: Option<Output>,
    every: Option<u64>,
    quiet: bool,
    /// The command line without `--resume`.
    command: String,
    /// Where to continue, if this run was resumed.
    resumed: Option<Cursor>,
    expected: Expected,
    interrupt: Interrupt,
    compute: Stream,
    replay: Replay,
    results: Readback<u32>,
    meter: WaitMeter,
    trace: Option<StreamTrace>,
    history: History,
    rate: Rate,
    loss: Smoothed,
    /// How many losses have been added to it.
    smoothed: usize,
    /// When the last line of an epoch was printed.
    lined: Instant,
    losses: Vec<f32>,
    steps: u64,
    samples: u64,
    samples_before: u64,
    start: Instant,
    seconds: f64,
    first_step_seconds: f64,
}

impl Training {
    /// A run with these options, at its beginning or where `resumed` left off.
    pub fn new(
        compute: &Stream,
        options: &Options,
        interrupt: Interrupt,
        checkpoint: Option<Output>,
        resumed: Option<Checkpoint>,
        loader: &mut Loader,
        model: &mut Mlp,
    ) -> Result<Self> {
        let mut training = Self {
            epochs: options.epochs,
            last_step: options.steps,
            checkpoint,
            every: options.every,
            quiet: options.quiet,
            command: options.command.clone(),
            resumed: None,
            expected: Expected::new(),
            interrupt,
            compute: compute.clone(),
            replay: Replay::new(compute),
            results: Readback::new(compute, 2, RESULTS.max(loader.slot_addresses().len()))?,
            meter: WaitMeter::new(compute, if options.steps < 1000 { 4 } else { 16 })?,
            trace: None,
            history: History::new(),
            rate: Rate::default(),
            loss: Smoothed::default(),
            smoothed: 0,
            lined: Instant::now(),
            losses: Vec::new(),
            steps: 0,
            samples: 0,
            samples_before: 0,
            start: Instant::now(),
            seconds: 0.0,
            first_step_seconds: 0.0,
        };
        if let Some(resumed) = resumed {
            let (epoch, steps) = (resumed.cursor.epoch(), resumed.losses.len() as u64);
            if epoch >= options.epochs || steps > options.steps {
                let why = format!(
                    "the checkpoint is in epoch {} after {steps} steps, beyond --epochs and --steps: \
                     raise them",
                    epoch.saturating_add(1)
                );
                return Err(Error::new(ErrorKind::Config, why));
            }
            model.restore(&resumed.model)?;
            loader.set_bad_sample_report(resumed.bad_sample_report);
            training.steps = resumed.losses.len() as u64;
            training.losses = resumed.losses;
            (training.samples, training.samples_before) = (resumed.samples, resumed.samples);
            training.expected = Expected::resume(&resumed.cursor, resumed.expected);
            training.resumed = Some(resumed.cursor);
        }
        Ok(training)
    }

    /// Draws the steps on the compute stream in `trace`.
    pub fn trace(&mut self, trace: Option<&Trace>) -> Result<()> {
        self.trace = trace.map(|trace| trace.stream(&self.compute, "compute stream")).transpose()?;
        Ok(())
    }

    /// Trains up to the last epoch or step.
    ///
    /// # Errors
    /// `Stopped` after an interrupt, once the checkpoint is written, if there is to be one; whatever
    /// the pipeline ends with.
    pub fn run(&mut self, loader: &mut Loader, model: &mut Mlp, started: Instant) -> Result<()> {
        let all = loader.batch_sampler().steps(0, 0).saturating_mul(self.epochs).min(self.last_step);
        let bar = progress::training(self.quiet, all);
        let first = match self.resumed {
            Some(cursor) => {
                // Sets the position; the loop below asks for the epochs.
                let _ = loader.resume(cursor)?;
                self.check_resumed(loader)?;
                cursor.epoch()
            }
            None => 0,
        };
        self.start = Instant::now();
        self.rate.add(self.start, self.samples_here());
        for epoch in first..self.epochs {
            bar.set_prefix(format!("epoch {}/{}", epoch + 1, self.epochs));
            self.epoch(epoch, loader, model, started, &bar)?;
            self.leave_line(epoch, &loader.report().epoch, &bar);
            if self.checkpoint.is_some() {
                self.save(loader.checkpoint(&self.compute)?, model)?;
            }
            if self.steps >= self.last_step {
                break;
            }
        }
        self.finish()?;
        if let Some(trace) = &mut self.trace {
            trace.finish()?;
        }
        self.seconds = self.start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        Ok(())
    }

    fn epoch(
        &mut self,
        epoch: u64,
        loader: &mut Loader,
        model: &mut Mlp,
        started: Instant,
        bar: &ProgressBar,
    ) -> Result<()> {
        if self.checkpoint.is_some() {
            // Computed here, before the loader starts; a save within the epoch needs it.
            self.expected.begin(loader.batch_sampler(), epoch);
        }
        let reporter = loader.reporter();
        let mut batches = match self.resumed.take() {
            Some(cursor) => loader.resume(cursor)?,
            None => loader.epoch(epoch)?,
        };
        while self.steps < self.last_step {
            self.meter.begin();
            let Some(batch) = batches.next() else { break };
            let batch = batch?;
            self.samples += batch.len() as u64;
            let batch = self.meter.wait_on(batch)?;
            self.collect()?;
            let result = self.results.begin_at(batch.slot())?;
            if let Some(trace) = &mut self.trace {
                trace.begin("step")?;
            }
            self.replay.step(&batch, result, |batch, result| {
                model.step(batch.field_at(0)?, batch.field_at(1)?, result)
            })?;
            if let Some(trace) = &mut self.trace {
                trace.end()?;
            }
            drop(batch);
            self.results.send()?;
            self.meter.end()?;
            self.steps += 1;
            if self.first_step_seconds == 0.0 {
                self.finish()?;
                self.first_step_seconds = started.elapsed().as_secs_f64();
            }
            if self.steps.is_multiple_of(SHOW) {
                self.history.add(&reporter.report().run);
                self.show(bar)?;
            }
            let interrupted = self.interrupted();
            let saves =
                interrupted.is_err() || self.every.is_some_and(|every| self.steps.is_multiple_of(every));
            if saves && self.checkpoint.is_some() {
                self.save(batches.checkpoint(&self.compute)?, model)?;
            }
            interrupted?;
        }
        Ok(())
    }

    /// # Errors
    /// `Stopped` once Ctrl-C was pressed.
    pub fn interrupted(&self) -> Result<()> {
        if !self.interrupt.pressed() {
            return Ok(());
        }
        let stopped = |rest: &str| {
            Error::new(ErrorKind::Stopped, format!("interrupted after step {}; {rest}", self.steps))
        };
        Err(match &self.checkpoint {
            Some(output) => {
                let file = quoted(&output.given().to_string_lossy());
                stopped(&format!("continue with: {} --resume {file}", self.command))
            }
            None => stopped("nothing is saved without --checkpoint FILE"),
        })
    }

    /// The proof expected up to now: every sample of the batch sampler, with substitutes for bad samples.
    pub fn expected_proof(&mut self, loader: &Loader) -> Proof {
        self.expected.until(loader.batch_sampler(), &loader.cursor(), &loader.bad_sample_report())
    }

    /// Refuses a checkpoint whose cursor contradicts its proofs.
    fn check_resumed(&mut self, loader: &Loader) -> Result<()> {
        let expected = self.expected_proof(loader);
        loader.cursor().proof().check(&expected).map_err(|error| {
            let why = "the checkpoint contradicts itself, resume from another one";
            Error::new(ErrorKind::Cursor, why).caused_by(error)
        })
    }

    fn save(&mut self, saved: feedline::Checkpoint, model: &Mlp) -> Result<()> {
        self.finish()?;
        let Some(output) = &self.checkpoint else { return Ok(()) };
        let checkpoint = Checkpoint {
            expected: self.expected.ended(),
            cursor: saved.cursor,
            bad_sample_report: saved.bad_sample_report,
            model: model.state()?,
            losses: std::mem::take(&mut self.losses),
            samples: self.samples,
        };
        let written = checkpoint.write(output);
        self.losses = checkpoint.losses;
        written
    }

    /// Takes the results that have arrived; blocks only if all cells are in flight.
    fn collect(&mut self) -> Result<()> {
        while let Some(result) = self.results.try_next()? {
            self.losses.push(f32::from_bits(result[0]));
        }
        if self.results.is_full()
            && let Some(result) = self.results.wait()?
        {
            self.losses.push(f32::from_bits(result[0]));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while let Some(result) = self.results.wait()? {
            self.losses.push(f32::from_bits(result[0]));
        }
        Ok(())
    }

    /// The loss, smoothed over the last steps.
    fn smoothed_loss(&mut self) -> f32 {
        let new = self.losses.get(self.smoothed..).unwrap_or_default();
        new.iter().for_each(|loss| self.loss.add(*loss));
        self.smoothed = self.losses.len();
        self.loss.value()
    }

    /// Leaves a line about an epoch above the bar; not for epochs that follow each other within a second.
    fn leave_line(&mut self, epoch: u64, account: &Account, bar: &ProgressBar) {
        if self.lined.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.lined = Instant::now();
        let loss = self.smoothed_loss();
        bar.println(format!(
            "epoch {}/{}  loss {loss:.4}  {:.0} samples/s  {:.1} MB/s  waited {:.1} %",
            epoch + 1,
            self.epochs,
            account.rows_per_s(),
            account.bytes_per_s() / 1e6,
            100.0 * account.wait_share()
        ));
    }

    fn show(&mut self, bar: &ProgressBar) -> Result<()> {
        bar.set_position(self.steps);
        if !bar.is_hidden() {
            let (rate, loss) = (self.rate.add(Instant::now(), self.samples_here()), self.smoothed_loss());
            let waited = 100.0 * self.meter.share()?;
            bar.set_message(format!("{rate:.0} samples/s  loss {loss:.4}  waited {waited:.1} %"));
        }
        Ok(())
    }

    /// The accounts of the run over time.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Samples delivered in this process.
    pub fn samples_here(&self) -> u64 {
        self.samples - self.samples_before
    }

    /// The mean loss of every step, over all parts of the run.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// How long this process has trained.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// From the start of the process to the end of its first step.
    pub fn first_step_seconds(&self) -> f64 {
        self.first_step_seconds
    }

    /// How long a step takes on the compute stream, once one was measured.
    pub fn step_time(&mut self) -> Result<Option<Duration>> {
        self.meter.step_time()
    }

    /// The share of time that the compute stream waited for data.
    pub fn wait_share(&mut self) -> Result<f64> {
        self.meter.share()
    }
}
