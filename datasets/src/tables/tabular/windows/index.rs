//! The order of the rows of a table by group and time, and the first row of each window.

use std::ops::Range;

use feedline_core::{ElementType, Error, Result};

use super::WindowFate;
use crate::error::data;
use crate::tables::tabular::cast::Number;
use crate::tables::tabular::fit_on::Limits;

/// The shape of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) inputs: usize,
    pub(super) targets: usize,
    pub(super) stride: usize,
    pub(super) max_gap: Option<f64>,
    /// Whether means come from all rows. If so, no part of the windows may be for validation.
    pub(super) is_fitted_on_all: bool,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    group: u32,
    /// The time as an integer. The integers have the same order as the times.
    time: i64,
    row: u32,
}

/// The rows in the order of the file, and their groups.
#[derive(Debug)]
pub(super) struct Unsorted {
    element: ElementType,
    entries: Vec<Entry>,
    /// The category numbers of each group, indexed by `Entry::group`.
    groups: Vec<Vec<i64>>,
    places: std::collections::HashMap<Vec<i64>, u32>,
}

/// The rows sorted by group and time.
#[derive(Debug)]
pub(super) struct Index {
    element: ElementType,
    /// The row numbers of the table, sorted by group and time.
    pub(super) order: Vec<u32>,
    times: Vec<i64>,
    /// For each group, its category numbers and its range in `order`.
    pub(super) groups: Vec<(Vec<i64>, Range<usize>)>,
    /// The position in `order` of the first row of each window, ascending.
    pub(super) starts: Vec<u32>,
    pub(super) fate: WindowFate,
}

impl Unsorted {
    /// An index without rows, for times of type `element`.
    pub(super) fn new(element: ElementType, rows: u64) -> Result<Self> {
        if u32::try_from(rows).is_err() {
            return Err(data(format!("a table of {rows} rows: windows are made of up to 2^32 of them")));
        }
        let entries = Vec::with_capacity(rows as usize);
        Ok(Self { element, entries, groups: Vec::new(), places: Default::default() })
    }

    /// Adds the next row.
    pub(super) fn add(&mut self, time: &[u8], group: &[u8]) -> Result<()> {
        let row = self.entries.len() as u32;
        let time = match Number::read(self.element, time) {
            Some(Number::Whole(whole)) => i64::try_from(whole).ok(),
            Some(Number::Float(float)) if float.is_finite() => Some(ordered(float)),
            _ => None,
        };
        let why =
            || data(format!("row {row} has a time that is not a finite number: repair it, or leave it out"));
        let time = time.ok_or_else(why)?;
        let numbers: Vec<i64> = group.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let group = match self.places.get(&numbers) {
            Some(place) => *place,
            None => {
                let place = self.groups.len() as u32;
                self.groups.push(numbers.clone());
                self.places.insert(numbers, place);
                place
            }
        };
        self.entries.push(Entry { group, time, row });
        Ok(())
    }

    /// Sorts the rows and finds the windows. `named` returns the name of a group for an error.
    pub(super) fn sorted(mut self, shape: Shape, named: impl Fn(&[i64]) -> String) -> Result<Index> {
        let mut by_numbers = Vec::from_iter(0..self.groups.len());
        by_numbers.sort_by_key(|&place| &self.groups[place]);
        let mut ranks = vec![0; self.groups.len()];
        (0..).zip(&by_numbers).for_each(|(rank, &place)| ranks[place] = rank);
        self.entries.iter_mut().for_each(|entry| entry.group = ranks[entry.group as usize]);
        self.entries.sort_unstable();
        let element = self.element;
        let same = |pair: &&[Entry]| (pair[0].group, pair[0].time) == (pair[1].group, pair[1].time);
        if let Some(pair) = self.entries.windows(2).find(same) {
            let group = named(&self.groups[by_numbers[pair[0].group as usize]]);
            let time = number(element, pair[0].time);
            let (row, other) = (pair[0].row, pair[1].row);
            return Err(data(format!(
                "rows {row} and {other} have the same time, {time}{group}: leave out one of them, or name \
                 more columns of the group"
            )));
        }
        let mut groups = Vec::with_capacity(by_numbers.len());
        let mut end = 0;
        for chunk in self.entries.chunk_by(|one, other| one.group == other.group) {
            let numbers = std::mem::take(&mut self.groups[by_numbers[chunk[0].group as usize]]);
            groups.push((numbers, end..end + chunk.len()));
            end += chunk.len();
        }
        let fate = WindowFate { windows: 0, over_gaps: 0, groups: groups.len() as u64, short_groups: 0 };
        let mut index = Index {
            element,
            order: self.entries.iter().map(|entry| entry.row).collect(),
            times: self.entries.iter().map(|entry| entry.time).collect(),
            groups,
            starts: Vec::new(),
            fate,
        };
        index.find(shape);
        if index.starts.is_empty() { Err(index.none(shape, named)) } else { Ok(index) }
    }
}

impl Index {
    /// Finds the windows.
    fn find(&mut self, shape: Shape) {
        let rows = shape.inputs + shape.targets;
        for (_, places) in &self.groups {
            if places.len() < rows {
                self.fate.short_groups += 1;
                continue;
            }
            let is_gap = |place: &usize| match shape.max_gap {
                Some(gap) => distance(self.element, self.times[place - 1], self.times[*place]) > gap,
                None => false,
            };
            let mut gaps = (places.start + 1..places.end).filter(is_gap).peekable();
            for start in (places.start..=places.end - rows).step_by(shape.stride) {
                while gaps.next_if(|&gap| gap <= start).is_some() {}
                if gaps.peek().is_some_and(|&gap| gap < start + rows) {
                    self.fate.over_gaps += 1;
                } else {
                    self.starts.push(start as u32);
                }
            }
        }
        self.fate.windows = self.starts.len() as u64;
    }

    /// The error for a table without windows.
    fn none(&self, shape: Shape, named: impl Fn(&[i64]) -> String) -> Error {
        let rows = shape.inputs + shape.targets;
        if self.fate.over_gaps > 0 {
            let gaps = self.fate.over_gaps;
            return data(format!("each of the {gaps} windows of {rows} rows is over a gap: raise max_gap"));
        }
        let longest = self.groups.iter().max_by_key(|(_, places)| places.len());
        let (longest, of) =
            longest.map_or((0, String::new()), |(numbers, places)| (places.len(), named(numbers)));
        data(format!(
            "windows of {} inputs and {} targets are longer than every group: the longest{of} has {longest} \
             rows",
            shape.inputs, shape.targets
        ))
    }

    /// The group of the row at position `place`.
    pub(super) fn group(&self, place: usize) -> usize {
        self.groups.partition_point(|(_, places)| places.end <= place)
    }

    /// The windows whose rows `of` are all within `limits`.
    pub(super) fn within(&self, of: Range<usize>, limits: &Limits) -> Vec<u64> {
        let has = |place: usize| limits.has(number(self.element, self.times[place]));
        let is_in = |start: &u32| has(*start as usize + of.start) && has(*start as usize + of.end - 1);
        (0..).zip(&self.starts).filter(|(_, start)| is_in(start)).map(|(window, _)| window).collect()
    }
}

/// The finite `float` as an integer. Integers have the same order as the floats. -0 becomes 0.
fn ordered(float: f64) -> i64 {
    let bits = (float + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn unordered(number: i64) -> f64 {
    f64::from_bits((number ^ (((number >> 63) as u64) >> 1) as i64) as u64)
}

/// The time of an entry.
fn number(element: ElementType, time: i64) -> Number {
    if is_float(element) { Number::Float(unordered(time)) } else { Number::Whole(time.into()) }
}

fn is_float(element: ElementType) -> bool {
    matches!(Number::read(element, &[0; 8][..element.size().min(8)]), Some(Number::Float(_)))
}

fn distance(element: ElementType, from: i64, to: i64) -> f64 {
    if is_float(element) {
        unordered(to) - unordered(from)
    } else {
        (i128::from(to) - i128::from(from)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_and_come_back() {
        let floats = [f64::MIN, -2.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 1.0, 1.5, f64::MAX];
        for pair in floats.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
        }
        assert!(floats.iter().all(|&float| unordered(ordered(float)) == float));
        assert_eq!(ordered(-0.0), ordered(0.0));
    }
}
