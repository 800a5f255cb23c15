//! Shows the spikes of a run on a page: the values over the steps, and the samples of each spike side by
//! side.

use std::fmt::Write as _;

use feedline::Result;

use crate::{Replayed, Run, Spike, Verdict, field_values, row_picture, row_text};

/// Max points of the curve. If there are more values, the curve shows the min and the max of each group of
/// neighbours.
const POINTS: usize = 1500;
/// Max spikes that are shown with their samples.
const SHOWN: usize = 40;
/// Max samples of a batch that are shown.
const SAMPLES: usize = 32;
/// The size of the curve.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1040px;color:#1a1a1a;background:#fff}\
h1{font-size:22px}h2{font-size:16px;margin:2em 0 .4em;border-top:1px solid #ddd;padding-top:1em}\
svg{width:100%;height:auto;background:#fafafa;border:1px solid #ddd}\
.samples{display:flex;flex-wrap:wrap;gap:8px}\
.sample{width:112px;font-size:11px;overflow-wrap:anywhere;border:1px solid #e2e2e2;padding:4px}\
.sample img{width:100%;image-rendering:pixelated;display:block;background:#eee}\
.text .sample{width:240px}.bad{color:#b00020}.dim{color:#777}code{background:#f3f3f3;padding:1px 4px}";

/// Makes the page, in HTML without other files. `replay` makes the batches of a step again, one for each
/// rank. If it returns none for a step, the page shows no samples of this step.
///
/// # Errors
/// The errors of `replay`; as [`Run::skip_ranges`].
pub fn spikes_page(
    run: &Run,
    name: &str,
    spikes: &[Spike],
    mut replay: impl FnMut(u64) -> Result<Vec<Replayed>>,
) -> Result<String> {
    let values = run.notes(name);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Spikes of {0}</title>\
         <style>{STYLE}</style><h1>Spikes of {0}</h1><p>{1}: {2} of {3} steps leave their neighbours.</p>\n",
        escaped(name),
        escaped(&run.folder().display().to_string()),
        spikes.len(),
        values.len()
    );
    curve(&mut page, &values, spikes);
    let skips = run.skip_ranges(spikes)?;
    if !skips.is_empty() {
        page += "<p>To resume without them: ";
        for skip in &skips {
            // Writing to a string does not fail.
            let _ =
                write!(page, "<code>.skip({}, {}..{})</code> ", skip.epoch, skip.steps.start, skip.steps.end);
        }
        page += "</p>\n";
    }
    for spike in spikes.iter().take(SHOWN) {
        let _ = writeln!(
            page,
            "<h2>Step {}: {} is {:.4}, and was about {:.4} before</h2>",
            spike.step,
            escaped(name),
            spike.value,
            spike.before
        );
        for replayed in replay(spike.step)? {
            samples(&mut page, &replayed)?;
        }
    }
    if spikes.len() > SHOWN {
        let _ = writeln!(page, "<p class=\"dim\">{} more are not shown.</p>", spikes.len() - SHOWN);
    }
    page += "</html>\n";
    Ok(page)
}

/// Makes a page of the [`sections`](samples_section) of batches.
pub fn samples_page(run: &Run, sections: &str) -> String {
    let title = format!("Samples of {}", escaped(&run.folder().display().to_string()));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style><h1>{title}</h1>\n{sections}</html>\n"
    )
}

/// The samples of a batch side by side, for [`samples_page`].
///
/// # Errors
/// The loss of the device.
pub fn samples_section(replayed: &Replayed) -> Result<String> {
    let mut section = format!("<h2>Step {}</h2>\n", replayed.number);
    samples(&mut section, replayed)?;
    Ok(section)
}

/// The rows of a batch.
fn samples(page: &mut String, replayed: &Replayed) -> Result<()> {
    let batch = &replayed.batch;
    let fields = field_values(batch)?;
    let has_pictures = batch.len() > 0 && fields.iter().any(|field| row_picture(field, 0).is_some());
    let verdict = match replayed.verdict {
        Verdict::Equal => "its bytes are those of the run".to_owned(),
        Verdict::SameSamples => "its samples are those of the run".to_owned(),
        Verdict::OtherBytes { .. } => match replayed.changed() {
            Some((sample, _)) => format!("<b class=\"bad\">sample {sample} has changed since the run</b>"),
            None => "<b class=\"bad\">samples have changed since the run</b>".to_owned(),
        },
        Verdict::OtherSamples => "<b class=\"bad\">other samples than in the run can be read</b>".to_owned(),
    };
    let _ =
        writeln!(page, "<p class=\"dim\">epoch {}, {} samples; {verdict}</p>", replayed.epoch, batch.len());
    let _ = write!(page, "<div class=\"samples {}\">", if has_pictures { "" } else { "text" });
    for (row, id) in batch.ids().iter().enumerate().take(SAMPLES) {
        page.push_str("<div class=\"sample\">");
        for field in &fields {
            match row_picture(field, row) {
                Some(url) => {
                    let _ = write!(page, "<img alt=\"{}\" src=\"{url}\">", escaped(field.name));
                }
                None => {
                    let _ = write!(page, "{}: {}<br>", escaped(field.name), escaped(&row_text(field, row)));
                }
            }
        }
        let file = replayed.paths[row].as_deref().and_then(std::path::Path::file_name);
        let file = file.map_or_else(String::new, |file| format!(" in {}", file.to_string_lossy()));
        let _ = write!(page, "<span class=\"dim\">sample {id}{}</span></div>", escaped(&file));
    }
    page.push_str("</div>");
    if batch.len() > SAMPLES {
        let _ = write!(page, "<p class=\"dim\">{} more samples are not shown.</p>", batch.len() - SAMPLES);
    }
    page.push('\n');
    Ok(())
}

/// The values over the steps, with the spikes as dots.
fn curve(page: &mut String, values: &[(u64, f64)], spikes: &[Spike]) {
    let finite = || values.iter().filter(|(_, value)| value.is_finite());
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return };
    let bounds =
        finite().fold([f64::MAX, f64::MIN], |[low, high], (_, value)| [low.min(*value), high.max(*value)]);
    let [low, high] = if bounds[0] < bounds[1] { bounds } else { [bounds[0] - 0.5, bounds[0] + 0.5] };
    let steps = (last.0 - first.0).max(1) as f64;
    let x = |step: u64| 50.0 + (WIDTH - 60.0) * (step - first.0) as f64 / steps;
    let y = |value: f64| 10.0 + (HEIGHT - 40.0) * (high - value.clamp(low, high)) / (high - low);
    let _ = write!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\"><polyline fill=\"none\" stroke=\"#2b6cb0\" points=\""
    );
    let all: Vec<_> = finite().collect();
    for part in all.chunks(all.len().div_ceil(POINTS).max(1)) {
        let smallest = part.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let largest = part.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut ends: Vec<_> = smallest.into_iter().chain(largest).collect();
        ends.sort_by_key(|(step, _)| *step);
        for (step, value) in ends {
            let _ = write!(page, "{:.1},{:.1} ", x(*step), y(*value));
        }
    }
    page.push_str("\"/>");
    for spike in spikes {
        let value = if spike.value.is_finite() { spike.value } else { high };
        let _ = write!(
            page,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#b00020\"><title>step {}: {}</title></circle>",
            x(spike.step),
            y(value),
            spike.step,
            spike.value
        );
    }
    for (at, value) in [(15.0, high), (HEIGHT - 28.0, low)] {
        let _ = write!(page, "<text x=\"4\" y=\"{at}\" font-size=\"11\">{value:.4}</text>");
    }
    for (anchor, at, step) in [("start", 50.0, first.0), ("end", WIDTH - 10.0, last.0)] {
        let down = HEIGHT - 8.0;
        let _ = write!(
            page,
            "<text x=\"{at}\" y=\"{down}\" font-size=\"11\" text-anchor=\"{anchor}\">step {step}</text>"
        );
    }
    page.push_str("</svg>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
