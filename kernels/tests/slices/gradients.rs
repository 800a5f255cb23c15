//! Each backward operator against central differences of its forward operator in f64.

use crate::common::{assert_near, cross_entropy, differences, linear, numbers, to_f64, transpose};
use feedline_core::Random;
use feedline_kernels::host;

const TOLERANCE: f64 = 1e-3;

/// Shapes (rows, inputs, outputs): ones, primes, and sizes on both sides of a tile's edge.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![(1, 1, 1), (1, 7, 3), (31, 33, 5), (65, 17, 32), (3, 129, 2)];
    let mut random = Random::from_key(1);
    let mut size = |max| 1 + random.below(max) as usize;
    shapes.extend((0..12).map(|_| (size(40), size(70), size(40))));
    shapes
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn linear_layer_gradients_match_differences() {
    let mut random = Random::from_key(2);
    for (rows, inputs, outputs) in shapes() {
        let what = format!("{rows} by {inputs} to {outputs}");
        let x = numbers(&mut random, rows * inputs);
        let weights = numbers(&mut random, outputs * inputs);
        let bias = numbers(&mut random, outputs);
        // The loss is a random weighting of y, so dy is that weighting.
        let dy = numbers(&mut random, rows * outputs);
        let (wide_x, wide_w, wide_b, wide_dy) = (to_f64(&x), to_f64(&weights), to_f64(&bias), to_f64(&dy));

        let mut y = vec![f32::NAN; rows * outputs];
        host::linear(&x, &weights, &bias, false, &mut y);
        assert_near(&format!("y, {what}"), &y, &linear(&wide_x, &wide_w, &wide_b, false), 1e-5);
        host::linear(&x, &weights, &bias, true, &mut y);
        let relu = linear(&wide_x, &wide_w, &wide_b, true);
        if relu.iter().any(|value| *value > 0.0) {
            assert_near(&format!("relu y, {what}"), &y, &relu, 1e-5);
        }

        let mut dx = vec![f32::NAN; rows * inputs];
        host::input_gradient(&dy, &weights, outputs, &mut dx);
        let want = differences(&wide_x, |x| dot(&linear(x, &wide_w, &wide_b, false), &wide_dy));
        assert_near(&format!("dx, {what}"), &dx, &want, TOLERANCE);

        let mut dweights = vec![f32::NAN; outputs * inputs];
        host::weight_gradient(&dy, &x, outputs, &mut dweights);
        let want = differences(&wide_w, |w| dot(&linear(&wide_x, w, &wide_b, false), &wide_dy));
        assert_near(&format!("dW, {what}"), &dweights, &want, TOLERANCE);

        // The same gradient from transposed operands.
        let (dy, x) = (transpose(&dy, outputs), transpose(&x, inputs));
        let mut dweights = vec![f32::NAN; outputs * inputs];
        host::weight_gradient_transposed(&dy, &x, outputs, &mut dweights);
        assert_near(&format!("dW from transposed operands, {what}"), &dweights, &want, TOLERANCE);
    }
}

#[test]
fn multithreaded_products_match_the_reference() {
    let (rows, inputs, outputs) = (197, 301, 263);
    let mut random = Random::from_key(10);
    let x = numbers(&mut random, rows * inputs);
    let weights = numbers(&mut random, outputs * inputs);
    let dy = numbers(&mut random, rows * outputs);
    let (wide_x, wide_w, wide_dy) = (to_f64(&x), to_f64(&weights), to_f64(&dy));
    // Not on a thread of a rayon pool, which would run all parts itself.
    let mut y = vec![f32::NAN; rows * outputs];
    host::linear(&x, &weights, &vec![0.0; outputs], false, &mut y);
    assert_near("y", &y, &linear(&wide_x, &wide_w, &vec![0.0; outputs], false), 1e-5);
    let mut dx = vec![f32::NAN; rows * inputs];
    host::input_gradient(&dy, &weights, outputs, &mut dx);
    let want = linear(&wide_dy, &transpose(&wide_w, inputs), &vec![0.0; inputs], false);
    assert_near("dx", &dx, &want, 1e-5);
    let mut dweights = vec![f32::NAN; outputs * inputs];
    host::weight_gradient(&dy, &x, outputs, &mut dweights);
    let want = linear(&transpose(&wide_dy, outputs), &transpose(&wide_x, inputs), &vec![0.0; inputs], false);
    assert_near("dW", &dweights, &want, 1e-5);
}

#[test]
fn bias_and_relu_gradients_match_differences() {
    let mut random = Random::from_key(3);
    for (rows, _, cols) in shapes() {
        let bias = numbers(&mut random, cols);
        // Keep away from the kink, where the derivative does not exist.
        let z: Vec<f32> = numbers(&mut random, rows * cols)
            .iter()
            .zip(bias.iter().cycle())
            .map(|(z, b)| if (z + b).abs() < 1e-2 { z + 0.1 } else { *z })
            .collect();
        let dy = numbers(&mut random, rows * cols);
        let relu = |z: &[f64], bias: &[f64]| -> Vec<f64> {
            z.iter().zip(bias.iter().cycle()).map(|(z, b)| (z + b).max(0.0)).collect()
        };
        let (wide_z, wide_b, wide_dy) = (to_f64(&z), to_f64(&bias), to_f64(&dy));
        let mut activation = z.clone();
        host::bias_relu(&mut activation, &bias);
        if activation.iter().all(|value| *value == 0.0) {
            continue;
        }
        assert_near("activation", &activation, &relu(&wide_z, &wide_b), 1e-6);

        let (mut dz, mut dbias) = (dy.clone(), vec![f32::NAN; cols]);
        host::relu_bias_backward(&mut dz, Some(&activation), &mut dbias);
        let want = differences(&wide_z, |z| dot(&relu(z, &wide_b), &wide_dy));
        assert_near("dz", &dz, &want, TOLERANCE);
        let want = differences(&wide_b, |b| dot(&relu(&wide_z, b), &wide_dy));
        assert_near("dbias", &dbias, &want, TOLERANCE);

        let (mut transposed, mut sums) = (vec![f32::NAN; rows * cols], vec![f32::NAN; cols]);
        host::relu_bias_backward_transposed(&dy, &activation, &mut transposed, &mut sums);
        let dz_at = |i: usize| dz[i % rows * cols + i / rows];
        assert!((0..rows * cols).all(|i| transposed[i] == dz_at(i)), "dz transposed");
        assert_eq!(sums, dbias, "dbias with the transposed dz");

        let mut sums = vec![f32::NAN; cols];
        let mut same = dy.clone();
        host::relu_bias_backward(&mut same, None, &mut sums);
        assert_eq!(same, dy, "without an activation dy is unchanged");
        let want: Vec<f64> = (0..cols).map(|c| wide_dy.iter().skip(c).step_by(cols).sum()).collect();
        assert_near("column sums", &sums, &want, 1e-5);
    }
}

#[test]
fn softmax_cross_entropy_matches_the_reference() {
    let mut random = Random::from_key(4);
    for (rows, _, classes) in shapes() {
        let classes = classes + 1;
        let logits: Vec<f32> = numbers(&mut random, rows * classes).iter().map(|z| z * 8.0).collect();
        let labels: Vec<u8> = (0..rows).map(|_| random.below(classes as u64) as u8).collect();
        let wide_logits = to_f64(&logits);
        let (mut gradient, mut row_loss) = (logits.clone(), vec![f32::NAN; rows]);
        let outcome = host::softmax_xent(&mut gradient, &labels, &mut row_loss);

        let loss = cross_entropy(&wide_logits, &labels);
        assert!((f64::from(outcome.loss) - loss).abs() <= 1e-6 * (1.0 + loss), "{} for {loss}", outcome.loss);
        // Absolute for losses below one: log(1 + x) loses precision for the tiny x of a confident row.
        for ((got, row), label) in row_loss.iter().zip(wide_logits.chunks(classes)).zip(&labels) {
            let want = cross_entropy(row, &[*label]);
            assert!((f64::from(*got) - want).abs() <= 1e-6 * (1.0 + want), "{got} for {want}");
        }
        let want = differences(&wide_logits, |logits| cross_entropy(logits, &labels));
        assert_near("dlogits", &gradient, &want, TOLERANCE);
        assert_eq!(outcome.hits, host::argmax_hits(&logits, &labels));
        let wide_labels: Vec<i64> = labels.iter().map(|label| i64::from(*label)).collect();
        assert_eq!(outcome, host::softmax_xent(&mut logits.clone(), &wide_labels, &mut row_loss));
    }
}

#[test]
fn large_logits_do_not_overflow() {
    let (mut logits, mut row_loss) = (vec![1e30, -1e30, 0.0, 88.0, 89.0, 1000.0], vec![0.0; 2]);
    let outcome = host::softmax_xent(&mut logits, &[0u8, 2], &mut row_loss);
    assert_eq!((outcome.loss, outcome.hits), (0.0, 2));
    assert!(logits.iter().all(|value| value.abs() < 1e-6), "{logits:?}");
}

#[test]
fn an_invalid_label_makes_its_row_nan() {
    for label in [-1, 3, i64::MIN] {
        let (mut logits, mut row_loss) = (vec![0.5; 6], vec![0.0; 2]);
        let outcome = host::softmax_xent(&mut logits, &[1, label], &mut row_loss);
        assert!(outcome.loss.is_nan() && row_loss[1].is_nan() && !row_loss[0].is_nan());
        assert!(logits[3..].iter().all(|value| value.is_nan()));
        assert_eq!(host::argmax_hits(&logits, &[1, label]), 0);
    }
}

#[test]
fn the_first_of_equal_logits_counts() {
    let logits = [1.0, 3.0, 3.0, 3.0];
    let hits = |label: u8| host::argmax_hits(&logits, &[label]);
    assert_eq!((hits(0), hits(1), hits(2), hits(3)), (0, 1, 0, 0));
    assert_eq!(host::softmax_xent(&mut logits.clone(), &[2u8], &mut [0.0]).hits, 0);
    // A row of NaN and -infinity has no argmax.
    assert_eq!(host::argmax_hits(&[f32::NAN, f32::NEG_INFINITY], &[0u8]), 0);
}

#[test]
fn bias_relu_keeps_nan() {
    let mut z = [f32::NAN, -1.0];
    host::bias_relu(&mut z, &[0.0, 0.0]);
    assert!(z[0].is_nan() && z[1] == 0.0);
}

#[test]
fn perceptron_gradients_match_differences() {
    let mut random = Random::from_key(5);
    for (rows, inputs, hidden) in [(5, 11, 7), (33, 6, 13), (2, 3, 35)] {
        let sizes = [inputs, hidden, hidden, 10];
        let mut parameters = crate::common::first_parameters(&sizes);
        // Nonzero biases, so that a wrong offset in the flat buffer shows.
        parameters.iter_mut().for_each(|p| *p += random.range(-0.3, 0.3) as f32);
        let x = numbers(&mut random, rows * inputs);
        let labels: Vec<u8> = (0..rows).map(|_| random.below(10) as u8).collect();
        let (outcome, gradient) = crate::common::host_step(&sizes, &parameters, &x, &labels);
        let (wide_p, wide_x) = (to_f64(&parameters), to_f64(&x));
        let want = differences(&wide_p, |p| crate::common::loss(&sizes, p, &wide_x, &labels));
        assert_near("gradient", &gradient, &want, TOLERANCE);
        let (loss, by_hand) = crate::common::backward(&sizes, &wide_p, &wide_x, &labels);
        assert!((f64::from(outcome.loss) - loss).abs() < 1e-5 * loss);
        assert_near("gradient by hand", &gradient, &by_hand, 1e-5);
    }
}
