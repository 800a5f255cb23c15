//! Fillers of sources, and of fields of variable length.

use feedline::{InMemory, LastBatch, Pad, Source, World};
use feedline_testkit::fixtures::streams::Generator;

use super::*;

/// Decodes the records of a source; every third batch fails.
struct Records {
    source: Generator,
    lanes: usize,
    calls: AtomicU64,
}

impl BatchFiller for Records {
    fn in_flight(&self) -> usize {
        self.lanes
    }

    fn check(&self, data: &DataDescription<'_>) -> Result<()> {
        assert!(data.is_source && data.samples == self.source.shards(), "{data:?}");
        Ok(())
    }

    fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
        Some(Box::new(|request, rows| {
            if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                return Err("planned".into());
            }
            let records = request.records.ok_or("no records")?;
            assert_eq!(records.len(), request.ids().len());
            let mut context = Context::new(request.data.seed, request.epoch()).with_draws(request.draws);
            for (index, (&id, record)) in request.ids().iter().zip(records).enumerate() {
                context.begin(index, id);
                self.source.decode(record, &mut rows.row(index), &mut context)?;
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            Ok(FillOutcome { order, content: content(rows), network: Duration::ZERO, servers: 1 })
        }))
    }
}

#[test]
fn the_records_of_a_source_are_read_in_sequence_and_decoded_by_the_filler() {
    alone_in_parts(|| {
        let source = || Generator::new([30, 0, 41, 7, 90, 12]).unwrap();
        type Builder = LoaderBuilder<dyn Source>;
        let orders: [fn(Builder) -> Builder; 4] = [
            |builder| builder,
            |builder| builder.shuffle_shards().seed(3).shuffle_buffer(1 << 10),
            |builder| builder.split_shards().world(World::new(1, 3).unwrap()),
            |builder| builder.last_batch(LastBatch::Drop),
        ];
        for (index, order) in orders.into_iter().enumerate() {
            for (source, lanes) in [(source(), 1), (source().hesitant(), 3)] {
                let builder = || {
                    let builder = Loader::source_builder(source.clone()).batch_size(BATCH).epochs(2);
                    order(builder.workers(Workers::Count(1)))
                };
                let filler = || Records { source: source.clone(), lanes, calls: AtomicU64::new(1) };
                let (want, cursor, _) = run(builder());
                let (batches, other, filled) = run_filled(|| builder().filler(filler()));
                assert!(batches == want && other == cursor, "order {index}, {lanes} lanes");
                assert!(filled.batches > 0 && filled.rejected == 0, "order {index}: {filled}");
                // Resumes within the first epoch, with workers alone and with another filler.
                let mut first = builder().filler(filler()).build_host().expect("a loader");
                first.epoch(0).expect("an epoch").take(3).for_each(|batch| drop(batch.expect("a batch")));
                let saved = first.cursor();
                drop(first);
                let mut second = builder().filler(filler()).build_host().expect("a loader");
                let rest: Vec<_> = second
                    .resume(saved)
                    .expect("an epoch")
                    .map(|batch| batch.unwrap().ids().to_vec())
                    .collect();
                assert!(rest.iter().eq(want[3..][..rest.len()].iter().map(|(ids, _)| ids)), "order {index}");
            }
        }
    });
}

#[test]
fn ragged_fields_are_filled_in_order_and_padded_by_the_loader() {
    /// Writes the texts of the set, and leaves out the last one of every third batch.
    struct Texts(Vec<&'static str>, AtomicU64);
    impl BatchFiller for Texts {
        fn in_flight(&self) -> usize {
            2
        }
        fn check(&self, _: &DataDescription<'_>) -> Result<()> {
            Ok(())
        }
        fn reserve(&self, _: Duration) -> Option<Fill<'_>> {
            Some(Box::new(|request, rows| self.fill(request, rows)))
        }
    }
    impl Texts {
        fn fill(&self, request: &FillRequest<'_>, rows: &mut Rows<'_>) -> Result<FillOutcome, ReadError> {
            let is_short = self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(3);
            let mut content = BatchContent::new();
            for (row, &id) in request.ids().iter().enumerate() {
                let text = self.0[id as usize].as_bytes();
                content.add(row, field_hash(0, text));
                if !is_short || row + 1 < request.ids().len() {
                    rows.row(row).write_ragged_bytes(0, text)?;
                }
            }
            let order = BatchProof::of(request.epoch(), request.ids()).order();
            Ok(FillOutcome { order, content, network: Duration::ZERO, servers: 1 })
        }
    }
    alone(|| {
        let texts = vec!["one", "", "three", "fourteen", "5", "sixteen", "", "eight", "nine"];
        let set = || InMemory::new().ragged("text", [], 9, texts.iter().map(|text| text.as_bytes())).unwrap();
        let batches = |filler: bool| {
            let builder = Loader::builder(set())
                .batch_size(2)
                .shuffle()
                .seed(3)
                .epochs(40)
                .pad("text", Pad::multiple_of(4));
            let builder =
                if filler { builder.filler(Texts(texts.clone(), AtomicU64::new(0))) } else { builder };
            let mut loader = builder.workers(Workers::Count(1)).build_host().expect("a loader");
            let mut all = Vec::new();
            for epoch in 0..40 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    let (values, lengths) = batch.padded::<u8>("text").unwrap();
                    all.push((values.to_vec(), lengths.to_vec()));
                }
            }
            (all, loader.report().filler)
        };
        let (want, _) = batches(false);
        // On a busy machine quick workers may leave the filler nothing.
        loop {
            let (filled, report) = batches(true);
            assert_eq!(filled, want);
            let report = report.expect("a report");
            assert_eq!(report.rejected, 0, "{report:?}");
            if report.batches > 0 && report.returned > 0 {
                break;
            }
        }
    });
}
