//! Training steps: the reference recipe and AdamW against f64.

use crate::common;

use std::time::{Duration, Instant};

use crate::common::{assert_near, numbers, to_f64};
use feedline_core::Random;
use feedline_kernels::host::{self, AdamW, Sgd};
use feedline_testkit::OtherWork;

/// Twenty steps of the trainer's reference recipe: momentum SGD, lr 0.05, momentum 0.9, u8 pixels / 255.
#[test]
fn twenty_steps_of_the_reference_recipe_match_f64() {
    let sizes = [61, 47, 47, 10];
    let (rows, steps, rule) = (50, 20, Sgd { lr: 0.05, momentum: 0.9 });
    let mut random = Random::from_key(6);
    let mut parameters = common::first_parameters(&sizes);
    let mut velocity = vec![0.0; parameters.len()];
    let (mut wide_p, mut wide_v) = (to_f64(&parameters), vec![0.0; parameters.len()]);
    let mut losses = Vec::new();
    for step in 0..steps {
        let labels: Vec<u8> = (0..rows).map(|_| random.below(10) as u8).collect();
        // Pixels depend on the label, so that the model can learn.
        let pixels: Vec<u8> = labels
            .iter()
            .flat_map(|label| (0..sizes[0] as u64).map(move |i| (i, *label)))
            .map(|(i, label)| if i % 10 == u64::from(label) { 200 } else { 0 } + random.below(56) as u8)
            .collect();
        let mut x = vec![0.0; pixels.len()];
        host::cast(&pixels, 1.0 / 255.0, &mut x);
        let wide_x: Vec<f64> = pixels.iter().map(|pixel| f64::from(*pixel) / 255.0).collect();

        let (outcome, gradient) = common::host_step(&sizes, &parameters, &x, &labels);
        host::sgd(&mut parameters, &mut velocity, &gradient, rule);
        let (loss, wide_g) = common::backward(&sizes, &wide_p, &wide_x, &labels);
        for ((p, v), g) in wide_p.iter_mut().zip(&mut wide_v).zip(wide_g) {
            *v = f64::from(rule.momentum) * *v + g;
            *p -= f64::from(rule.lr) * *v;
        }
        let off = (f64::from(outcome.loss) - loss).abs() / loss;
        assert!(off < 1e-4, "step {step}: loss {} for {loss}", outcome.loss);
        losses.push(loss);
    }
    assert!(losses[steps - 1] < 0.97 * losses[0], "the loss did not fall: {losses:?}");
    assert_near("parameters", &parameters, &wide_p, 1e-4);
}

#[test]
fn adamw_matches_its_formula() {
    // More than one chunk, and not a multiple of one.
    let n = 150_001;
    let mut random = Random::from_key(7);
    let rule = AdamW { lr: 0.01, decay: 0.1, ..AdamW::default() };
    let mut weights = numbers(&mut random, n);
    let (mut mean, mut square) = (vec![0.0; n], vec![0.0; n]);
    let mut want: Vec<(f64, f64, f64)> = to_f64(&weights).into_iter().map(|w| (w, 0.0, 0.0)).collect();
    for step in 1..=5 {
        let gradient = numbers(&mut random, n);
        host::adamw(&mut weights, &mut mean, &mut square, &gradient, rule, step);
        for ((w, m, s), g) in want.iter_mut().zip(to_f64(&gradient)) {
            *m = rule.beta1 * *m + (1.0 - rule.beta1) * g;
            *s = rule.beta2 * *s + (1.0 - rule.beta2) * g * g;
            let m_hat = *m / (1.0 - rule.beta1.powi(step as i32));
            let s_hat = *s / (1.0 - rule.beta2.powi(step as i32));
            *w -= f64::from(rule.lr)
                * (m_hat / (s_hat.sqrt() + f64::from(rule.eps)) + f64::from(rule.decay) * *w);
        }
    }
    assert_near("weights", &weights, &want.iter().map(|(w, ..)| *w).collect::<Vec<_>>(), 1e-6);
    assert_near("mean", &mean, &want.iter().map(|(_, m, _)| *m).collect::<Vec<_>>(), 1e-6);
    assert_near("square", &square, &want.iter().map(|(.., s)| *s).collect::<Vec<_>>(), 1e-6);
}

#[test]
fn sgd_updates_every_weight() {
    let n = 150_001;
    let mut random = Random::from_key(8);
    let (weights, velocity, gradient) =
        (numbers(&mut random, n), numbers(&mut random, n), numbers(&mut random, n));
    let (mut new_weights, mut new_velocity) = (weights.clone(), velocity.clone());
    host::sgd(&mut new_weights, &mut new_velocity, &gradient, Sgd { lr: 0.5, momentum: 0.25 });
    for i in 0..n {
        assert_eq!(new_velocity[i], 0.25 * velocity[i] + gradient[i], "velocity {i}");
        assert_eq!(new_weights[i], weights[i] - 0.5 * new_velocity[i], "weight {i}");
    }
}

/// Required speedup of a step over its products computed with scalar code. It is about 20 with vector
/// code and 4 without.
const SPEEDUP: u32 = 6;

/// The host must train the example's model on two cores while it decodes. The yardstick is scalar code on
/// the same machine.
#[test]
fn a_step_of_the_default_model_is_faster_than_scalar_products() {
    let sizes = [784, 512, 512, 10];
    let mut random = Random::from_key(9);
    let (x, labels) = (numbers(&mut random, 128 * 784), vec![3; 128]);
    let mut parameters = common::first_parameters(&sizes);
    let mut velocity = vec![0.0; parameters.len()];
    // The share of the first forward product. Backward has two products per layer, except one for the
    // first layer.
    let share = (784 * 512) as f64 / (2 * 784 * 512 + 3 * (512 * 512 + 512 * 10)) as f64;
    let (mut step, mut plain) = (Duration::MAX, Duration::MAX);
    // Noise only adds time: alternate and keep the best of each until the speedup is reached. Both need some
    // milliseconds without another thread on their cores.
    let other_work = OtherWork::watch();
    for _ in 0..30 {
        let start = Instant::now();
        let (_, gradient) = common::host_step(&sizes, &parameters, &x, &labels);
        host::sgd(&mut parameters, &mut velocity, &gradient, Sgd { lr: 0.05, momentum: 0.9 });
        step = step.min(start.elapsed());
        plain = plain.min(plain_product(&x, 128, &parameters[..784 * 512], 784, 512).div_f64(share));
        if step < plain / SPEEDUP {
            break;
        }
    }
    eprintln!(
        "784-512-512-10, batch 128: {step:.2?} per step, {plain:.2?} for its products with scalar code"
    );
    assert!(
        step < plain / SPEEDUP || other_work.not_run("a step beside scalar products"),
        "{step:?} per step, {plain:?} for its products with scalar code"
    );
}

/// Times the product of `rows` rows and a matrix with scalar code.
fn plain_product(x: &[f32], rows: usize, weights: &[f32], inputs: usize, outputs: usize) -> Duration {
    let start = Instant::now();
    let mut sum = 0.0;
    for row in x[..rows * inputs].chunks_exact(inputs) {
        for column in weights[..inputs * outputs].chunks_exact(inputs) {
            // The compiler must keep this order of additions, so it cannot vectorise the sum.
            sum += row.iter().zip(column).map(|(x, w)| x * w).sum::<f32>();
        }
    }
    std::hint::black_box(sum);
    start.elapsed()
}
