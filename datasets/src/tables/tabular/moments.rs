//! Mean and standard deviation of a column. They are exact to the last digit of `f64`.

use super::cast::Number;
use super::double::{Double, exponent};

/// A difference more than 2^UNIT times the first one changes the unit of the sums. Its square, times the rows
/// of any table, is within `f64`.
const UNIT: i32 = 200;

/// Mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) mean: Double,
    pub(super) std: f64,
}

/// Sums of the differences of all numbers from the first number, and of the squares of the differences.
///
/// The unit of the differences is a power of two. It is chosen so that no square is beyond `f64` or too small
/// for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    count: u64,
    first: Double,
    unit: Option<i32>,
    sum: Double,
    squares: Double,
}

impl Moments {
    /// Adds a finite number. Returns false if its difference from the first number is beyond `f64`.
    pub(super) fn add(&mut self, number: Number) -> bool {
        let number = Double::from(number);
        if self.count == 0 {
            self.first = number;
        }
        self.count += 1;
        let far = number.minus(self.first);
        if far.high == 0.0 || !far.high.is_finite() {
            return far.high == 0.0;
        }
        let own = exponent(far.high);
        let unit = *self.unit.get_or_insert(own);
        if own > unit + UNIT {
            // The loss is far below the last digit of the sums.
            let by = unit - own;
            let shrink = |double: Double, by: f64| Double { high: double.high * by, low: double.low * by };
            self.sum = shrink(self.sum, 2f64.powi(by));
            self.squares = shrink(self.squares, 2f64.powi(2 * by));
            self.unit = Some(own);
        }
        let far = far.scaled(-self.unit.unwrap_or_default());
        self.sum = self.sum.plus(far);
        self.squares = self.squares.plus(far.times(far));
        true
    }

    /// Mean and deviation of the population. `None` if there is no number. An error if `f64` cannot hold
    /// them.
    pub(super) fn scale(self) -> Option<Result<Scale, &'static str>> {
        let count = self.count as f64;
        if self.count == 0 {
            return None;
        }
        let unit = self.unit.unwrap_or_default();
        let mean = self.sum.over(count);
        let variance = self.squares.over(count).minus(mean.times(mean)).high.max(0.0);
        let std = Double { high: variance.sqrt(), low: 0.0 }.scaled(unit).high;
        let mean = self.first.plus(mean.scaled(unit));
        Some(match () {
            () if !mean.high.is_finite() || !std.is_finite() => Err("larger than f64 holds"),
            // A subnormal number would lose digits.
            () if variance > 0.0 && std < f64::MIN_POSITIVE => Err("smaller than f64 holds"),
            () => Ok(Scale { mean, std }),
        })
    }
}

impl Scale {
    /// The distance of a number from the mean, in deviations. `None` if the number is finite and the distance
    /// is beyond `f64`. A deviation of 0 counts as 1.
    pub(super) fn scaled(self, number: Number) -> Option<f64> {
        let std = if self.std == 0.0 { 1.0 } else { self.std };
        let Number::Float(float) = number else {
            return Some(Double::from(number).minus(self.mean).high / std);
        };
        if !float.is_finite() {
            return Some(float);
        }
        let standardized = Double::from(number).minus(self.mean).high / std;
        standardized.is_finite().then_some(standardized)
    }

    /// If `is_whole` is true and the mean is a whole number, that number. Otherwise the nearest `f64`.
    pub(super) fn mean(self, is_whole: bool) -> Number {
        match self.mean.whole() {
            Some(whole) if is_whole => Number::Whole(whole),
            _ => Number::Float(self.mean.high),
        }
    }
}
