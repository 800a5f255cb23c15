//! The report page: one self-contained file for a browser, light and dark.

use super::account::{Account, Report};
use crate::trace::Trace;

const PAGE: &str = include_str!("page.html");

/// Accounts that are kept; twice as many are thinned out.
const KEPT: usize = 300;

/// The accounts of a run over time, for the report page. Its memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct History {
    points: Vec<Account>,
    /// Nanoseconds between two points.
    interval: u64,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the account of the run so far, unless the last one is too recent. Call it now and then.
    pub fn add(&mut self, run: &Account) {
        if let Some(last) = self.points.last()
            && (run.until <= last.until || run.until - last.until < self.interval)
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
            let span = run.until - self.points[0].until;
            self.interval = span / KEPT as u64;
        }
    }

    /// The page: `report` with its diagnosis, this history, and the middle of `trace`, in one HTML file
    /// without any other.
    pub fn page(&self, report: &Report, trace: Option<&Trace>) -> String {
        let history = serde_json::to_string(&self.points).unwrap_or_default();
        let diagnosis = serde_json::Value::from(report.diagnosis().text).to_string();
        let trace = trace.map_or("[]".to_owned(), Trace::events);
        let data = format!(
            "{{\"report\":{},\"diagnosis\":{diagnosis},\"history\":{history},\"trace\":{trace}}}",
            report.json()
        );
        // A name that ends the script would end the page's program.
        PAGE.replace("/*DATA*/", &data.replace("</", "<\\/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_bounded_and_covers_the_whole_run() {
        let mut history = History::new();
        for until in 0..100_000 {
            history.add(&Account { until, batches: until, ..Account::default() });
        }
        assert!(history.points.len() < 2 * KEPT);
        assert!(history.points[0].until == 0 && history.points.last().unwrap().until > 99_000);
        assert!(history.points.windows(2).all(|pair| pair[0].until < pair[1].until));
    }

    #[test]
    fn a_page_holds_its_data_and_no_name_ends_its_program() {
        let trace = Trace::new();
        drop(trace.annotate("</script>"));
        let mut history = History::new();
        history.add(&Account::default());
        let page = history.page(&Report::default(), Some(&trace));
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("<\\/script>") && page.contains("\"workers\":0"));
        assert!(!page.contains("http://") && !page.contains("https://"), "nothing is loaded");
    }
}
