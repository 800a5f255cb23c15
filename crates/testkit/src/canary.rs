//! The check of the public `check_dataset`, for one sample and as one line.

use feedline_core::check::{CheckOptions, Fault, Samples, check_dataset};
use feedline_core::{Dataset, Layout};

/// Checks that `data` writes sample `id` inside its row, all of it, and the same at each call.
///
/// Every data set's `read` promises this: a recycled row holds the bytes of an older sample.
///
/// # Errors
/// What is wrong, in one line.
pub fn audit(data: &impl Dataset, id: u64) -> Result<(), String> {
    first_fault(data, id, |fault| !is_of_a_table(fault))
}

/// Checks that every field of `data` has a table, and that row `id` of each is what `read` writes, in two epochs.
///
/// Every set that gives tables promises this: a device reads them in place of `read`.
///
/// # Errors
/// What is wrong, in one line.
pub fn audit_tables(data: &impl Dataset, id: u64) -> Result<(), String> {
    let layout = Layout::new(data.spec(), 1).map_err(|error| error.to_string())?;
    for (index, field) in layout.spec().fields().iter().enumerate() {
        let place = |why: &str| Err(format!("sample {id}: field \"{}\": {why}", field.name()));
        let Some(column) = data.column(index) else { return place("it has no table") };
        if (column.rows() as u64, column.row_bytes()) != (data.len(), field.row_bytes()) {
            return place("its table is not one row a sample");
        }
    }
    if data.column(layout.spec().fields().len()).is_some() {
        return Err("there is a table of a field that is none".to_owned());
    }
    first_fault(data, id, |_| true)
}

fn is_of_a_table(fault: &Fault) -> bool {
    matches!(fault, Fault::ColumnDiffers | Fault::ColumnShape)
}

fn first_fault(data: &impl Dataset, id: u64, counts: impl Fn(&Fault) -> bool) -> Result<(), String> {
    let options = CheckOptions { samples: Samples::Ids(vec![id]), ..CheckOptions::default() };
    let report = check_dataset(data, &options).map_err(|error| error.to_string())?;
    let first = report.findings.into_iter().find(|finding| counts(&finding.fault));
    first.map_or(Ok(()), |finding| Err(finding.to_string()))
}

#[cfg(test)]
mod tests {
    use feedline_core::{Context, DType, ReadError, Row, Spec};

    use super::*;
    use crate::fixtures::{Fine, Random, Wide};

    #[test]
    fn the_zoo_keeps_the_contract() {
        audit(&Fine::new(9, 5).unwrap(), 8).unwrap();
        audit(&Random::new(9, 5).unwrap(), 8).unwrap();
        audit(&Wide::new(9).unwrap(), 8).unwrap();
    }

    #[test]
    fn a_read_that_leaves_bytes_of_the_last_sample_is_found() {
        struct Lazy(Spec);
        impl Dataset for Lazy {
            fn len(&self) -> u64 {
                1
            }
            fn spec(&self) -> &Spec {
                &self.0
            }
            fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
                row.bytes_mut(0)[..2].fill(7);
                Ok(())
            }
        }
        let lazy = Lazy(Spec::new().field("x", DType::U8, [3]).unwrap());
        assert_eq!(audit(&lazy, 0).unwrap_err(), "sample 0: field \"x\": byte 2 was not written");
    }
}
