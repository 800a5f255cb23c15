//! A read puts rows of its own in the place of those that it is given, which would stay unwritten.

use feedline::dataset::Rows;
use feedline::{ReadError, Row};

fn read(row: &mut Row<'_, '_>, own: &'static mut Rows<'static>) -> Result<(), ReadError> {
    *row = own.row(0);
    Ok(())
}

fn read_many(rows: &mut Rows<'_>, own: Rows<'static>) -> Result<(), (usize, ReadError)> {
    *rows = own;
    Ok(())
}

fn main() {}
