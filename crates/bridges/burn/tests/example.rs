//! The example `burn_mlp`: burn's own training loop learns from feedline's batches.

use std::process::Command;

#[test]
fn the_example_learns() {
    // Cargo builds examples before tests, beside their folder.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let mut example = Command::new(program.join("examples/burn_mlp"));
    let output = example.current_dir(env!("CARGO_TARGET_TMPDIR")).output().expect("run the example");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // | Split | Metric | Min. | Epoch | Max. | Epoch |
    let row = |split: &str, metric: &str| {
        let row = text.lines().find(|line| line.contains(split) && line.contains(metric));
        let cells = row.unwrap_or_else(|| panic!("no {split} {metric} in {text}")).split('|').map(str::trim);
        cells.filter_map(|cell| cell.parse::<f64>().ok()).collect::<Vec<_>>()
    };
    let (loss, accuracy) = (row("Train", "Loss"), row("Valid", "Accuracy"));
    assert!(loss[0] < 0.6 * loss[2], "the loss falls: {text}");
    assert!(accuracy[2] > 93.0, "{text}");
    assert!(text.contains("trained on 119808 samples"), "{text}");
}
