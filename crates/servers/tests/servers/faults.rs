//! 200 runs in which servers die, stop, come back, are slow, are replaced, or have their answers cut and
//! damaged: no sample is lost or doubled, and no run hangs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

use feedline::filler::FillerReport;
use feedline::source::Shard;
use feedline::{Context, DType, Loader, LoaderBuilder, ReadError, Row, Source, Spec, Workers};
use feedline_core::random::splitmix64;
use feedline_decode::{Running, Server};
use feedline_testkit::fixtures::streams::{Generator, Hooked};
use feedline_testkit::fixtures::{Fine, slow};
use feedline_testkit::with_watchdog;

use crate::common::{BATCH, Proxy, builder, run, run_with, serve, servers};

const LEN: u64 = 203;
const RUNS: u64 = 200;
/// The limit for one run; a run without faults takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(60);

fn set() -> Arc<impl feedline::Dataset> {
    Arc::new(slow(Fine::new(LEN, 64).unwrap(), 0..LEN, Duration::from_micros(100)))
}

/// Records that take 100 us to decode.
fn source() -> impl Source {
    Hooked::new(Generator::new([60, 3, 90, 50]).unwrap()).before_decode(|_| {
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    })
}

/// A run without servers, and a server of its data.
type Kind = (fn() -> LoaderBuilder<()>, fn() -> Server);

/// A server with the options of `server`.
fn bind(server: Server) -> Running {
    server.workers(2).bind("127.0.0.1:0").expect("a server")
}

/// A server behind a proxy.
struct Target {
    proxy: Proxy,
    server: Option<Running>,
    /// A server with the right data.
    right: fn() -> Server,
}

impl Target {
    fn new(server: Running) -> Self {
        let right = || Server::new().dataset(set());
        Self { proxy: Proxy::new(server.address()), server: Some(server), right }
    }

    fn serving(right: fn() -> Server) -> Self {
        Self { right, ..Self::new(bind(right())) }
    }

    fn replace(&mut self, server: Option<Running>) {
        self.proxy.set_server(server.as_ref().map(Running::address));
        self.server = server;
    }

    /// Does one of ten things to the server; returns its name.
    fn hurt(&mut self, random: u64) -> &'static str {
        let part = random >> 8 & 0xFFFF;
        match random % 10 {
            0 => {
                self.replace(None);
                "killed"
            }
            1 => {
                self.proxy.stop(true);
                "stopped"
            }
            2 => {
                self.proxy.stop(false);
                "continued"
            }
            3 => {
                self.replace(Some(bind((self.right)())));
                "restarted"
            }
            4 => {
                self.proxy.delay(Duration::from_micros(part % 5000));
                "slowed"
            }
            5 => {
                self.proxy.delay(Duration::ZERO);
                "quick again"
            }
            6 => {
                self.proxy.cut_after(part % 2000);
                "cut"
            }
            7 => {
                self.proxy.flip_after(part % 3000);
                "bit flipped"
            }
            8 => {
                let other = Arc::new(Fine::new(LEN + 1, 64).unwrap());
                self.replace(Some(serve(&other)));
                "replaced by other data"
            }
            _ => {
                self.replace(Some(bind((self.right)().transforms("older"))));
                "replaced by an older version"
            }
        }
    }
}

#[test]
fn two_hundred_runs_with_faults_deliver_every_sample_once_and_in_order() {
    // Every fourth run reads a source.
    let of_set: fn() -> LoaderBuilder<()> = || builder(&set()).either();
    let of_source: fn() -> LoaderBuilder<()> = || {
        let builder = Loader::source_builder(source()).batch_size(BATCH).shuffle_buffer(1 << 10);
        builder.epochs(2).workers(Workers::Count(1)).either()
    };
    let kinds: [Kind; 2] =
        [(of_set, || Server::new().dataset(set())), (of_source, || Server::new().source(source()))];
    let want = kinds.map(|(builder, _)| run(builder()).0);
    let (mut faults, mut sums) = (BTreeMap::<&str, u64>::new(), FillerReport::default());
    let mut longest = Duration::ZERO;
    for seed in 0..RUNS {
        let start = Instant::now();
        let kind = usize::from(seed % 4 == 3);
        let (delivered, report, hurt) = with_watchdog(LIMIT, move || one_run(kinds[kind], seed));
        longest = longest.max(start.elapsed());
        assert!(delivered == want[kind], "run {seed}: {hurt:?}");
        hurt.into_iter().for_each(|name| *faults.entry(name).or_default() += 1);
        sums.batches += report.batches;
        sums.returned += report.returned;
        sums.rejected += report.rejected;
        sums.retries += report.retries;
        sums.hedges += report.hedges;
        sums.service_ns += report.service_ns;
        sums.network_ns += report.network_ns;
        sums.servers = sums.servers.max(report.servers);
    }
    println!("{RUNS} runs, the longest {longest:.1?}: {faults:?}; {sums}");
    assert_eq!(faults.len(), 10, "every fault was there: {faults:?}");
    assert!(sums.batches > 0 && sums.retries > 0 && sums.returned > 0, "{sums}");
}

/// Ends the faults, also after a panic.
struct Ended<'a>(&'a AtomicU8);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(2, SeqCst);
    }
}

/// A run with three servers. Faults hit one after another, or all at once.
fn one_run(
    (builder, server): Kind,
    seed: u64,
) -> (crate::common::Delivered, FillerReport, Vec<&'static str>) {
    let mut targets: Vec<_> = (0..3).map(|_| Target::serving(server)).collect();
    let addresses: Vec<SocketAddr> = targets.iter().map(|target| target.proxy.address).collect();
    let filler = servers(&addresses).timeout(Duration::from_millis(600));
    // 0 before the first batch, 1 during the run, 2 after it.
    let state = AtomicU8::new(0);
    std::thread::scope(|scope| {
        let chaos = scope.spawn(|| {
            let (mut hurt, mut random) = (Vec::new(), splitmix64(seed));
            // A server with other data ends the build, so the faults begin with the first batch.
            while state.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            while state.load(SeqCst) == 1 {
                let all_at_once = random % 16 == 0;
                let target = (random >> 4) as usize % targets.len();
                for (index, target) in
                    targets.iter_mut().enumerate().filter(|(index, _)| all_at_once || *index == target)
                {
                    hurt.push(target.hurt(splitmix64(random ^ index as u64)));
                }
                random = splitmix64(random);
                std::thread::sleep(Duration::from_millis(2 + random % 20));
            }
            targets.iter().for_each(|target| target.proxy.stop(false));
            hurt
        });
        let ended = Ended(&state);
        let (delivered, report) = run_with(builder().filler(filler), |_| state.store(1, SeqCst));
        drop(ended);
        (delivered, report.expect("a report"), chaos.join().expect("the faults"))
    })
}

#[test]
fn the_workers_go_on_when_every_server_is_gone_and_with_those_that_come_back() {
    with_watchdog(LIMIT, || {
        let set = set();
        let want = run(builder(&set)).0;
        let mut targets: Vec<_> = (0..2).map(|_| Target::new(serve(&set))).collect();
        let addresses: Vec<_> = targets.iter().map(|target| target.proxy.address).collect();
        let filler = servers(&addresses);
        let (delivered, report) = run_with(builder(&set).filler(filler.clone()), |batches| {
            if batches == 10 {
                targets.iter_mut().for_each(|target| target.replace(None));
            }
            if batches == 20 {
                targets[0].replace(Some(serve(&set)));
                // Until the server is asked again, after its back-off.
                let start = Instant::now();
                while !filler.status().iter().any(|server| server.is_asked) && start.elapsed() < LIMIT {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        assert!(delivered == want);
        assert!(report.is_some_and(|report| report.batches > 0 && report.returned + report.retries > 0));
    });
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    with_watchdog(2 * LIMIT, || {
        let set = Arc::new(Fine::new(64, 512).unwrap());
        let want = run(builder(&set)).0;
        let (mut found, mut not_found) = (0, 0);
        for at in 0..60 {
            let target = Target::new(serve(&set));
            let filler = servers(&[target.proxy.address]).timeout(Duration::from_secs(1));
            // The bit flips among the batches: the first batch comes after the servers' data was checked.
            let mut is_set = false;
            let (delivered, report) = run_with(builder(&set).filler(filler.clone()), |_| {
                if !std::mem::replace(&mut is_set, true) {
                    target.proxy.flip_after(at * 37);
                }
            });
            assert!(delivered == want, "bit {at}");
            let report = report.expect("a report");
            let was_seen = report.rejected + report.returned + report.retries > 0;
            *if was_seen { &mut found } else { &mut not_found } += 1;
        }
        // A bit has no effect after the last answer, and in bytes that nobody reads.
        assert!(found > 0, "{found} found, {not_found} without an effect");
    });
}

/// A source that copies records into rows unchanged, even damaged ones.
struct Copied(Generator, Spec);

impl Copied {
    fn new() -> Self {
        let spec = Spec::new().field("bytes", DType::U8, [64]).expect("a spec");
        Self(Generator::new([60, 3, 90, 50]).expect("a source"), spec)
    }
}

impl Source for Copied {
    fn shards(&self) -> u64 {
        self.0.shards()
    }

    fn spec(&self) -> &Spec {
        &self.1
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        self.0.open(epoch, shard, offset)
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        std::thread::sleep(Duration::from_micros(100));
        let bytes = row.bytes_mut(0);
        bytes.fill(0);
        bytes[..record.len()].copy_from_slice(record);
        Ok(())
    }
}

/// A flipped bit of a record would give wrong rows with matching hashes.
#[test]
fn a_flipped_bit_of_a_request_is_found_wherever_it_is() {
    with_watchdog(2 * LIMIT, || {
        let make =
            || Loader::source_builder(Copied::new()).batch_size(BATCH).epochs(2).workers(Workers::Count(1));
        let want = run(make()).0;
        let mut found = 0;
        for at in 0..60 {
            let target = Target::serving(|| Server::new().source(Copied::new()));
            let filler = servers(&[target.proxy.address]).timeout(Duration::from_secs(1));
            let mut is_set = false;
            let (delivered, report) = run_with(make().filler(filler), |_| {
                if !std::mem::replace(&mut is_set, true) {
                    target.proxy.flip_request_after(at * 37);
                }
            });
            assert!(delivered == want, "bit {at}");
            let report = report.expect("a report");
            found += u64::from(report.rejected + report.returned + report.retries > 0);
        }
        // A bit that comes after the last request, or in a part that means nothing, changes nothing.
        assert!(found > 0);
    });
}

#[test]
fn a_slow_server_is_overtaken_by_a_second_request() {
    with_watchdog(LIMIT, || {
        let set = set();
        let want = run(builder(&set)).0;
        let targets: Vec<_> = (0..3).map(|_| Target::new(serve(&set))).collect();
        let addresses: Vec<_> = targets.iter().map(|target| target.proxy.address).collect();
        let filler = servers(&addresses).timeout(Duration::from_secs(20));
        let (delivered, report) = run_with(builder(&set).filler(filler), |batches| {
            // From now on one of the three servers is silent, without an error.
            if batches == 26 {
                targets[1].proxy.stop(true);
            }
        });
        assert!(delivered == want);
        let report = report.expect("a report");
        assert!(report.hedges + report.returned > 0 && report.rejected == 0, "{report}");
    });
}
