//! Buckets of small objects: many requests are in flight for the samples of later batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::patterns::of_bucket;
use crate::server::{Fault, Served, Server};
use crate::{LIMIT, made};
use feedline_core::{Context, Dataset, Fingerprint, Prefetched, StableDataset, Values};
use feedline_datasets::{Bounded, Remote, RemoteOptions};
use feedline_testkit::with_watchdog;

const OBJECTS: usize = 400;
const DELAY: Duration = Duration::from_millis(50);

/// The bytes of an object: a picture, and the object's number.
fn content(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; len];
    bytes[..4].copy_from_slice(b"\xFF\xD8\xFF\xE0");
    bytes[4..12].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

/// A bucket of objects of `len` bytes in two classes.
fn bucket(len: usize) -> Server {
    let server = Server::start();
    for number in 0..OBJECTS {
        let served = Served::new(content(number, len));
        let headers = format!("ETag: \"{number}\"\r\n");
        server.put(&format!("bucket/set/{}/{number:04}.jpg", number % 2), Served { headers, ..served });
    }
    server
}

fn options(server: &Server) -> RemoteOptions {
    let RemoteOptions { block_bytes, memory_bytes, .. } = RemoteOptions::default();
    RemoteOptions { attempts: 3, block_bytes, memory_bytes, ..of_bucket(server) }
}

/// The number of the object that is sample `sample`.
fn number(sample: usize) -> usize {
    (sample % (OBJECTS / 2)) * 2 + sample / (OBJECTS / 2)
}

#[test]
fn objects_of_later_batches_are_in_flight_while_one_thread_reads() {
    with_watchdog(LIMIT, || {
        let len = 20_000;
        let server = bucket(len);
        let remote = Remote::new(options(&server)).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        let before = server.requests().len();
        let measured = Bounded::measured(remote.open("s3://bucket/set/").unwrap()).unwrap();
        assert!(measured.lengths("data").unwrap().iter().all(|bytes| *bytes as usize == len));
        let asked = server.requests().len() - before;
        assert!(asked <= 2, "{asked} requests for lengths that the listing has");
        server.delay(DELAY);
        let begun = Instant::now();
        let ids: Vec<u64> = (0..OBJECTS as u64).collect();
        assert_eq!(reader.storage().prefetch(&ids, &mut Context::new(0, 0)), Prefetched::Ready);
        assert_eq!(
            reader.storage().prefetch(&ids[..9], &mut Context::new(0, 0)),
            Prefetched::Ready,
            "what is wanted is not asked for again"
        );
        for sample in 0..OBJECTS {
            assert_eq!(made::read(&*reader, sample as u64)[0], content(number(sample), len), "{sample}");
        }
        let took = begun.elapsed();
        let one_by_one = DELAY * OBJECTS as u32;
        assert!(took < one_by_one / 3, "{took:?}, one by one {one_by_one:?}");
        let most = server.max_in_flight();
        assert!((30..=66).contains(&most), "{most} at a time");
        println!("{:.0} objects/s, {most} at a time", OBJECTS as f64 / took.as_secs_f64());
        let gets = server.requests().iter().filter(|request| request.target.contains(".jpg")).count();
        assert!(gets <= OBJECTS + 2, "{gets} requests for {OBJECTS} objects");
        assert!(remote.stats().max_memory <= RemoteOptions::default().memory_bytes);
    });
}

#[test]
fn the_memory_of_objects_ahead_is_bounded_and_none_is_lost() {
    with_watchdog(LIMIT, || {
        let len = 6000;
        let server = bucket(len);
        let memory_bytes = 10 * len as u64;
        let options = RemoteOptions { memory_bytes, block_bytes: 4096, in_flight: 32, ..options(&server) };
        let remote = Remote::new(options).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        server.delay(Duration::from_millis(2));
        let ids: Vec<u64> = (0..OBJECTS as u64).collect();
        reader.storage().prefetch(&ids, &mut Context::new(0, 0));
        for sample in 0..OBJECTS {
            assert_eq!(made::read(&*reader, sample as u64)[0], content(number(sample), len), "{sample}");
        }
        assert!(remote.stats().max_memory <= memory_bytes, "{:?}", remote.stats());
    });
}

#[test]
fn objects_of_a_web_server_are_opened_ahead_and_a_missing_one_is_an_error_of_its_sample() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        for number in (0..100).filter(|number| *number != 40) {
            let served = Served::new(content(number, 900));
            let headers = format!("ETag: \"{number}\"\r\n");
            server.put(&format!("p/{number:02}.jpg"), Served { headers, ..served });
        }
        server.delay(Duration::from_millis(20));
        let remote = Remote::new(RemoteOptions { attempts: 1, ..Default::default() }).unwrap();
        let reader = remote.open(&server.url("p/{00..99}.jpg")).unwrap();
        let ids: Vec<u64> = (0..100).collect();
        for epoch in 0..2 {
            assert_eq!(reader.storage().prefetch(&ids, &mut Context::new(0, 0)), Prefetched::Ready);
            for sample in 0..100 {
                let mut values = Values::new();
                let read = values.read(&*reader, sample);
                if sample == 40 {
                    let error = read.unwrap_err();
                    assert_eq!(error.sample(), Some(40), "{error}");
                    assert!(error.to_string().contains("p/40.jpg"), "{error}");
                } else {
                    read.unwrap();
                    assert_eq!(values.fields()[0].bytes, content(sample as usize, 900), "{epoch} {sample}");
                }
            }
        }
        assert!((10..=66).contains(&server.max_in_flight()), "{} at a time", server.max_in_flight());
    });
}

#[test]
fn an_object_that_changes_or_fails_ahead_is_an_error_of_its_sample_and_an_end_in_the_middle_ends() {
    with_watchdog(LIMIT, || {
        let server = bucket(500);
        let remote = Remote::new(options(&server)).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        let other = Served { headers: "ETag: \"other\"\r\n".into(), ..Served::new(content(2, 500)) };
        server.put("bucket/set/0/0002.jpg", other);
        server.delay(Duration::from_millis(5));
        let ids: Vec<u64> = (0..60).collect();
        reader.storage().prefetch(&ids, &mut Context::new(0, 0));
        for sample in 0..60 {
            let read = Values::new().read(&*reader, sample);
            if sample == 1 {
                let error = read.unwrap_err();
                assert!(error.to_string().contains("written to while it was in use"), "{error}");
                assert_eq!(error.sample(), Some(1));
            } else {
                read.unwrap();
            }
        }
        // Most of these requests are in flight or queued.
        server.delay(Duration::from_millis(300));
        reader.storage().prefetch(&(100..OBJECTS as u64).collect::<Vec<_>>(), &mut Context::new(0, 0));
        let begun = Instant::now();
        drop((reader, remote));
        assert!(begun.elapsed() < Duration::from_millis(250), "nothing waits for the requests");
        let before = server.requests().len();
        std::thread::sleep(Duration::from_millis(700));
        assert!(server.requests().len() <= before + 64, "the requests went on");
    });
}

#[test]
fn answers_that_fail_with_many_in_flight_are_asked_for_again_and_each_sample_has_its_own_error() {
    with_watchdog(LIMIT, || {
        let server = bucket(3000);
        let times = Duration::from_millis(400);
        let remote =
            Remote::new(RemoteOptions { attempts: 12, request_time: times, ..options(&server) }).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        // Longer than a busy machine takes to ask for all that may be in flight.
        server.delay(Duration::from_millis(20));
        let wrong = [
            Fault::Status(503),
            Fault::Reset,
            Fault::Cut,
            Fault::Short,
            Fault::OtherRange,
            Fault::Stalls,
            Fault::Slow,
            Fault::Silent,
        ];
        let faults: Vec<_> = wrong.iter().cycle().take(64).copied().collect();
        server.fail(&faults);
        let ids: Vec<u64> = (0..OBJECTS as u64).collect();
        assert_eq!(reader.storage().prefetch(&ids, &mut Context::new(0, 0)), Prefetched::Ready);
        for sample in 0..OBJECTS {
            assert_eq!(made::read(&*reader, sample as u64)[0], content(number(sample), 3000), "{sample}");
        }
        let stats = remote.stats();
        assert!((56..=80).contains(&stats.retries), "{stats:?}");
        assert!(server.max_in_flight() >= 30, "{} at a time", server.max_in_flight());

        // No object arrives: each sample's error has its own URL, and the next read succeeds.
        let few = RemoteOptions { attempts: 2, ..options(&server) };
        let reader = Remote::new(few).unwrap().open("s3://bucket/set/").unwrap();
        server.fail_always(Some(Fault::Status(503)));
        reader.storage().prefetch(&ids[..100], &mut Context::new(0, 0));
        for sample in [0, 1, 50, 99] {
            let error = Values::new().read(&*reader, sample).unwrap_err();
            let name = format!("set/{}/{:04}.jpg", number(sample as usize) % 2, number(sample as usize));
            let line = error.to_string();
            assert!(line.contains("status 503") && line.contains(&name), "{line}");
            assert_eq!(error.sample(), Some(sample));
        }
        server.fail_always(None);
        for sample in 0..100 {
            assert_eq!(made::read(&*reader, sample as u64)[0], content(number(sample), 3000), "{sample}");
        }
    });
}

#[test]
fn the_parts_that_a_fingerprint_covers_are_fetched_at_one_time() {
    with_watchdog(LIMIT, || {
        let server = bucket(900);
        let remote = Remote::new(options(&server)).unwrap();
        let reader = remote.open("s3://bucket/set/").unwrap();
        server.delay(DELAY);
        let begun = Instant::now();
        reader.fingerprint();
        let (took, asked) = (begun.elapsed(), 200);
        // It covers every second one of 400 objects.
        assert!(took < DELAY * asked / 3, "{took:?} for {asked} requests of {DELAY:?}");
    });
}

#[test]
fn a_fingerprint_whose_request_fails_is_an_error_and_not_another_fingerprint() {
    with_watchdog(LIMIT, || {
        let server = bucket(900);
        let open = || {
            let quick = RemoteOptions { attempts: 2, backoff: Duration::from_millis(1), ..options(&server) };
            Remote::new(quick).unwrap().open("s3://bucket/set/").unwrap()
        };
        let set = || StableDataset::new(Arc::new(Bounded::measured(open()).unwrap()));
        let checked = |set: &StableDataset| Fingerprint::checked(|| set.fingerprint());
        let whole = set().fingerprint();
        for (status, cause) in [(503, "status 503"), (403, "access")] {
            let set = set();
            server.fail_always(Some(Fault::Status(status)));
            let line = checked(&set).unwrap_err().to_string();
            for part in ["without which a run cannot be resumed", "bucket/set/0/0000.jpg", cause] {
                assert!(line.contains(part), "{status}: {line}");
            }
            server.fail_always(None);
            assert_eq!(checked(&set).unwrap(), whole, "what has failed is asked for again");
        }
        // These are errors of their samples, whenever they are read.
        let (gone, changed) = (set(), set());
        server.remove("bucket/set/0/0000.jpg");
        assert_ne!(checked(&gone).unwrap(), whole);
        let other = Served { headers: "ETag: \"other\"\r\n".into(), ..Served::new(content(0, 900)) };
        server.put("bucket/set/0/0000.jpg", other);
        assert_ne!(checked(&changed).unwrap(), whole);
    });
}
