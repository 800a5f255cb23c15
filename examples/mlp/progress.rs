//! The progress bars; hidden with `--quiet`, and if standard error is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

fn bar(quiet: bool, template: &str) -> ProgressBar {
    // indicatif itself hides a bar if standard error is not a terminal.
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("█▌ "))
}

/// The bar shown while the digits are drawn.
pub fn drawing(quiet: bool) -> ProgressBar {
    bar(quiet, "drawing digits  {bar:30} {human_pos}/{human_len}  {eta} left")
}

/// The bar shown while the model trains; its message holds the figures.
pub fn training(quiet: bool, steps: u64) -> ProgressBar {
    // The bar takes the width that the figures leave; all figures fit into 80 columns.
    let bar = bar(quiet, "{prefix} {wide_bar} {msg}  {eta} left");
    bar.set_length(steps);
    bar
}
