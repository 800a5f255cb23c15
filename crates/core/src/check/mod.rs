//! A check of a data set against the contract of [`Dataset`], on some of its samples.

use std::fmt;
use std::thread;

use crate::random::splitmix64;
use crate::{Context, Dataset, Error, ErrorKind, Layout, Result, panic_text};

mod silent;
mod slab;

use silent::silently;
use slab::Slab;

/// The check ends after this many faults.
const MAX_FINDINGS: usize = 32;

/// Samples per call of `read_many`.
const AT_ONCE: usize = 8;

/// Each sample is read over both backgrounds: a byte that shows both was not written.
const BACKGROUNDS: [u8; 2] = [0x55, 0xAA];

/// The samples to check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Samples {
    /// This many, evenly spread over the data set, including the first and the last.
    Spread(u64),
    /// The samples with these ids.
    Ids(Vec<u64>),
}

/// Options of [`check_dataset`].
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The samples to check. Default: 64, evenly spread.
    pub samples: Samples,
    /// The number of epochs in which each sample is read, from epoch 0. Default: 2.
    pub epochs: u64,
    /// The seed of the random numbers that `read` uses. Default: 0.
    pub seed: u64,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { samples: Samples::Spread(64), epochs: 2, seed: 0 }
    }
}

/// What is wrong with a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `read` did not write a byte of its row; in a batch it would be a byte of an earlier sample.
    NotWritten,
    /// A second `read` with the same id, epoch and seed wrote a different byte.
    Differs,
    /// `read` wrote a different byte on another thread.
    DiffersOnAnotherThread,
    /// `read_many` wrote a different byte than `read`.
    ReadManyDiffers,
    /// A byte outside the row was written, by unsafe code.
    Outside,
    /// The read failed with this error.
    Unreadable(String),
    /// The read panicked with this message.
    Panicked(String),
    /// The column has a different byte than `read` writes.
    ColumnDiffers,
    /// The column does not have one row of the field's size per sample.
    ColumnShape,
}

/// A fault and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The sample's id.
    pub sample: u64,
    /// The epoch in which it was read.
    pub epoch: u64,
    /// The name of the field, if the fault is in a field.
    pub field: Option<String>,
    /// The index of the first wrong byte in the field's row, if the fault is in a byte.
    pub byte: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
    /// The source line of a panic, as in `src/data.rs:12:5`.
    pub line: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample {}: ", self.sample)?;
        if let Some(field) = &self.field {
            write!(f, "field \"{field}\": ")?;
        }
        let byte = self.byte.unwrap_or(0);
        match &self.fault {
            Fault::NotWritten => write!(f, "byte {byte} was not written"),
            Fault::Differs => write!(f, "byte {byte} differs between two reads"),
            Fault::DiffersOnAnotherThread => write!(f, "byte {byte} differs on another thread"),
            Fault::ReadManyDiffers => write!(f, "byte {byte} differs between read and read_many"),
            Fault::Outside => f.write_str("bytes outside the row were written"),
            Fault::Unreadable(why) => write!(f, "the read failed: {why}"),
            Fault::Panicked(why) => match &self.line {
                Some(line) => write!(f, "the read panicked at {line}: {why}"),
                None => write!(f, "the read panicked: {why}"),
            },
            Fault::ColumnDiffers => write!(f, "byte {byte} differs between column and read"),
            Fault::ColumnShape => {
                f.write_str("the column does not have one row of the field's size per sample")
            }
        }
    }
}

/// The result of [`check_dataset`]. Displays a summary line, then one line per finding.
#[derive(Clone, Debug)]
#[must_use = "the faults are in the report, not in the result"]
#[non_exhaustive]
pub struct Report {
    /// Number of samples checked.
    pub samples: u64,
    /// The faults found. The check ends after 32.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} samples checked, {} faults", self.samples, self.findings.len())?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n{finding}"))
    }
}

/// Reads some samples of `dataset` repeatedly, and reports violations of the contract of [`Dataset`].
///
/// It finds partly written rows, reads that differ when repeated, on another thread or in `read_many`,
/// errors, panics, and columns that differ from what `read` writes. Call it from a test, or once before a
/// long run: it reads every sample four times per epoch. A sample with a fault is not read in later epochs.
///
/// Panics of the reads are in the report and print nothing: the first call installs a panic hook, which calls
/// the previous one for every other panic.
///
/// ```
/// use feedline_core::{CheckOptions, Context, DType, Dataset, ReadError, Row, Spec, check_dataset};
///
/// /// Points on a line; `read` forgets the second coordinate of every tenth point.
/// struct Points(Spec);
///
/// impl Dataset for Points {
///     fn len(&self) -> u64 { 100 }
///     fn spec(&self) -> &Spec { &self.0 }
///     fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
///         let point = row.field_mut::<f32>(0)?;
///         point[0] = id as f32;
///         if id % 10 != 0 { point[1] = 2.0 * id as f32 }
///         Ok(())
///     }
/// }
///
/// let points = Points(Spec::new().field("point", DType::F32, [2])?);
/// let report = check_dataset(&points, &CheckOptions::default())?;
/// assert!(!report.is_clean());
/// assert_eq!(report.findings[0].to_string(), "sample 0: field \"point\": byte 4 was not written");
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// # Errors
/// `Config` for a spec without fields, a sample larger than the address space, an empty data set, a listed id
/// that does not exist, or a length or spec that changes between calls; `Budget` when there is no memory for
/// a sample; `Unavailable` when no thread can be started. Faults of samples are in the report, not an error.
pub fn check_dataset(dataset: &dyn Dataset, options: &CheckOptions) -> Result<Report> {
    <dyn Dataset>::check_nesting("check", dataset.about().nesting)?;
    let (len, spec) = (dataset.len(), dataset.spec());
    let count = options.samples.count(len)?;
    let mut check = Check {
        dataset,
        seed: options.seed,
        // An unused row before and one after detect writes outside.
        single: Layout::new(spec, 1 + 2)?,
        many: Layout::new(spec, AT_ONCE + 2)?,
        findings: Vec::new(),
    };
    let mut samples = 0;
    for first in (0..count).step_by(AT_ONCE) {
        let group = first..count.min(first + AT_ONCE as u64);
        let ids: Vec<u64> = group.map(|index| options.samples.id(index, len)).collect();
        (0..options.epochs).try_for_each(|epoch| check.group(&ids, epoch))?;
        samples += ids.len() as u64;
        if check.findings.len() >= MAX_FINDINGS {
            check.findings.truncate(MAX_FINDINGS);
            break;
        }
    }
    if dataset.len() != len || dataset.spec() != spec {
        let why = "the length or the spec of the data set changes: both must be the same for every call";
        return Err(Error::new(ErrorKind::Config, why));
    }
    Ok(Report { samples, findings: check.findings })
}

impl Samples {
    /// The number of samples, in a data set of `len`.
    fn count(&self, len: u64) -> Result<u64> {
        let refuse = |why: String| Err(Error::new(ErrorKind::Config, why));
        match self {
            _ if len == 0 => refuse("the data set is empty: there is nothing to check".to_owned()),
            Self::Spread(count) => Ok(len.min(*count)),
            Self::Ids(ids) => match ids.iter().find(|&&id| id >= len) {
                Some(id) => refuse(format!("there is no sample {id} to check: the data set has {len}")),
                None => Ok(ids.len() as u64),
            },
        }
    }

    /// The sample at `index`, which must be below [`count`](Self::count).
    fn id(&self, index: u64, len: u64) -> u64 {
        match self {
            Self::Ids(ids) => ids[index as usize],
            Self::Spread(count) => {
                let gaps = len.min(*count).saturating_sub(1).max(1);
                // The result is at most the last sample: the index is at most the number of gaps.
                (u128::from(index) * u128::from(len - 1) / u128::from(gaps)) as u64
            }
        }
    }
}

/// The fault of a read that failed, and the source line of its panic.
type Failed = (Fault, Option<String>);

/// The state of a check.
struct Check<'a> {
    dataset: &'a dyn Dataset,
    seed: u64,
    single: Layout,
    many: Layout,
    findings: Vec<Finding>,
}

impl Check<'_> {
    /// Checks a few samples one by one, then by one `read_many`.
    fn group(&mut self, ids: &[u64], epoch: u64) -> Result<()> {
        let mut alone = Vec::new();
        for &id in ids {
            // A fault is found in one epoch, not again in each.
            if self.findings.iter().any(|finding| finding.sample == id) {
                continue;
            }
            if let Some(slab) = self.sample(id, epoch)? {
                alone.push((id, slab));
            }
        }
        // `read_many` reads them in another order.
        alone.reverse();
        let ids: Vec<u64> = alone.iter().map(|(id, _)| *id).collect();
        if let Some(first) = ids.first() {
            let mut slab = Slab::new(&self.many, ids.len(), BACKGROUNDS[1])?;
            match self.read(&mut slab, &ids, epoch, true) {
                Ok(()) => {
                    for (row, (id, alone)) in alone.iter().enumerate() {
                        self.compare(*id, epoch, Fault::ReadManyDiffers, |field| {
                            (alone.field(0, field), slab.field(row, field))
                        });
                    }
                }
                Err((row, failed)) => self.fail(ids.get(row).copied().unwrap_or(*first), epoch, failed),
            }
        }
        Ok(())
    }

    /// Checks one sample. Returns its row if no fault was found.
    fn sample(&mut self, id: u64, epoch: u64) -> Result<Option<Slab>> {
        let [one, two] = BACKGROUNDS.map(|background| Slab::new(&self.single, 1, background));
        let (mut first, mut second) = (one?, two?);
        for slab in [&mut first, &mut second] {
            if let Err((_, failed)) = self.read(slab, &[id], epoch, false) {
                self.fail(id, epoch, failed);
                return Ok(None);
            }
        }
        let found = self.findings.len();
        self.compare_backgrounds(id, epoch, &first, &second);
        if self.findings.len() == found {
            let other = self.on_another_thread(id, epoch)?;
            match other {
                Ok(other) => self.compare(id, epoch, Fault::DiffersOnAnotherThread, |field| {
                    (first.field(0, field), other.field(0, field))
                }),
                Err(failed) => self.fail(id, epoch, failed),
            }
            self.check_columns(id, epoch, &first);
        }
        let is_good = self.findings.len() == found;
        Ok(is_good.then_some(first))
    }

    /// Reads `ids` into the rows of `slab`, by `read` or `read_many`. Returns the row that failed, and its
    /// fault.
    fn read(&self, slab: &mut Slab, ids: &[u64], epoch: u64, many: bool) -> Result<(), (usize, Failed)> {
        // Draws differ from ids and rows, so that a set that mixes them up is found.
        let draws: Vec<u64> = ids.iter().map(|&id| splitmix64(id)).collect();
        let mut context = Context::new(self.seed, epoch).with_draws(&draws);
        let (read, line) = silently(|| {
            let mut rows = slab.rows();
            if many {
                return rows.read_by(|rows| self.dataset.read_many(ids, rows, &mut context));
            }
            ids.iter().enumerate().try_for_each(|(index, &id)| {
                let mut row = rows.row(index);
                let read = |context: &mut Context| row.read_by(|row| self.dataset.read(id, row, context));
                context.sample(index, id, read).map_err(|error| (index, error))
            })
        });
        match read {
            Ok(Ok(())) if slab.is_touched_outside() => Err((0, (Fault::Outside, None))),
            Ok(Ok(())) => Ok(()),
            Ok(Err((row, error))) => Err((row, (Fault::Unreadable(error.to_string()), None))),
            Err(panic) => {
                let row = context.current().map_or(0, |(row, _)| row);
                Err((row, (Fault::Panicked(panic_text(panic)), line)))
            }
        }
    }

    fn on_another_thread(&self, id: u64, epoch: u64) -> Result<Result<Slab, Failed>> {
        let mut slab = Slab::new(&self.single, 1, BACKGROUNDS[0])?;
        let read = thread::scope(|scope| {
            let thread = thread::Builder::new().name("fl-check".to_owned());
            let thread = thread.spawn_scoped(scope, || self.read(&mut slab, &[id], epoch, false))?;
            Ok(thread.join().unwrap_or_else(|panic| Err((0, (Fault::Panicked(panic_text(panic)), None)))))
        });
        let cannot = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "cannot start a thread for the check").with_source(error)
        };
        Ok(read.map_err(cannot)?.map(|()| slab).map_err(|(_, failed)| failed))
    }

    /// Reports bytes that were not written, and bytes that differ between the two reads.
    fn compare_backgrounds(&mut self, id: u64, epoch: u64, first: &Slab, second: &Slab) {
        for field in 0..self.single.spec().fields().len() {
            let pairs = || first.field(0, field).iter().copied().zip(second.field(0, field).iter().copied());
            let untouched = pairs().position(|(one, two)| [one, two] == BACKGROUNDS);
            let differs = pairs().position(|(one, two)| one != two && [one, two] != BACKGROUNDS);
            let (one, two) = (first.field(0, field).len(), second.field(0, field).len());
            let differs = differs.or_else(|| (one != two).then(|| one.min(two)));
            for (byte, fault) in [(untouched, Fault::NotWritten), (differs, Fault::Differs)] {
                if byte.is_some() {
                    self.add(id, epoch, Some((field, byte)), fault);
                }
            }
        }
    }

    /// Reports `fault` for every field whose two rows differ.
    fn compare<'b>(
        &mut self,
        id: u64,
        epoch: u64,
        fault: Fault,
        rows: impl Fn(usize) -> (&'b [u8], &'b [u8]),
    ) {
        for field in 0..self.single.spec().fields().len() {
            let (one, two) = rows(field);
            if let Some(byte) = first_difference(one, two) {
                self.add(id, epoch, Some((field, Some(byte))), fault.clone());
            }
        }
    }

    fn check_columns(&mut self, id: u64, epoch: u64, read: &Slab) {
        for field in 0..self.single.spec().fields().len() {
            let Some(column) = self.dataset.storage().column(field) else { continue };
            let row = read.field(0, field);
            match column.row(id) {
                Some(stored) if stored.len() == row.len() && !read.is_ragged(field) => {
                    if let Some(byte) = first_difference(row, stored) {
                        self.add(id, epoch, Some((field, Some(byte))), Fault::ColumnDiffers);
                    }
                }
                _ => self.add(id, epoch, Some((field, None)), Fault::ColumnShape),
            }
        }
    }

    fn add(&mut self, sample: u64, epoch: u64, place: Option<(usize, Option<usize>)>, fault: Fault) {
        let field = place.map(|(field, _)| self.single.spec().fields()[field].name().to_owned());
        let byte = place.and_then(|(_, byte)| byte);
        self.findings.push(Finding { sample, epoch, field, byte, fault, line: None });
    }

    fn fail(&mut self, sample: u64, epoch: u64, (fault, line): Failed) {
        self.findings.push(Finding { sample, epoch, field: None, byte: None, fault, line });
    }
}

/// The index of the first byte that differs, or that only one of the two has.
fn first_difference(one: &[u8], two: &[u8]) -> Option<usize> {
    let differs = one.iter().zip(two).position(|(one, two)| one != two);
    differs.or_else(|| (one.len() != two.len()).then(|| one.len().min(two.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_samples_include_the_first_and_the_last() {
        let spread = |count, len| -> Vec<u64> {
            let samples = Samples::Spread(count);
            (0..samples.count(len).unwrap()).map(|index| samples.id(index, len)).collect()
        };
        assert_eq!(spread(5, 101), [0, 25, 50, 75, 100]);
        assert_eq!((spread(5, 3), spread(1, 9), spread(0, 9)), (vec![0, 1, 2], vec![0], vec![]));
        assert_eq!(spread(2, u64::MAX), [0, u64::MAX - 1]);
        assert!(Samples::Spread(5).count(0).is_err());
        assert!(Samples::Ids(vec![2, 3]).count(3).unwrap_err().message().contains("no sample 3"));
    }
}
