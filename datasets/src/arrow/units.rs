//! The bytes that the buffers of a column come in: a buffer of offsets whose length is not a multiple of an
//! offset would end the Arrow crates in a panic.

use arrow_schema::{DataType, UnionMode};

/// Appends the unit of each buffer of a column of type `kind`; `views` has the number of further buffers of
/// each column of views.
pub(super) fn units(kind: &DataType, old: bool, views: &mut impl Iterator<Item = i64>, to: &mut Vec<u64>) {
    use DataType::*;
    // The first buffer says which rows are null.
    match kind {
        Null => {}
        Utf8 | Binary => to.extend([1, 4, 1]),
        LargeUtf8 | LargeBinary => to.extend([1, 8, 1]),
        Utf8View | BinaryView => {
            to.extend([1, 16]);
            // The Arrow crates compare the number with the buffers that there are.
            let further = views.next().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            to.extend(std::iter::repeat_n(1, further.min(1 << 16)));
        }
        Boolean | FixedSizeBinary(_) => to.extend([1, 1]),
        List(item) | Map(item, _) => {
            to.extend([1, 4]);
            units(item.data_type(), old, views, to);
        }
        LargeList(item) => {
            to.extend([1, 8]);
            units(item.data_type(), old, views, to);
        }
        ListView(item) => {
            to.extend([1, 4, 4]);
            units(item.data_type(), old, views, to);
        }
        LargeListView(item) => {
            to.extend([1, 8, 8]);
            units(item.data_type(), old, views, to);
        }
        FixedSizeList(item, _) => {
            to.push(1);
            units(item.data_type(), old, views, to);
        }
        Struct(fields) => {
            to.push(1);
            fields.iter().for_each(|field| units(field.data_type(), old, views, to));
        }
        RunEndEncoded(ends, values) => {
            units(ends.data_type(), old, views, to);
            units(values.data_type(), old, views, to);
        }
        Union(fields, mode) => {
            // Before version 5 of the metadata unions had nulls.
            to.extend(old.then_some(1));
            to.push(1);
            to.extend((*mode == UnionMode::Dense).then_some(4));
            fields.iter().for_each(|(_, field)| units(field.data_type(), old, views, to));
        }
        Dictionary(key, _) => to.extend([1, key.primitive_width().unwrap_or(1) as u64]),
        number => to.extend([1, number.primitive_width().unwrap_or(1) as u64]),
    }
}
