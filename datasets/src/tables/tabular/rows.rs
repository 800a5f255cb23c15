//! The rows of a table after its steps.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use feedline_core::{
    About, Context, DType, Dataset, Decoded, DecodedRows, Fingerprint, Meaning, Prefetched, ReadError,
    Result, Row, Sink, Spec, Storage, StridedColumn, TakeItems,
};

use super::cell::Cell;
use super::column::{Column, Items};
use super::description::Description;
use super::plan::{Output, Plan};
use super::steps::Cut;
use crate::error::at_file;
use crate::tables::nulls::missing;

/// The fields of a row by their index in the inner set. They are kept until all fields have been visited.
/// Takes a field: its index, its bytes, and its shape if the bytes alone do not determine it.
type Put<'a> = dyn FnMut(usize, &[u8], Option<&[usize]>) -> Result<()> + 'a;

#[derive(Debug, Default)]
pub(super) struct Parts {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Parts {
    /// Reads row `row`, keeps the fields of `kept`, and passes each field to `to`.
    pub(super) fn read(
        &mut self,
        (inner, kept): (&dyn Dataset, &[bool]),
        row: u64,
        to: &mut Put<'_>,
        context: &mut Context,
    ) -> Result<()> {
        let Self { bytes: all, ranges } = self;
        all.clear();
        ranges.clear();
        ranges.resize(kept.len(), 0..0);
        let mut keep = |field: usize, bytes: &[u8], shape: Option<&[usize]>| {
            if kept.get(field) == Some(&true) {
                ranges[field] = all.len()..all.len() + bytes.len();
                all.extend_from_slice(bytes);
            }
            to(field, bytes, shape)
        };
        inner.visit(row, &mut Sink::new(&mut keep), context)
    }

    pub(super) fn value(&self, field: usize) -> &[u8] {
        &self.bytes[self.ranges[field].clone()]
    }

    /// Whether the row has a value, according to field `present`.
    pub(super) fn is_there(&self, present: Option<usize>) -> bool {
        present.is_none_or(|present| self.value(present) != [0])
    }
}

/// For each field of the inner set, whether columns need it.
pub(super) fn kept<'a>(columns: impl IntoIterator<Item = &'a Column>, fields: usize) -> Vec<bool> {
    let mut kept = vec![false; fields];
    for column in columns {
        kept[column.field] = true;
        column.present.into_iter().for_each(|present| kept[present] = true);
        if let Some(Items::Texts(lengths)) = column.items {
            kept[lengths] = true;
        }
    }
    kept
}

/// Reads the fields of a [`Table`](super::Table).
#[derive(Debug)]
pub(super) struct TableRows {
    inner: Arc<dyn Dataset>,
    made: Arc<Made>,
    /// For each field, the items that its list is cut by. They are found when they are first asked for.
    left_out: Vec<OnceLock<LeftOut>>,
    fingerprint: u64,
}

/// The items of each row that a list is cut by.
#[derive(Debug)]
struct LeftOut {
    /// The end of each row's items in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// The rules for making the fields.
#[derive(Debug)]
pub(super) struct Made {
    schema: Spec,
    kept: Vec<bool>,
    /// For each field of the inner set, the output field that gets its bytes unchanged.
    passed: Vec<Option<usize>>,
    fields: Vec<Rule>,
    /// For each field, the items that are kept; `None` keeps all.
    cuts: Vec<Option<Kept>>,
    /// For each field, the inner set's field with the same bytes, if there is one.
    same: Arc<[Option<usize>]>,
    classes: Vec<(String, Vec<String>)>,
}

/// How a field is made.
#[derive(Debug)]
enum Rule {
    Pass,
    /// A value of any size. A missing value is replaced.
    Fill(Cell),
    Numbers(Vec<Cell>),
    /// The categories of a list.
    Listed(Cell, Items),
    Present(Option<usize>),
}

/// The part of a list that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    cut: Cut,
    item_bytes: usize,
}

impl Kept {
    fn part_of(self, value: &[u8]) -> &[u8] {
        self.parts_of(value).0
    }

    /// The part that is kept, and the rest.
    fn parts_of(self, value: &[u8]) -> (&[u8], &[u8]) {
        let bytes = (self.cut.max.saturating_mul(self.item_bytes)).min(value.len());
        if self.cut.is_last {
            let (rest, last) = value.split_at(value.len() - bytes);
            return (last, rest);
        }
        value.split_at(bytes)
    }
}

impl Made {
    /// The fields of the plan for a data set of this schema.
    pub(super) fn new(schema: &Spec, plan: &Plan, found: &Description) -> Result<Self> {
        let count = schema.fields().len();
        let (mut fields, mut same, mut passed) = (Vec::new(), Vec::new(), vec![None; count]);
        let (mut needed, mut cuts) = (Vec::new(), Vec::new());
        for (index, (field, cut)) in plan.fields.iter().zip(&plan.cuts).enumerate() {
            let columns = match field {
                Output::Copied(_, column) | Output::Present(_, column) => std::slice::from_ref(column),
                Output::Listed(.., column) => std::slice::from_ref(column),
                Output::Made(.., columns) => columns,
            };
            let first = &plan.columns[columns[0]];
            let rule = match field {
                Output::Copied(..) if first.present.is_none() => Rule::Pass,
                Output::Copied(..) => Rule::Fill(Cell::new(first, DType::U8, found)?),
                Output::Present(..) => Rule::Present(first.present),
                Output::Listed(_, dtype, _) => match first.items {
                    Some(items) => Rule::Listed(Cell::new(first, *dtype, found)?, items),
                    None => Rule::Pass,
                },
                Output::Made(_, dtype, columns) => {
                    let cell = |&column: &usize| Cell::new(&plan.columns[column], *dtype, found);
                    Rule::Numbers(columns.iter().map(cell).collect::<Result<_>>()?)
                }
            };
            let is_passed = matches!(rule, Rule::Pass);
            let own = field.schema();
            let item_bytes = own.dims().iter().flatten().product::<usize>() * own.element().size();
            cuts.push(cut.map(|cut| Kept { cut, item_bytes }));
            // A cut list does not have the same bytes.
            same.push((is_passed && cut.is_none()).then_some(first.field));
            if is_passed {
                passed[first.field] = Some(index);
            } else {
                needed.extend(columns.iter().map(|&column| &plan.columns[column]));
            }
            fields.push(rule);
        }
        let classes = plan.columns.iter().filter(|column| column.category.is_some()).filter_map(|column| {
            Some((column.name.clone(), found.columns.get(&column.name)?.classes.clone()?))
        });
        let (kept, classes) = (kept(needed, count), classes.collect());
        // A field with other bytes than a column of the inner set is something else, too.
        let made = plan.schema();
        let of_made = made.fields().iter().zip(&same).map(|(field, of): (_, &Option<usize>)| {
            field.clone().with_meaning(of.map_or(Meaning::Plain, |of| schema.fields()[of].meaning()))
        });
        let schema = Spec::of_fields(of_made);
        Ok(Self { schema, kept, passed, fields, cuts, same: same.into(), classes })
    }
}

impl Made {
    /// The kept part of a value of field `field`.
    fn cut<'v>(&self, field: usize, value: &'v [u8]) -> &'v [u8] {
        self.cuts[field].map_or(value, |kept| kept.part_of(value))
    }
}

impl TableRows {
    /// The rows of `inner` with the rules `made`. The fingerprint covers `text`, the saved description.
    pub(super) fn new(inner: Arc<dyn Dataset>, made: Made, text: &str) -> Result<Self> {
        let of_reader = Fingerprint::checked(|| inner.fingerprint())?;
        let fingerprint = Fingerprint::new().number(of_reader).bytes(text.as_bytes()).value();
        let left_out = made.cuts.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { inner, made: made.into(), left_out, fingerprint })
    }

    /// The items that the list `field` is cut by, of all rows. Of a row that cannot be read, there are none.
    fn find_left_out(&self, field: usize, kept: Kept) -> LeftOut {
        let mut left_out = LeftOut { ends: Vec::new(), bytes: Vec::new() };
        let (mut context, mut scratch) = (Context::new(0, 0), Scratch::default());
        for row in 0..self.inner.len() {
            let mut add = |of: usize, value: &[u8], _: Option<&[usize]>| {
                if of == field {
                    left_out.bytes.extend_from_slice(kept.parts_of(value).1);
                }
                Ok(())
            };
            let _ = self.visit_whole(row, &mut scratch, &mut add, &mut context);
            left_out.ends.push(left_out.bytes.len());
        }
        left_out
    }

    /// Visits a row whose lists are not cut.
    fn visit_whole(
        &self,
        sample: u64,
        Scratch { parts, numbers }: &mut Scratch,
        put: &mut Put<'_>,
        context: &mut Context,
    ) -> Result<()> {
        let mut pass = |field: usize, bytes: &[u8], shape: Option<&[usize]>| match self
            .made
            .passed
            .get(field)
            .copied()
            .flatten()
        {
            Some(passed) => put(passed, bytes, shape),
            None => Ok(()),
        };
        parts.read((&*self.inner, &self.made.kept), sample, &mut pass, context)?;
        let mut put = |index: usize, bytes: &[u8]| put(index, bytes, None);
        for (index, rule) in self.made.fields.iter().enumerate() {
            match rule {
                Rule::Pass => {}
                Rule::Fill(cell) if parts.is_there(cell.present) => {
                    put(index, parts.value(cell.field))?;
                }
                Rule::Listed(cell, items) => {
                    numbers.clear();
                    if parts.is_there(cell.present) {
                        cell.write_items(sample, items.split(parts, cell.field), numbers)?;
                    } else if cell.fill.is_none() {
                        return Err(missing(&cell.name, sample));
                    }
                    put(index, numbers)?;
                }
                Rule::Fill(cell) => {
                    put(index, cell.fill.as_deref().ok_or_else(|| missing(&cell.name, sample))?)?;
                }
                Rule::Present(present) => put(index, &[parts.is_there(*present).into()])?,
                Rule::Numbers(cells) => {
                    numbers.clear();
                    for cell in cells {
                        let start = numbers.len();
                        numbers.resize(start + cell.count * cell.dtype.size(), 0);
                        let value = parts.is_there(cell.present).then(|| parts.value(cell.field));
                        cell.write(sample, value, &mut numbers[start..])?;
                    }
                    put(index, numbers)?;
                }
            }
        }
        Ok(())
    }
}

/// Decoded rows of the table's reader, with the table's steps.
#[derive(Debug)]
struct MadeRows {
    rows: Decoded,
    made: Arc<Made>,
}

impl MadeRows {
    fn sample(&self, row: usize) -> u64 {
        self.rows.samples().start + row as u64
    }

    /// Whether the row has a value in a column. `None` if only a read can tell.
    fn is_there(&self, sample: u64, present: Option<usize>) -> Option<bool> {
        present.map_or(Some(true), |present| Some(self.rows.slice(sample, present)? != [0]))
    }

    /// Writes a cell of each row of `rows`, `offset` bytes from the start of its field. Returns the number of
    /// rows written.
    fn write_cell(
        &self,
        rows: Range<usize>,
        cell: &Cell,
        offset: usize,
        to: &mut [u8],
        stride: usize,
    ) -> usize {
        let (width, mut written) = (cell.count * cell.dtype.size(), 0);
        let mut places = to.chunks_mut(stride).filter_map(|place| place.get_mut(offset..offset + width));
        while rows.start + written < rows.end {
            let sample = self.sample(rows.start + written);
            let before = written;
            let run = if cell.present.is_none() { self.rows.run(sample, cell.field) } else { None };
            if let Some((bytes, size)) = run {
                let left = rows.end - rows.start - written;
                for (sample, value) in (sample..).zip(bytes.chunks_exact(size).take(left)) {
                    let is_written =
                        places.next().is_some_and(|to| cell.write(sample, Some(value), to).is_ok());
                    if !is_written {
                        return written;
                    }
                    written += 1;
                }
            } else if let Some(is_there) = self.is_there(sample, cell.present)
                && let Some(value) = self.rows.slice(sample, cell.field)
                && let Some(to) = places.next()
                && cell.write(sample, Some(value).filter(|_| is_there), to).is_ok()
            {
                written += 1;
            }
            if written == before {
                break;
            }
        }
        written
    }
}

impl DecodedRows for MadeRows {
    fn slice(&self, row: usize, field: usize) -> Option<&[u8]> {
        self.rows.slice(self.sample(row), (*self.made.same.get(field)?)?)
    }

    fn run(&self, row: usize, field: usize) -> Option<(&[u8], usize)> {
        self.rows.run(self.sample(row), (*self.made.same.get(field)?)?)
    }

    fn write(
        &self,
        rows: Range<usize>,
        field: usize,
        width: usize,
        (to, stride): (&mut [u8], usize),
    ) -> usize {
        match self.made.fields.get(field) {
            Some(Rule::Numbers(cells)) => {
                let mut offset = 0;
                let written = cells.iter().map(|cell| {
                    let written = self.write_cell(rows.clone(), cell, offset, to, stride);
                    offset += cell.count * cell.dtype.size();
                    written
                });
                let written = written.min().unwrap_or(0);
                if offset == width { written } else { 0 }
            }
            Some(Rule::Present(present)) => {
                let there = rows.clone().map_while(|row| self.is_there(self.sample(row), *present));
                let places = to.chunks_mut(stride).filter_map(|place| place.first_mut());
                there.zip(places).map(|(is_there, to)| *to = is_there.into()).count()
            }
            Some(Rule::Pass) => match self.made.same.get(field).copied().flatten() {
                Some(of) => self.rows.write(self.sample(rows.start), of, width, (to, stride)).min(rows.len()),
                None => 0,
            },
            Some(Rule::Fill(_) | Rule::Listed(..)) | None => 0,
        }
    }
}

/// Buffers of one worker.
#[derive(Default)]
struct Scratch {
    parts: Parts,
    numbers: Vec<u8>,
}

impl Dataset for TableRows {
    fn spec(&self) -> &Spec {
        &self.made.schema
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let mut cut = |field: usize, value: &[u8], shape: Option<&[usize]>| {
            row.put_shaped(field, self.made.cut(field, value), shape)
        };
        // The inner set may be a table too, with a scratch memory of its own.
        let visited = context.scoped_scratch(|scratch: &mut Scratch, context| {
            self.visit_whole(sample, scratch, &mut cut, context)
        });
        Ok(visited.map_err(|error| {
            let error = if error.sample().is_some() { error } else { error.at_sample(sample) };
            at_file(self, sample, error)
        })?)
    }

    /// The classes are those of the only category. If there is no category, the inner set's classes.
    fn about(&self) -> About<'_> {
        let (about, categories) = (self.inner.about(), &*self.made.classes);
        let classes = match categories {
            [] => about.classes,
            [(_, classes)] => Some(&classes[..]),
            _ => None,
        };
        About { classes, categories, ..about }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, sample: u64) -> Option<&Path> {
        self.inner.path(sample)
    }

    /// Covers the inner set, the steps, and the results of the fitting pass.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Storage for TableRows {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        self.inner.storage().column((*self.made.same.get(field)?)?)
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        self.inner.storage().slice(sample, (*self.made.same.get(field)?)?)
    }

    fn left_out(&self, sample: u64, field: usize, epoch: u64, to: TakeItems<'_>) -> Result<(), ReadError> {
        if let Some(&Some(kept)) = self.made.cuts.get(field) {
            let LeftOut { ends, bytes } =
                self.left_out[field].get_or_init(|| self.find_left_out(field, kept));
            let row = sample as usize;
            if let Some(&end) = ends.get(row) {
                to(&bytes[row.checked_sub(1).map_or(0, |before| ends[before])..end]);
            }
        }
        // The inner set may be a table too.
        match self.made.passed.iter().position(|&passed| passed == Some(field)) {
            Some(of) => self.inner.storage().left_out(sample, of, epoch, to),
            None => Ok(()),
        }
    }

    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(samples, context)
    }

    fn decoded(&self, sample: u64) -> Result<Option<Decoded>> {
        let rows = self.inner.storage().decoded(sample)?;
        Ok(rows
            .map(|rows| Decoded::new(rows.samples(), Arc::new(MadeRows { rows, made: self.made.clone() }))))
    }

    fn group(&self, sample: u64) -> Range<u64> {
        self.inner.storage().group(sample)
    }

    fn forget(&self, sample: u64) {
        self.inner.storage().forget(sample);
    }
}
