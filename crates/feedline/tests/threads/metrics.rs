//! Metrics and spans for other programs, each behind its feature.

use feedline::{Device, Loader};
use feedline_testkit::fixtures::Fine;

/// Loads two epochs of 10 batches of 4 rows of 108 bytes.
fn load() -> Loader {
    let builder = Loader::builder(Fine::new(40, 100).expect("a set")).batch_size(4);
    let mut loader = builder.build(&Device::new_host()).expect("a loader");
    for epoch in 0..2 {
        loader.epoch(epoch).expect("an epoch").for_each(|batch| drop(batch.expect("a batch")));
    }
    loader
}

#[cfg(feature = "metrics")]
mod metered {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    /// Keeps every counter and gauge by its name and labels.
    #[derive(Default)]
    struct Kept(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

    impl Kept {
        fn cell(&self, key: &Key) -> Arc<AtomicU64> {
            // Loaders are numbered, in the order in which the tests of the process build them.
            let labels = key.labels().filter(|label| label.key() != "loader");
            let labels: Vec<_> = labels.map(|label| label.value().to_owned()).collect();
            let name = format!("{} {}", key.name(), labels.join(" ")).trim().to_owned();
            self.0.lock().expect("no panic").entry(name).or_default().clone()
        }

        fn get(&self, name: &str) -> Option<u64> {
            self.0.lock().expect("no panic").get(name).map(|cell| cell.load(Ordering::Relaxed))
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.cell(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.cell(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn the_metrics_are_those_of_the_report() {
        let kept = Kept::default();
        let report = metrics::with_local_recorder(&kept, || super::load().report());
        let get = |name: &str| kept.get(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(
            (get("feedline_batches_total"), get("feedline_rows_total"), get("feedline_bytes_total")),
            (20, 80, report.run.bytes)
        );
        assert_eq!((f64::from_bits(get("feedline_depth")), report.setup.device_slots), (8.0, 8));
        for cause in feedline::report::Cause::ALL {
            let reported = get(&format!("feedline_microseconds_total {cause}"));
            assert_eq!(reported, report.run.time(cause).as_micros() as u64, "{cause}");
        }
    }
}

#[cfg(feature = "tracing")]
mod traced {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Counts feedline's spans of all threads, by name.
    static COUNTS: Mutex<BTreeMap<&'static str, usize>> = Mutex::new(BTreeMap::new());

    struct Count;

    impl Subscriber for Count {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "feedline"
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            *COUNTS.lock().expect("no panic").entry(span.metadata().name()).or_default() += 1;
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn every_stage_enters_a_span_for_each_batch() {
        tracing::subscriber::set_global_default(Count).expect("the first");
        drop(super::load());
        let counts = COUNTS.lock().expect("no panic").clone();
        for name in ["decode", "queue the copy", "next"] {
            // With batches read ahead of a third epoch, and parts of batches.
            assert!(counts.get(name).is_some_and(|&count| count >= 20), "{name}: {counts:?}");
        }
    }
}
