//! Data sets that replace the rows they are given by others: every reader notices that its own rows were not
//! written.

use feedline_core::compose::Concat;
use feedline_core::lengths;

use super::*;

/// The part of the rows that a [`Liar`] replaces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// The row of a read.
    Row,
    /// The rows of a read in bulk, replaced by equally many others.
    Rows,
    /// The same, by fewer.
    Fewer,
}

/// Writes the samples from 8 on into rows of its own.
struct Liar {
    spec: Spec,
    lie: Lie,
}

impl Liar {
    fn new(lie: Lie, is_ragged: bool) -> Self {
        let spec = Spec::new().field("id", DType::I64, []).expect("a spec");
        let spec = if is_ragged { spec.ragged("x", DType::U8, [], 8).expect("a spec") } else { spec };
        Self { spec, lie }
    }

    fn write(row: &mut Row<'_, '_>, id: u64) -> Result<(), ReadError> {
        row.field_mut::<i64>(0)?[0] = id as i64;
        if row.spec().fields().len() > 1 {
            row.write_ragged(1, &vec![id as u8; id as usize % 9])?;
        }
        Ok(())
    }

    /// Rows in memory of their own.
    fn others(&self, len: usize) -> Rows<'static> {
        let layout: &'static Layout = Box::leak(Box::new(Layout::new(&self.spec, 16).expect("a layout")));
        feedline_core::Rows::new(layout, Box::leak(vec![0; layout.bytes()].into_boxed_slice()), len)
    }
}

impl Dataset for Liar {
    fn len(&self) -> u64 {
        16
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        if id >= 8 && self.lie == Lie::Row {
            *row = Box::leak(Box::new(self.others(1))).row(0);
        }
        Self::write(row, id)
    }

    fn read_many(
        &self,
        ids: &[u64],
        rows: &mut Rows<'_>,
        context: &mut Context,
    ) -> Result<(), (usize, ReadError)> {
        if ids.iter().any(|&id| id >= 8) && self.lie != Lie::Row {
            *rows = self.others(if self.lie == Lie::Rows { ids.len() } else { 1 });
        }
        for (index, &id) in ids.iter().enumerate().take(rows.len()) {
            context.begin(index, id);
            let mut row = rows.row(index);
            row.read_by(|row| self.read(id, row, context)).map_err(|error| (index, error))?;
        }
        Ok(())
    }
}

/// Every set that reads another one, around `inner`.
fn around(inner: impl Fn() -> Liar) -> Vec<(&'static str, Box<dyn Dataset>)> {
    let spec = inner().spec.clone();
    let copied = inner().map(spec, |sample, row, _| {
        row.write(0, sample.bytes(0));
        if sample.spec().fields().len() > 1 {
            row.write_ragged(1, sample.bytes(1))?;
        }
        Ok(())
    });
    let beside = Spec::new().field("beside", DType::U8, []).expect("a spec");
    let beside = feedline_core::from_fn(16, beside, |_, row, _| {
        row.bytes_mut(0)[0] = 1;
        Ok(())
    });
    let two = [inner(), inner()].map(|part| Arc::new(part) as Arc<dyn Dataset>);
    vec![
        ("map", Box::new(copied.expect("a map"))),
        ("cached", Box::new(inner().cached(1 << 20).expect("a cache"))),
        ("zip", Box::new(inner().zip(beside).expect("a zip"))),
        ("concat", Box::new(Concat::new(two).expect("two"))),
        ("subset", Box::new(inner().subset((0..16).collect::<Vec<_>>()).expect("a subset"))),
        ("take", Box::new(inner().take(16))),
        ("repeat", Box::new(inner().repeat(2).expect("two rounds"))),
    ]
}

#[test]
fn rows_that_were_exchanged_pass_no_composition() {
    for is_ragged in [false, true] {
        for lie in [Lie::Row, Lie::Rows, Lie::Fewer] {
            for (name, set) in around(|| Liar::new(lie, is_ragged)) {
                let seen = |ids: &[u64]| {
                    let (layout, mut slab) = slab(&*set, ids.len());
                    let bytes = bytemuck::cast_slice_mut(&mut slab);
                    let mut rows = feedline_core::Rows::new(&layout, bytes, ids.len());
                    rows.read_by(|rows| set.read_many(ids, rows, &mut Context::new(SEED, 0)))
                };
                assert!(seen(&[1, 2, 3]).is_ok(), "{name}, {lie:?}, ragged: {is_ragged}");
                let Err((_, error)) = seen(&[8, 9, 10]) else {
                    panic!("{name}: exchanged rows passed, {lie:?}, ragged: {is_ragged}")
                };
                let whole = chain(&*error);
                assert!(whole.contains("other rows in the place of those"), "{name}, {lie:?}: {whole}");
            }
        }
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}

#[test]
fn filters_lengths_and_checks_refuse_exchanged_rows() {
    for lie in [Lie::Row, Lie::Rows, Lie::Fewer] {
        let filtered = Liar::new(lie, true).filter(|_| true);
        assert!(filtered.is_err(), "{lie:?}");
        let options = CheckOptions { samples: Samples::Spread(16), epochs: 1, seed: SEED };
        let report = check_dataset(&Liar::new(lie, true), &options).expect("a check");
        assert!(!report.is_clean(), "{lie:?}");
    }
    let error = lengths(&Liar::new(Lie::Row, true), "x").expect_err("exchanged");
    assert!(chain(&error).contains("other rows in the place of those"), "{}", chain(&error));
}
