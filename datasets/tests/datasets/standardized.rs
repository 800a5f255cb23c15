//! Standardized columns, compared with sums that lose no digits.

use crate::made::write;
use crate::tabular::{batch, floats};
use feedline_core::DType;
use feedline_datasets::{Missing, Table};
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::tempdir;

/// Neumaier's sum, which adds the rounding errors of all additions.
fn sum(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut rest) = (0f64, 0f64);
    for number in numbers {
        let next = sum + number;
        rest += if sum.abs() >= number.abs() { (sum - next) + number } else { (number - next) + sum };
        sum = next;
    }
    sum + rest
}

/// Turns distances from any point into distances from the mean, in standard deviations.
fn standardized(far: &[f64]) -> Vec<f64> {
    let count = far.len() as f64;
    let mean = sum(far.iter().copied()) / count;
    let std = (sum(far.iter().map(|far| (far - mean) * (far - mean))) / count).sqrt();
    far.iter().map(|far| (far - mean) / if std == 0.0 { 1.0 } else { std }).collect()
}

/// The column of these cells, as a table makes it: as `f64` and as `f32`.
fn found(cells: &[String]) -> (Vec<f64>, Vec<f32>) {
    let dir = tempdir().unwrap();
    let lines = cells.iter().map(|cell| format!("{cell},0\n")).collect::<String>();
    let path = write(dir.path(), "x.csv", format!("v,w\n{lines}").as_bytes());
    let table = || Table::open(&path).standardize("v").select(["v"]);
    let wide = batch(&table().cast("v", DType::F64).build().unwrap());
    let wide = wide["v"].as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    (wide, floats(&batch(&table().build().unwrap())["v"]))
}

fn are_near(found: &[f64], expected: &[f64], most: f64) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= most * b.abs().max(1.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whole numbers that are far from 0 and near each other, up to the ends of `i64` and `u64`.
    #[test]
    fn whole_numbers_far_from_zero_keep_their_digits(
        far in vec(0i64..5, 1..60), place in 0usize..7,
    ) {
        let nanoseconds = 1_700_000_000_000_000_000;
        let ends = [i128::from(i64::MIN), (1 << 63) - 5, (1 << 64) - 6];
        let base = [0, 1_000_000_000, 1 << 53, nanoseconds, ends[0], ends[1], ends[2]];
        let cells = Vec::from_iter(far.iter().map(|far| (base[place] + i128::from(*far)).to_string()));
        let expected = standardized(&Vec::from_iter(far.iter().map(|far| *far as f64)));
        let (wide, narrow) = found(&cells);
        prop_assert!(are_near(&wide, &expected, 1e-12), "{cells:?}: {wide:?} {expected:?}");
        prop_assert!(narrow.iter().zip(&wide).all(|(a, b)| *a == *b as f32));
    }

    /// Numbers of any size beside an offset.
    #[test]
    fn numbers_of_any_size_keep_their_digits(
        far in vec(-1.0f64..1.0, 2..60), exponent in -290i32..290, offset in 0u32..8,
    ) {
        let unit = 10f64.powi(exponent);
        let numbers = Vec::from_iter(far.iter().map(|far| (far + 10f64.powi(offset as i32)) * unit));
        // The difference of two such numbers is exact, and its square is within f64 once the unit is gone.
        let distances = Vec::from_iter(numbers.iter().map(|number| (number - numbers[0]) / unit));
        let expected = standardized(&distances);
        let (wide, _) = found(&Vec::from_iter(numbers.iter().map(|number| format!("{number:e}"))));
        prop_assert!(are_near(&wide, &expected, 1e-9), "{numbers:?}: {wide:?} {expected:?}");
    }
}

#[test]
fn columns_of_a_thousand_rows_are_those_of_exact_sums() {
    let rows = |of: fn(i64) -> String| Vec::from_iter((0..1000).map(of));
    let expected = standardized(&Vec::from_iter((0..1000).map(|row| (row % 3) as f64)));
    for (cells, expected) in [
        (rows(|_| "14.62".into()), vec![0.0; 1000]),
        (rows(|row| format!("{:?}", 1e9 + (row % 3) as f64)), expected.clone()),
        (rows(|row| format!("{:?}", 1e15 + (row % 3) as f64)), expected.clone()),
        (rows(|row| format!("{:?}", 1e-12 * (row % 3) as f64)), expected.clone()),
        (rows(|row| format!("{:?}", 1e-300 * (row % 3) as f64)), expected.clone()),
        (rows(|row| format!("{:?}", 1e200 * (row % 3) as f64)), expected.clone()),
        (rows(|row| ((1i64 << 40) + row % 3).to_string()), expected.clone()),
        // An outlier, first and last.
        (
            rows(|row| if row == 0 { "1e200".into() } else { (row % 3).to_string() + ".5" }),
            standardized(&Vec::from_iter((0..1000).map(|row| f64::from(row == 0)))),
        ),
        (
            rows(|row| if row == 999 { "1e200".into() } else { (row % 3).to_string() + ".5" }),
            standardized(&Vec::from_iter((0..1000).map(|row| f64::from(row == 999)))),
        ),
    ] {
        let (wide, narrow) = found(&cells);
        assert!(
            are_near(&wide, &expected, 1e-11),
            "{:?}: {:?} {:?}",
            &cells[..3],
            &wide[..3],
            &expected[..3]
        );
        assert!(narrow.iter().zip(&wide).all(|(a, b)| *a == *b as f32));
    }
}

#[test]
fn a_mean_or_a_deviation_that_f64_does_not_hold_is_an_error() {
    let dir = tempdir().unwrap();
    let of = |cells: &[&str]| {
        let lines = cells.iter().map(|cell| format!("{cell},0\n")).collect::<String>();
        let path = write(dir.path(), "x.csv", format!("v,w\n{lines}").as_bytes());
        Table::open(path).standardize("v").select(["v"])
    };
    for (cells, why) in [
        (
            &["1e308", "-1e308", "1e308"][..],
            "column \"v\" has -1e308 in row 1, which is too far from the first",
        ),
        (&["1e-320", "2e-320"], "column \"v\" has a mean or a deviation that is smaller than f64 holds"),
        (&["1", "inf"], "column \"v\" has inf, and a mean is made of finite numbers"),
    ] {
        let error = of(cells).build().unwrap_err();
        assert!(error.to_string().contains(why) && error.path().is_some(), "{why}: {error}");
        let error = of(cells).saved(dir.path().join("s.json")).build().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!dir.path().join("s.json").exists(), "nothing is kept of it");
    }
    // The squares of these are beyond f64, or too small for it; mean and deviation are not.
    for unit in ["1e200", "1e308", "1e-200"] {
        let found = floats(
            &batch(
                &of(&[unit, &format!("-{unit}"), unit])
                    .select(["v"])
                    .build()
                    .unwrap_or_else(|_| of(&[unit, "0", unit]).build().unwrap()),
            )["v"],
        );
        let half = (0.5f64).sqrt();
        assert_eq!(found, [half as f32, (-2.0 * half) as f32, half as f32], "{unit}");
    }
    // A value of the validation set may be too far away.
    let saved = dir.path().join("s.json");
    of(&["1.5e308", "1.6e308"]).saved(&saved).build().unwrap();
    let data = of(&["1.5e308", "-1.5e308"]).fitted(&saved).rows().unwrap();
    let error = feedline_core::Values::new().read(&*data, 1).unwrap_err();
    let why = "column \"v\" has -1.5e308 in row 1, which f32 does not hold once standardized";
    assert!(error.to_string().contains(why) && error.sample() == Some(1), "{error}");
}

#[test]
fn what_is_filled_in_changes_neither_mean_nor_deviation_and_is_standardized_by_them() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "x.csv", b"v,w\n1,0\n,0\n4,0\n");
    for (missing, filled) in [
        (Missing::Mean, 0.0),
        (Missing::Number(7.0), 3.0),
        (Missing::Whole(7), 3.0),
        (Missing::Number(2.5), 0.0),
    ] {
        // The mean of 1 and 4 is 2.5, the deviation 1.5.
        let table = Table::open(&path).standardize("v").missing("v", missing.clone()).select(["v"]);
        assert_eq!(floats(&batch(&table.build().unwrap())["v"]), [-1.0, filled, 1.0], "{missing:?}");
    }
}
