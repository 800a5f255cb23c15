//! The model with branches: the same weights on one stream and on many, and no missing wait.

use feedline::{Device, Result};
use feedline_examples::branches::{Model, Sizes};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

const SIZES: Sizes = Sizes { branches: 3, rows: 8, width: 16 };

/// The loss and the weights after a few steps.
fn train(device: &Device, own_streams: bool) -> Result<(f32, Vec<f32>)> {
    let mut model = Model::new(device, SIZES, own_streams)?;
    let first = (model.step()?, model.state()?.0).1;
    (0..4).try_for_each(|_| model.step())?;
    model.synchronize()?;
    let (loss, weights) = model.state()?;
    assert!(loss < first && weights.iter().all(|weight| weight.is_finite()), "{first}, then {loss}");
    Ok((loss, weights))
}

#[test]
fn branches_have_no_race_in_any_schedule_and_the_weights_of_one_stream() {
    with_watchdog(LIMIT, || {
        let wanted = train(&Device::new_host(), false).unwrap();
        assert_eq!(train(&Device::new_host(), true).unwrap(), wanted);
        for seed in 0..20 {
            let (device, sim) = feedline_sim::device(seed).unwrap();
            assert_eq!(train(&device, true).unwrap(), wanted, "seed {seed}");
            drop(device);
            sim.finish().unwrap();
        }
    });
}

#[test]
fn branches_on_a_gpu_have_the_weights_of_one_stream() {
    let Some(device) = feedline_testkit::gpu("branches_on_a_gpu_have_the_weights_of_one_stream") else {
        return;
    };
    with_watchdog(LIMIT, || assert_eq!(train(&device, true).unwrap(), train(&device, false).unwrap()));
}
