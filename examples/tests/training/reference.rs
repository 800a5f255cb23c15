//! The trainer follows the float64 reference of its model, step by step, on real data: on the host, and
//! on a GPU if there is one.

use crate::world;

use std::path::{Path, PathBuf};

use crate::trainer::{losses, report};
use feedline_testkit::{gpu, not_run, watchdog::LIMIT, with_watchdog};
use serde_json::Value;
use tempfile::TempDir;

/// The folder of shared data: `FEEDLINE_SHARED`, or `shared` next to the checkout.
fn shared() -> PathBuf {
    let next_to_checkout = || {
        let package =
            std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        Path::new(&package).join("../../shared")
    };
    std::env::var_os("FEEDLINE_SHARED").map_or_else(next_to_checkout, PathBuf::from)
}

/// The data and the reference; says on standard error if they are missing.
fn recipe(device: &str) -> Option<(PathBuf, Value)> {
    let (data, reference) = (shared().join("data/mnist"), shared().join("reference/mlp_mnist.json"));
    let read = std::fs::read(&reference).and_then(|text| data.metadata().map(|_| text));
    let missing = |error: &std::io::Error| {
        not_run(
            &format!("{device}: the trainer follows its reference"),
            format!("{}: {error}", data.display()),
        )
    };
    let text = read.inspect_err(missing).ok()?;
    Some((std::path::absolute(data).unwrap(), serde_json::from_slice(&text).unwrap()))
}

fn follows_the_reference(device: &str, data: &Path, reference: &Value) {
    let work = TempDir::new().unwrap();
    let recipe = "--no-shuffle --init reference --batch 128 --hidden 512 --lr 0.05 --momentum 0.9 --epochs 1";
    let mut arguments: Vec<&str> = recipe.split(' ').collect();
    arguments.extend(["--device", device, "--data", data.to_str().unwrap()]);
    let report = report(work.path(), &arguments);

    let wanted: Vec<f64> =
        reference["losses"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let got: Vec<f64> = losses(&report).into_iter().map(f64::from).collect();
    assert_eq!(got.len(), wanted.len());
    for (step, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let off = (got - wanted).abs();
        assert!(step >= 20 || off <= 1e-4 * wanted, "step {step}: {got}, not {wanted}");
        assert!(off <= 2e-2, "step {step}: {got}, not {wanted}");
    }
    let accuracy = |of: &Value| of["test_accuracy"].as_f64().unwrap();
    let (got, wanted) = (accuracy(&report), accuracy(reference));
    assert!((got - wanted).abs() <= 0.005, "test accuracy {got}, not {wanted}");
}

#[test]
fn the_host_follows_the_reference() {
    let Some((data, reference)) = recipe("host") else { return };
    with_watchdog(LIMIT, || follows_the_reference("host", &data, &reference));
}

/// The first steps only: on the host, several ranks together take as long as one.
#[test]
fn worlds_of_two_and_four_follow_the_reference() {
    let Some((data, reference)) = recipe("host, worlds of 2 and 4") else { return };
    with_watchdog(2 * LIMIT, move || {
        for (size, batch) in [(2, "64"), (4, "32")] {
            let work = TempDir::new().unwrap();
            let recipe =
                "--no-shuffle --init reference --hidden 512 --lr 0.05 --momentum 0.9 --epochs 1 --steps 40";
            let mut arguments: Vec<&str> = recipe.split(' ').collect();
            arguments.extend(["--device", "host", "--batch", batch, "--data", data.to_str().unwrap()]);
            let report = world::report(work.path(), size, &arguments);
            let got = losses(&report);
            assert_eq!(got.len(), 40);
            for (step, (got, wanted)) in got.iter().zip(reference["losses"].as_array().unwrap()).enumerate() {
                let (got, wanted) = (f64::from(*got), wanted.as_f64().unwrap());
                let off = (got - wanted).abs();
                assert!(step >= 20 || off <= 1e-4 * wanted, "{size} ranks, step {step}: {got}, not {wanted}");
                assert!(off <= 2e-2, "{size} ranks, step {step}: {got}, not {wanted}");
            }
        }
    });
}

#[test]
fn a_gpu_follows_the_reference() {
    // Checks for the data first: without them the test counts as not run.
    let Some((data, reference)) = recipe("cuda") else { return };
    let Some(device) = gpu("the trainer follows its reference") else { return };
    drop(device);
    with_watchdog(LIMIT, || follows_the_reference("cuda", &data, &reference));
}
