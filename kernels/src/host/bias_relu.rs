//! The epilogue of a linear layer, forward and backward.

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
