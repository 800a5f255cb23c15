//! A linear layer `y = x Wᵀ` and its gradients, with the `matrixmultiply` crate.

use super::bias_relu::{bias_add, bias_relu};
use super::parallel::{each, threads};
use crate::launch::{self, Operand};

/// `y = x Wᵀ + bias`, then `max(y, 0)` with `relu`. `x` is `[rows, inputs]`, `weights` `[outputs,
/// inputs]`, `y` `[rows, outputs]`, `bias` `[outputs]`.
///
/// ```
/// let (x, weights, bias) = ([1.0, 2.0], [1.0, 0.0, 0.0, -1.0], [0.5, 0.5]);
/// let mut y = [0.0; 2];
/// feedline_kernels::host::linear(&x, &weights, &bias, true, &mut y);
/// assert_eq!(y, [1.5, 0.0]);
/// ```
///
/// # Panics
/// If the lengths do not match these shapes.
pub fn linear(x: &[f32], weights: &[f32], bias: &[f32], relu: bool, y: &mut [f32]) {
    let outputs = bias.len();
    let (rows, inputs) = (whole(y.len(), outputs), whole(weights.len(), outputs));
    multiply(y, Operand::new(x, rows, inputs), Operand::new(weights, outputs, inputs).transposed());
    if relu { bias_relu(y, bias) } else { bias_add(y, bias) }
}

/// `dx = dy W`: `dy` is `[rows, outputs]`, `weights` `[outputs, inputs]`, `dx` `[rows, inputs]`.
///
/// # Panics
/// If the lengths do not match these shapes.
pub fn input_gradient(dy: &[f32], weights: &[f32], outputs: usize, dx: &mut [f32]) {
    let (rows, inputs) = (whole(dy.len(), outputs), whole(weights.len(), outputs));
    multiply(dx, Operand::new(dy, rows, outputs), Operand::new(weights, outputs, inputs));
}

/// `dW = dyᵀ x`: `dy` is `[rows, outputs]`, `x` `[rows, inputs]`, `dweights` `[outputs, inputs]`.
///
/// # Panics
/// If the lengths do not match these shapes.
pub fn weight_gradient(dy: &[f32], x: &[f32], outputs: usize, dweights: &mut [f32]) {
    let (rows, inputs) = (whole(dy.len(), outputs), whole(dweights.len(), outputs));
    multiply(dweights, Operand::new(dy, rows, outputs).transposed(), Operand::new(x, rows, inputs));
}

/// As [`weight_gradient`], from the transposed `dy` `[outputs, rows]` and `x` `[inputs, rows]`.
///
/// # Panics
/// If the lengths do not match these shapes.
pub fn weight_gradient_transposed(dy: &[f32], x: &[f32], outputs: usize, dweights: &mut [f32]) {
    let inputs = whole(dweights.len(), outputs);
    let rows = whole(x.len(), inputs);
    multiply(dweights, Operand::new(dy, outputs, rows), Operand::new(x, inputs, rows).transposed());
}

fn whole(elements: usize, cols: usize) -> usize {
    assert!(cols > 0 && elements.is_multiple_of(cols), "{elements} elements in rows of {cols}");
    elements / cols
}

/// Multiply-adds per part: about 50 microseconds of work, enough for a thread of its own.
const SHARE: usize = 4 << 20;

/// `dst = a b`; large products are split by rows over the threads.
fn multiply(dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let ((m, k), (_, n)) = (a.shape(), b.shape());
    let shares = m.saturating_mul(n).saturating_mul(k) / SHARE;
    // A product of one part does not start the threads.
    multiply_in(if shares > 1 { shares.min(threads()) } else { 1 }, dst, a, b);
}

/// `dst = a b`, its rows in at most `parts` parts.
fn multiply_in(parts: usize, dst: &mut [f32], a: Operand<'_>, b: Operand<'_>) {
    let ((m, _), (_, n)) = (a.shape(), b.shape());
    // Multiples of 32 rows do not cut the innermost tile of the product.
    let rows = m.div_ceil(parts).next_multiple_of(32);
    if rows >= m {
        return launch::gemm(dst, a, b);
    }
    each(dst.chunks_mut(rows * n).enumerate(), |(i, dst)| {
        launch::gemm(dst, a.rows(i * rows, dst.len() / n), b);
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
