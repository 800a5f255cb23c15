//! Runs `check_dataset` for one sample, and returns the first fault as one line.

use feedline_core::check::{CheckOptions, Fault, Samples, check_dataset};
use feedline_core::{Dataset, Layout};

/// Checks that `read` of `data` writes all of sample `id`, writes only inside its row, and writes the same
/// bytes at each call.
///
/// # Errors
/// The first fault, as one line.
pub fn audit(data: &impl Dataset, id: u64) -> Result<(), String> {
    first_fault(data, id, |fault| !is_column_fault(fault))
}

/// Checks that every field of `data` has a column, and that its row `id` equals what `read` writes, in two
/// epochs.
///
/// # Errors
/// The first fault, as one line.
pub fn audit_columns(data: &impl Dataset, id: u64) -> Result<(), String> {
    let layout = Layout::new(data.spec(), 1).map_err(|error| error.to_string())?;
    for (index, field) in layout.spec().fields().iter().enumerate() {
        let fault = |why: &str| Err(format!("sample {id}: field \"{}\": {why}", field.name()));
        let Some(column) = data.storage().column(index) else { return fault("it has no column") };
        if (column.rows() as u64, column.row_bytes()) != (data.len(), field.row_bytes()) {
            return fault("the column does not have one row per sample");
        }
    }
    if data.storage().column(layout.spec().fields().len()).is_some() {
        return Err("there is a column for a field that does not exist".to_owned());
    }
    first_fault(data, id, |_| true)
}

fn is_column_fault(fault: &Fault) -> bool {
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
    fn the_fixtures_pass() {
        audit(&Fine::new(9, 5).unwrap(), 8).unwrap();
        audit(&Random::new(9, 5).unwrap(), 8).unwrap();
        audit(&Wide::new(9).unwrap(), 8).unwrap();
    }

    #[test]
    fn a_partial_read_is_found() {
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
