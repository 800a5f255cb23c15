//! Trainers that ask for the same samples, and the counters that say so.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use feedline::filler::FillerReport;
use feedline::{Loader, Workers};
use feedline_decode::Server;
use feedline_testkit::fixtures::{Fine, slow};
use feedline_testkit::with_watchdog;

use crate::common::{BATCH, run, servers};

const LEN: u64 = 160;
const LIMIT: Duration = Duration::from_secs(120);

/// The answer to a request of the second port.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn several_trainers_are_served_from_one_decode_of_each_sample() {
    with_watchdog(LIMIT, || {
        let set = Arc::new(slow(Fine::new(LEN, 16).unwrap(), 0..LEN, Duration::from_millis(1)));
        let server = Server::new().dataset(set.clone()).workers(2).shared(64 << 20);
        let server = server.metrics("127.0.0.1:0").bind("127.0.0.1:0").unwrap();
        // The workers of the trainers are slow, so that servers make most batches.
        let trainer = || {
            let slow = slow(Fine::new(LEN, 16).unwrap(), 0..LEN, Duration::from_millis(30));
            let builder = Loader::builder(slow).batch_size(BATCH).shuffle().seed(7).epochs(2);
            run(builder.workers(Workers::Count(1)).filler(servers(&[server.address()])))
        };
        let delivered: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..3).map(|_| scope.spawn(trainer)).collect();
            running.into_iter().map(|trainer| trainer.join().unwrap()).collect()
        });
        assert!(delivered.windows(2).all(|pair| pair[0].0 == pair[1].0));
        let [decoded, sent, shared] = server.rows();
        let sum =
            |count: fn(FillerReport) -> u64| delivered.iter().map(|(_, report)| count(report.unwrap())).sum();
        let (asked, returned): (u64, u64) = (sum(|report| report.batches), sum(|report| report.returned));
        assert!(asked > 60, "servers made most of the 120 batches: {asked}");
        // A batch that a trainer gave up may be decoded again for another one.
        let max = 2 * LEN + returned * BATCH as u64;
        assert!(decoded <= max, "each sample of two epochs once: {decoded} rows, {returned} given up");
        assert!(sent >= asked * BATCH as u64 && shared > 20, "{sent} rows sent, {shared} shared");
        let text = get(server.metrics_address().unwrap(), "/metrics");
        assert!(text.contains(&format!("feedline_decode_rows_decoded_total {decoded}\n")), "{text}");
        assert!(text.contains(&format!("feedline_decode_shared_total {shared}\n")), "{text}");
        assert!(get(server.metrics_address().unwrap(), "/health").contains("200 OK"));
        assert!(get(server.metrics_address().unwrap(), "/etc/passwd").contains("404"));
    });
}

#[test]
fn batches_are_kept_within_the_budget() {
    with_watchdog(LIMIT, || {
        let set = Arc::new(Fine::new(LEN, 1 << 10).unwrap());
        // Room for a few batches of 8 KB.
        let server =
            Server::new().dataset(set.clone()).workers(1).shared(40 << 10).bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            let builder = crate::common::builder(&set).filler(servers(&[server.address()]));
            assert!(run(builder).1.unwrap().rejected == 0);
        }
        let [decoded, sent, _] = server.rows();
        assert!(decoded > 0 && decoded <= sent);
    });
}
