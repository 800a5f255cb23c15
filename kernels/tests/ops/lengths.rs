//! Arguments of the wrong length: every operator refuses them and names the argument.

use feedline_core::ErrorKind;
use feedline_device::{Buffer, View, ViewMut};
use feedline_kernels::ops::{ClassifierGradients, Linear};

use super::{Case, each};

/// Four distinct sizes, so that a message with the lengths of another argument is found.
const SHAPE: Linear = Linear { rows: 2, inputs: 3, outputs: 5 };

/// Buffers of an operator, one longer than `lengths` at position `wrong`.
struct Arguments {
    buffers: Vec<Buffer<f32>>,
}

impl Arguments {
    fn new<const N: usize>(case: &Case, lengths: [usize; N], wrong: usize) -> Self {
        let length = |(i, length)| length + usize::from(i == wrong);
        let buffers = lengths.into_iter().enumerate().map(length).map(|length| case.unwritten(length));
        Self { buffers: buffers.collect::<Result<_, _>>().expect("memory") }
    }

    fn views<const N: usize>(&mut self) -> [ViewMut<'_, f32>; N] {
        let views: Vec<_> = self.buffers.iter_mut().map(Buffer::view_mut).collect();
        views.try_into().unwrap_or_else(|_| panic!("{N} buffers"))
    }
}

fn read<'a>(view: &'a ViewMut<'_, f32>) -> View<'a, f32> {
    view.as_view()
}

/// Asserts that `error` names the operator, the argument, its length and the length that it needs.
fn names(error: feedline_core::Result<()>, operator: &str, argument: &str, length: usize) {
    let error = error.expect_err(operator);
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let line = error.to_string();
    let given = format!("{operator}: `{argument}` has {} elements", length + 1);
    assert!(line.contains(&given) && line.contains(&format!(" requires {length}")), "{line}");
}

#[test]
fn an_error_names_the_argument_its_length_and_the_length_that_it_needs() {
    each("arguments of the wrong length", |case| {
        let kernels = &case.kernels;
        let Linear { rows, inputs, outputs } = SHAPE;
        let (x, w, y) = (rows * inputs, outputs * inputs, rows * outputs);
        for (wrong, name) in ["x", "weights", "bias", "y"].into_iter().enumerate() {
            let lengths = [x, w, outputs, y];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [x, w, b, y] = arguments.views();
            names(
                kernels.linear(read(&x), read(&w), read(&b), true, y, SHAPE),
                "linear",
                name,
                lengths[wrong],
            );
        }
        for (wrong, name) in ["dy", "x", "dweights"].into_iter().enumerate() {
            let lengths = [y, x, w];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [dy, x, mut dw] = arguments.views();
            let error = kernels.weight_gradient(read(&dy), read(&x), dw.reborrow(), SHAPE);
            names(error, "weight_gradient", name, lengths[wrong]);
            let error = kernels.weight_gradient_transposed(read(&dy), read(&x), dw, SHAPE);
            names(error, "weight_gradient_transposed", name, lengths[wrong]);
        }
        for (wrong, name) in ["dy", "weights", "dx"].into_iter().enumerate() {
            let lengths = [y, w, x];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [dy, w, dx] = arguments.views();
            let error = kernels.input_gradient(read(&dy), read(&w), dx, SHAPE);
            names(error, "input_gradient", name, lengths[wrong]);
        }
        for (wrong, name) in ["dy", "dbias", "activation"].into_iter().enumerate().take(2) {
            let lengths = [y, outputs, y];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [dy, dbias, _] = arguments.views();
            names(
                kernels.relu_bias_backward(dy, None, dbias, SHAPE),
                "relu_bias_backward",
                name,
                lengths[wrong],
            );
        }
        for (wrong, name) in ["dy", "activation", "transposed", "dbias"].into_iter().enumerate() {
            let lengths = [y, y, y, outputs];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [dy, activation, to, dbias] = arguments.views();
            let error = kernels.relu_bias_backward_transposed(read(&dy), read(&activation), to, dbias, SHAPE);
            names(error, "relu_bias_backward_transposed", name, lengths[wrong]);
        }
        let mut arguments = Arguments::new(case, [y, y, outputs], 1);
        let [dy, activation, dbias] = arguments.views();
        let error = kernels.relu_bias_backward(dy, Some(read(&activation)), dbias, SHAPE);
        names(error, "relu_bias_backward", "activation", y);
        Ok(())
    });
}

#[test]
fn an_error_of_a_loss_names_the_argument() {
    each("arguments of a loss of the wrong length", |case| {
        let kernels = &case.kernels;
        let Linear { rows, inputs, outputs: classes } = SHAPE;
        let labels = case.buffer(&vec![0u8; rows])?;
        let (x, w, y) = (rows * inputs, classes * inputs, rows * classes);
        for (wrong, name) in ["logits", "row_loss", "result"].into_iter().enumerate() {
            let lengths = [y, rows, 2];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [logits, row_loss, _] = arguments.views();
            let mut result = case.buffer(&vec![0u32; 2 + usize::from(wrong == 2)])?;
            let error = kernels.softmax_xent(logits, labels.view(), row_loss, result.view_mut(), classes);
            names(error, "softmax_xent", name, lengths[wrong]);
        }
        let mut arguments = Arguments::new(case, [y], 0);
        let [logits] = arguments.views();
        let mut hits = case.buffer(&[0u32])?;
        let error = kernels.argmax_hits(read(&logits), labels.view(), hits.view_mut(), classes);
        names(error, "argmax_hits", "logits", y);
        let all = [
            "x",
            "weights",
            "bias",
            "dlogits",
            "row_loss",
            "gradients.x",
            "gradients.weights",
            "gradients.bias",
            "gradients.bias_before",
        ];
        for (wrong, name) in all.into_iter().enumerate() {
            let lengths = [x, w, classes, y, rows, x, w, classes, inputs];
            let mut arguments = Arguments::new(case, lengths, wrong);
            let [x, w, b, mut dlogits, mut row_loss, dx, dw, db, before] = arguments.views();
            let mut result = case.buffer(&[0u32; 2])?;
            if wrong < 5 {
                let (dlogits, row_loss) = (dlogits.reborrow(), row_loss.reborrow());
                let labels = labels.view();
                let (x, w, b) = (read(&x), read(&w), read(&b));
                let error = kernels.classifier(x, w, b, labels, dlogits, row_loss, result.view_mut(), SHAPE);
                names(error, "classifier", name, lengths[wrong]);
            }
            let gradients = ClassifierGradients { x: dx, weights: dw, bias: db, bias_before: before };
            let (labels, result) = (labels.view(), result.view_mut());
            let (x, w, b) = (read(&x), read(&w), read(&b));
            let error = kernels.classifier_fused(
                x,
                w,
                b,
                labels,
                dlogits,
                row_loss,
                result,
                gradients,
                SHAPE,
                |_| Ok(()),
            );
            names(error, "classifier_fused", name, lengths[wrong]);
        }
        Ok(())
    });
}

#[test]
fn mismatched_lengths_are_rejected() {
    each("lengths", |case| {
        let (a, mut b) = (case.buffer(&[0u8; 3])?, case.unwritten(4)?);
        let error = case.kernels.cast(a.view(), 1.0, b.view_mut()).expect_err("3 bytes into 4 numbers");
        assert_eq!(error.kind(), ErrorKind::Config);
        let shape = Linear { rows: 2, inputs: 2, outputs: 2 };
        let (x, mut y) = (case.unwritten(4)?, case.unwritten(5)?);
        let error =
            case.kernels.weight_gradient(x.view(), x.view(), y.view_mut(), shape).expect_err("a dW of 5");
        assert!(error.to_string().contains("weight_gradient"), "{error}");
        let (mut six, mut others) = (case.unwritten(6)?, case.unwritten(6)?);
        let bytes = case.buffer(&[0u8; 6])?;
        for columns in [0, 4, 12] {
            let (dst, transposed) = (six.view_mut(), others.view_mut());
            let error = case.kernels.cast_with_transpose(bytes.view(), 1.0, columns, dst, transposed);
            assert!(error.is_err(), "six in rows of {columns}");
        }
        let (dy, mut to) = (case.unwritten(4)?, case.unwritten(5)?);
        let mut sums = case.unwritten(2)?;
        let (to, sums) = (to.view_mut(), sums.view_mut());
        case.kernels
            .relu_bias_backward_transposed(dy.view(), x.view(), to, sums, shape)
            .expect_err("four gradients into five");
        let error = case.kernels.weight_gradient_transposed(x.view(), x.view(), y.view_mut(), shape);
        error.expect_err("a dW of 5");
        Ok(())
    });
}

#[test]
fn sizes_that_match_by_overflow_are_rejected() {
    each("sizes that overflow", |case| {
        // (2^63 + 1) * 2 overflows to 2 elements.
        let shape = Linear { rows: (1 << 63) + 1, inputs: 2, outputs: 2 };
        let (two, mut also_two) = (case.unwritten(2)?, case.unwritten(2)?);
        let (four, mut also_four) = (case.unwritten(4)?, case.unwritten(4)?);
        let (mut sums, mut others) = (case.unwritten(2)?, case.unwritten(2)?);
        let (labels, mut result) = (case.buffer(&[0u8; 2])?, case.buffer(&[0u32; 2])?);
        let kernels = &case.kernels;
        let (x, w) = (two.view(), four.view());
        // 2 * (2^63 + 1) overflows as well.
        let classes = shape.rows;
        let refused = [
            ("linear", kernels.linear(x, w, x, false, also_two.view_mut(), shape)),
            ("weight_gradient", kernels.weight_gradient(x, x, also_four.view_mut(), shape)),
            ("input_gradient", kernels.input_gradient(x, w, also_two.view_mut(), shape)),
            (
                "relu_bias_backward",
                kernels.relu_bias_backward(also_two.view_mut(), None, sums.view_mut(), shape),
            ),
            (
                "relu_bias_backward_transposed",
                kernels.relu_bias_backward_transposed(x, x, also_two.view_mut(), sums.view_mut(), shape),
            ),
            (
                "softmax_xent",
                kernels.softmax_xent(
                    also_two.view_mut(),
                    labels.view(),
                    others.view_mut(),
                    result.view_mut(),
                    classes,
                ),
            ),
            ("argmax_hits", kernels.argmax_hits(x, labels.view(), result.slice_mut(0..1)?, classes)),
        ];
        for (what, given) in refused {
            let error = given.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Config, "{what}: {error}");
        }
        Ok(())
    });
}
