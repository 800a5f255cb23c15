//! A decoded column that is read row by row.

use std::ops::Range;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use feedline_core::ElementType;

/// The size of a view in bytes.
const VIEW: usize = 16;

/// One column of a decoded batch.
#[derive(Debug)]
pub(crate) struct Column {
    nulls: Option<NullBuffer>,
    cells: Cells,
}

/// The layout of the rows' bytes.
#[derive(Debug)]
enum Cells {
    /// Contiguous rows of one size.
    Fixed { bytes: Buffer, width: usize },
    /// One bit per row.
    Bits(BooleanBuffer),
    /// Integers of `width` bytes, scaled by a power of ten.
    Decimals { bytes: Buffer, width: usize, scale: i8 },
    /// Rows of varying size. Row `n` has the items `ends[n]..ends[n + 1]`.
    Varying { ends: Ends, items: Box<Column> },
    /// Rows of varying size. A short row is in its view. Other rows are in one of several buffers.
    Views { views: Buffer, buffers: Vec<Buffer> },
    /// `count` items per row. Items may be null.
    Items { count: usize, items: Box<Column> },
    /// Indices into `values`.
    Keys { keys: Buffer, width: usize, values: Box<Column> },
    /// Lists of structs. A row is the JSON of its list.
    Nested(ArrayRef),
    /// A type that has no values.
    Nothing,
}

#[derive(Debug)]
enum Ends {
    Narrow(ScalarBuffer<i32>),
    Wide(ScalarBuffer<i64>),
}

impl Ends {
    fn items(&self, row: usize) -> Range<usize> {
        match self {
            Self::Narrow(ends) => ends[row] as usize..ends[row + 1] as usize,
            Self::Wide(ends) => ends[row] as usize..ends[row + 1] as usize,
        }
    }
}

impl Column {
    /// The column at `path` in the structs of `data`. If a struct is null, its fields are null.
    pub(crate) fn at(data: &ArrayData, path: &[usize], is_nested: bool) -> Self {
        let Some((&index, rest)) = path.split_first() else {
            return if is_nested { Self::nested(data) } else { Self::of_array(data) };
        };
        // The validity bitmap of a struct is not part of its fields' bitmaps.
        let child = data.child_data()[index].slice(data.offset(), data.len());
        let mut column = Self::at(&child, rest, is_nested);
        column.nulls = NullBuffer::union(data.nulls(), column.nulls.as_ref());
        column
    }

    /// A column of lists of structs.
    fn nested(data: &ArrayData) -> Self {
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Self { nulls, cells: Cells::Nested(arrow_array::make_array(data.clone())) }
    }

    /// Makes a column of `data`. The Arrow crates have checked that its buffers are as long as its type
    /// requires.
    fn of_array(data: &ArrayData) -> Self {
        let (first, len) = (data.offset(), data.len());
        let fixed = |width: usize| data.buffers()[0].slice_with_length(first * width, len * width);
        let narrow = || match len {
            0 => Ends::Narrow(vec![0].into()),
            _ => Ends::Narrow(ScalarBuffer::new(data.buffers()[0].clone(), first, len + 1)),
        };
        let wide = || match len {
            0 => Ends::Wide(vec![0].into()),
            _ => Ends::Wide(ScalarBuffer::new(data.buffers()[0].clone(), first, len + 1)),
        };
        let bytes = || {
            let bytes = data.buffers()[1].clone();
            Box::new(Self { nulls: None, cells: Cells::Fixed { bytes, width: 1 } })
        };
        let items = || Box::new(Self::of_array(&data.child_data()[0]));
        let cells = match data.data_type() {
            DataType::Boolean => Cells::Bits(BooleanBuffer::new(data.buffers()[0].clone(), first, len)),
            DataType::Decimal32(_, scale) => Cells::Decimals { bytes: fixed(4), width: 4, scale: *scale },
            DataType::Decimal64(_, scale) => Cells::Decimals { bytes: fixed(8), width: 8, scale: *scale },
            DataType::Decimal128(_, scale) => Cells::Decimals { bytes: fixed(16), width: 16, scale: *scale },
            DataType::FixedSizeBinary(width) => {
                Cells::Fixed { bytes: fixed(*width as usize), width: *width as usize }
            }
            DataType::Binary | DataType::Utf8 => Cells::Varying { ends: narrow(), items: bytes() },
            DataType::LargeBinary | DataType::LargeUtf8 => Cells::Varying { ends: wide(), items: bytes() },
            DataType::List(_) => Cells::Varying { ends: narrow(), items: items() },
            DataType::LargeList(_) => Cells::Varying { ends: wide(), items: items() },
            DataType::BinaryView | DataType::Utf8View => {
                Cells::Views { views: fixed(VIEW), buffers: data.buffers()[1..].to_vec() }
            }
            DataType::FixedSizeList(_, count) => {
                let count = *count as usize;
                let items = Self::of_array(&data.child_data()[0].slice(first * count, len * count));
                match items {
                    Self { nulls: None, cells: Cells::Fixed { bytes, width } } => {
                        Cells::Fixed { bytes, width: count * width }
                    }
                    items => Cells::Items { count, items: Box::new(items) },
                }
            }
            DataType::Dictionary(key, _) => {
                let width = key.primitive_width().unwrap_or(1);
                Cells::Keys { keys: fixed(width), width, values: items() }
            }
            kind => match kind.primitive_width() {
                Some(width) => Cells::Fixed { bytes: fixed(width), width },
                None => Cells::Nothing,
            },
        };
        // Drops the validity bitmap if there are no nulls, so that rows are not checked one by one.
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Self { nulls, cells }
    }

    /// The bytes of row `row`, if memory holds them in the form that samples have. `None` for a null.
    pub(crate) fn slice(&self, row: usize) -> Option<&[u8]> {
        if self.is_null(row) {
            return None;
        }
        match &self.cells {
            Cells::Fixed { bytes, width } => Some(&bytes[row * width..][..*width]),
            Cells::Varying { ends, items } => match &**items {
                Self { nulls: None, cells: Cells::Fixed { bytes, width } } => {
                    let items = ends.items(row);
                    Some(&bytes[items.start * width..items.end * width])
                }
                _ => None,
            },
            Cells::Views { views, buffers } => Some(view(&views[row * VIEW..][..VIEW], buffers)),
            Cells::Keys { keys, width, values } => values.slice(key(keys, *width, row)),
            _ => None,
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether row `row` has no value.
    pub(crate) fn is_missing(&self, row: usize) -> bool {
        if self.is_null(row) {
            return true;
        }
        match &self.cells {
            Cells::Keys { keys, width, values } => values.is_missing(key(keys, *width, row)),
            _ => false,
        }
    }

    /// Appends the zeros of a value of one size. Appends nothing if the size varies.
    pub(crate) fn zeros(&self, to: &mut Vec<u8>) {
        to.resize(to.len() + self.width(), 0);
    }

    /// Appends the bytes of row `row`. `None` for a null, unless `fill` is given.
    pub(crate) fn values(&self, row: usize, fill: Option<ElementType>, to: &mut Vec<u8>) -> Option<()> {
        if self.is_null(row) {
            blank(fill?, self.width(), to);
            return Some(());
        }
        if let Some(bytes) = self.slice(row) {
            to.extend_from_slice(bytes);
            return Some(());
        }
        match &self.cells {
            Cells::Bits(bits) => to.push(bits.value(row).into()),
            Cells::Decimals { bytes, width, scale } => {
                to.extend(decimal(&bytes[row * width..][..*width], *scale).to_le_bytes());
            }
            Cells::Varying { ends, items } => items.range(ends.items(row), fill, to)?,
            Cells::Items { count, items } => items.range(row * count..(row + 1) * count, fill, to)?,
            Cells::Keys { keys, width, values } => values.values(key(keys, *width, row), fill, to)?,
            Cells::Nested(array) => super::nested::write(&**array, row, to),
            Cells::Fixed { .. } | Cells::Views { .. } | Cells::Nothing => {}
        }
        Some(())
    }

    /// The decimal in row `row`, if it is a whole number that `f64` does not hold.
    pub(crate) fn lost(&self, row: usize) -> Option<i128> {
        if !self.has_decimals() || self.is_null(row) {
            return None;
        }
        match &self.cells {
            Cells::Decimals { bytes, width, scale } => lost(&bytes[row * width..][..*width], *scale),
            Cells::Varying { ends, items } => ends.items(row).find_map(|item| items.lost(item)),
            Cells::Items { count, items } => {
                (row * count..(row + 1) * count).find_map(|item| items.lost(item))
            }
            Cells::Keys { keys, width, values } => values.lost(key(keys, *width, row)),
            _ => None,
        }
    }

    fn has_decimals(&self) -> bool {
        match &self.cells {
            Cells::Decimals { .. } => true,
            Cells::Varying { items: inner, .. } | Cells::Items { items: inner, .. } => inner.has_decimals(),
            Cells::Keys { values, .. } => values.has_decimals(),
            _ => false,
        }
    }

    fn range(&self, rows: Range<usize>, fill: Option<ElementType>, to: &mut Vec<u8>) -> Option<()> {
        if let Self { nulls: None, cells: Cells::Fixed { bytes, width } } = self {
            to.extend_from_slice(&bytes[rows.start * width..rows.end * width]);
            return Some(());
        }
        rows.into_iter().try_for_each(|row| self.values(row, fill, to))
    }

    /// Appends the length of each value of the list in row `row`, as `i64`. `None` for a null, unless `fill`
    /// is true.
    pub(crate) fn lengths(&self, row: usize, fill: bool, to: &mut Vec<u8>) -> Option<()> {
        let Cells::Varying { ends, items } = &self.cells else { return Some(()) };
        if self.is_null(row) {
            return fill.then_some(());
        }
        for item in ends.items(row) {
            let is_null = items.is_null(item);
            if is_null && !fill {
                return None;
            }
            let length = if is_null { 0 } else { items.length(item) };
            to.extend((length as i64).to_le_bytes());
        }
        Some(())
    }

    fn length(&self, row: usize) -> usize {
        match &self.cells {
            Cells::Varying { ends, .. } => ends.items(row).len(),
            Cells::Views { views, buffers } => view(&views[row * VIEW..][..VIEW], buffers).len(),
            Cells::Keys { keys, width, values } => {
                let row = key(keys, *width, row);
                if values.is_null(row) { 0 } else { values.length(row) }
            }
            _ => self.width(),
        }
    }

    /// Bytes of a row; 0 if they vary.
    fn width(&self) -> usize {
        match &self.cells {
            Cells::Fixed { width, .. } => *width,
            Cells::Bits(_) => 1,
            Cells::Decimals { .. } => 8,
            Cells::Items { count, items } => count * items.width(),
            Cells::Keys { values, .. } => values.width(),
            Cells::Varying { .. } | Cells::Views { .. } | Cells::Nested(_) | Cells::Nothing => 0,
        }
    }

    /// The bytes of all rows and the size of one row, if they are contiguous in the form that samples have.
    pub(crate) fn ready(&self) -> Option<(&[u8], usize)> {
        match &self.cells {
            Cells::Fixed { bytes, width } if self.nulls.is_none() => Some((bytes, *width)),
            _ => None,
        }
    }
}

/// Appends `width` bytes that replace a null.
fn blank(element: ElementType, width: usize, to: &mut Vec<u8>) {
    use feedline_core::DType;
    let nan: &[u8] = match element {
        // The quiet NaN of each width, little-endian.
        ElementType::Number(DType::F16) => &[0, 0x7E],
        ElementType::Number(DType::F32) => &[0, 0, 0xC0, 0x7F],
        ElementType::Number(DType::F64) => &[0, 0, 0, 0, 0, 0, 0xF8, 0x7F],
        _ => &[0],
    };
    to.extend(nan.iter().cycle().take(width));
}

fn decimal(bytes: &[u8], scale: i8) -> f64 {
    // Parsing the decimal text rounds once. A division would round twice.
    format!("{}e{}", unscaled(bytes), -i32::from(scale)).parse().unwrap_or(f64::NAN)
}

/// The unscaled integer of a decimal.
fn unscaled(bytes: &[u8]) -> i128 {
    let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xFF } else { 0 };
    let mut all = [sign; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(all)
}

/// The decimal, if it is a whole number that `f64` does not hold.
fn lost(bytes: &[u8], scale: i8) -> Option<i128> {
    let (number, tens) = (unscaled(bytes), 10i128.checked_pow(u32::from(scale.unsigned_abs()))?);
    let whole = match scale {
        ..=0 => number.checked_mul(tens)?,
        _ if number % tens == 0 => number / tens,
        _ => return None,
    };
    (whole as f64 as i128 != whole).then_some(whole)
}

fn key(keys: &[u8], width: usize, row: usize) -> usize {
    let mut all = [0; 8];
    // The Arrow crates have checked that keys are in 0..values.
    all[..width].copy_from_slice(&keys[row * width..][..width]);
    u64::from_le_bytes(all) as usize
}

/// The bytes that a view refers to. A view begins with their number. If they are few, the view holds them.
/// Otherwise it holds the first four bytes, the index of the buffer and the offset in the buffer.
fn view<'a>(view: &'a [u8], buffers: &'a [Buffer]) -> &'a [u8] {
    let number = |at: usize| {
        let mut number = [0; 4];
        number.copy_from_slice(&view[at..at + 4]);
        u32::from_le_bytes(number) as usize
    };
    let length = number(0);
    if length <= VIEW - 4 { &view[4..4 + length] } else { &buffers[number(8)][number(12)..][..length] }
}
