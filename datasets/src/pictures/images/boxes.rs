//! Writes boxes, points and the other lists of a sample from the inner set into the row.

use feedline_core::{Context, DType, Dataset, Error, ErrorKind, Field, Result, Row, Sink, Spec, Value};
use feedline_images::{MOVE_WORDS, Moves};

use super::numbers;
use super::parts::{Found, Parts};
use crate::bounded::lengths;
use crate::error::at_file;

/// The fields of a sample that vary in length.
#[derive(Debug)]
pub(super) struct Lists {
    /// The index of each field in the inner set.
    fields: Vec<(usize, List)>,
    /// The index of the first field in the data set.
    first: usize,
    /// The index of the field of the moves, if there is one.
    moves: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Boxes {
        /// The inner set's field with the lengths of the lists of boxes.
        lengths: Option<usize>,
    },
    Points {
        /// Numbers per point: two or three.
        numbers: usize,
        /// The inner set's field with the lengths of the lists of points.
        lengths: Option<usize>,
        /// Points per item.
        group: usize,
        /// Whether the field has one item per box.
        is_beside: bool,
    },
    Beside {
        item_bytes: usize,
    },
}

/// Buffers for the lists of a sample.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    numbers: Vec<f32>,
    /// Whether each box or point is kept.
    kept: Vec<bool>,
    bytes: Vec<u8>,
}

impl Lists {
    /// Adds the fields of the lists to `spec`.
    pub(super) fn add(inner: &dyn Dataset, parts: &Parts, found: &Found, spec: Spec) -> Result<(Self, Spec)> {
        let (first, mut spec, mut fields) = (spec.fields().len(), spec, Vec::new());
        let units = units(inner, found)?;
        let max = max_items(inner, parts, found, &units)?;
        for (index, (unit, max)) in found.ragged().zip(units.iter().zip(max)) {
            let field = &inner.spec().fields()[index];
            let mut item: Vec<usize> = field.dims().iter().skip(1).copied().flatten().collect();
            item.extend(unit);
            let list;
            (spec, list) = if found.boxes == Some(index) {
                (spec.ragged(field.name(), DType::F32, [4], max)?, List::Boxes { lengths: found.lengths })
            } else if found.points.contains(&index) {
                let numbers = item.last().copied().unwrap_or(2);
                let group = item.iter().product::<usize>() / numbers;
                let place = found.points.iter().position(|points| *points == index);
                let lengths = place.and_then(|place| found.point_lengths[place]);
                let is_beside = found.boxes.is_some() && parts.beside.iter().any(|name| name == field.name());
                let spec = spec.ragged(field.name(), DType::F32, item, max)?;
                (spec, List::Points { numbers, lengths, group, is_beside })
            } else {
                let (dtype, more) = field.batch_type().map_err(|error| at_file(inner, 0, error))?;
                let item = [&item[..], more].concat();
                let item_bytes = dtype.size() * item.iter().product::<usize>();
                (spec.ragged(field.name(), dtype, item, max)?, List::Beside { item_bytes })
            };
            fields.push((index, list));
        }
        let moves = parts.reports_moves.then_some(first + fields.len());
        if moves.is_some() {
            spec = spec.ragged("moves", DType::I32, [MOVE_WORDS], MAX_MOVES)?;
        }
        Ok((Self { fields, first, moves }, spec))
    }

    /// Writes the lists of a sample. They are moved with its picture.
    pub(super) fn write(
        &self,
        schema: &[Field],
        parts: &Parts,
        values: &[Value],
        moves: &Moves,
        (row, buffers): (&mut Row<'_, '_>, &mut Buffers),
    ) -> Result<()> {
        // The name of the field that decides which items are kept.
        let mut of: Option<&str> = None;
        for (to, (index, list)) in (self.first..).zip(&self.fields) {
            let (field, value) = (&schema[*index], &values[*index]);
            match *list {
                List::Boxes { lengths } => {
                    if lengths_in(lengths, values).any(|length| length != 4) {
                        return Err(bad(field, "has boxes of other than four numbers"));
                    }
                    move_boxes(parts, field, value, moves, buffers)?;
                    of = Some(field.name());
                    row.write_ragged(to, &buffers.numbers)?;
                }
                List::Points { numbers, lengths, group, is_beside } => {
                    let is_other = |length: usize| length != numbers;
                    let last = field.dims() == [None, None] && !value.bytes.is_empty();
                    let last = value.shape.last().copied().filter(|_| last);
                    if lengths_in(lengths, values).any(is_other) || last.is_some_and(is_other) {
                        let why = format!(
                            "has points of other than {numbers} numbers, as the first sample has them"
                        );
                        return Err(bad(field, &why));
                    }
                    let kept = move_points((numbers, group), is_beside, field, value, moves, buffers)?;
                    if is_beside {
                        check_items(field, kept.len(), of, &buffers.kept)?;
                    } else if of.is_none() {
                        buffers.kept.clone_from(&kept);
                        of = Some(field.name());
                    }
                    let kept = if is_beside { &buffers.kept } else { &kept };
                    keep(&mut buffers.numbers, numbers * group, kept);
                    row.write_ragged(to, &buffers.numbers)?;
                }
                List::Beside { .. } if of.is_none() => row.write_ragged_bytes(to, &value.bytes)?,
                List::Beside { item_bytes } => {
                    check_items(field, value.bytes.len() / item_bytes, of, &buffers.kept)?;
                    buffers.bytes.clone_from(&value.bytes);
                    keep(&mut buffers.bytes, item_bytes, &buffers.kept);
                    row.write_ragged_bytes(to, &buffers.bytes)?;
                }
            }
        }
        let Some(to) = self.moves else { return Ok(()) };
        let words: Vec<i32> = moves.list().iter().flat_map(|step| step.words()).collect();
        row.write_ragged(to, &words)
    }
}

/// Max moves reported per sample: three for each of 21 transforms, and one more.
const MAX_MOVES: usize = 64;

/// The lengths of the inner lists of boxes or points, from the inner set's field `field`.
fn lengths_in(field: Option<usize>, values: &[Value]) -> impl Iterator<Item = usize> + '_ {
    let lengths = field.map_or(&[][..], |field| values[field].bytes.as_chunks::<8>().0);
    lengths.iter().map(|&length| usize::try_from(i64::from_le_bytes(length)).unwrap_or(usize::MAX))
}

/// The numbers per item of each ragged part that is a list of lists, whose schema does not state them. Boxes
/// have four. Points have as many as those of the first sample with points.
fn units(inner: &dyn Dataset, found: &Found) -> Result<Vec<Option<usize>>> {
    let schema = inner.spec().fields();
    let unit = |index: usize| {
        let place = found.points.iter().position(|points| *points == index);
        let is_stated =
            schema[index].dims().len() > 1 && schema[index].dims()[1..].iter().all(Option::is_some);
        match place {
            _ if is_stated => Ok(None),
            None => Ok(found.boxes.filter(|boxes| *boxes == index).map(|_| 4)),
            Some(place) => numbers_of(inner, index, found.point_lengths[place]).map(Some),
        }
    };
    found.ragged().map(unit).collect()
}

/// The numbers per point in the first sample that has any.
fn numbers_of(inner: &dyn Dataset, field: usize, lengths: Option<usize>) -> Result<usize> {
    let (mut values, mut context) = (Vec::new(), Context::new(0, 0));
    for sample in 0..inner.len() {
        let mut found = None;
        let read = match lengths {
            Some(at) => {
                let mut look = |_: usize, bytes: &[u8], _: Option<&[usize]>| {
                    let first = bytes.first_chunk();
                    found =
                        first.and_then(|&first| usize::try_from(i64::from_le_bytes(first)).ok()).or(found);
                    Ok(())
                };
                let is_it = |index| index == at;
                inner.visit(sample, &mut Sink::some(&is_it, &mut look), &mut context)
            }
            None => inner.copy(sample, &mut values, &mut context).map(|()| {
                let value = &values[field];
                found = value.shape.last().copied().filter(|_| !value.bytes.is_empty());
            }),
        };
        match found {
            // A sample that cannot be read is an error when it is read for a batch.
            _ if read.is_err() => {}
            None => {}
            Some(numbers @ (2 | 3)) => return Ok(numbers),
            Some(other) => {
                let why = format!("has lists of {other} numbers, and points have two or three");
                return Err(at_file(inner, sample, bad(&inner.spec().fields()[field], &why)));
            }
        }
    }
    Ok(2)
}

/// The max number of items of a sample, for each ragged part. All parts with boxes or points have the same.
fn max_items(
    inner: &dyn Dataset,
    parts: &Parts,
    found: &Found,
    units: &[Option<usize>],
) -> Result<Vec<usize>> {
    let ragged: Vec<_> = found.ragged().collect();
    if let (Some(max), _) | (None, Some(max)) = (parts.max_boxes, ragged.is_empty().then_some(1)) {
        return Ok(vec![max; ragged.len()]);
    }
    let schema = inner.spec().fields();
    // For a list of lists, the inner set counts numbers, not boxes.
    let unit = |at: usize| ragged.iter().position(|part| *part == at).and_then(|place| units[place]);
    let items = (0..schema.len()).map(|index| {
        let field = &schema[index];
        let item: usize = field.dims().iter().skip(1).flatten().product();
        let item = if unit(index).is_some() { 1 } else { item };
        let bytes = field.element().size() * item;
        (field.dims().first() == Some(&None))
            .then_some(found.ragged().any(|part| part == index).then_some(bytes))
    });
    // A data set that knows some lengths knows all of them.
    let items: Vec<_> = items.map(Option::flatten).collect();
    let lengths = lengths::counted(inner, &items, None, false)?;
    let count = |&at: &usize| {
        let max = lengths[at].as_ref().and_then(|lengths| lengths.iter().copied().max());
        max.map_or(1, |max| (max as usize).div_ceil(unit(at).unwrap_or(1)).max(1))
    };
    let counts: Vec<_> = ragged.iter().map(count).collect();
    if found.boxes.is_none() && found.points.is_empty() {
        return Ok(counts);
    }
    Ok(vec![counts.iter().copied().max().unwrap_or(1); ragged.len()])
}

/// Reads the boxes and moves them. `numbers` then holds the boxes that are kept.
fn move_boxes(
    parts: &Parts,
    field: &Field,
    value: &Value,
    moves: &Moves,
    Buffers { numbers, kept, .. }: &mut Buffers,
) -> Result<()> {
    numbers::read(field, &value.bytes, numbers)?;
    let (boxes, rest) = numbers.as_chunks_mut::<4>();
    if !rest.is_empty() || field.dims() == [None, None] && value.shape.last().is_some_and(|&last| last != 4) {
        // The length of its items cannot be told from an empty list.
        if !(boxes.is_empty() && rest.is_empty()) {
            return Err(bad(field, "has boxes of other than four numbers"));
        }
    }
    let format = parts.boxes.as_ref().map_or(parts.format, |(_, format)| *format);
    kept.clear();
    for (number, place) in boxes.iter_mut().enumerate() {
        let corners = parts.rules.check(number, format.corners(*place, moves.source()), moves.source());
        let corners = corners.map_err(|error| bad(field, error.message()))?;
        let moved = moves.of_box(corners);
        kept.push(parts.rules.keeps(moved));
        *place = parts.format.numbers(moved, moves.size());
    }
    keep(numbers, 4, kept);
    Ok(())
}

/// Reads the points and moves them. Returns which items are kept, unless the boxes decide it.
fn move_points(
    (each, group): (usize, usize),
    is_beside: bool,
    field: &Field,
    value: &Value,
    moves: &Moves,
    buffers: &mut Buffers,
) -> Result<Vec<bool>> {
    let numbers = &mut buffers.numbers;
    numbers::read(field, &value.bytes, numbers)?;
    let mut kept = vec![true; numbers.len() / (each * group)];
    for (at, point) in numbers.chunks_exact_mut(each).enumerate() {
        let item = at / group;
        let [x, y, rest @ ..] = point else { continue };
        if let [0.0] = rest {
            (*x, *y) = (0.0, 0.0);
            continue;
        }
        if !(x.is_finite() && y.is_finite()) {
            return Err(bad(field, &format!("has a point that is not finite, x {x}, y {y}, in item {item}")));
        }
        let place = [*x, *y];
        match (moves.of_point(place), rest) {
            (Some(moved), _) => [*x, *y] = moved,
            // The point is not visible.
            (None, [visible]) => [*x, *y, *visible] = [0.0; 3],
            (None, _) => {
                [*x, *y] = moves.place_of_point(place);
                kept[item] = is_beside;
            }
        }
    }
    Ok(kept)
}

/// Keeps the items that `kept` marks. An item has `each` elements.
fn keep<T: Copy>(items: &mut Vec<T>, each: usize, kept: &[bool]) {
    let mut end = 0;
    for at in (0..kept.len()).filter(|&at| kept[at]) {
        items.copy_within(at * each..(at + 1) * each, end);
        end += each;
    }
    items.truncate(end);
}

/// Checks that `field` has as many items as the field `of`.
fn check_items(field: &Field, items: usize, of: Option<&str>, kept: &[bool]) -> Result<()> {
    if items == kept.len() {
        return Ok(());
    }
    let of = of.unwrap_or_default();
    Err(bad(field, &format!("has {items} items, and \"{of}\", beside which it is, has {}", kept.len())))
}

fn bad(field: &Field, why: &str) -> Error {
    Error::new(ErrorKind::Sample, format!("field \"{}\": {why}", field.name()))
}
