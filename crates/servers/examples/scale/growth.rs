//! How the rate grows with servers, and what one slow server costs.

use std::time::{Duration, Instant};

use feedline::{Context, DType, Dataset, Loader, LoaderBuilder, ReadError, Row, Spec, Workers};
use feedline_decode::{Running, Server, Servers};

use crate::{Options, row};

/// Samples that take a time to decode, during which the thread sleeps.
struct Waits {
    spec: Spec,
    len: u64,
    time: Duration,
}

impl Waits {
    fn new(len: u64, time: Duration) -> feedline::Result<Self> {
        Ok(Self { spec: Spec::new().field("x", DType::U8, [1 << 10])?, len, time })
    }
}

impl Dataset for Waits {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        std::thread::sleep(self.time);
        row.bytes_mut(0).fill(id as u8);
        Ok(())
    }
}

const LEN: u64 = 1 << 20;
const BATCH: usize = 8;

/// A server with one thread.
fn server(set: Waits) -> feedline::Result<Running> {
    Server::new().dataset(set).workers(1).bind("127.0.0.1:0")
}

fn builder(set: Waits, servers: &[Running], second: bool) -> feedline::Result<LoaderBuilder> {
    let addresses = servers.iter().map(|server| server.address().to_string());
    let builder = Loader::builder(set).batch_size(BATCH).shuffle().seed(7).workers(Workers::Count(1));
    Ok(match servers {
        [] => builder,
        _ => builder.filler(Servers::new(addresses)?.in_flight(3 * servers.len()).second_requests(second)),
    })
}

/// Compares an epoch of four servers with an epoch of the workers alone.
pub fn check() -> feedline::Result<()> {
    let set = || Waits::new(1000, Duration::from_micros(200));
    let epoch = |servers: &[Running]| {
        let mut loader = builder(set()?, servers, true)?.build_host()?;
        let mut batches = Vec::new();
        for batch in loader.epoch(0)? {
            let batch = batch?;
            batches.push((batch.ids().to_vec(), batch.field_at::<u8>(0)?.to_vec()));
        }
        let filled = loader.report().filler.map_or(0, |filler| filler.batches);
        feedline::Result::Ok((batches, loader.cursor(), filled))
    };
    let servers = (0..4).map(|_| server(set()?)).collect::<feedline::Result<Vec<_>>>()?;
    let (alone, served) = (epoch(&[])?, epoch(&servers)?);
    assert!((&alone.0, alone.1) == (&served.0, served.1), "ids, bytes and cursors are equal");
    assert!(served.2 > 0, "servers have filled batches");
    println!(
        "checked: {} batches, {} of them from 4 servers, are those of the workers",
        alone.0.len(),
        served.2
    );
    Ok(())
}

/// Rows per second, and the wait for each batch. What comes before each server has answered is not counted.
fn consume(
    options: &Options,
    servers: &[Running],
    second: bool,
    limit: Duration,
) -> feedline::Result<(f64, Vec<Duration>, String)> {
    let mut loader = builder(Waits::new(LEN, options.decode)?, servers, second)?.build_host()?;
    let (start, mut counted, mut rows, mut waits) = (Instant::now(), None, 0, Vec::new());
    let mut asked = Instant::now();
    for batch in loader.epoch(0)? {
        let count = batch?.len();
        if let Some(from) = counted {
            rows += count;
            waits.push(asked.elapsed());
            if Instant::duration_since(&Instant::now(), from) > limit {
                break;
            }
        } else if start.elapsed() > Duration::from_secs(1) + 8 * options.decode * BATCH as u32 {
            counted = Some(Instant::now());
        }
        asked = Instant::now();
    }
    let report = loader.report().filler.map(|filler| filler.to_string()).unwrap_or_default();
    let time = counted.map_or(limit, |from| from.elapsed());
    Ok((rows as f64 / time.as_secs_f64(), waits, report))
}

/// The rate with one worker of the trainer and more and more servers of one thread each.
pub fn growth(options: &Options) -> feedline::Result<()> {
    for &count in &options.servers {
        let all = (0..count).map(|_| server(Waits::new(LEN, options.decode)?));
        let servers = all.collect::<feedline::Result<Vec<_>>>()?;
        let (rate, _, report) = consume(options, &servers, true, options.limit)?;
        let linear = rate * options.decode.as_secs_f64() / (count + 1) as f64;
        let (rate, linear) = (format!("{rate:.1} samples/s"), format!("{linear:.3} of linear"));
        row(&format!("{count} servers"), &rate, &linear, &report);
    }
    Ok(())
}

/// The waits for batches where one of eight servers is ten times slower.
pub fn slow_server(options: &Options) -> feedline::Result<()> {
    for second in [false, true] {
        let time = |index| if index == 0 { 10 * options.decode } else { options.decode };
        let all = (0..8).map(|index| server(Waits::new(LEN, time(index))?));
        let servers = all.collect::<feedline::Result<Vec<_>>>()?;
        let (rate, mut waits, report) = consume(options, &servers, second, 2 * options.limit)?;
        waits.sort_unstable();
        let at = |share: f64| 1e3 * waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64();
        let what = format!("one of 8 servers slow, {} second requests", if second { "with" } else { "no" });
        let waited = format!("p50 {:.0}, p99 {:.0}, max {:.0} ms", at(0.5), at(0.99), at(1.0));
        row(&what, &format!("{rate:.1} samples/s"), &waited, &report);
    }
    Ok(())
}
