//! Each operator on a device against the same operator over slices, on shapes that are not multiples of a
//! tile.
//!
//! On the host this checks that the operators pass their arguments correctly; on a GPU it checks every
//! kernel, with cuBLASLt and with this crate's own matrix products.

#[path = "../common/mod.rs"]
mod common;
mod lengths;

use common::transpose;
use feedline_core::{Random, Result};
use feedline_device::{BackendKind, Buffer, Device, Stream};
use feedline_kernels::host::{self, pattern};
use feedline_kernels::ops::{AdamW, ClassifierGradients, KernelOptions, Kernels, Linear, Sgd};

const SHAPES: [Linear; 6] = [
    Linear { rows: 1, inputs: 1, outputs: 1 },
    Linear { rows: 5, inputs: 3, outputs: 7 },
    Linear { rows: 33, inputs: 65, outputs: 31 },
    Linear { rows: 128, inputs: 784, outputs: 512 },
    Linear { rows: 130, inputs: 257, outputs: 10 },
    Linear { rows: 1000, inputs: 100, outputs: 300 },
];

struct Case {
    stream: Stream,
    kernels: Kernels,
    random: Random,
    name: String,
}

/// The options tested on a GPU: cuBLASLt, unfused, tuned, and this crate's own products.
const PRODUCTS: [KernelOptions; 4] = [
    KernelOptions { own_gemm: false, tf32: false, tuned: false, unfused: false, transposed: false },
    KernelOptions { own_gemm: false, tf32: false, tuned: false, unfused: true, transposed: false },
    KernelOptions { own_gemm: false, tf32: false, tuned: true, unfused: false, transposed: false },
    KernelOptions { own_gemm: true, tf32: false, tuned: false, unfused: false, transposed: false },
];

/// Runs `case` on the host, and on a GPU with each of the options.
fn each(test: &str, case: impl Fn(&mut Case) -> Result<()>) {
    for device in [Device::new_host()].into_iter().chain(feedline_testkit::gpu(test)) {
        for options in PRODUCTS {
            if options != KernelOptions::default() && device.kind() != BackendKind::Cuda {
                continue;
            }
            let stream = device.stream().expect("a stream");
            let kernels = Kernels::with(&stream, options).expect("kernels");
            let name = format!("{test} on {device:?}, {}", kernels.describe());
            let mut one = Case { stream, kernels, random: Random::from_key(1), name };
            if let Err(error) = case(&mut one) {
                panic!("{}: {error}", one.name);
            }
        }
    }
}

impl Case {
    fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.random.range(-1.0, 1.0) as f32).collect()
    }

    fn labels(&mut self, len: usize, classes: usize) -> Vec<u8> {
        (0..len).map(|_| self.random.below(classes as u64) as u8).collect()
    }

    fn buffer<T: feedline_core::Element>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = Buffer::new(&self.stream, values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }

    /// A buffer of NaN, so that elements that are not written show.
    fn unwritten(&self, len: usize) -> Result<Buffer<f32>> {
        self.buffer(&vec![f32::NAN; len])
    }

    fn close(&self, what: &str, got: &[f32], wanted: &[f32]) {
        assert_eq!(got.len(), wanted.len());
        let norm = wanted.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let off =
            got.iter().zip(wanted).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt();
        assert!(off <= 1e-5 * norm + 1e-7, "{}: {what} is off by {off:e} of {norm:e}", self.name);
    }
}

#[test]
fn cast_matches_the_host() {
    each("cast", |case| {
        for len in [1, 2, 3, 4, 5, 17, 784 * 128, 100_003] {
            let bytes: Vec<u8> = (0..len).map(|_| case.random.next_u64() as u8).collect();
            let (src, mut dst) = (case.buffer(&bytes)?, case.unwritten(len)?);
            case.kernels.cast(src.view(), 1.0 / 255.0, dst.view_mut())?;
            let wanted: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) * (1.0 / 255.0)).collect();
            assert_eq!(dst.read()?, wanted, "{}: {len} bytes", case.name);
        }
        Ok(())
    });
}

#[test]
fn linear_layers_match_the_host() {
    each("linear", |case| {
        for shape in SHAPES {
            let Linear { rows, inputs, outputs } = shape;
            let (x, w) = (case.floats(rows * inputs), case.floats(outputs * inputs));
            let (b, dy) = (case.floats(outputs), case.floats(rows * outputs));
            let (xd, wd, bd, dyd) = (case.buffer(&x)?, case.buffer(&w)?, case.buffer(&b)?, case.buffer(&dy)?);
            for relu in [false, true] {
                let (mut y, mut wanted) = (case.unwritten(rows * outputs)?, vec![0.0; rows * outputs]);
                case.kernels.linear(xd.view(), wd.view(), bd.view(), relu, y.view_mut(), shape)?;
                host::linear(&x, &w, &b, relu, &mut wanted);
                case.close(&format!("y of {shape:?}, relu {relu}"), &y.read()?, &wanted);
            }
            let (mut dw, mut wanted) = (case.unwritten(outputs * inputs)?, vec![0.0; outputs * inputs]);
            case.kernels.weight_gradient(dyd.view(), xd.view(), dw.view_mut(), shape)?;
            host::weight_gradient(&dy, &x, outputs, &mut wanted);
            case.close(&format!("dW of {shape:?}"), &dw.read()?, &wanted);
            let (mut dx, mut wanted) = (case.unwritten(rows * inputs)?, vec![0.0; rows * inputs]);
            case.kernels.input_gradient(dyd.view(), wd.view(), dx.view_mut(), shape)?;
            host::input_gradient(&dy, &w, outputs, &mut wanted);
            case.close(&format!("dx of {shape:?}"), &dx.read()?, &wanted);
        }
        Ok(())
    });
}

/// Sizes on both sides of a tile's edge, and large batches.
const TRANSPOSED_SHAPES: [Linear; 8] = [
    Linear { rows: 1, inputs: 1, outputs: 1 },
    Linear { rows: 3, inputs: 63, outputs: 65 },
    Linear { rows: 127, inputs: 64, outputs: 130 },
    Linear { rows: 129, inputs: 65, outputs: 64 },
    Linear { rows: 200, inputs: 130, outputs: 63 },
    Linear { rows: 128, inputs: 784, outputs: 512 },
    Linear { rows: 4096, inputs: 784, outputs: 512 },
    Linear { rows: 5003, inputs: 66, outputs: 70 },
];

#[test]
fn cast_with_transpose_matches_the_host() {
    each("cast_with_transpose", |case| {
        for Linear { rows, inputs, .. } in TRANSPOSED_SHAPES {
            let bytes: Vec<u8> = (0..rows * inputs).map(|_| case.random.next_u64() as u8).collect();
            let src = case.buffer(&bytes)?;
            let (mut dst, mut transposed) = (case.unwritten(rows * inputs)?, case.unwritten(rows * inputs)?);
            let (to, other) = (dst.view_mut(), transposed.view_mut());
            case.kernels.cast_with_transpose(src.view(), 1.0 / 255.0, inputs, to, other)?;
            let wanted: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) * (1.0 / 255.0)).collect();
            assert!(dst.read()? == wanted, "{}: {rows} rows of {inputs}", case.name);
            let wanted = transpose(&wanted, inputs);
            assert!(transposed.read()? == wanted, "{}: {rows} rows of {inputs}, transposed", case.name);
        }
        Ok(())
    });
}

/// Each shape runs twice, so that scratch left over from the first run shows.
#[test]
fn transposed_masked_gradients_match_the_host() {
    each("relu_bias_backward_transposed", |case| {
        for shape in TRANSPOSED_SHAPES.iter().flat_map(|shape| [*shape; 2]) {
            let len = shape.rows * shape.outputs;
            let (dy, activation) = (case.floats(len), case.floats(len));
            let (dyd, activation_d) = (case.buffer(&dy)?, case.buffer(&activation)?);
            let (mut to, mut dbias) = (case.unwritten(len)?, case.unwritten(shape.outputs)?);
            case.kernels.relu_bias_backward_transposed(
                dyd.view(),
                activation_d.view(),
                to.view_mut(),
                dbias.view_mut(),
                shape,
            )?;
            let (mut wanted, mut sums) = (dy.clone(), vec![0.0; shape.outputs]);
            host::relu_bias_backward(&mut wanted, Some(&activation[..]), &mut sums);
            assert!(to.read()? == transpose(&wanted, shape.outputs), "{}: dy of {shape:?}", case.name);
            assert!(dyd.read()? == dy, "{}: dy of {shape:?} was written", case.name);
            case.close(&format!("dbias of {shape:?}"), &dbias.read()?, &sums);
        }
        Ok(())
    });
}

#[test]
fn weight_gradients_from_transposed_operands_match_the_host() {
    each("weight_gradient_transposed", |case| {
        for shape in TRANSPOSED_SHAPES {
            let Linear { rows, inputs, outputs } = shape;
            let (dy, x) = (case.floats(rows * outputs), case.floats(rows * inputs));
            let (dyd, xd) = (case.buffer(&transpose(&dy, outputs))?, case.buffer(&transpose(&x, inputs))?);
            let (mut dw, mut wanted) = (case.unwritten(outputs * inputs)?, vec![0.0; outputs * inputs]);
            case.kernels.weight_gradient_transposed(dyd.view(), xd.view(), dw.view_mut(), shape)?;
            host::weight_gradient(&dy, &x, outputs, &mut wanted);
            case.close(&format!("dW of {shape:?}"), &dw.read()?, &wanted);
        }
        Ok(())
    });
}

/// The last layer and its loss, forward and backward. Each shape runs twice, so that scratch left over
/// from the first run shows.
#[test]
fn classifiers_match_the_host() {
    each("classifier", |case| {
        for (rows, inputs, classes) in [
            (1, 1, 2),
            (7, 33, 10),
            (128, 512, 10),
            (1000, 70, 16),
            (2000, 516, 10),
            // More rows than a block processes at a time.
            (4500, 50, 12),
            (333, 64, 31),
            (65, 12, 40),
        ] {
            let shape = Linear { rows, inputs, outputs: classes };
            for run in 0..2 {
                let what = format!("{shape:?}, run {run}");
                let x: Vec<f32> = case.floats(rows * inputs).iter().map(|x| x.max(0.0)).collect();
                let (w, b) = (case.floats(classes * inputs), case.floats(classes));
                let labels = case.labels(rows, classes);
                let (xd, wd, bd, ld) =
                    (case.buffer(&x)?, case.buffer(&w)?, case.buffer(&b)?, case.buffer(&labels)?);
                let (mut dz, mut row_loss) = (case.unwritten(rows * classes)?, case.unwritten(rows)?);
                let mut result = case.buffer(&[0u32, 0])?;
                case.kernels.classifier(
                    xd.view(),
                    wd.view(),
                    bd.view(),
                    ld.view(),
                    dz.view_mut(),
                    row_loss.view_mut(),
                    result.view_mut(),
                    shape,
                )?;
                let (mut wanted, mut losses) = (vec![0.0; rows * classes], vec![0.0; rows]);
                host::linear(&x, &w, &b, false, &mut wanted);
                let outcome = host::softmax_xent(&mut wanted, &labels, &mut losses);
                case.close(&format!("dlogits of {what}"), &dz.read()?, &wanted);
                case.close(&format!("row losses of {what}"), &row_loss.read()?, &losses);
                let result = result.read()?;
                case.close(&format!("mean loss of {what}"), &[f32::from_bits(result[0])], &[outcome.loss]);
                assert_eq!(result[1], outcome.hits, "{}: hits of {what}", case.name);

                let dlogits = dz.read()?;
                let separate_result = result;
                let (mut dx, mut dw) = (case.unwritten(rows * inputs)?, case.unwritten(classes * inputs)?);
                let (mut db, mut before) = (case.unwritten(classes)?, case.unwritten(inputs)?);
                let gradients = ClassifierGradients {
                    x: dx.view_mut(),
                    weights: dw.view_mut(),
                    bias: db.view_mut(),
                    bias_before: before.view_mut(),
                };
                case.kernels.classifier_backward(xd.view(), wd.view(), dz.view_mut(), gradients, shape)?;
                let (mut wanted, mut sums) = (vec![0.0; rows * inputs], vec![0.0; inputs]);
                host::input_gradient(&dlogits, &w, classes, &mut wanted);
                host::relu_bias_backward(&mut wanted, Some(&x), &mut sums);
                case.close(&format!("dx of {what}"), &dx.read()?, &wanted);
                case.close(&format!("previous bias gradient of {what}"), &before.read()?, &sums);
                let (mut wanted, mut sums) = (vec![0.0; classes * inputs], vec![0.0; classes]);
                host::weight_gradient(&dlogits, &x, classes, &mut wanted);
                host::relu_bias_backward(&mut dlogits.clone(), None, &mut sums);
                case.close(&format!("dW of {what}"), &dw.read()?, &wanted);
                case.close(&format!("bias gradient of {what}"), &db.read()?, &sums);

                // The fused operator gives the same results.
                let separate = [dx.read()?, dw.read()?, db.read()?, before.read()?];
                let (mut dx, mut dw) = (case.unwritten(rows * inputs)?, case.unwritten(classes * inputs)?);
                let (mut db, mut before) = (case.unwritten(classes)?, case.unwritten(inputs)?);
                let (mut result, mut given) = (case.buffer(&[0u32, 0])?, 0);
                let gradients = ClassifierGradients {
                    x: dx.view_mut(),
                    weights: dw.view_mut(),
                    bias: db.view_mut(),
                    bias_before: before.view_mut(),
                };
                case.kernels.classifier_fused(
                    xd.view(),
                    wd.view(),
                    bd.view(),
                    ld.view(),
                    dz.view_mut(),
                    row_loss.view_mut(),
                    result.view_mut(),
                    gradients,
                    shape,
                    |from| {
                        given = from.len();
                        Ok(())
                    },
                )?;
                assert_eq!(given, rows * inputs, "{}: length passed to `then`, of {what}", case.name);
                let fused = [dx.read()?, dw.read()?, db.read()?, before.read()?];
                for (name, (fused, separate)) in ["dx", "dW", "bias gradient", "previous bias gradient"]
                    .iter()
                    .zip(fused.iter().zip(&separate))
                {
                    case.close(&format!("{name} of {what}, fused"), fused, separate);
                }
                let (result, loss) = (result.read()?, |bits| [f32::from_bits(bits)]);
                case.close(&format!("loss of {what}, fused"), &loss(result[0]), &loss(separate_result[0]));
                assert_eq!(result[1], separate_result[1], "{}: hits of {what}, fused", case.name);
                assert_eq!(dz.read()?, dlogits, "{}: dlogits of {what}", case.name);
            }
        }
        Ok(())
    });
}

#[test]
fn bias_gradients_match_the_host_with_and_without_a_relu() {
    each("relu_bias_backward", |case| {
        for shape in SHAPES {
            let len = shape.rows * shape.outputs;
            let (dy, activation) = (case.floats(len), case.floats(len));
            let activation_d = case.buffer(&activation)?;
            for with_relu in [false, true] {
                let (mut dyd, mut dbias) = (case.buffer(&dy)?, case.unwritten(shape.outputs)?);
                let view = with_relu.then(|| activation_d.view());
                case.kernels.relu_bias_backward(dyd.view_mut(), view, dbias.view_mut(), shape)?;
                let (mut wanted, mut sums) = (dy.clone(), vec![0.0; shape.outputs]);
                host::relu_bias_backward(&mut wanted, with_relu.then_some(&activation[..]), &mut sums);
                assert_eq!(dyd.read()?, wanted, "{}: dy of {shape:?}", case.name);
                case.close(&format!("dbias of {shape:?}, relu {with_relu}"), &dbias.read()?, &sums);
            }
        }
        Ok(())
    });
}

#[test]
fn losses_and_hits_match_the_host() {
    each("softmax_xent", |case| {
        for (rows, classes) in [(1, 2), (7, 10), (128, 10), (1000, 33), (5, 256)] {
            let (logits, labels) = (case.floats(rows * classes), case.labels(rows, classes));
            let (mut logits_d, labels_d) = (case.buffer(&logits)?, case.buffer(&labels)?);
            let mut hits_d = case.buffer(&[5u32])?;
            case.kernels.argmax_hits(logits_d.view(), labels_d.view(), hits_d.view_mut(), classes)?;
            let (mut row_loss, mut result) = (case.unwritten(rows)?, case.buffer(&[0u32, 0])?);
            let (logits_view, labels_view) = (logits_d.view_mut(), labels_d.view());
            case.kernels.softmax_xent(
                logits_view,
                labels_view,
                row_loss.view_mut(),
                result.view_mut(),
                classes,
            )?;
            let (mut gradient, mut losses) = (logits.clone(), vec![0.0; rows]);
            let wanted = host::softmax_xent(&mut gradient, &labels, &mut losses);
            let what = format!("{rows} rows of {classes}");
            case.close(&format!("dlogits of {what}"), &logits_d.read()?, &gradient);
            case.close(&format!("row losses of {what}"), &row_loss.read()?, &losses);
            let result = result.read()?;
            case.close(&format!("mean loss of {what}"), &[f32::from_bits(result[0])], &[wanted.loss]);
            let hits = (result[1], hits_d.read()?[0]);
            assert_eq!(hits, (wanted.hits, wanted.hits + 5), "{}: hits of {what}", case.name);
        }
        Ok(())
    });
}

#[test]
fn updates_match_the_host() {
    each("updates", |case| {
        for len in [1, 3, 64, 1001, 669_706] {
            let (w, v, g) = (case.floats(len), case.floats(len), case.floats(len));
            let square: Vec<f32> = case.floats(len).iter().map(|x| x.abs()).collect();
            let gradient = case.buffer(&g)?;

            let rule = Sgd { lr: 0.05, momentum: 0.9 };
            let (mut wd, mut vd) = (case.buffer(&w)?, case.buffer(&v)?);
            case.kernels.sgd(wd.view_mut(), vd.view_mut(), gradient.view(), rule)?;
            let (mut w2, mut v2) = (w.clone(), v.clone());
            host::sgd(&mut w2, &mut v2, &g, rule);
            case.close("weights of sgd", &wd.read()?, &w2);
            case.close("velocity of sgd", &vd.read()?, &v2);

            let rule = AdamW::default();
            for step in [1u32, 2, 1000] {
                let (mut wd, mut md, mut sd) = (case.buffer(&w)?, case.buffer(&v)?, case.buffer(&square)?);
                let mut steps = case.buffer(&[step - 1])?;
                case.kernels.adamw(
                    wd.view_mut(),
                    md.view_mut(),
                    sd.view_mut(),
                    gradient.view(),
                    rule,
                    steps.view_mut(),
                )?;
                assert_eq!(steps.read()?, [step], "{}: steps of adamw", case.name);
                let (mut w2, mut m2, mut s2) = (w.clone(), v.clone(), square.clone());
                host::adamw(&mut w2, &mut m2, &mut s2, &g, rule, step);
                case.close("weights of adamw", &wd.read()?, &w2);
                case.close("mean of adamw", &md.read()?, &m2);
                case.close("square of adamw", &sd.read()?, &s2);
            }
            let mut filled = case.unwritten(len)?;
            case.kernels.fill(filled.view_mut(), 2.5)?;
            assert!(filled.read()?.iter().all(|x| *x == 2.5), "{}: fill of {len}", case.name);
        }
        Ok(())
    });
}

#[test]
fn pattern_check_counts_and_locates_wrong_bytes() {
    each("pattern_check", |case| {
        let (rows, row_bytes, key) = (37, 1003, 99);
        let mut bytes = vec![0; rows * row_bytes];
        pattern::fill(&mut bytes, row_bytes, key, |row| 5 + row);
        for wrong in [&[][..], &[0], &[rows * row_bytes - 1], &[1004, 9000, 9001]] {
            let mut torn = bytes.clone();
            wrong.iter().for_each(|&at| torn[at] ^= 0x40);
            let (data, mut report) = (case.buffer(&torn)?, case.buffer(&[0i64, -1, 0])?);
            case.kernels.pattern_check(data.view(), row_bytes, key, 5, report.view_mut())?;
            let first = wrong.first().map_or(-1, |&at| at as i64);
            assert_eq!(report.read()?, [wrong.len() as i64, first, bytes.len() as i64], "{}", case.name);
        }
        Ok(())
    });
}
