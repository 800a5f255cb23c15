//! The units of dates and times.

use arrow_schema::{DataType, Fields, TimeUnit};

use super::{Leaf, Part};
use feedline_core::Meaning;

impl Leaf {
    /// What the values are.
    pub(super) fn meaning(&self, fields: &Fields) -> Meaning {
        if self.part.is_json() {
            return Meaning::Json;
        }
        self.ticks_per_day(fields).map_or(Meaning::Plain, |per_day| Meaning::Time { per_day })
    }

    /// Units per day of a field of dates or times, or of lists of them.
    fn ticks_per_day(&self, fields: &Fields) -> Option<u64> {
        let (&first, rest) = self.path.split_first()?;
        let mut kind = fields.get(first)?.data_type();
        for &index in rest {
            let DataType::Struct(fields) = kind else { return None };
            kind = fields.get(index)?.data_type();
        }
        loop {
            kind = match kind {
                DataType::Dictionary(_, values) => values,
                DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                    item.data_type()
                }
                _ => break,
            };
        }
        let per_second = |unit: &TimeUnit| match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let is_value = matches!(self.part, Part::Values | Part::Marked);
        match kind {
            _ if !is_value => None,
            DataType::Date32 => Some(1),
            DataType::Date64 => Some(86_400_000),
            DataType::Timestamp(unit, _)
            | DataType::Time32(unit)
            | DataType::Time64(unit)
            | DataType::Duration(unit) => Some(86_400 * per_second(unit)),
            _ => None,
        }
    }
}
