//! The log of the tuner's moves, for users, and the builder line that reproduces the result.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A setting of the two knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Decode threads that take work.
    pub workers: usize,
    /// Batches on the device at a time.
    pub depth: usize,
}

/// One move of a knob. Rates are in batches per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The setting before.
    pub from: Setting,
    /// The setting that was tried.
    pub to: Setting,
    /// The rate before.
    pub before: f64,
    /// The rate that the measured service times predicted.
    pub predicted: f64,
    /// The rate that was measured.
    pub obtained: f64,
    /// Whether the setting stayed.
    pub is_kept: bool,
}

/// The tuning of a loader with [`Workers::Auto`](crate::Workers::Auto) or
/// [`Depth::Auto`](crate::Depth::Auto). Displays as its moves and the builder line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// The present setting.
    pub setting: Setting,
    /// Whether no more moves follow.
    pub is_settled: bool,
    /// The moves so far.
    pub moves: Vec<Move>,
}

impl Tuning {
    /// The calls of the builder that give this setting without tuning.
    ///
    /// ```
    /// use feedline::report::{Setting, Tuning};
    /// let tuning = Tuning { setting: Setting { workers: 4, depth: 8 }, ..Tuning::default() };
    /// assert_eq!(tuning.builder_line(), ".workers(Workers::Count(4)).depth(8)");
    /// ```
    pub fn builder_line(&self) -> String {
        let Setting { workers, depth } = self.setting;
        format!(".workers(Workers::Count({workers})).depth({depth})")
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, before, predicted, obtained, is_kept } = self;
        let (knob, old, new) = match from.workers == to.workers {
            true => ("depth", from.depth, to.depth),
            false => ("workers", from.workers, to.workers),
        };
        let kept = if *is_kept { "kept" } else { "undone" };
        write!(
            f,
            "{knob} {old} to {new}: {before:.0} batches/s, predicted {predicted:.0}, obtained {obtained:.0}: \
             {kept}"
        )
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.moves.iter().try_for_each(|one| writeln!(f, "{one}"))?;
        let state = if self.is_settled { "settled" } else { "so far" };
        write!(f, "{state}: {}", self.builder_line())
    }
}
