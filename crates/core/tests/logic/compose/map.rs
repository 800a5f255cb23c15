use feedline_core::{Context, DType, Dataset, ReadError, Row, Sample, Spec};

use super::*;

/// The fields of [`Numbered`]: ten times the number, and the numbers drawn by the map.
fn tenfold(sample: &Sample<'_>, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
    let number = sample.field::<i64>(0)?[0];
    if number == 666 {
        return Err("the map refuses 666".into());
    }
    row.field_mut::<i64>(0)?[0] = 10 * number;
    row.field_mut::<i64>(1)?.fill_with(|| context.random().next_u64() as i64);
    Ok(())
}

fn tenfold_of(set: impl Dataset) -> feedline_core::compose::Map {
    let spec = set.spec().clone();
    set.map(spec, tenfold).expect("a map")
}

#[test]
fn a_map_keeps_the_contract_and_reads_in_bulk() {
    let inner = Numbered::new(5, 200);
    let map = tenfold_of(inner.clone());
    assert_keeps_the_contract(&map);
    inner.groups();
    let ids: Vec<u64> = (0..100).collect();
    assert_eq!(numbers(&read(&map, &ids, 0))[..3], [50, 60, 70]);
    assert_eq!(inner.groups().iter().map(Vec::len).collect::<Vec<_>>(), [64, 36]);
    assert_keeps_the_contract(&tenfold_of(tenfold_of(inner)));
}

#[test]
fn a_map_declares_another_spec() {
    let spec = Spec::new().field("sum", DType::F32, [3]).expect("a spec");
    let sums = Numbered::plain(1, 9).map(spec.clone(), |sample, row, _| {
        row.field_mut::<f32>(0)?.fill(sample.field::<i64>(0)?[0] as f32 / 2.0);
        Ok(())
    });
    let sums = sums.expect("a map");
    let layout = feedline_core::Layout::new(&spec, 2).expect("a layout");
    let mut slab = vec![0_u64; layout.bytes() / 8];
    let mut rows = feedline_core::Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 2);
    sums.read_many(&[3, 0], &mut rows, &mut Context::new(0, 0)).expect("samples");
    assert_eq!(rows.row(0).field_mut::<f32>(0).expect("a field"), [2.0; 3]);
    assert_eq!(rows.row(1).field_mut::<f32>(0).expect("a field"), [0.5; 3]);
}

#[test]
fn each_function_has_a_random_stream_of_its_own() {
    let spec = || Numbered::new(0, 9).spec;
    // The draws of the innermost set, of the first map and of the second.
    let first = Numbered::new(0, 9).map(spec(), |sample, row, context| {
        row.field_mut::<i64>(0)?[0] = sample.field::<i64>(1)?[0];
        row.field_mut::<i64>(1)?.fill(context.random().next_u64() as i64);
        Ok(())
    });
    let second = first.expect("a map").map(spec(), |sample, row, context| {
        row.field_mut::<i64>(0)?.copy_from_slice(sample.field(0)?);
        let below = sample.field::<i64>(1)?[0];
        row.field_mut::<i64>(1)?.copy_from_slice(&[below, context.random().next_u64() as i64]);
        Ok(())
    });
    let second = second.expect("a map");
    assert_keeps_the_contract(&second);
    let seen = [read(&second, &[0, 3, 8], 0), read(&second, &[0, 3, 8], 1)].concat();
    let mut draws: Vec<i64> =
        seen.iter().flat_map(|seen| [seen.number, seen.draw[0], seen.draw[1]]).collect();
    draws.sort_unstable();
    draws.dedup();
    assert_eq!(draws.len(), 18, "two functions, samples or epochs share a stream");
}

#[test]
fn samples_before_a_failure_are_mapped() {
    let ids: Vec<u64> = (0..20).collect();
    let (seen, why) = read_until(&tenfold_of(Numbered::new(5, 20).failing(7)), &ids);
    assert_eq!((numbers(&seen), why.as_str()), ((5..12).map(|n| 10 * n).collect(), "planned failure of 7"));
    let (seen, why) = read_until(&tenfold_of(Numbered::new(660, 20)), &ids);
    assert_eq!((seen.len(), why.as_str()), (6, "the map refuses 666"));
}

#[test]
fn the_fingerprint_covers_the_version_and_the_spec() {
    let map = || tenfold_of(Numbered::new(0, 9));
    assert_fingerprints_differ([
        &Numbered::new(0, 9),
        &map(),
        &map().version(1),
        &tenfold_of(Numbered::new(1, 9)),
        &tenfold_of(map()),
    ]);
    assert!(refused(Numbered::new(0, 9).map(Spec::new(), |_, _, _| Ok(()))).contains("without fields"));
}
