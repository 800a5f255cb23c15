//! A linear layer `y = x Wᵀ`, its gradients, and its epilogues.

use crate::gemm::host::{Operand, multiply};

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

/// `z[r, c] = z[r, c] + bias[c]`, in place; a row has `bias.len()` columns.
///
/// # Panics
/// If `z` is not whole rows.
pub fn bias_add(z: &mut [f32], bias: &[f32]) {
    for row in rows(z, bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value += bias;
        }
    }
}

/// `z[r, c] = max(z[r, c] + bias[c], 0)`, in place; NaNs are kept.
///
/// # Panics
/// If `z` is not whole rows.
pub fn bias_relu(z: &mut [f32], bias: &[f32]) {
    for row in rows(z, bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            let sum = *value + bias;
            *value = if sum < 0.0 { 0.0 } else { sum };
        }
    }
}

/// Sets `dy` to 0 where `activation` is not positive; then `dbias[c]` is the sum of column `c` of `dy`.
///
/// `activation` is the layer's output, the result of [`bias_relu`]. Without it `dy` is only summed, for a
/// layer without a ReLU.
///
/// # Panics
/// If `dy` is not whole rows of `dbias.len()`, or `activation` has another length.
pub fn relu_bias_backward(dy: &mut [f32], activation: Option<&[f32]>, dbias: &mut [f32]) {
    if let Some(activation) = activation {
        assert_eq!(dy.len(), activation.len(), "relu_bias_backward: the lengths of dy and activation");
        for (dy, activation) in dy.iter_mut().zip(activation) {
            // Select instead of multiply: a NaN gradient under a closed ReLU becomes 0.
            *dy = if *activation > 0.0 { *dy } else { 0.0 };
        }
    }
    dbias.fill(0.0);
    for row in rows(dy, dbias.len()) {
        for (sum, dy) in dbias.iter_mut().zip(row) {
            *sum += *dy;
        }
    }
}

/// As [`relu_bias_backward`], but leaves `dy` unchanged and writes the result to `transposed`
/// `[dbias.len(), rows]`.
///
/// # Panics
/// If `dy` is not whole rows of `dbias.len()`, or `activation` or `transposed` has another length.
pub fn relu_bias_backward_transposed(
    dy: &[f32],
    activation: &[f32],
    transposed: &mut [f32],
    dbias: &mut [f32],
) {
    let columns = dbias.len();
    assert_eq!(dy.len(), activation.len(), "relu_bias_backward_transposed: the lengths of dy and activation");
    assert_eq!(dy.len(), transposed.len(), "relu_bias_backward_transposed: the lengths of dy and transposed");
    assert!(columns > 0 && dy.len().is_multiple_of(columns), "{} elements in rows of {columns}", dy.len());
    let rows = dy.len() / columns;
    dbias.fill(0.0);
    for (r, (dy, activation)) in dy.chunks_exact(columns).zip(activation.chunks_exact(columns)).enumerate() {
        let column = transposed[r..].iter_mut().step_by(rows).zip(dbias.iter_mut());
        for ((to, sum), (dy, activation)) in column.zip(dy.iter().zip(activation)) {
            *to = if *activation > 0.0 { *dy } else { 0.0 };
            *sum += *to;
        }
    }
}

fn rows(matrix: &mut [f32], cols: usize) -> std::slice::ChunksExactMut<'_, f32> {
    assert!(cols > 0 && matrix.len().is_multiple_of(cols), "{} elements in rows of {cols}", matrix.len());
    matrix.chunks_exact_mut(cols)
}
