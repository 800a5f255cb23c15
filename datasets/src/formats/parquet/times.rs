//! Finds times of 96 bits (INT96: a day and nanoseconds) that 64 bits cannot hold. The Parquet crate would
//! wrap them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Fields, TimeUnit};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{Int96, Int96Type};
use parquet::errors::Result;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::input::Input;

/// The Julian day of 1970-01-01.
const EPOCH: i128 = 2_440_588;
const SECONDS_PER_DAY: i128 = 86_400;
/// The number of rows that are checked at a time.
const ROWS: usize = 8192;

/// The INT96 columns among `columns`, each with its units per second.
pub(super) fn int96(metadata: &ArrowReaderMetadata, columns: &[usize]) -> Vec<(usize, i128)> {
    let mut kinds = Vec::new();
    leaves(metadata.schema().fields(), &mut kinds);
    let stored = metadata.parquet_schema();
    let is_int96 = |&&column: &&usize| stored.column(column).physical_type() == Type::INT96;
    let per_second = |&column: &usize| match kinds.get(column) {
        Some(DataType::Timestamp(TimeUnit::Second, _)) => (column, 1),
        Some(DataType::Timestamp(TimeUnit::Millisecond, _)) => (column, 1_000),
        Some(DataType::Timestamp(TimeUnit::Microsecond, _)) => (column, 1_000_000),
        _ => (column, 1_000_000_000),
    };
    columns.iter().filter(is_int96).map(per_second).collect()
}

/// The types of the stored columns. A struct or a list has one stored column per leaf.
fn leaves(fields: &Fields, to: &mut Vec<DataType>) {
    for field in fields {
        match field.data_type() {
            DataType::Struct(fields) => leaves(fields, to),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                leaves(&[item.clone()].into(), to);
            }
            DataType::Map(entries, _) => leaves(&[entries.clone()].into(), to),
            kind => to.push(kind.clone()),
        }
    }
}

/// The rows of a row group with a time that 64 bits cannot hold. Each has the name of the column.
pub(super) fn too_large(
    input: &Input,
    group: &RowGroupMetaData,
    columns: &[(usize, i128)],
) -> Result<BTreeMap<usize, String>> {
    let mut rows = BTreeMap::new();
    for &(index, per_second) in columns {
        let column = group.column(index);
        let total = usize::try_from(group.num_rows()).unwrap_or_default();
        let pages = SerializedPageReader::new(Arc::new(input.clone()), column, total, None)?;
        let descriptor = column.column_descr_ptr();
        let (is_value, name) = (descriptor.max_def_level(), descriptor.path().string());
        let has_levels = (is_value > 0, descriptor.max_rep_level() > 0);
        let mut reader = ColumnReaderImpl::<Int96Type>::new(descriptor, Box::new(pages));
        let (mut defined, mut repeated, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        loop {
            defined.clear();
            repeated.clear();
            times.clear();
            let (defs, reps) = (has_levels.0.then_some(&mut defined), has_levels.1.then_some(&mut repeated));
            let (records, values, levels) = reader.read_records(ROWS, defs, reps, &mut times)?;
            if records == 0 {
                break;
            }
            let (mut begun, mut time) = (0, 0);
            for level in 0..levels.max(values) {
                begun += usize::from(!has_levels.1 || repeated[level] == 0);
                if has_levels.0 && defined[level] < is_value {
                    continue;
                }
                if !fits(&times[time], per_second) {
                    rows.insert(first + begun - 1, name.clone());
                }
                time += 1;
            }
            first += records;
        }
    }
    Ok(rows)
}

/// Whether a number of 64 bits holds the time in this unit.
fn fits(time: &Int96, per_second: i128) -> bool {
    let &[low, high, day] = time.data() else { return false };
    let nanos = i128::from((i64::from(high) << 32) + i64::from(low));
    let units = (i128::from(day as i32) - EPOCH) * SECONDS_PER_DAY * per_second
        + nanos / (1_000_000_000 / per_second);
    i64::try_from(units).is_ok()
}
