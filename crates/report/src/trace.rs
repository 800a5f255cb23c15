//! Writes a trace in Chrome's trace event format, which Perfetto reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use feedline::trace::Trace;
use feedline::trace::content::{Lane, Name, Recorded, Span, recorded};
use feedline_core::{Error, ErrorKind, Result};

/// The name of the process for the user's own lanes. It is shown above the loaders.
const OWN: &str = "program";

/// The trace in Chrome's JSON format, for Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing`. Times
/// are in microseconds since the process first read the clock.
///
/// ```
/// use feedline::trace::Trace;
/// let trace = Trace::new();
/// drop(trace.annotate("my work"));
/// assert!(feedline_report::trace_json(&trace).contains("my work"));
/// ```
pub fn trace_json(trace: &Trace) -> String {
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":{}}}\n", events(&recorded(trace)))
}

/// Writes [`trace_json`] to a file.
///
/// # Errors
/// `Data` if it cannot be written.
pub fn write_trace(trace: &Trace, path: impl AsRef<Path>) -> Result<()> {
    std::fs::write(path.as_ref(), trace_json(trace)).map_err(|error| {
        Error::new(ErrorKind::Data, "cannot write the trace").with_source(error).at_path(path.as_ref())
    })
}

/// Writes one JSON object per line: first the names of the lanes, then the spans, then the arrows between the
/// spans of a batch.
pub(crate) fn events(recorded: &Recorded) -> String {
    let Recorded { spans, names, .. } = recorded;
    let mut lines = Vec::with_capacity(2 * spans.len());
    let lanes: BTreeSet<_> = spans.iter().map(|span| (span.loader, span.lane)).collect();
    let loaders: BTreeSet<_> = lanes.iter().map(|&(loader, _)| loader).collect();
    for loader in loaders {
        let name = if loader == 0 { OWN.to_owned() } else { format!("feedline loader {loader}") };
        lines.push(named("process_name", loader, 0, &name));
    }
    for (loader, lane) in lanes {
        let id = lane_id(lane);
        lines.push(named("thread_name", loader, id, &lane_name(lane, names)));
        lines.push(format!(
            r#"{{"ph":"M","name":"thread_sort_index","pid":{loader},"tid":{id},{}}}"#,
            format_args!(r#""args":{{"sort_index":{id}}}"#)
        ));
    }
    let mut batches: BTreeMap<_, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        lines.push(span_json(span));
        if let Some(batch) = span.batch
            && !span.name.starts_with("wait")
        {
            batches.entry((span.loader, batch.number)).or_default().push(span);
        }
    }
    for ((loader, number), mut spans) in batches {
        // The first span of each lane.
        spans.sort_by_key(|span| (span.lane, span.start));
        spans.dedup_by_key(|span| span.lane);
        spans.sort_by_key(|span| span.start);
        let last = spans.len() - 1;
        for (index, span) in spans.iter().enumerate().filter(|_| last > 0) {
            let phase = match index {
                0 => r#""ph":"s""#,
                _ if index == last => r#""ph":"f","bp":"e""#,
                _ => r#""ph":"t""#,
            };
            let (tid, ts) = (lane_id(span.lane), micros(span.start));
            let place = format!(r#""pid":{loader},"tid":{tid},"ts":{ts}"#);
            lines.push(format!(
                r#"{{{phase},"id":"{loader}.{number}","name":"batch","cat":"batch",{place}}}"#
            ));
        }
    }
    format!("[\n{}\n]", lines.join(",\n"))
}

fn lane_id(lane: Lane) -> u32 {
    match lane {
        Lane::Own(index) => 1 + index,
        Lane::Consumer => 1,
        Lane::CopyStream => 2,
        Lane::Transfer => 3,
        Lane::MapStream(lane) => 4 + 2 * lane,
        Lane::Map(lane) => 5 + 2 * lane,
        Lane::Worker(index) => 50 + index,
    }
}

fn lane_name(lane: Lane, names: &[Name]) -> String {
    match lane {
        Lane::Own(index) => names.get(index as usize).map(|name| name.name.clone()).unwrap_or_default(),
        Lane::Consumer => "consumer".to_owned(),
        Lane::CopyStream => "copy stream".to_owned(),
        Lane::Transfer => "fl-transfer".to_owned(),
        Lane::MapStream(lane) => format!("stream of map {lane}"),
        Lane::Map(lane) => format!("fl-map-{lane}"),
        Lane::Worker(index) => format!("fl-decode-{index}"),
    }
}

fn span_json(span: &Span) -> String {
    let Span { loader, lane, name, start, end, batch, .. } = span;
    let (tid, ts, dur) = (lane_id(*lane), micros(*start), micros(end.saturating_sub(*start)));
    let name = text(name);
    let mut line = format!(
        r#"{{"ph":"X","name":{name},"cat":"feedline","pid":{loader},"tid":{tid},"ts":{ts},"dur":{dur}"#
    );
    if let Some(batch) = batch {
        let (number, epoch, step) = (batch.number, batch.epoch, batch.step);
        let _ = write!(line, r#","args":{{"batch":{number},"epoch":{epoch},"step":{step}}}"#);
    }
    line + "}"
}

fn named(what: &str, pid: u32, tid: u32, name: &str) -> String {
    let name = text(name);
    format!(r#"{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#)
}

/// A JSON string.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Nanoseconds as microseconds with three digits.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
