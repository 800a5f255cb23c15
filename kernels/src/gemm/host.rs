//! Products on the host, by the `matrixmultiply` crate, in parts on the pool.

use crate::pool::{each, threads};

/// A matrix in a slice: element `(i, j)` is at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Operand<'a> {
    /// A dense row-major matrix `[rows, cols]`.
    ///
    /// # Panics
    /// If `data` does not have `rows * cols` elements.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(Some(data.len()), rows.checked_mul(cols), "a matrix of {rows} by {cols}");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// The transposed matrix, over the same elements.
    pub(crate) fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }

    /// `count` rows from row `first` on.
    ///
    /// # Panics
    /// If the matrix has fewer rows.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        assert!(
            first <= self.rows && count <= self.rows - first,
            "{count} rows from {first} of {}",
            self.rows
        );
        Self { data: self.data.get(first * self.row_stride..).unwrap_or_default(), rows: count, ..self }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Whether every element is inside `data`.
    fn fits(&self) -> bool {
        let reach = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        self.rows == 0
            || self.cols == 0
            || reach(self.rows, self.row_stride)
                .zip(reach(self.cols, self.col_stride))
                .and_then(|(down, across)| down.checked_add(across))
                .is_some_and(|last| last < self.data.len())
    }
}

/// `dst = a b` on the calling thread; `dst` is dense and row-major, `[a.rows, b.cols]`.
///
/// # Panics
/// If the shapes do not match.
fn gemm(dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert_eq!(k, b.rows, "gemm: the inner sizes differ");
    assert_eq!(Some(dst.len()), m.checked_mul(n), "gemm: the result is not {m} by {n}");
    assert!(a.fits() && b.fits(), "gemm: an operand is larger than its slice");
    // SAFETY: by the asserts above, `dst` holds m dense rows of n elements, and every element that the
    // strides of `a` and `b` reach is inside its slice. A slice's length fits an isize, and so do strides
    // that stay inside it. `dst` is borrowed uniquely, so it overlaps neither operand.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.data.as_ptr(),
            a.row_stride as isize,
            a.col_stride as isize,
            b.data.as_ptr(),
            b.row_stride as isize,
            b.col_stride as isize,
            0.0,
            dst.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

/// Multiply-adds per part: about 50 microseconds of work, enough to use another thread.
const PART: usize = 4 << 20;

/// `dst = a b`; large products are split by rows over the threads.
pub(crate) fn multiply(dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let ((m, k), (_, n)) = (a.shape(), b.shape());
    let parts = m.saturating_mul(n).saturating_mul(k) / PART;
    // A product of one part does not start the threads.
    multiply_in(if parts > 1 { parts.min(threads()) } else { 1 }, dst, a, b);
}

/// `dst = a b`, its rows in at most `parts` parts.
fn multiply_in(parts: usize, dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let ((m, _), (_, n)) = (a.shape(), b.shape());
    // Multiples of 32 rows do not cut the innermost tile of the product.
    let rows = m.div_ceil(parts).next_multiple_of(32);
    if rows >= m {
        return gemm(dst, a, b);
    }
    each(dst.chunks_mut(rows * n).enumerate(), |(i, dst)| {
        gemm(dst, a.rows(i * rows, dst.len() / n), b);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_parts_does_not_change_the_product() {
        let (m, k, n) = (197, 31, 23);
        let number = |i: usize| ((i * 37) % 101) as f32 - 50.0;
        let a: Vec<f32> = (0..m * k).map(number).collect();
        let b: Vec<f32> = (0..k * n).map(number).collect();
        let product = |parts| {
            let mut dst = vec![f32::NAN; m * n];
            multiply_in(parts, &mut dst, Operand::new(&a, m, k), Operand::new(&b, k, n));
            dst
        };
        let whole = product(1);
        let sum: f32 = (0..k).map(|i| a[5 * k + i] * b[i * n + 7]).sum();
        assert_eq!(whole[5 * n + 7], sum);
        for parts in [2, 3, 4, 7, 1000] {
            assert!(product(parts) == whole, "in {parts} parts");
        }
    }
}
