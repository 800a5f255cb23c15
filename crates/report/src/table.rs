//! The spans of a trace by name, as a profiler's table.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use feedline::trace::Trace;
use feedline::trace::content::{Lane, Name, Recorded, Span, recorded};
use serde::Serialize;

use crate::ratio;

/// The kind of a row of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Work on a stream ([`Trace::stream`](feedline::trace::Trace::stream)) or of the device map, timed by
    /// events on the device.
    Kernel,
    /// Copies to the device, timed by events on the device.
    Copy,
    /// Work of the loader's threads, and the consumer's steps.
    Host,
    /// Waits, by their cause.
    Wait,
    /// The user's own spans ([`Trace::annotate`](feedline::trace::Trace::annotate)).
    Annotated,
}

/// All spans of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kind of the spans.
    pub kind: Kind,
    /// The name of the spans.
    pub name: String,
    /// How many were recorded.
    pub count: usize,
    /// The total time of the spans.
    pub total: Duration,
    /// The share of the loader's run during which the spans ran, from 0 to 1. It is a mean over their threads
    /// or streams. Overlapping spans count once. Batches that were not recorded are assumed to be like the
    /// recorded batches. For waits of the consumer, it is the share in the loader's
    /// [`report`](feedline::Progress::report).
    pub share: f64,
    /// The mean time of a span.
    pub mean: Duration,
    /// The median time of a span.
    pub p50: Duration,
    /// The 99th percentile of the times.
    pub p99: Duration,
}

/// The spans of a trace by name, with the greatest total time first: kernels, copies, host stages and waits.
///
/// Displays as a table. If a trace is long, the trace and its table have only one batch in
/// [`one_in`](Self::one_in).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// One row per kind and name.
    pub rows: Vec<Row>,
    /// One batch in this number of batches was recorded.
    pub one_in: u64,
    /// Time from the start of the first span to the end of the last.
    pub wall: Duration,
}

impl Table {
    /// The spans that `trace` has recorded so far, by name.
    ///
    /// ```
    /// use feedline::trace::Trace;
    /// use feedline_report::{Kind, Table};
    /// let trace = Trace::new();
    /// for _ in 0..10 {
    ///     let _span = trace.annotate("my work");
    /// }
    /// let table = Table::new(&trace);
    /// assert_eq!((table.rows[0].kind, table.rows[0].count), (Kind::Annotated, 10));
    /// println!("{table}");
    /// ```
    pub fn new(trace: &Trace) -> Self {
        let Recorded { spans, names, one_in } = recorded(trace);
        Self::of_spans(&spans, &names, one_in)
    }

    fn of_spans(spans: &[Span], names: &[Name], one_in: u64) -> Self {
        let mut by_name: BTreeMap<_, Vec<&Span>> = BTreeMap::new();
        spans.iter().for_each(|span| by_name.entry((kind(span, names), &*span.name)).or_default().push(span));
        let runs = Runs::new(spans);
        let row = |((kind, name), mut spans): ((Kind, &str), Vec<&Span>)| {
            let share = (one_in as f64 * runs.share(&mut spans)).min(1.0);
            let mut lengths: Vec<_> = spans.iter().map(|span| span.end.saturating_sub(span.start)).collect();
            lengths.sort_unstable();
            let (count, total) = (lengths.len(), lengths.iter().sum::<u64>());
            // Nearest-rank percentile.
            let percentile =
                |percent: usize| Duration::from_nanos(lengths[(count * percent).div_ceil(100).max(1) - 1]);
            let mean = Duration::from_nanos(total / count as u64);
            let (p50, p99, total) = (percentile(50), percentile(99), Duration::from_nanos(total));
            Row { kind, name: name.to_owned(), count, total, share, mean, p50, p99 }
        };
        let mut rows: Vec<_> = by_name.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total));
        let start = spans.iter().map(|span| span.start).min().unwrap_or(0);
        let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
        Self { rows, one_in, wall: Duration::from_nanos(end.saturating_sub(start)) }
    }
}

/// The time range of each loader's run, from the first to the last span of its consumer. For lanes without a
/// consumer, such as the user's own lanes, it is the range of all spans.
#[derive(Default)]
struct Runs {
    all: Range<u64>,
    loaders: BTreeMap<u32, Range<u64>>,
}

impl Runs {
    fn new(spans: &[Span]) -> Self {
        let Some(first) = spans.first() else { return Self::default() };
        let (mut all, mut loaders) = (first.start..first.end, BTreeMap::new());
        let widen = |range: &mut Range<u64>, span: &Span| {
            *range = range.start.min(span.start)..range.end.max(span.end);
        };
        for span in spans {
            widen(&mut all, span);
            if span.lane == Lane::Consumer {
                widen(loaders.entry(span.loader).or_insert(span.start..span.end), span);
            }
        }
        Self { all, loaders }
    }

    /// The share of the runs during which one of `spans` ran, over the lanes that have such spans.
    fn share(&self, spans: &mut [&Span]) -> f64 {
        spans.sort_unstable_by_key(|span| (span.loader, span.lane, span.start));
        let (mut covered, mut whole) = (0, 0);
        for lane in spans.chunk_by(|a, b| (a.loader, a.lane) == (b.loader, b.lane)) {
            let run = self.loaders.get(&lane[0].loader).unwrap_or(&self.all);
            whole += run.end - run.start;
            let mut at = run.start;
            for span in lane {
                let end = span.end.min(run.end);
                covered += end.saturating_sub(at.max(span.start));
                at = at.max(end);
            }
        }
        ratio(covered as f64, whole as f64)
    }
}

fn kind(span: &Span, names: &[Name]) -> Kind {
    match span.lane {
        Lane::Own(index) if names.get(index as usize).is_some_and(|name| name.is_stream) => Kind::Kernel,
        Lane::Own(_) => Kind::Annotated,
        _ if span.name.starts_with("wait") => Kind::Wait,
        Lane::CopyStream => Kind::Copy,
        Lane::MapStream(_) => Kind::Kernel,
        Lane::Consumer | Lane::Transfer | Lane::Map(_) | Lane::Worker(_) => Kind::Host,
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Host => "host",
            Self::Wait => "wait",
            Self::Annotated => "own",
        }
    }
}

/// Width of the name column: the longest name of a wait.
const NAME: usize = 25;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<NAME$} {:<6} {:>8} {:>5}", "name", "kind", "total", "share")?;
        writeln!(f, " {:>7} {:>7} {:>7} {:>7}", "count", "mean", "p50", "p99")?;
        for Row { kind, name, count, total, share, mean, p50, p99 } in &self.rows {
            let share = 100.0 * share;
            let name: String = name.chars().take(NAME).collect();
            write!(f, "{name:<NAME$} {:<6} {:>8} {share:>4.0}%", kind.name(), short(*total))?;
            writeln!(f, " {count:>7} {:>7} {:>7} {:>7}", short(*mean), short(*p50), short(*p99))?;
        }
        match self.one_in {
            1 => Ok(()),
            one_in => writeln!(f, "one batch in {one_in} was recorded"),
        }
    }
}

/// Three digits and a unit.
fn short(time: Duration) -> String {
    let mut value = time.as_nanos() as f64;
    for unit in ["ns", "us", "ms"] {
        if value < 999.5 {
            let digits = if unit == "ns" || value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.2}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lane: Lane, name: &'static str, start: u64, length: u64) -> Span {
        Span { loader: 0, lane, name: name.into(), start, end: start + length, batch: None, key: 0 }
    }

    #[test]
    fn every_name_has_its_kind_sum_mean_and_percentiles() {
        let names = [("compute", true), ("main", false)]
            .map(|(name, is_stream)| Name { name: name.to_owned(), is_stream });
        let mut spans: Vec<_> =
            (1..=200).map(|i| span(Lane::Worker(i as u32 % 3), "decode", i, 1000 * i)).collect();
        spans.push(span(Lane::Own(0), "step", 0, 5));
        spans.push(span(Lane::Own(1), "step", 0, 6));
        spans.push(span(Lane::CopyStream, "copy", 0, 7));
        spans.push(span(Lane::CopyStream, "wait: readers of the slot", 0, 8));
        spans.push(span(Lane::Consumer, "wait: decode", 0, 9));
        let table = Table::of_spans(&spans, &names, 4);
        let us = Duration::from_micros;
        let row = |kind, name: &str, count, share, [total, mean, p50, p99]: [Duration; 4]| Row {
            kind,
            name: name.to_owned(),
            count,
            total,
            share,
            mean,
            p50,
            p99,
        };
        // The consumer's lane is 9 ns long, and one batch in four is recorded.
        let one = |kind, name: &str, ns: u64| {
            row(kind, name, 1, (4.0 * ns as f64 / 9.0).min(1.0), [Duration::from_nanos(ns); 4])
        };
        let mean = Duration::from_nanos(100_500);
        let rows = [
            row(Kind::Host, "decode", 200, 1.0, [us(20_100), mean, us(100), us(198)]),
            one(Kind::Wait, "wait: decode", 9),
            one(Kind::Wait, "wait: readers of the slot", 8),
            one(Kind::Copy, "copy", 7),
            one(Kind::Annotated, "step", 6),
            one(Kind::Kernel, "step", 5),
        ];
        assert_eq!(table.rows, rows);
        assert_eq!(table.wall, Duration::from_nanos(200_200));
        let text = table.to_string();
        let line = "decode                    host     20.1ms  100%     200   100us   100us   198us";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("wait: readers of the slot wait"), "{text}");
        assert!(text.ends_with("one batch in 4 was recorded\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    /// Overlapping spans, several threads and time outside the run do not increase a share.
    #[test]
    fn a_share_is_the_part_of_the_run_that_the_spans_cover() {
        let mut spans = vec![
            span(Lane::Consumer, "wait: decode", 1000, 600),
            span(Lane::Consumer, "step", 1600, 400),
            // Two batches wait for the same slot. One wait begins before the consumer asks for its batch.
            span(Lane::CopyStream, "wait: readers of the slot", 800, 700),
            span(Lane::CopyStream, "wait: readers of the slot", 1200, 500),
            // There are two workers, and one of them is busy for the whole run.
            span(Lane::Worker(0), "decode", 900, 2000),
            span(Lane::Worker(1), "decode", 1500, 100),
            span(Lane::Worker(1), "decode", 1900, 100),
        ];
        spans.iter_mut().for_each(|span| span.loader = 1);
        // Another loader runs later and longer.
        let later = Span { loader: 2, ..span(Lane::Consumer, "wait: decode", 10_000, 4000) };
        let share = |spans: &[Span], one_in, name: &str| {
            let table = Table::of_spans(spans, &[], one_in);
            table.rows.iter().find(|row| row.name == name).map(|row| row.share)
        };
        assert_eq!(share(&spans, 1, "wait: decode"), Some(0.6));
        assert_eq!(share(&spans, 1, "wait: readers of the slot"), Some(0.7));
        assert_eq!(share(&spans, 1, "decode"), Some(0.6));
        assert_eq!(share(&spans, 2, "step"), Some(0.8));
        spans.push(later);
        assert_eq!(share(&spans, 1, "wait: decode"), Some(4600.0 / 5000.0));
    }

    #[test]
    fn times_have_three_digits() {
        let times =
            [0, 999, 1_000, 9_994, 12_340, 999_400, 999_600, 56_700_000, 1_234_000_000, 100_000_000_000];
        let texts = times.map(|ns| short(Duration::from_nanos(ns)));
        let wanted =
            ["0ns", "999ns", "1.00us", "9.99us", "12.3us", "999us", "1.00ms", "56.7ms", "1.23s", "100.00s"];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn an_empty_trace_has_an_empty_table() {
        assert!(Table::new(&Trace::new()).rows.is_empty());
    }
}
