//! Data sets made of others. Each keeps the contract of a data set, reads in bulk if its parts do, gives each
//! sample its own random numbers wherever it is read, and names the inner sample that failed.

mod cached;
mod cached_file;
mod concat;
mod filter;
mod from_fn;
mod in_memory;
mod map;
mod mix;
mod negatives;
mod nested;
mod open;
mod pointer;
mod ragged;
mod repeat;
mod split;
mod subset;
mod widened;
mod window;
mod zip;

use std::path::Path;
use std::sync::{Arc, Mutex};

use feedline_core::check::Samples;
use feedline_core::{
    CheckOptions, Context, DType, Dataset, ErrorKind, Layout, ReadError, Result, Row, RowError, Rows, Spec,
    StridedColumn, check_dataset,
};

const SEED: u64 = 11;

/// Each sample has its number and a random number. The set remembers the groups in which samples were read.
#[derive(Clone)]
struct Numbered {
    spec: Spec,
    first: i64,
    len: u64,
    draws: bool,
    fails_at: Option<u64>,
    groups: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Numbered {
    /// `len` samples; the number of sample `id` is `first + id`.
    fn new(first: i64, len: u64) -> Self {
        let spec = Spec::new().field("number", DType::I64, []).expect("a spec");
        let spec = spec.field("draw", DType::I64, [2]).expect("a spec");
        Self { spec, first, len, draws: true, fails_at: None, groups: Arc::default() }
    }

    /// Without random numbers.
    fn plain(first: i64, len: u64) -> Self {
        Self { draws: false, ..Self::new(first, len) }
    }

    fn failing(self, at: u64) -> Self {
        Self { fails_at: Some(at), ..self }
    }

    /// The groups of ids that were read since the last call.
    fn groups(&self) -> Vec<Vec<u64>> {
        std::mem::take(&mut *self.groups.lock().expect("the groups"))
    }

    fn write(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        if id >= self.len || self.fails_at == Some(id) {
            return Err(format!("planned failure of {id}").into());
        }
        row.field_mut::<i64>(0)?[0] = self.first + id as i64;
        let draws = self.draws;
        row.field_mut::<i64>(1)?.fill_with(|| if draws { context.random().next_u64() as i64 } else { 0 });
        Ok(())
    }
}

impl Dataset for Numbered {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        self.groups.lock().expect("the groups").push(vec![id]);
        self.write(id, row, context)
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        self.groups.lock().expect("the groups").push(ids.to_vec());
        for (index, &id) in ids.iter().enumerate() {
            context.begin(index, id);
            self.write(id, &mut rows.row(index), context).map_err(|error| (index, error))?;
        }
        Ok(())
    }

    fn path(&self, id: u64) -> Option<&Path> {
        (id < self.len).then_some(Path::new(if self.first < 100 { "low" } else { "high" }))
    }

    fn fingerprint(&self) -> u64 {
        self.first as u64 * 1000 + self.len
    }
}

/// One sample of [`Numbered`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    number: i64,
    draw: [i64; 2],
}

/// Reads `ids` by one `read_many`.
#[track_caller]
fn read(set: &dyn Dataset, ids: &[u64], epoch: u64) -> Vec<Seen> {
    try_read(set, ids, epoch).map_err(|(index, error)| format!("row {index}: {error}")).expect("samples")
}

fn try_read(set: &dyn Dataset, ids: &[u64], epoch: u64) -> Result<Vec<Seen>, RowError> {
    let (layout, mut slab) = slab(set, ids.len());
    let bytes = bytemuck::cast_slice_mut(&mut slab);
    set.read_many(ids, &mut Rows::new(&layout, bytes, ids.len()), &mut Context::new(SEED, epoch))?;
    Ok(seen(&layout, bytes, ids.len()))
}

/// The content of the rows that were read, and the error of the first one that was not.
fn read_until(set: &dyn Dataset, ids: &[u64]) -> (Vec<Seen>, String) {
    let (layout, mut slab) = slab(set, ids.len());
    let bytes = bytemuck::cast_slice_mut(&mut slab);
    let mut rows = Rows::new(&layout, bytes, ids.len());
    let (good, error) = set.read_many(ids, &mut rows, &mut Context::new(SEED, 0)).expect_err("a failure");
    drop(rows);
    (seen(&layout, bytes, good), error.to_string())
}

fn slab(set: &dyn Dataset, rows: usize) -> (Layout, Vec<u64>) {
    let layout = Layout::new(set.spec(), rows.max(1)).expect("a layout");
    let words = layout.bytes() / 8;
    (layout, vec![0; words])
}

fn seen(layout: &Layout, bytes: &[u8], rows: usize) -> Vec<Seen> {
    let numbers: &[i64] = bytemuck::cast_slice(&bytes[layout.offset(0)..][..8 * rows]);
    let draws: &[[i64; 2]] = bytemuck::cast_slice(&bytes[layout.offset(1)..][..16 * rows]);
    numbers.iter().zip(draws).map(|(&number, &draw)| Seen { number, draw }).collect()
}

fn numbers(seen: &[Seen]) -> Vec<i64> {
    seen.iter().map(|seen| seen.number).collect()
}

/// Checks that `set` reads the same sample by sample, in bulk, on another thread and by its columns, in two
/// epochs, and that ids beyond its end are errors.
#[track_caller]
fn assert_keeps_the_contract(set: &dyn Dataset) {
    let options = CheckOptions { samples: Samples::Spread(set.len()), epochs: 2, seed: SEED };
    let report = check_dataset(set, &options).expect("a check");
    assert!(report.is_clean(), "{report}");
    for id in [set.len(), set.len() + 1, u64::MAX] {
        let (index, error) = try_read(set, &[0, id], 0).expect_err("there is no such sample");
        assert_eq!((index, error.to_string().contains('\n')), (1, false), "{error}");
        let _ = set.path(id);
    }
    // Reading some rows gives the same values as reading all.
    let ids: Vec<u64> = (0..set.len()).rev().chain([0]).collect();
    let all = read(set, &ids, 1);
    for part in [&ids[..1], &ids[ids.len() / 2..]] {
        let first = ids.len() - part.len();
        let first = if part.len() == 1 { 0 } else { first };
        assert_eq!(read(set, part, 1), all[first..first + part.len()]);
    }
}

/// Checks that the draws of all `seen` differ.
#[track_caller]
fn assert_draws_differ(seen: &[Seen]) {
    let mut draws: Vec<i64> = seen.iter().flat_map(|seen| seen.draw).collect();
    draws.sort_unstable();
    draws.dedup();
    assert_eq!(draws.len(), 2 * seen.len(), "two samples have the same random numbers");
}

/// Asserts that `result` is an error of kind `Config` on one line. Returns its message.
#[track_caller]
fn refused<T>(result: Result<T>) -> String {
    let error = result.map(drop).expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    error.to_string()
}

/// Checks that the fingerprints of all `sets` differ.
#[track_caller]
fn assert_fingerprints_differ<const N: usize>(sets: [&dyn Dataset; N]) {
    let mut all = sets.map(|set| set.fingerprint());
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "two sets have one fingerprint");
}

/// [`Numbered`] without random numbers, in memory, with columns.
fn laid(first: i64, len: u64) -> feedline_core::InMemory {
    let numbers: Vec<i64> = (0..len as i64).map(|id| first + id).collect();
    let draws = vec![0_i64; 2 * len as usize];
    let set = feedline_core::InMemory::new().field("number", [], numbers).expect("numbers");
    set.field("draw", [2], draws).expect("draws")
}

/// The numbers in the column of field 0.
fn column(set: &dyn Dataset) -> Option<Vec<i64>> {
    let column: StridedColumn<'_> = set.storage().column(0)?;
    let row = |id| i64::from_le_bytes(column.row(id).expect("a row").try_into().expect("8 bytes"));
    Some((0..column.rows() as u64).map(row).collect())
}
