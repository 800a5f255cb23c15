//! The bars people see; hidden with `--quiet` and where standard error is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

fn bar(quiet: bool, template: &str) -> ProgressBar {
    // indicatif hides a bar by itself where standard error is no terminal.
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("█▌ "))
}

/// While the digits are drawn.
pub fn drawing(quiet: bool) -> ProgressBar {
    bar(quiet, "drawing digits  {bar:30} {human_pos}/{human_len}  {eta} left")
}

/// While the model trains; the message holds the figures.
pub fn training(quiet: bool, steps: u64) -> ProgressBar {
    // The bar takes what the figures leave: on 80 columns they are all there.
    let bar = bar(quiet, "{prefix} {wide_bar} {msg}  {eta} left");
    bar.set_length(steps);
    bar
}
