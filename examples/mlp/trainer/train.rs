//! The training loop: batches in, losses out, checkpoints on the way.

use std::time::{Duration, Instant};

use feedline::device::Replay;
use feedline::record::Recorder;
use feedline::report::Account;
use feedline::sampler::Proof;
use feedline::trace::{StreamTrace, Trace};
use feedline::{BadSampleReport, Cursor, Error, ErrorKind, Loader, Result, Stream};
use feedline_device::Readback;
use feedline_mlp::Mlp;
use feedline_report::History;
use feedline_report::WaitMeter;
use indicatif::ProgressBar;

use super::checkpoint::Checkpoint;
use super::delivered::{Delivered, whole_proof, whole_report};
use super::expected::Expected;
use super::files::Output;
use super::interrupt::Interrupt;
use super::options::{Options, quoted};
use super::progress::{self, Rate, Smoothed};
use super::ranks::Ranks;

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
    /// The path of the checkpoint, if the run is saved; only the first rank writes it.
    saves: bool,
    checkpoint: Option<Output>,
    every: Option<u64>,
    check_every: u64,
    quiet: bool,
    /// The command line without `--resume`.
    command: String,
    /// The position to continue from if this run was resumed, and the samples that all ranks had delivered.
    resumed: Option<(Cursor, Proof, BadSampleReport)>,
    expected: Expected,
    interrupt: Interrupt,
    compute: Stream,
    replay: Replay,
    results: Readback<u32>,
    meter: WaitMeter,
    trace: Option<StreamTrace>,
    recorder: Option<Recorder>,
    history: History,
    rate: Rate,
    loss: Smoothed,
    /// The number of losses that have been added to it.
    smoothed: usize,
    /// The time at which the last line of an epoch was printed.
    lined: Instant,
    losses: Vec<f32>,
    /// The number of losses that are recorded, or were in an earlier part of the run.
    noted: usize,
    /// The number of losses that are means over all ranks; later ones are this rank's alone.
    averaged: usize,
    steps: u64,
    samples: u64,
    samples_before: u64,
    start: Instant,
    seconds: f64,
    first_step_seconds: f64,
}

impl Training {
    /// A run with these options, at its beginning or at the position of `resumed`.
    pub fn new(
        compute: &Stream,
        options: &Options,
        ranks: &Ranks,
        checkpoint: Option<Output>,
        resumed: Option<Checkpoint>,
        loader: &mut Loader,
        model: &mut Mlp,
    ) -> Result<Self> {
        let mut training = Self {
            epochs: options.epochs,
            last_step: options.steps,
            saves: options.checkpoint.is_some(),
            checkpoint,
            every: options.every,
            check_every: options.check_every,
            quiet: options.quiet || !ranks.is_first(),
            command: options.command.clone(),
            resumed: None,
            expected: Expected::new(),
            interrupt: Interrupt::watch()?,
            compute: compute.clone(),
            replay: Replay::new(compute),
            results: Readback::new(compute, 2, RESULTS.max(loader.slot_addresses().len()))?,
            meter: WaitMeter::new(compute, if options.steps < 1000 { 4 } else { 16 })?,
            trace: None,
            recorder: None,
            history: History::new(),
            rate: Rate::default(),
            loss: Smoothed::default(),
            smoothed: 0,
            lined: Instant::now(),
            losses: Vec::new(),
            noted: 0,
            averaged: 0,
            steps: 0,
            samples: 0,
            samples_before: 0,
            start: Instant::now(),
            seconds: 0.0,
            first_step_seconds: 0.0,
        };
        if let Some(resumed) = resumed {
            let (epoch, steps) = (resumed.delivered[0].cursor.epoch(), resumed.losses.len() as u64);
            if epoch >= options.epochs || steps > options.steps {
                let why = format!(
                    "the checkpoint is in epoch {} after {steps} steps, beyond --epochs and --steps: \
                     raise them",
                    epoch.saturating_add(1)
                );
                return Err(Error::new(ErrorKind::Config, why));
            }
            model.restore(&resumed.model)?;
            let Delivered { cursor, bad_sample_report } = resumed.of_rank(ranks.world());
            loader.set_bad_sample_report(bad_sample_report);
            training.steps = resumed.losses.len() as u64;
            training.averaged = resumed.losses.len();
            training.noted = resumed.losses.len();
            training.losses = resumed.losses;
            (training.samples, training.samples_before) = (resumed.samples, resumed.samples);
            training.expected = Expected::resume(&cursor, resumed.expected);
            training.resumed =
                Some((cursor, whole_proof(&resumed.delivered), whole_report(&resumed.delivered)));
        }
        Ok(training)
    }

    /// Draws the steps on the compute stream in `trace`.
    pub fn trace(&mut self, trace: Option<&Trace>) -> Result<()> {
        self.trace = trace.map(|trace| trace.stream(&self.compute, "compute stream")).transpose()?;
        Ok(())
    }

    /// Records the loss of each step.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// Trains up to the last epoch or step.
    ///
    /// # Errors
    /// `Stopped` after an interrupt, once the checkpoint is written if the run is saved; any error of the
    /// pipeline.
    pub fn run(
        &mut self,
        loader: &mut Loader,
        model: &mut Mlp,
        ranks: &mut Ranks,
        started: Instant,
    ) -> Result<()> {
        let all = loader.batch_sampler().steps(0, 0).saturating_mul(self.epochs).min(self.last_step);
        let bar = progress::training(self.quiet, all);
        let first = match self.resumed.clone() {
            Some((cursor, delivered, bad_sample_report)) => {
                // Sets the position; the loop below asks for the epochs.
                let _ = loader.resume(cursor)?;
                self.check_resumed(loader, &delivered, &bad_sample_report)?;
                cursor.epoch()
            }
            None => 0,
        };
        self.start = Instant::now();
        self.rate.add(self.start, self.samples_here());
        for epoch in first..self.epochs {
            bar.set_prefix(progress::of_epochs(epoch, self.epochs));
            self.epoch(epoch, loader, model, ranks, started, &bar)?;
            self.leave_line(epoch, ranks, &loader.report().epoch, &bar);
            if self.saves {
                self.save(loader.checkpoint(&self.compute)?, model, ranks)?;
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
        self.average_losses(ranks)?;
        ranks.check_parameters(model)
    }

    fn epoch(
        &mut self,
        epoch: u64,
        loader: &mut Loader,
        model: &mut Mlp,
        ranks: &mut Ranks,
        started: Instant,
        bar: &ProgressBar,
    ) -> Result<()> {
        if self.saves {
            // Computed here, before the loader starts; a save within the epoch needs it.
            self.expected.begin(loader.batch_sampler(), epoch);
        }
        let progress = loader.progress();
        let mut batches = match self.resumed.take() {
            Some((cursor, ..)) => loader.resume(cursor)?,
            None => loader.epoch(epoch)?,
        };
        while self.steps < self.last_step {
            self.meter.begin();
            let Some(batch) = batches.next() else { break };
            let batch = batch?;
            // All ranks have the same number.
            self.samples += batch.len() as u64 * u64::from(ranks.world().size());
            let batch = self.meter.wait_on(batch)?;
            self.collect()?;
            let result = self.results.begin_at(batch.slot())?;
            if let Some(trace) = &mut self.trace {
                trace.begin("step")?;
            }
            self.replay.step(&batch, result.address(), || {
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
                let run = progress.report().run;
                self.history.add(&run);
                let loss = self.smoothed_loss();
                self.history.note("loss", loss.into());
                self.show(bar, run.wait_share());
            }
            let stops = ranks.should_stop(self.steps, self.interrupt.pressed())?;
            let saves = stops || self.every.is_some_and(|every| self.steps.is_multiple_of(every));
            if saves && self.saves {
                self.save(batches.checkpoint(&self.compute)?, model, ranks)?;
            }
            if stops {
                return Err(self.stopped());
            }
            if self.steps.is_multiple_of(self.check_every) {
                ranks.check_parameters(model)?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// `Stopped` once Ctrl-C was pressed.
    pub fn interrupted(&self) -> Result<()> {
        if self.interrupt.pressed() { Err(self.stopped()) } else { Ok(()) }
    }

    /// The error that ends an interrupted run.
    fn stopped(&self) -> Error {
        let stopped = |rest: &str| {
            Error::new(ErrorKind::Stopped, format!("interrupted after step {}; {rest}", self.steps))
        };
        match &self.checkpoint {
            Some(output) => {
                let file = quoted(&output.given().to_string_lossy());
                stopped(&format!("continue with: {} --resume {file}", self.command))
            }
            None if self.saves => stopped("the first rank has saved the run"),
            None => stopped("nothing is saved without --checkpoint FILE"),
        }
    }

    /// The proof expected of all ranks up to now: every sample of the batch sampler, with substitutes for bad
    /// samples.
    pub fn expected_proof(&mut self, loader: &Loader, bad_sample_report: &BadSampleReport) -> Proof {
        self.expected.until(loader.batch_sampler(), &loader.cursor(), bad_sample_report)
    }

    /// Refuses a checkpoint whose cursors contradict its proofs.
    fn check_resumed(
        &mut self,
        loader: &Loader,
        delivered: &Proof,
        bad_sample_report: &BadSampleReport,
    ) -> Result<()> {
        let expected = self.expected_proof(loader, bad_sample_report);
        delivered.check(&expected).map_err(|error| {
            let why = "the checkpoint contradicts itself, resume from another one";
            Error::new(ErrorKind::Cursor, why).with_source(error)
        })
    }

    fn save(&mut self, saved: feedline::Checkpoint, model: &Mlp, ranks: &Ranks) -> Result<()> {
        self.finish()?;
        self.average_losses(ranks)?;
        let feedline::Checkpoint { cursor, bad_sample_report, .. } = saved;
        let delivered = ranks.delivered(Delivered { cursor, bad_sample_report })?;
        let Some(output) = &self.checkpoint else { return Ok(()) };
        let checkpoint = Checkpoint {
            expected: self.expected.ended(),
            delivered,
            model: model.state()?,
            losses: std::mem::take(&mut self.losses),
            samples: self.samples,
        };
        let written = checkpoint.write(output);
        self.losses = checkpoint.losses;
        written
    }

    /// Replaces the losses of this rank by the means over all ranks; all results have arrived.
    fn average_losses(&mut self, ranks: &Ranks) -> Result<()> {
        ranks.average(&mut self.losses[self.averaged..])?;
        self.averaged = self.losses.len();
        Ok(())
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
        self.note_losses()
    }

    fn finish(&mut self) -> Result<()> {
        while let Some(result) = self.results.wait()? {
            self.losses.push(f32::from_bits(result[0]));
        }
        self.note_losses()
    }

    /// Records the new losses, as this rank has them.
    fn note_losses(&mut self) -> Result<()> {
        let new = self.noted..self.losses.len();
        self.noted = self.losses.len();
        let Some(recorder) = &self.recorder else { return Ok(()) };
        new.into_iter().try_for_each(|step| recorder.note_at(step as u64, "loss", self.losses[step].into()))
    }

    /// The loss, smoothed over the last steps.
    fn smoothed_loss(&mut self) -> f32 {
        let new = self.losses.get(self.smoothed..).unwrap_or_default();
        new.iter().for_each(|loss| self.loss.add(*loss));
        self.smoothed = self.losses.len();
        self.loss.value()
    }

    /// Prints a line about an epoch above the bar, but at most one per second.
    fn leave_line(&mut self, epoch: u64, ranks: &Ranks, account: &Account, bar: &ProgressBar) {
        if self.lined.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.lined = Instant::now();
        let (loss, all) = (self.smoothed_loss(), f64::from(ranks.world().size()));
        let seconds = account.wall().as_secs_f64().max(1e-9);
        bar.println(format!(
            "epoch {}/{}  loss {loss:.4}  {}  {:.1} MB/s  waited {:.1} %",
            epoch + 1,
            self.epochs,
            progress::per_second(all * account.rows as f64 / seconds),
            all * account.bytes as f64 / 1e6 / seconds,
            100.0 * account.wait_share()
        ));
    }

    fn show(&mut self, bar: &ProgressBar, wait_share: f64) {
        bar.set_position(self.steps);
        if !bar.is_hidden() {
            let (rate, loss) = (self.rate.add(Instant::now(), self.samples_here()), self.smoothed_loss());
            bar.set_message(progress::figures(rate, loss, wait_share));
        }
    }

    /// The accounts of the run over time.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Samples delivered since this process began, over all ranks.
    pub fn samples_here(&self) -> u64 {
        self.samples - self.samples_before
    }

    /// The mean loss of every step over all ranks, over all parts of the run.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// How long this process has trained.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Seconds from the start of the process to the end of its first step.
    pub fn first_step_seconds(&self) -> f64 {
        self.first_step_seconds
    }

    /// The time of a step on the compute stream, once one was measured.
    pub fn step_time(&mut self) -> Result<Option<Duration>> {
        self.meter.step_time()
    }
}
