//! An object is read as the version that it had when it was opened.

use std::time::SystemTime;

use crate::server::{Served, Server};
use crate::{BLOCK, LIMIT, RECORD, bytes, options, read, records};
use feedline_core::Dataset;
use feedline_datasets::{Remote, RemoteOptions};
use feedline_testkit::with_watchdog;

#[test]
fn requests_name_the_pinned_version() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let all = bytes(8 * BLOCK);
        for (etag, sent) in [("\"a\"", Some("\"a\"")), ("W/\"a\"", None)] {
            let before = server.requests().len();
            let served = Served { bytes: all.clone().into(), headers: format!("ETag: {etag}\r\n") };
            let set = records(&Remote::new(options()).unwrap(), &server.put("records", served)).unwrap();
            assert!(read(&set, 0..set.len()).unwrap() == all, "{etag}");
            let requests = server.requests().split_off(before);
            assert_eq!(requests[0].if_match, None);
            assert!(requests[1..].iter().all(|request| request.if_match.as_deref() == sent), "{requests:?}");
        }
    });
}

/// A time in seconds since 1970, as a header has it.
fn http_date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date of a day (H. Hinnant, "chrono-compatible low-level date algorithms").
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let name = |names: &str, at: u64| names[3 * at as usize..][..3].to_owned();
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        name("ThuFriSatSunMonTueWed", days % 7),
        name("JanFebMarAprMayJunJulAugSepOctNovDec", month - 1),
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[test]
fn an_object_that_is_written_twice_in_a_second_is_never_read_half_and_half() {
    with_watchdog(LIMIT, || {
        let server = Server::start();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let served = |bytes: &[u8]| Served {
            bytes: bytes.into(),
            headers: format!("Last-Modified: {}\r\n", http_date(now)),
        };
        let old = bytes(16 * BLOCK);
        let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
        let url = server.put("records", served(&old));
        let set = std::thread::scope(|scope| {
            let opened = scope.spawn(|| records(&Remote::new(options()).unwrap(), &url).unwrap());
            while server.requests().is_empty() {
                std::thread::yield_now();
            }
            // The first answer may or may not have been sent.
            server.put("records", served(&new));
            opened.join().unwrap()
        });
        assert!(read(&set, 0..set.len()).unwrap() == new, "not the last version alone");
    });
}

#[test]
fn an_object_that_changes_in_a_run_is_one_error_with_place_and_both_versions() {
    with_watchdog(LIMIT, || {
        let all = bytes(16 * BLOCK);
        let version = |headers: &str, bytes: &[u8]| Served { bytes: bytes.into(), headers: headers.into() };
        let (old, new) = ("ETag: \"old\"\r\n", "ETag: \"new\"\r\n");
        let monday = "Last-Modified: Mon, 06 Jul 2026 10:00:00 GMT\r\n";
        let tuesday = "Last-Modified: Tue, 07 Jul 2026 10:00:00 GMT\r\n";
        for (before, after, words, is_same) in [
            (version(old, &all), version(new, &all), ["\"old\"", "\"new\""], true),
            (version(monday, &all), version(tuesday, &all), ["2026-07-06", "2026-07-07"], true),
            (version(monday, &all), version(monday, &all[1..]), ["65536 bytes", "65535 bytes"], false),
            // The new object is so short that the range lies beyond its end.
            (version(old, &all), version(new, &all[..10]), ["\"old\"", "\"new\""], false),
        ] {
            let server = Server::start();
            let url = server.put("records", before);
            let remote = Remote::new(RemoteOptions { memory_bytes: 2 * BLOCK, ..options() }).unwrap();
            let set = records(&remote, &url).unwrap();
            read(&set, [0]).unwrap();
            server.put("records", after);
            let error = read(&set, [9 * BLOCK / RECORD as u64]).unwrap_err();
            for word in words.into_iter().chain([url.as_str(), "36864", "another version", "start again"]) {
                assert!(error.contains(word), "{word} in {error}");
            }
            // It was asked for once. All later reads give this error, even of blocks in memory.
            let requests = server.requests().len();
            assert_eq!(read(&set, [0]).unwrap_err(), error);
            assert_eq!((server.requests().len(), remote.stats().retries), (requests, 0));
            // Other bytes make another set; a new version with the same bytes does not.
            let reopened = records(&remote, &url).map(|set| set.fingerprint()).ok();
            assert_eq!(reopened == Some(set.fingerprint()), is_same, "{words:?}");
        }
    });
}
