//! The three products of a linear layer: by cuBLASLt, by the kernels of `cu/gemm.cu` where cuBLASLt is
//! missing or has no algorithm, and on the host by the `matrixmultiply` crate.

#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "calls cuBLASLt")]
mod cublaslt;
#[cfg(feature = "cuda")]
mod gpu;
#[allow(unsafe_code, reason = "calls matrixmultiply, which takes raw addresses")]
pub(crate) mod host;

#[cfg(feature = "cuda")]
pub(crate) use gpu::Gemm;

/// The sizes of a linear layer: `[rows, inputs]` times `[outputs, inputs]` transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Rows of the batch.
    pub rows: usize,
    /// Input elements per row.
    pub inputs: usize,
    /// Output elements per row.
    pub outputs: usize,
}

/// A product of a linear layer with `x` `[rows, inputs]`, `W` `[outputs, inputs]` and `y` `[rows, outputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Product {
    /// `y = x Wᵀ + bias`, and `max(y, 0)` with `relu`.
    Forward {
        /// Whether to apply a ReLU.
        relu: bool,
    },
    /// `dW = dyᵀ x`.
    WeightGradient,
    /// `dW = dyᵀ x` from the transposed operands `dyᵀ` `[outputs, rows]` and `xᵀ` `[inputs, rows]`.
    WeightGradientTransposed,
    /// `dx = dy W`.
    InputGradient,
}
