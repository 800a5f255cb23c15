//! Optimizers: one call updates all parameters of a model in one flat buffer.

use feedline_core::Result;
#[cfg(feature = "cuda")]
use feedline_device::cuda::{Arg, Grid};
use feedline_device::{View, ViewMut, launch_host};

#[cfg(feature = "cuda")]
use super::gpu::BLOCKS;
use super::{Kernels, check};
use crate::host::{self, AdamW, Sgd};

impl Kernels {
    /// Momentum SGD: `v = momentum * v + g`, then `w -= lr * v`.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn sgd(
        &self,
        weights: ViewMut<'_, f32>,
        velocity: ViewMut<'_, f32>,
        gradient: View<'_, f32>,
        rule: Sgd,
    ) -> Result<()> {
        let len = gradient.len();
        check(weights.len() == len && velocity.len() == len, || {
            format!("sgd: {} weights, {} velocities, {len} gradients", weights.len(), velocity.len())
        })?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            return gpu.run(
                "sgd",
                Grid::linear(len.div_ceil(4), 256, BLOCKS),
                &[
                    Arg::Out(weights.into()),
                    Arg::Out(velocity.into()),
                    Arg::In(gradient.into()),
                    Arg::U64(len as u64),
                    Arg::F32(rule.lr),
                    Arg::F32(rule.momentum),
                ],
            );
        }
        launch_host(
            &self.stream,
            "sgd",
            [gradient.into()],
            [weights.into(), velocity.into()],
            move |memory| {
                host::sgd(memory.output(0), memory.output(1), memory.input(0), rule);
            },
        )
    }

    /// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"). `steps[0]` is the
    /// number of previous steps and is incremented; it is in device memory, so that replays of a recorded
    /// step count too.
    ///
    /// # Errors
    /// `Config` for mismatched lengths; a device failure.
    pub fn adamw(
        &self,
        weights: ViewMut<'_, f32>,
        mean: ViewMut<'_, f32>,
        square: ViewMut<'_, f32>,
        gradient: View<'_, f32>,
        rule: AdamW,
        steps: ViewMut<'_, u32>,
    ) -> Result<()> {
        let len = gradient.len();
        let fits = weights.len() == len && mean.len() == len && square.len() == len && steps.len() == 1;
        check(fits, || {
            let lengths = [weights.len(), mean.len(), square.len(), len, steps.len()];
            format!("adamw: weights, mean, square, gradient and steps have lengths {lengths:?}")
        })?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            let mut steps = steps;
            gpu.run(
                "adamw",
                Grid::linear(len, 256, BLOCKS),
                &[
                    Arg::Out(weights.into()),
                    Arg::Out(mean.into()),
                    Arg::Out(square.into()),
                    Arg::In(gradient.into()),
                    Arg::U64(len as u64),
                    Arg::F32(rule.lr),
                    Arg::F32(rule.beta1 as f32),
                    Arg::F32((1.0 - rule.beta1) as f32),
                    Arg::F32(rule.beta1.ln() as f32),
                    Arg::F32(rule.beta2 as f32),
                    Arg::F32((1.0 - rule.beta2) as f32),
                    Arg::F32(rule.beta2.ln() as f32),
                    Arg::F32(rule.eps),
                    Arg::F32(rule.decay),
                    Arg::U32(1),
                    Arg::In(steps.as_view().into()),
                ],
            )?;
            let one = Grid { blocks: (1, 1, 1), threads: (32, 1, 1), shared_bytes: 0 };
            return gpu.run("adamw_tick", one, &[Arg::Out(steps.reborrow().into())]);
        }
        let outputs = [weights.into(), mean.into(), square.into(), steps.into()];
        launch_host(&self.stream, "adamw", [gradient.into()], outputs, move |memory| {
            let (weights, mean, square) = (memory.output(0), memory.output(1), memory.output(2));
            let steps = memory.output::<u32>(3);
            steps[0] += 1;
            host::adamw(weights, mean, square, memory.input(0), rule, steps[0]);
        })
    }
}
