//! A multi-layer perceptron in f64 with plain loops, the reference for the operators; and the same in f32
//! with the operators.
#![allow(dead_code, reason = "each test file uses only some items")]

use feedline_core::Random;
use feedline_core::random::splitmix64;
use feedline_kernels::host;

/// `n` random numbers in [-1, 1).
pub fn numbers(random: &mut Random, n: usize) -> Vec<f32> {
    (0..n).map(|_| random.range(-1.0, 1.0) as f32).collect()
}

/// Converts each value to f64, exactly.
pub fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// The transpose of a matrix with `columns` columns.
pub fn transpose<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    (0..columns).flat_map(|c| matrix.iter().skip(c).step_by(columns).copied()).collect()
}

/// Asserts that the distance of `got` from `want` is at most `tolerance` times the norm of `want`.
pub fn assert_near(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let norm = want.iter().map(|w| w * w).sum::<f64>().sqrt();
    let error = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum::<f64>().sqrt();
    assert!(norm > 0.0, "{what}: the expected values are all zero");
    assert!(error <= tolerance * norm, "{what}: off by {error:.3e}, {:.3e} of the norm", error / norm);
}

/// The gradient of `f` at `at`, by central differences.
pub fn differences(at: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut point = at.to_vec();
    (0..at.len())
        .map(|i| {
            let step = 1e-5;
            point[i] = at[i] + step;
            let above = f(&point);
            point[i] = at[i] - step;
            let below = f(&point);
            point[i] = at[i];
            (above - below) / (2.0 * step)
        })
        .collect()
}

/// `y = x Wᵀ + bias` and ReLU, in f64.
pub fn linear(x: &[f64], weights: &[f64], bias: &[f64], relu: bool) -> Vec<f64> {
    let (outputs, inputs) = (bias.len(), weights.len() / bias.len());
    let mut y = Vec::new();
    for row in x.chunks(inputs) {
        for o in 0..outputs {
            let sum: f64 = row.iter().zip(&weights[o * inputs..]).map(|(x, w)| x * w).sum();
            let value = sum + bias[o];
            y.push(if relu { value.max(0.0) } else { value });
        }
    }
    y
}

/// Mean softmax cross-entropy, in f64.
pub fn cross_entropy(logits: &[f64], labels: &[u8]) -> f64 {
    let rows = logits.chunks(logits.len() / labels.len());
    let losses = rows.zip(labels).map(|(row, label)| {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|z| (z - largest).exp()).sum();
        sum.ln() - (row[usize::from(*label)] - largest)
    });
    losses.sum::<f64>() / labels.len() as f64
}

/// The layer sizes of a perceptron: inputs, hidden, hidden, ..., classes.
pub type Sizes<'a> = &'a [usize];

/// The initial weights of the reference recipe: `w = (2 u - 1) / sqrt(inputs)`, u from splitmix64 of
/// layer and index; biases are 0.
pub fn first_parameters(sizes: Sizes<'_>) -> Vec<f32> {
    let mut flat = Vec::new();
    for (layer, pair) in sizes.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        for k in 0..inputs * outputs {
            let u = (splitmix64(((layer as u64) << 32) + k as u64) >> 40) as f64 / f64::from(1 << 24);
            flat.push(((2.0 * u - 1.0) / (inputs as f64).sqrt()) as f32);
        }
        flat.extend(std::iter::repeat_n(0.0, outputs));
    }
    flat
}

/// The offsets of layer `l` in the flat parameters: start of the weights, start of the bias, end.
pub fn place(sizes: Sizes<'_>, l: usize) -> (usize, usize, usize) {
    let count = |l: usize| sizes[l] * sizes[l + 1] + sizes[l + 1];
    let begin: usize = (0..l).map(count).sum();
    (begin, begin + sizes[l] * sizes[l + 1], begin + count(l))
}

/// The mean loss of a perceptron, in f64.
pub fn loss(sizes: Sizes<'_>, parameters: &[f64], x: &[f64], labels: &[u8]) -> f64 {
    cross_entropy(&forward(sizes, parameters, x).pop().unwrap(), labels)
}

fn forward(sizes: Sizes<'_>, parameters: &[f64], x: &[f64]) -> Vec<Vec<f64>> {
    let layers = sizes.len() - 1;
    let mut activations = vec![x.to_vec()];
    for l in 0..layers {
        let (begin, bias, end) = place(sizes, l);
        let y = linear(&activations[l], &parameters[begin..bias], &parameters[bias..end], l + 1 < layers);
        activations.push(y);
    }
    activations
}

/// The mean loss and the gradient of all parameters, in f64.
pub fn backward(sizes: Sizes<'_>, parameters: &[f64], x: &[f64], labels: &[u8]) -> (f64, Vec<f64>) {
    let layers = sizes.len() - 1;
    let rows = labels.len();
    let activations = forward(sizes, parameters, x);
    let logits = &activations[layers];
    let mut dy = Vec::new();
    for (row, label) in logits.chunks(sizes[layers]).zip(labels) {
        let sum: f64 = row.iter().map(|z| z.exp()).sum();
        let hot = |c: usize| if c == usize::from(*label) { 1.0 } else { 0.0 };
        dy.extend(row.iter().enumerate().map(|(c, z)| (z.exp() / sum - hot(c)) / rows as f64));
    }
    let mut gradient = vec![0.0; parameters.len()];
    for l in (0..layers).rev() {
        let (begin, bias, _) = place(sizes, l);
        let (inputs, outputs) = (sizes[l], sizes[l + 1]);
        let mut dx = vec![0.0; rows * inputs];
        for r in 0..rows {
            for o in 0..outputs {
                let d = dy[r * outputs + o];
                gradient[bias + o] += d;
                for i in 0..inputs {
                    gradient[begin + o * inputs + i] += d * activations[l][r * inputs + i];
                    dx[r * inputs + i] += d * parameters[begin + o * inputs + i];
                }
            }
        }
        if l > 0 {
            dx.iter_mut().zip(&activations[l]).for_each(|(d, a)| *d = if *a > 0.0 { *d } else { 0.0 });
        }
        dy = dx;
    }
    (cross_entropy(logits, labels), gradient)
}

/// Loss, hits and gradient with the host operators, in f32.
pub fn host_step(
    sizes: Sizes<'_>,
    parameters: &[f32],
    x: &[f32],
    labels: &[u8],
) -> (host::Outcome, Vec<f32>) {
    let layers = sizes.len() - 1;
    let rows = labels.len();
    let mut activations = vec![x.to_vec()];
    for l in 0..layers {
        let (begin, bias, end) = place(sizes, l);
        let mut y = vec![0.0; rows * sizes[l + 1]];
        host::linear(
            &activations[l],
            &parameters[begin..bias],
            &parameters[bias..end],
            l + 1 < layers,
            &mut y,
        );
        activations.push(y);
    }
    let mut dy = activations.pop().unwrap();
    let outcome = host::softmax_xent(&mut dy, labels, &mut vec![0.0; rows]);
    let mut gradient = vec![0.0; parameters.len()];
    for l in (0..layers).rev() {
        let (begin, bias, end) = place(sizes, l);
        let outputs = sizes[l + 1];
        let activation = (l + 1 < layers).then(|| activations[l + 1].as_slice());
        host::relu_bias_backward(&mut dy, activation, &mut gradient[bias..end]);
        host::weight_gradient(&dy, &activations[l], outputs, &mut gradient[begin..bias]);
        if l > 0 {
            let mut dx = vec![0.0; rows * sizes[l]];
            host::input_gradient(&dy, &parameters[begin..bias], outputs, &mut dx);
            dy = dx;
        }
    }
    (outcome, gradient)
}
