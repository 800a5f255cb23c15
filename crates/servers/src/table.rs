//! The servers that are known, and which of them is asked next.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tonic::transport::Channel;

use crate::fetch::{Answer, Failure};

/// The first and the longest time for which a server that failed is not asked.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The time for which a server that refused is not asked again. It must be restarted with other options.
const REFUSED: Duration = Duration::from_secs(5);

/// Service times that the limit of a second request is computed from.
const RECENT: usize = 128;

/// A second request is made only once this many service times are known.
const ENOUGH: usize = 16;

/// One server.
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    in_flight: usize,
    /// Mean time of an answer, and of its way, weighted to the last ones; zero before the first.
    service: Duration,
    network: Duration,
    failures: u32,
    /// The server is not asked before this time.
    until: Option<Instant>,
    is_gone: bool,
    batches: u64,
    last_error: Option<String>,
}

/// The state of a server, as the client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The address.
    pub address: SocketAddr,
    /// Batches that it has answered.
    pub batches: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// The mean time of its last answers.
    pub service: Duration,
    /// Whether it is asked at present.
    pub is_asked: bool,
    /// The last error, in one line.
    pub last_error: Option<String>,
}

impl std::fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ms, pause) = (1e3 * self.service.as_secs_f64(), if self.is_asked { "" } else { ", paused" });
        write!(
            f,
            "{}: {} batches, {ms:.2} ms each, {} in flight{pause}",
            self.address, self.batches, self.in_flight
        )?;
        self.last_error.as_ref().map_or(Ok(()), |error| write!(f, "; last error: {error}"))
    }
}

impl Server {
    fn is_asked(&self, now: Instant) -> bool {
        !self.is_gone && self.until.is_none_or(|until| until <= now)
    }

    /// Pauses the server, longer after each failure.
    fn failed(&mut self, failure: &Failure) {
        let longer = BACK_OFF.0.saturating_mul(1 << self.failures.min(10)).min(BACK_OFF.1);
        let pause = if failure.is_refusal { REFUSED } else { longer };
        self.failures = self.failures.saturating_add(1);
        self.until = Instant::now().checked_add(pause);
        self.last_error = Some(failure.why.clone());
    }
}

/// All servers.
#[derive(Default)]
pub(crate) struct Table {
    servers: Vec<Server>,
    recent: VecDeque<Duration>,
    asked: u64,
    hedged: u64,
}

impl Table {
    /// Replaces the addresses by those that the names now have. `connect` makes the channel of a new address.
    pub(crate) fn update(
        &mut self,
        known: &BTreeSet<(String, SocketAddr)>,
        connect: impl Fn(&str, SocketAddr) -> Option<Channel>,
    ) {
        for server in &mut self.servers {
            server.is_gone = !known.iter().any(|(_, address)| *address == server.address);
        }
        self.servers.retain(|server| !server.is_gone || server.in_flight > 0);
        for (host, address) in known {
            if self.servers.iter().all(|server| server.address != *address)
                && let Some(channel) = connect(host, *address)
            {
                self.servers.push(Server {
                    host: host.clone(),
                    address: *address,
                    channel,
                    in_flight: 0,
                    service: Duration::ZERO,
                    network: Duration::ZERO,
                    failures: 0,
                    until: None,
                    is_gone: false,
                    batches: 0,
                    last_error: None,
                });
            }
        }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Number of servers that are asked at present.
    pub(crate) fn asked(&self) -> usize {
        let now = Instant::now();
        self.servers.iter().filter(|server| server.is_asked(now)).count()
    }

    /// Requests that a server may have at a time: one that it decodes, one that waits for it, and more while
    /// answers are on the way. One for a server that has not answered since its last failure.
    fn limit(server: &Server, max: usize) -> usize {
        if server.batches == 0 || server.failures > 0 {
            return 1;
        }
        let decode = server.service.saturating_sub(server.network).as_nanos().max(1);
        let on_the_way = (server.network.as_nanos() / decode).min(max as u128) as usize;
        (2 + on_the_way).min(max)
    }

    /// The server that would answer first, other than the servers in `others`.
    fn next(&self, max: usize, others: &[SocketAddr]) -> Option<usize> {
        let now = Instant::now();
        let can = |server: &&Server| {
            server.is_asked(now)
                && server.in_flight < Self::limit(server, max)
                && !others.contains(&server.address)
        };
        let time = |server: &Server| server.service.saturating_mul(server.in_flight as u32 + 1);
        let servers = self.servers.iter().enumerate().filter(|(_, server)| can(server));
        servers.min_by_key(|(_, server)| (time(server), server.in_flight)).map(|(index, _)| index)
    }

    /// Takes the server that would answer first, other than the servers in `others`, for a request.
    pub(crate) fn take(&mut self, max: usize, others: &[SocketAddr]) -> Option<(SocketAddr, Channel)> {
        let index = self.next(max, others)?;
        let server = &mut self.servers[index];
        server.in_flight += 1;
        self.asked += 1;
        Some((server.address, server.channel.clone()))
    }

    /// The server at `address` was taken and is not asked after all.
    pub(crate) fn release(&mut self, address: SocketAddr) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.address == address) {
            server.in_flight = server.in_flight.saturating_sub(1);
        }
        self.asked = self.asked.saturating_sub(1);
    }

    /// A request to `address` has ended; `None` if it was cancelled because another answer came first.
    pub(crate) fn ended(
        &mut self,
        address: SocketAddr,
        outcome: Option<Result<&Answer, &Failure>>,
        waited: Duration,
    ) {
        let Some(server) = self.servers.iter_mut().find(|server| server.address == address) else { return };
        server.in_flight = server.in_flight.saturating_sub(1);
        let mean =
            |before: Duration, now: Duration| if before.is_zero() { now } else { (before * 3 + now) / 4 };
        match outcome {
            Some(Ok(answer)) => {
                (server.failures, server.until) = (0, None);
                server.batches += 1;
                server.service = mean(server.service, answer.service);
                server.network = mean(server.network, answer.network);
                if self.recent.len() == RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(answer.service);
            }
            Some(Err(failure)) if failure.is_of_batch => server.last_error = Some(failure.why.clone()),
            Some(Err(failure)) => server.failed(failure),
            // An answer would have taken at least this long.
            None => server.service = server.service.max(waited),
        }
    }

    /// The server at `address` could not be asked.
    pub(crate) fn failed(&mut self, address: SocketAddr, failure: &Failure) {
        if let Some(server) = self.servers.iter_mut().find(|server| server.address == address) {
            server.failed(failure);
        }
    }

    /// The time after which a second request is made: half more than the 95th percentile of the last answers,
    /// or `first` before there are enough of them.
    pub(crate) fn hedge_after(&self, first: Duration) -> Duration {
        if self.recent.len() < ENOUGH {
            return first;
        }
        let mut recent: Vec<_> = self.recent.iter().copied().collect();
        recent.sort_unstable();
        recent[recent.len() * 95 / 100].mul_f64(1.5).max(Duration::from_millis(5))
    }

    /// Whether another second request is within their budget, a tenth of the requests; counts it.
    pub(crate) fn may_hedge(&mut self) -> bool {
        let may = self.hedged <= 2 + self.asked / 10;
        self.hedged += u64::from(may);
        may
    }

    /// The state of every server.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        let now = Instant::now();
        let status = |server: &Server| ServerStatus {
            address: server.address,
            batches: server.batches,
            in_flight: server.in_flight,
            service: server.service,
            is_asked: server.is_asked(now),
            last_error: server.last_error.clone(),
        };
        self.servers.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const MAX: usize = 8;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    fn update(table: &mut Table, known: &[u8]) {
        let known = known.iter().map(|&last| ("decode".to_owned(), address(last))).collect();
        table.update(&known, |_, address| {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
            Some(endpoint.connect_lazy())
        });
    }

    fn answer(table: &mut Table, last: u8, service: Duration, network: Duration) {
        table.ended(address(last), Some(Ok(&Answer::in_time(service, network))), service);
    }

    /// Runs `test` where channels can be made; nothing is connected.
    fn with_runtime(test: impl FnOnce(&mut Table)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        test(&mut Table::default());
    }

    #[test]
    fn servers_come_and_go_with_the_addresses_of_a_name() {
        with_runtime(|table| {
            update(table, &[1, 2]);
            let (first, _) = table.take(MAX, &[]).unwrap();
            let gone = if first == address(1) { 1 } else { 2 };
            update(table, &[3 - gone, 3]);
            assert_eq!(table.servers().len(), 3, "the one with a request in flight is still there");
            let taken: Vec<_> =
                (0..9).map_while(|_| table.take(MAX, &[])).map(|(address, _)| address).collect();
            assert_eq!(taken.len(), 2, "one request each until they have answered: {taken:?}");
            assert!(!taken.contains(&first), "a server that is gone is not asked");
            answer(table, gone, MS, MS);
            update(table, &[3 - gone, 3]);
            assert_eq!(table.servers().len(), 2);
        });
    }

    #[test]
    fn a_quick_server_gets_more_requests_than_a_slow_one_and_a_far_one_more_at_a_time() {
        with_runtime(|table| {
            update(table, &[1, 2, 3]);
            (0..3).for_each(|_| drop(table.take(MAX, &[]).unwrap()));
            // The third one decodes as fast as the first one, with as much time on the way again and again.
            for (last, service, network) in [(1, 2 * MS, MS / 10), (2, 40 * MS, MS / 10), (3, 8 * MS, 6 * MS)]
            {
                answer(table, last, service, network);
            }
            let taken: Vec<_> =
                (0..99).map_while(|_| table.take(MAX, &[])).map(|(address, _)| address).collect();
            let of = |last: u8| taken.iter().filter(|&&taken| taken == address(last)).count();
            assert_eq!([of(1), of(2), of(3)], [2, 2, 5]);
            assert_eq!(taken[..2], [address(1); 2], "first those that answer first");
            assert!(table.take(MAX, &[]).is_none());
            table.release(address(2));
            assert_eq!(table.take(MAX, &[]).unwrap().0, address(2));
        });
    }

    #[test]
    fn a_server_that_failed_is_asked_later_and_with_one_request() {
        with_runtime(|table| {
            update(table, &[1]);
            table.take(MAX, &[]).unwrap();
            answer(table, 1, MS, MS / 10);
            table.take(MAX, &[]).unwrap();
            table.ended(address(1), Some(Err(&Failure::new("cut"))), MS);
            assert!(table.take(MAX, &[]).is_none() && !table.status()[0].is_asked);
            assert_eq!(table.status()[0].last_error.as_deref(), Some("cut"));
            while table.take(MAX, &[]).is_none() {
                std::thread::yield_now();
            }
            assert!(table.take(MAX, &[]).is_none(), "one request until it has answered");
            answer(table, 1, MS, MS / 10);
            assert!(table.take(MAX, &[]).is_some() && table.take(MAX, &[]).is_some());
        });
    }

    #[test]
    fn second_requests_wait_for_the_95th_percentile_and_have_a_budget() {
        with_runtime(|table| {
            update(table, &[1]);
            assert_eq!(table.hedge_after(77 * MS), 77 * MS, "before enough answers");
            for time in 1..=100 {
                answer(table, 1, time * MS, Duration::ZERO);
            }
            assert_eq!(table.hedge_after(77 * MS), 144 * MS);
            let second = (0..100).filter(|_| table.may_hedge()).count();
            assert_eq!(second, 3, "a few at the beginning");
        });
    }
}
