//! Order, bytes and cursors are equal with any number of servers.

use std::sync::Arc;
use std::time::Duration;

use feedline::bad_samples::Budget;
use feedline::sampler::BatchSampler;
use feedline::{
    BadSamples, Cursor, DType, InMemory, LastBatch, Loader, LoaderBuilder, Mix, Pad, Sampler, Source, Spec,
    Workers, World, from_fn,
};
use feedline_decode::Server;
use feedline_testkit::fixtures::streams::{Generator, Hooked};
use feedline_testkit::fixtures::{self, Fine, failing, slow};
use feedline_testkit::with_watchdog;

use crate::common::{BATCH, Delivered, builder, run, serve, servers, until_filled};

const LEN: u64 = 203;
const LIMIT: Duration = Duration::from_secs(120);

fn set() -> Arc<impl feedline::Dataset> {
    Arc::new(slow(Fine::new(LEN, 16).unwrap(), 0..LEN, Duration::from_micros(200)))
}

#[test]
fn batches_are_equal_with_0_1_and_4_servers_and_servers_fill_most() {
    with_watchdog(LIMIT, || {
        let set = set();
        let (want, none) = run(builder(&set));
        assert_eq!(none, None);
        let running: Vec<_> = (0..4).map(|_| serve(&set)).collect();
        let addresses: Vec<_> = running.iter().map(|server| server.address()).collect();
        for count in [1, 4] {
            let (delivered, report) = run(builder(&set).filler(servers(&addresses[..count])));
            assert!(delivered == want, "{count} servers");
            let report = report.expect("a report");
            assert!(report.batches > 10 && report.rejected == 0, "{report}");
        }
        for server in &running {
            assert!(server.rows()[0] > 0, "every server has decoded rows");
        }
    });
}

#[test]
fn every_sampler_world_and_last_batch_is_served_without_being_known_to_a_server() {
    with_watchdog(LIMIT, || {
        let set = set();
        let server = serve(&set);
        let world = |rank| World::new(rank, 3).unwrap();
        let cases: [fn(LoaderBuilder) -> LoaderBuilder; 5] = [
            |builder| builder.shuffle().seed(3),
            |builder| builder.sampler(Sampler::block(16, 2).unwrap()).seed(4),
            |builder| builder.last_batch(LastBatch::Pad),
            |builder| builder.last_batch(LastBatch::Drop).skip(0, 2..9),
            |builder| {
                builder.sampler(Sampler::weighted(&(0..LEN).map(|id| id as f64).collect::<Vec<_>>()).unwrap())
            },
        ];
        for (index, case) in cases.into_iter().enumerate() {
            let made = || {
                let builder = Loader::builder(set.clone()).batch_size(BATCH).workers(Workers::Count(1));
                case(builder).epochs(2).world(world(1))
            };
            let (want, _) = run(made());
            let (delivered, _) = until_filled(|| run(made().filler(servers(&[server.address()]))));
            assert!(delivered == want, "case {index}");
        }
    });
}

#[test]
fn a_server_draws_the_random_numbers_of_each_draw() {
    with_watchdog(LIMIT, || {
        let spec = Spec::new().field("bytes", DType::U8, [16]).unwrap();
        let noise = from_fn(LEN, spec, |_, row, context| {
            let (draw, random) = (context.draw(), context.random().next_u64());
            row.bytes_mut(0).copy_from_slice(&[draw.to_le_bytes(), random.to_le_bytes()].concat());
            Ok(())
        });
        let set = Arc::new(slow(noise, 0..LEN, Duration::from_micros(200)));
        let server = serve(&set);
        let labels: Vec<u32> = (0..LEN).map(|id| u32::from(id >= LEN - 3)).collect();
        let balanced = Sampler::balanced(&labels, 2).unwrap();
        for rank in 0..2 {
            let made = || {
                let builder = Loader::builder(set.clone()).batch_size(BATCH).workers(Workers::Count(1));
                builder.sampler(balanced.clone()).seed(4).epochs(2).world(World::new(rank, 2).unwrap())
            };
            let (want, _) = run(made());
            let (delivered, _) = until_filled(|| run(made().filler(servers(&[server.address()]))));
            assert!(delivered == want, "rank {rank}");
            let mut rows: Vec<&[u8]> = want.batches.iter().flat_map(|(_, bytes)| bytes.chunks(16)).collect();
            let count = rows.len();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), count, "samples that come again have other numbers");
        }
    });
}

#[test]
fn a_run_resumes_with_another_set_of_servers() {
    with_watchdog(LIMIT, || {
        let set = set();
        let want = run(builder(&set)).0;
        let running: Vec<_> = (0..3).map(|_| serve(&set)).collect();
        let addresses: Vec<_> = running.iter().map(|server| server.address()).collect();
        let part = |cursor: Option<Cursor>, filled: &[usize], steps: usize| {
            let builder = builder(&set);
            let asked = filled.iter().map(|&index| &addresses[index]);
            let builder = if filled.is_empty() { builder } else { builder.filler(servers(asked)) };
            let mut loader = builder.build_host().unwrap();
            let epoch = match cursor {
                Some(cursor) => loader.resume(cursor).unwrap(),
                None => loader.epoch(0).unwrap(),
            };
            let batches: Vec<_> = epoch.take(steps).map(|batch| batch.unwrap().ids().to_vec()).collect();
            (batches, loader.cursor())
        };
        let (mut ids, cursor) = part(None, &[0, 1], 5);
        let (more, cursor) = part(Some(cursor), &[], 7);
        let (rest, _) = part(Some(cursor), &[2], usize::MAX);
        ids.extend(more.into_iter().chain(rest));
        let steps = BatchSampler::steps(builder(&set).build_host().unwrap().batch_sampler(), 0, 0) as usize;
        assert!(ids.iter().eq(want.batches[..steps].iter().map(|(ids, _)| ids)));
    });
}

#[test]
fn a_mix_is_drawn_on_a_server_as_here() {
    with_watchdog(LIMIT, || {
        let part = |len| slow(Fine::new(len, 16).unwrap(), 0..len, Duration::from_micros(200));
        let mix = Mix::builder(5).dataset(part(90), 0.7).dataset(part(40), 0.3).samples(LEN).build().unwrap();
        let mix = Arc::new(mix);
        let (want, _) = run(builder(&mix));
        let running: Vec<_> = (0..2).map(|_| serve(&mix)).collect();
        let addresses: Vec<_> = running.iter().map(|server| server.address()).collect();
        let (delivered, report) = until_filled(|| run(builder(&mix).filler(servers(&addresses))));
        assert!(delivered == want && report.rejected == 0, "{report}");
    });
}

/// A source whose records take 200 us to decode; the record of sample `bad` cannot be decoded.
fn source(bad: Option<u64>) -> impl Source {
    Hooked::new(Generator::new([30, 0, 41, 7, 90, 12]).unwrap()).before_decode(move |id| {
        std::thread::sleep(Duration::from_micros(200));
        if Some(id) == bad { Err("a planned bad record".into()) } else { Ok(()) }
    })
}

#[test]
fn the_records_of_a_source_are_decoded_by_0_1_and_4_servers_in_every_order() {
    with_watchdog(LIMIT, || {
        let orders: [fn(LoaderBuilder<dyn Source>) -> LoaderBuilder<dyn Source>; 3] = [
            |builder| builder,
            |builder| builder.shuffle_shards().seed(3).shuffle_buffer(1 << 10),
            |builder| builder.split_shards().world(World::new(1, 3).unwrap()),
        ];
        let budget = BadSamples::Substitute { budget: Budget::Count(9) };
        for (bad, order) in [None, Some(7)].into_iter().flat_map(|bad| orders.map(|order| (bad, order))) {
            let builder = || {
                let builder = Loader::source_builder(source(bad)).batch_size(BATCH).epochs(2);
                order(builder.workers(Workers::Count(1)).bad_samples(budget))
            };
            let bind = |_| Server::new().source(source(bad)).workers(2).bind("127.0.0.1:0").unwrap();
            let running: Vec<_> = (0..4).map(bind).collect();
            let addresses: Vec<_> = running.iter().map(|server| server.address()).collect();
            let (want, _) = run(builder());
            for count in [1, 4] {
                let asked = || run(builder().filler(servers(&addresses[..count])));
                let (delivered, report) = until_filled(asked);
                assert!(delivered == want, "{count} servers, bad record {bad:?}");
                assert_eq!(report.rejected, 0, "{report}");
            }
            // A resume with another server.
            let part = |cursor: Option<Cursor>, server: usize, steps: usize| {
                let mut loader = builder().filler(servers(&addresses[server..=server])).build_host().unwrap();
                let epoch = match cursor {
                    Some(cursor) => loader.resume(cursor).unwrap(),
                    None => loader.epoch(0).unwrap(),
                };
                let ids: Vec<_> = epoch.take(steps).map(|batch| batch.unwrap().ids().to_vec()).collect();
                (ids, loader.cursor())
            };
            let (mut ids, cursor) = part(None, 0, 3);
            ids.extend(part(Some(cursor), 1, usize::MAX).0);
            assert!(ids.iter().eq(want.batches[..ids.len()].iter().map(|(ids, _)| ids)));
        }
    });
}

#[test]
fn a_source_is_served_as_a_source_only() {
    with_watchdog(LIMIT, || {
        let set = set();
        let server = serve(&set);
        let builder = Loader::source_builder(source(None)).batch_size(BATCH);
        let error = builder.filler(servers(&[server.address()])).build_host().unwrap_err();
        assert!(error.to_string().contains("another kind of data: the trainer has a source"), "{error}");
        let server = Server::new().source(source(None)).bind("127.0.0.1:0").unwrap();
        let error =
            crate::common::builder(&set).filler(servers(&[server.address()])).build_host().unwrap_err();
        assert!(error.to_string().contains("the trainer has a data set, the server a source"), "{error}");
        let longer = Generator::new([30, 0, 41, 7, 90, 12, 1]).unwrap();
        let builder = Loader::source_builder(longer).batch_size(BATCH);
        let error = builder.filler(servers(&[server.address()])).build_host().unwrap_err();
        assert!(error.to_string().contains("another number of samples"), "{error}");
    });
}

#[test]
fn random_transforms_draw_on_a_server_what_they_draw_here() {
    with_watchdog(LIMIT, || {
        let set = Arc::new(fixtures::Random::new(90, 5).unwrap());
        let server = serve(&set);
        let drawn = |builder: LoaderBuilder| {
            let mut loader = builder.build_host().unwrap();
            let mut all = Vec::new();
            for epoch in 0..2 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    all.extend(batch.field_at::<f64>(batch.spec().fields().len() - 1).unwrap().to_vec());
                }
            }
            (all, loader.report().filler)
        };
        let (want, _) = drawn(builder(&set));
        let (served, _) = until_filled(|| drawn(builder(&set).filler(servers(&[server.address()]))));
        assert!(served == want);
    });
}

#[test]
fn ragged_and_shaped_fields_of_every_type_arrive_as_they_are() {
    with_watchdog(LIMIT, || {
        let texts: Vec<Vec<u16>> =
            (0..60).map(|id| (0..id % 7).map(|item| 100 * id + item).collect()).collect();
        let pairs: Vec<Vec<f32>> = (0..60).map(|id| vec![id as f32 / 3.0; 2 * (id % 3)]).collect();
        let set = InMemory::new()
            .field("picture", [2, 3, 1], (0..60 * 6).map(|value| value as u8).collect::<Vec<_>>())
            .and_then(|set| set.ragged("text", [], 9, &texts))
            .and_then(|set| set.field("label", [], (0..60).map(|id| -id).collect::<Vec<i64>>()))
            .and_then(|set| set.ragged("pairs", [2], 5, &pairs))
            .map(Arc::new)
            .unwrap();
        let server = serve(&set);
        let rows = |filled: bool| {
            let builder = builder(&set).pad("text", Pad::multiple_of(4));
            let asked = servers(&[server.address()]);
            let builder = if filled { builder.filler(asked.clone()) } else { builder };
            let mut loader = builder.build_host().unwrap();
            let mut all = Vec::new();
            for epoch in 0..2 {
                for batch in loader.epoch(epoch).unwrap() {
                    let batch = batch.unwrap();
                    let (text, lengths) = batch.padded::<u16>("text").unwrap();
                    let (pairs, offsets) = batch.ragged::<f32>("pairs").unwrap();
                    all.push((
                        batch.field::<u8>("picture").unwrap().to_vec(),
                        (text.to_vec(), lengths.to_vec()),
                        batch.field::<i64>("label").unwrap().to_vec(),
                        (pairs.to_vec(), offsets.to_vec()),
                    ));
                }
            }
            (all, loader.report().filler)
        };
        let (served, report) = until_filled(|| rows(true));
        assert!(served == rows(false).0);
        assert_eq!((report.rejected, report.returned), (0, 0), "{report}");
    });
}

#[test]
fn bad_samples_are_counted_and_substituted_by_the_trainer() {
    with_watchdog(LIMIT, || {
        let set = Arc::new(failing(Fine::new(LEN, 16).unwrap(), [3, 90, 91]));
        let server = serve(&set);
        let reported = |filled: bool| {
            let builder = builder(&set).bad_samples(BadSamples::Substitute { budget: Budget::Count(20) });
            let builder = if filled { builder.filler(servers(&[server.address()])) } else { builder };
            let mut loader = builder.build_host().unwrap();
            let ids: Vec<_> = loader.epoch(0).unwrap().map(|batch| batch.unwrap().ids().to_vec()).collect();
            (ids, loader.cursor(), loader.bad_sample_report())
        };
        assert_eq!(reported(true), reported(false));
        // A bad sample that ends the run ends it with the same words.
        let ends = |filled: bool| {
            let builder = builder(&set);
            let builder = if filled { builder.filler(servers(&[server.address()])) } else { builder };
            let mut loader = builder.build_host().unwrap();
            loader.epoch(0).unwrap().find_map(|batch| batch.err()).expect("an error").to_string()
        };
        assert_eq!(ends(true), ends(false));
    });
}

#[test]
fn the_same_batches_come_from_tls_with_a_token() {
    with_watchdog(LIMIT, || {
        let set = set();
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (key.cert.pem(), key.signing_key.serialize_pem());
        let server = feedline_decode::Server::new().dataset(set.clone()).token("secret");
        let server = server.tls(certificate.clone(), key).bind("127.0.0.1:0").unwrap();
        let port = server.address().port();
        let servers = feedline_decode::Servers::new([format!("localhost:{port}")]).unwrap();
        let servers = servers.tls(certificate).token("secret").unwrap();
        let (want, _): (Delivered, _) = run(builder(&set));
        let (delivered, report) = run(builder(&set).filler(servers.clone()));
        assert!(delivered == want && report.unwrap().batches > 0, "{:?}", servers.status());
    });
}
