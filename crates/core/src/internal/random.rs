//! Random numbers as a loader keys them.

use crate::Random;

/// The stream of draw `draw` of `epoch` under `seed`.
pub fn for_draw(seed: u64, epoch: u64, draw: u64) -> Random {
    Random::for_draw(seed, epoch, draw)
}
