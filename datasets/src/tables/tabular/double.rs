//! Arithmetic with twice the digits of `f64`, for sums that would lose digits.

use super::cast::Number;

/// A number as the sum of two `f64`. The second is at most half a unit in the last place of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Double {
    pub(super) high: f64,
    pub(super) low: f64,
}

impl Double {
    /// The normalized sum of `high` and the smaller number `low`.
    fn renormalized(high: f64, low: f64) -> Self {
        let sum = high + low;
        Self { high: sum, low: low - (sum - high) }
    }

    fn sum(a: f64, b: f64) -> Self {
        let sum = a + b;
        let rest = sum - a;
        Self { high: sum, low: (a - (sum - rest)) + (b - rest) }
    }

    fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: a.mul_add(b, -high) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        let (high, low) = (Self::sum(self.high, other.high), Self::sum(self.low, other.low));
        let both = Self::renormalized(high.high, high.low + low.high);
        Self::renormalized(both.high, both.low + low.low)
    }

    pub(super) fn minus(self, other: Self) -> Self {
        self.plus(Self { high: -other.high, low: -other.low })
    }

    pub(super) fn times(self, other: Self) -> Self {
        let Self { high, low } = Self::product(self.high, other.high);
        let both = Self::renormalized(high, low + (self.high * other.low + self.low * other.high));
        Self::renormalized(both.high, both.low + self.low * other.low)
    }

    pub(super) fn over(self, by: f64) -> Self {
        let high = self.high / by;
        let rest = self.minus(Self::product(high, by));
        Self::renormalized(high, rest.high / by)
    }

    /// This number times 2 to the power of `exponent`. `exponent` is from -1074 to 1074.
    pub(super) fn scaled(self, exponent: i32) -> Self {
        // Use two factors: a single one may be beyond `f64`.
        let (one, other) = (2f64.powi(exponent / 2), 2f64.powi(exponent - exponent / 2));
        Self { high: self.high * one * other, low: self.low * one * other }
    }

    /// The number, if it is a whole number.
    pub(super) fn whole(self) -> Option<i128> {
        let is_whole = self.high.fract() == 0.0 && self.low.fract() == 0.0 && self.high.abs() < 1e20;
        is_whole.then(|| self.high as i128 + self.low as i128)
    }
}

impl From<Number> for Double {
    /// This is exact, as whole numbers have at most 65 bits.
    fn from(number: Number) -> Self {
        match number {
            Number::Float(float) => Self { high: float, low: 0.0 },
            Number::Whole(whole) => {
                let high = whole as f64;
                Self { high, low: (whole - high as i128) as f64 }
            }
        }
    }
}

/// The exponent of a nonzero number: the largest `e` with `2^e` at most its magnitude.
pub(super) fn exponent(number: f64) -> i32 {
    (number.to_bits() >> 52 & 0x7FF) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_products_and_quotients_keep_twice_the_digits() {
        let whole = |number: i128| Double::from(Number::Whole(number));
        for (a, b) in [((1i128 << 63) - 1, 1 << 62), (-(1 << 63), (1 << 64) - 1), ((1 << 53) + 1, -1)] {
            assert_eq!(whole(a).plus(whole(b)).whole(), Some(a + b));
            assert_eq!(whole(a).minus(whole(b)).whole(), Some(a - b));
        }
        // (2^53 + 1)^2 less 2^106 and 2^54 is 1.
        let square = whole((1 << 53) + 1).times(whole((1 << 53) + 1));
        let rest = square.minus(Double { high: 2f64.powi(106), low: 2f64.powi(54) });
        assert!((rest.high - 1.0).abs() < 1e-9, "{rest:?}");
        let third = whole(1).over(3.0);
        let back = third.plus(third).plus(third).minus(whole(1));
        assert!(third.low != 0.0 && back.high.abs() < 1e-31, "{third:?} {back:?}");
        for exponent in [-1074, -1023, -1, 0, 1, 1023] {
            let two = Double { high: 2f64.powi(exponent.max(-1022)), low: 0.0 };
            assert_eq!(two.scaled(-exponent.max(-1022)).high, 1.0);
        }
        assert_eq!([1.0, 1.5, 0.25, 1e308].map(exponent), [0, 0, -2, 1023]);
        assert_eq!(Double { high: 5e-324, low: 0.0 }.scaled(1074).high, 1.0);
    }
}
