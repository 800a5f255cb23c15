//! Writes through rows, and refused writes.

use super::*;
use crate::ragged::Extent;
use crate::{DType, Pad};

/// Two ragged fields around one of a fixed size, for four rows.
fn ragged() -> Layout {
    let spec = Spec::new().ragged("a", DType::U16, [2], 3).unwrap().field("b", DType::U8, []).unwrap();
    let spec = spec.ragged("c", DType::U8, [], 100).unwrap();
    Layout::new(&spec.max_per_batch("c", 100).unwrap(), 4).unwrap()
}

#[test]
fn ragged_rows_lie_one_behind_another() {
    let layout = ragged();
    let mut slab = vec![0xC5; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 3);
    rows.poison();
    for index in 0..3 {
        let mut row = rows.row(index);
        row.write_ragged::<u16>(0, &[7 + index as u16; 6][..2 * index]).unwrap();
        row.field_mut::<u8>(1).unwrap()[0] = index as u8;
        row.ragged_mut::<u8>(2).unwrap()[..2].copy_from_slice(&[index as u8; 2]);
        row.set_ragged_len(2, 2).unwrap();
    }
    assert!(rows.check_written().is_ok());
    drop(rows);
    let offsets =
        |index: usize| slab[layout.offset(index)..].chunks(4).take(4).map(|at| at[0]).collect::<Vec<_>>();
    assert_eq!((offsets(0), offsets(2)), (vec![0, 0, 1, 3], vec![0, 2, 4, 6]));
    let values = [8u16, 8, 9, 9, 9, 9].map(u16::to_ne_bytes).concat();
    assert_eq!((layout.offset(1), &slab[layout.values(0)][..12]), (0, &values[..]));
    assert_eq!((&slab[layout.values(2)][..6], &slab[..3]), (&[0, 0, 1, 1, 2, 2][..], &[0, 1, 2][..]));
    assert_eq!(layout.row_values(&slab, 2, 1), [1, 1]);

    let mut extents = Vec::new();
    layout.finish(&mut slab, 3, &mut extents).unwrap();
    assert_eq!(
        extents,
        [(3, 0, 2), (6, 0, 2)].map(|(items, padding, longest)| Extent { items, padding, longest })
    );
    let (first, second) = (layout.values(0).start + 12, layout.values(2).start + 6);
    assert_eq!(layout.used(3, &extents)[..], [0..first, layout.offset(2)..second]);
    assert!(layout.bytes() >= layout.values(2).end);
}

#[test]
fn ragged_rows_are_written_in_order_and_may_be_written_again() {
    let layout = ragged();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 4);
    let error = rows.row(1).write_ragged(2, &[1u8]).unwrap_err();
    assert!(error.message().contains("row 1 cannot be written before row 0"), "{error}");
    for index in 0..3 {
        rows.row(index).write_ragged(2, &[index as u8; 30]).unwrap();
    }
    rows.row(1).write_ragged(2, &[9u8; 3]).unwrap();
    assert!(rows.row(3).write_ragged(2, &[3u8]).is_err(), "row 2 is to be written again");
    rows.row(2).write_ragged(2, &[8u8]).unwrap();
    let unwritten =
        |rows: &mut Rows<'_>| rows.check_written().map_err(|(row, error)| (row, error.to_string()));
    let not =
        |row, name: &str| Err((row, format!("ragged field \"{name}\" was not written, not even as empty")));
    assert_eq!(unwritten(&mut rows), not(0, "a"));
    (0..4).for_each(|index| rows.row(index).write_ragged::<u16>(0, &[]).unwrap());
    assert_eq!(unwritten(&mut rows), not(3, "c"));
    assert!(rows.row(2).check_written().is_ok() && rows.row(3).check_written().is_err());
    rows.row(2).poison();
    assert_eq!(unwritten(&mut rows), not(2, "a"), "in any build");
    rows.row(2).clear();
    rows.row(3).clear();
    assert_eq!(unwritten(&mut rows), Ok(()));
    drop(rows);
    assert_eq!(slab[layout.values(2)][..33], [vec![0; 30], vec![9; 3]].concat());
}

#[test]
fn items_beyond_a_limit_are_refused_with_field_and_limit() {
    let layout = ragged();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 4);
    let error = rows.row(0).write_ragged(0, &[0u16; 8]).unwrap_err();
    let message = error.message();
    assert_eq!(error.kind(), ErrorKind::Sample);
    assert!(message.contains("\"a\" has 4 items") && message.contains("at most 3 per sample"), "{error}");
    rows.row(0).write_ragged(2, &[0u8; 60]).unwrap();
    assert_eq!(rows.row(1).ragged_mut::<u8>(2).unwrap().len(), 40, "what the batch has left");
    let error = rows.row(1).write_ragged(2, &[0u8; 41]).unwrap_err();
    let message = error.message();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(message.contains("\"c\"") && message.contains("at most 100 per batch"), "{error}");
    rows.row(1).write_ragged(2, &[0u8; 40]).unwrap();

    let mut row = rows.row(0);
    for error in [
        row.write_ragged(0, &[0u16; 3]).unwrap_err(),
        row.write_ragged(0, &[0u8; 4]).unwrap_err(),
        row.write_ragged(1, &[0u8]).unwrap_err(),
        row.write_ragged(3, &[0u8]).unwrap_err(),
        row.field_mut::<u16>(0).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

#[test]
#[should_panic(expected = "field \"a\" is ragged")]
fn a_ragged_field_has_no_bytes_of_a_fixed_size() {
    let layout = ragged();
    Rows::new(&layout, &mut vec![0; layout.bytes()], 1).row(0).bytes_mut(0);
}

#[test]
fn padded_rows_have_one_width_and_their_lengths() {
    let spec = |pad| Spec::new().ragged("x", DType::U16, [], 5).unwrap().padded("x", pad).unwrap();
    let nines = Pad::multiple_of(8).fill_value(9u16);
    for (pad, width, rest, is_left) in [
        (Pad::longest(), 4, 0, false),
        (Pad::multiple_of(3), 6, 0, false),
        (nines, 8, 9, false),
        (Pad::longest().left(), 4, 0, true),
        (nines.left(), 8, 9, true),
    ] {
        let layout = Layout::new(&spec(pad), 4).unwrap();
        let mut slab = vec![0xC5; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 3);
        let lengths = [2, 0, 4];
        for (index, &len) in lengths.iter().enumerate() {
            rows.row(index).write_ragged(0, &[1u16, 2, 3, 4][..len]).unwrap();
        }
        drop(rows);
        let mut extents = Vec::new();
        layout.finish(&mut slab, 3, &mut extents).unwrap();
        assert_eq!(extents, [Extent { items: 3 * width, padding: 3 * width - 6, longest: 4 }]);
        let got: Vec<u16> =
            slab[layout.values(0)].chunks(2).map(|at| u16::from_ne_bytes([at[0], at[1]])).collect();
        for (row, len) in got.chunks(width).zip(lengths) {
            let mut want: Vec<u16> =
                (0..width).map(|at| if at < len { at as u16 + 1 } else { rest }).collect();
            want.rotate_right(if is_left { width - len } else { 0 });
            assert_eq!(row, want);
        }
        assert_eq!(slab[..12], [2u32, 0, 4].map(u32::to_ne_bytes).concat());
    }
}

#[test]
fn padded_rows_beyond_the_batch_are_refused_with_the_longest_row() {
    let spec = Spec::new().ragged("x", DType::U8, [], 5).unwrap();
    let spec = spec.padded("x", Pad::longest()).unwrap().max_per_batch("x", 7).unwrap();
    let layout = Layout::new(&spec, 4).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 2);
    rows.row(0).write_ragged(0, &[0u8; 1]).unwrap();
    rows.row(1).write_ragged(0, &[0u8; 4]).unwrap();
    drop(rows);
    let (row, error) = layout.finish(&mut slab, 2, &mut Vec::new()).unwrap_err();
    assert_eq!((row, error.kind()), (1, ErrorKind::Budget));
    assert!(error.message().contains("2 rows padded to 4 items are 8, but at most 7"), "{error}");
}

#[test]
fn cumulative_values_are_the_sums_of_all_rows() {
    let layout = Layout::new(&Spec::new().cumulative("x", 2).unwrap(), 2).unwrap();
    let finish = |lengths: [&[u32]; 2]| {
        let mut slab = vec![0; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 2);
        lengths.iter().enumerate().for_each(|(row, lengths)| {
            rows.row(row).write_ragged(0, lengths).unwrap();
        });
        drop(rows);
        let mut extents = Vec::new();
        layout.finish(&mut slab, 2, &mut extents).map_err(|(_, error)| error.kind())?;
        let values = &slab[layout.values(0)][..4 * extents[0].items];
        let sums = values.chunks(4).map(|at| u32::from_ne_bytes(at.try_into().unwrap()));
        Ok((sums.collect::<Vec<_>>(), extents[0].longest))
    };
    assert_eq!(finish([&[3, 7], &[5, 6]]), Ok((vec![0, 3, 10, 15, 21], 7)));
    assert_eq!(finish([&[], &[]]), Ok((vec![0], 0)));
    assert_eq!(finish([&[1 << 30], &[1 << 30]]), Err(ErrorKind::Budget));
}

fn layout() -> Layout {
    let spec = Spec::new().field("a", DType::U8, [3]).unwrap().field("b", DType::U8, []).unwrap();
    Layout::new(&spec, 100).unwrap()
}

#[test]
fn write_copies_any_number_of_rows_to_their_places() {
    let layout = layout();
    for len in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 100] {
        let mut slab = vec![0xC5; layout.bytes()];
        let bytes: Vec<u8> = (0..3 * len as u32).map(|at| at as u8).collect();
        let (_, mut rows) = Rows::new(&layout, &mut slab, 100).split_at(100 - len);
        rows.write(0, bytes.chunks_exact(3));
        assert_eq!(rows.column_mut(0), bytes);
        drop(rows);
        assert!(slab[..3 * (100 - len)].iter().chain(&slab[300..]).all(|&byte| byte == 0xC5));
    }
}

#[test]
fn every_part_of_a_batch_uses_the_chosen_copy() {
    fn backwards(to: &mut [u8], rows: &[&[u8]]) {
        to.copy_from_slice(&rows.concat());
        to.reverse();
    }
    let layout = layout();
    let mut slab = vec![0; layout.bytes()];
    let (mut left, mut right) = Rows::new(&layout, &mut slab, 2).copied_by(backwards).split_at(1);
    left.row(0).write(0, &[1, 2, 3]);
    right.write(0, [&[4, 5, 6][..]]);
    drop((left, right));
    assert_eq!(slab[..6], [3, 2, 1, 6, 5, 4]);
}

#[test]
#[should_panic(expected = "wrong row length")]
fn write_of_rows_panics_on_a_wrong_length() {
    let layout = layout();
    Rows::new(&layout, &mut vec![0; layout.bytes()], 2).write(0, [&[1, 2][..], &[3, 4, 5, 6][..]]);
}

#[test]
#[should_panic(expected = "field \"a\" has 3 bytes per row, but the row has 2")]
fn write_of_a_row_panics_on_too_few_bytes() {
    let layout = layout();
    Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2]);
}

#[test]
#[should_panic(expected = "field \"a\" has 3 bytes per row, but the row has 4")]
fn write_of_a_row_panics_on_too_many_bytes() {
    let layout = layout();
    Rows::new(&layout, &mut vec![0; layout.bytes()], 2).row(0).write(0, &[1, 2, 3, 4]);
}

#[test]
fn split_gives_every_field_of_the_row_once() {
    let layout = layout();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 3);
    let mut row = rows.row(1);
    let mut fields = row.split();
    let (b, a) = (fields.take::<u8>(1).unwrap(), fields.take::<u8>(0).unwrap());
    a.copy_from_slice(&[1, 2, 3]);
    b[0] = a[2] + 1;
    let error = fields.take::<u8>(0).unwrap_err();
    assert_eq!(error.message(), "field \"a\" was taken before: take each field once");
    assert_eq!(fields.take::<u8>(2).unwrap_err().message(), "there is no field 2: the spec has 2");
    assert_eq!(fields.take::<i8>(1).unwrap_err().message(), "field \"b\" is u8, not i8");
    drop(rows);
    assert_eq!((&slab[..9], &slab[512..515]), (&[0, 0, 0, 1, 2, 3, 0, 0, 0][..], &[0, 4, 0][..]));
}

#[test]
fn field_mut_rejects_a_missing_field_and_a_wrong_type() {
    let layout = layout();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 2);
    let error = rows.row(0).field_mut::<u8>(2).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Config, "there is no field 2: the spec has 2"));
    let error = rows.row(0).field_mut::<i8>(1).unwrap_err();
    assert_eq!(error.message(), "field \"b\" is u8, not i8");
}

#[test]
fn fields_of_a_row_have_the_names_of_the_spec() {
    let spec = Spec::new().field("a", DType::U8, [3]).unwrap().ragged("t", DType::U8, [], 4).unwrap();
    let layout = Layout::new(&spec, 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 1);
    let mut row = rows.row(0);
    row.field_mut::<u8>("a").unwrap().fill(7);
    row.write_ragged("t", &[1_u8]).unwrap();
    row.ragged_mut::<u8>("t").unwrap()[..2].copy_from_slice(&[5, 6]);
    row.set_ragged_len("t", 2).unwrap();
    assert_eq!(row.split().take::<u8>("a").unwrap(), [7; 3]);
    assert_eq!(row.written_bytes_mut(1).unwrap(), [5, 6]);
    let why = "no field \"b\"; the fields are [\"a\", \"t\"]";
    assert_eq!(row.field_mut::<u8>("b").unwrap_err().message(), why);
    assert_eq!(row.write_ragged("b", &[1_u8]).unwrap_err().message(), why);
}

#[test]
fn a_bool_field_has_no_byte_but_0_and_1() {
    let spec = Spec::new().field("mask", DType::Bool, [2]).unwrap();
    let spec = spec.ragged("marks", DType::Bool, [], 3).unwrap();
    let layout = Layout::new(&spec, 3).unwrap();
    let check = |marks: [&[u8]; 3], masks: [[u8; 2]; 3]| {
        let mut slab = vec![0xFF; layout.bytes()];
        let mut rows = Rows::new(&layout, &mut slab, 3);
        for (index, (marks, mask)) in marks.into_iter().zip(masks).enumerate() {
            rows.row(index).field_mut::<u8>(0).unwrap().copy_from_slice(&mask);
            rows.row(index).write_ragged(1, marks).unwrap();
        }
        let each: Vec<bool> = (0..3).map(|index| rows.row(index).check_written().is_ok()).collect();
        (rows.check_written().map_err(|(row, error)| (row, error.to_string())), each)
    };
    let good = [[0, 1], [1, 1], [0, 0]];
    assert_eq!(check([&[1, 0, 1], &[], &[0]], good), (Ok(()), vec![true; 3]));
    let why = |field: &str| format!("field \"{field}\" is bool, and has a byte other than 0 and 1");
    let mask = check([&[], &[], &[]], [[0, 1], [1, 2], [255, 0]]);
    assert_eq!(mask, (Err((1, why("mask"))), vec![true, false, false]));
    let marks = check([&[], &[1], &[0, 2]], good);
    assert_eq!(marks, (Err((2, why("marks"))), vec![true, true, false]));
    // An unwritten row is reported first; its bytes are not checked.
    let mut slab = vec![0xFF; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 3);
    rows.row(0).field_mut::<u8>(0).unwrap().fill(1);
    rows.row(0).write_ragged(1, &[1u8]).unwrap();
    assert_eq!(rows.check_written().unwrap_err().0, 1);
    assert!(rows.row(0).field_mut::<i8>(0).is_err());
}
