//! The report page: one self-contained file for a browser, with a light and a dark theme.

use std::time::Duration;

use feedline::report::{Account, Report};
use feedline::trace::Trace;
use feedline::trace::content::recorded;

use crate::diagnosis::Diagnosis;
use crate::trace::events;

const PAGE: &str = include_str!("page.html");

/// Max accounts to keep. At twice this number, every second account is dropped.
const KEPT: usize = 300;

/// The accounts of a run over time, for the report page. Its memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: Vec<Account>,
    /// The time between two points.
    interval: Duration,
    /// The noted values by name. Each value has the time of the last account before it, in nanoseconds.
    notes: Vec<(String, Vec<(u64, f64)>)>,
    /// The lines of the program that waited: place, nanoseconds and batches.
    lines: Vec<(String, u64, u64)>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the account of the run so far, unless the last account is too recent. Call this method repeatedly
    /// during the run.
    pub fn add(&mut self, run: &Account) {
        if let Some(last) = self.points.last()
            && run.wall() < last.wall() + self.interval.max(Duration::from_nanos(1))
        {
            return;
        }
        self.points.push(*run);
        if self.points.len() == 2 * KEPT {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval = (run.wall() - self.points[0].wall()) / KEPT as u32;
        }
    }

    /// Notes a value, such as the loss, at the time of the last account. The page shows it on the time axis
    /// of the waits. Values that are not finite are left out.
    pub fn note(&mut self, name: &str, value: f64) {
        let Some(last) = self.points.last() else { return };
        let at = last.wall().as_nanos() as u64;
        let index = self.notes.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.notes.push((name.to_owned(), Vec::new()));
            self.notes.len() - 1
        });
        let values = &mut self.notes[index].1;
        if value.is_finite() && values.last().is_none_or(|(before, _)| *before < at) {
            values.push((at, value));
        }
        if values.len() == 4 * KEPT {
            let mut index = 0;
            values.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// Names a line of the program that has waited for `batches` batches, such as `train.py:12`. The page
    /// shows the lines below the diagnosis, in this order.
    pub fn line(&mut self, place: &str, waited: Duration, batches: u64) {
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.lines.push((place.to_owned(), waited, batches));
    }

    /// Returns the page as one self-contained HTML file. It has `report` with its diagnosis, this history,
    /// and the middle of `trace`.
    pub fn page(&self, report: &Report, trace: Option<&Trace>) -> String {
        let history = serde_json::to_string(&self.points).unwrap_or_default();
        let notes = serde_json::to_string(&self.notes).unwrap_or_default();
        let lines = serde_json::to_string(&self.lines).unwrap_or_default();
        let diagnosis = serde_json::Value::from(Diagnosis::new(report).text).to_string();
        let trace = trace.map_or("[]".to_owned(), |trace| events(&recorded(trace)));
        let (waited, report) = (report.run.wait_share(), crate::to_json(report));
        let data = format!(
            "{{\"report\":{report},\"waited\":{waited},\"diagnosis\":{diagnosis},\"history\":{history},\
             \"notes\":{notes},\"lines\":{lines},\"trace\":{trace}}}"
        );
        // The page contains texts of users. Within a script, `</script>` and `<!--<script>` would end or
        // change the program. In JSON, a `<` is always within a string, so it can be escaped.
        PAGE.replace("/*DATA*/", &data.replace('<', "\\u003c"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cause;

    #[test]
    fn a_history_is_bounded_and_covers_the_whole_run() {
        let mut history = History::new();
        for until in 0..100_000 {
            let mut account = feedline::report::Account::new(0, 0);
            account.charge(Cause::Decode, until);
            history.add(&account);
        }
        assert!(history.points.len() < 2 * KEPT);
        let last = history.points.last().unwrap().wall();
        assert!(history.points[0].wall().is_zero() && last > Duration::from_nanos(99_000));
        assert!(history.points.windows(2).all(|pair| pair[0].wall() < pair[1].wall()));
    }

    #[test]
    fn a_page_holds_its_data_and_no_name_changes_its_program() {
        let plain = History::new().page(&Report::default(), Some(&Trace::new()));
        let trace = Trace::new();
        let texts = ["</script>", "<!--<script>", "]]>", "<style>", "a \"b\" \\ \u{2028}\u{0}"];
        texts.into_iter().for_each(|text| drop(trace.annotate(text)));
        let mut history = History::new();
        history.note("too early", 1.0);
        history.add(&Account::default());
        history.note("<loss>", 0.5);
        history.note("<loss>", f64::NAN);
        history.line("<script>.py:3", Duration::from_millis(20), 2);
        let page = history.page(&Report::default(), Some(&trace));
        // The page has as many of these as a page without such texts, so no text acts as markup.
        for markup in ["<", "</script>", "<script", "<!--"] {
            assert_eq!(page.matches(markup).count(), plain.matches(markup).count(), "{markup}");
        }
        assert!(page.contains("\\u003c/script>") && page.contains("\"workers\":0"));
        // The data is JSON, and holds the names unchanged.
        let data =
            page.split_once("const data = ").and_then(|(_, rest)| rest.split_once(";\n")).expect("data");
        let data: serde_json::Value = serde_json::from_str(data.0).expect("JSON");
        let names: Vec<_> =
            data["trace"].as_array().expect("events").iter().map(|e| e["name"].clone()).collect();
        assert!(texts.iter().all(|text| names.iter().any(|name| name == text)), "{names:?}");
        assert_eq!(data["notes"], serde_json::json!([["<loss>", [[0, 0.5]]]]));
        assert_eq!(data["lines"], serde_json::json!([["<script>.py:3", 20_000_000, 2]]));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded");
    }
}
