//! The example `candle_mlp`: its losses fall.

use std::process::Command;

#[test]
fn the_losses_of_the_example_fall() {
    // Cargo builds examples before tests, beside their folder.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let mut example = Command::new(program.join("examples/candle_mlp"));
    let output = example.current_dir(env!("CARGO_TARGET_TMPDIR")).output().expect("run the example");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let after = |word: &str| {
        let words = text.lines().filter_map(|line| line.split_once(word)?.1.split(' ').next()?.parse().ok());
        words.collect::<Vec<f64>>()
    };
    let (losses, accuracies) = (after(" loss "), after(" accuracy "));
    assert!(losses[0] > 2.0 && losses[losses.len() - 1] < 0.3, "{text}");
    assert!(accuracies.len() == 2 && accuracies[1] > 93.0, "{text}");
    assert!(text.contains("epoch 1 checkpoint after 119808 samples"), "{text}");
}
