//! The examples: the losses of `candle_mlp` fall, `candle_compare` compares every feed.

use std::process::Command;

/// Runs an example; returns its output.
fn run(name: &str, arguments: &[&str]) -> String {
    // Cargo builds examples before tests, beside their folder.
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.pop();
    let mut example = Command::new(program.join("examples").join(name));
    let example = example.args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR"));
    let output = example.output().expect("run the example");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_losses_of_the_example_fall() {
    let text = run("candle_mlp", &[]);
    let after = |word: &str| {
        let words = text.lines().filter_map(|line| line.split_once(word)?.1.split(' ').next()?.parse().ok());
        words.collect::<Vec<f64>>()
    };
    let (losses, accuracies) = (after(" loss "), after(" accuracy "));
    assert!(losses[0] > 2.0 && losses[losses.len() - 1] < 0.3, "{text}");
    assert!(accuracies.len() == 2 && accuracies[1] > 93.0, "{text}");
    assert!(text.contains("epoch 1 checkpoint after 119808 samples"), "{text}");
}

#[test]
fn the_comparison_has_a_row_for_every_feed() {
    let text = run("candle_compare", &["0.01", "2", "1"]);
    let rows = text.lines().filter(|line| line.starts_with("| in memory") || line.starts_with("| drawn"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(['|', '(']).map(str::trim).collect()).collect();
    let (usual, ours) = ("Vec to Tensor", "feedline");
    let wanted = [usual, ours, "one batch again and again", usual, ours, usual, ours];
    assert_eq!(rows.iter().map(|row| row[2]).collect::<Vec<_>>(), wanted, "{text}");
    for row in &rows {
        let numbers = [3, 5, 7].map(|at| row[at].parse::<f64>().unwrap_or(0.0));
        assert!(numbers.iter().all(|&number| number > 0.0), "{row:?} in {text}");
        assert!(row[2] != usual || numbers[1] == 1.0, "{row:?}: the usual way is compared with itself");
    }
}
