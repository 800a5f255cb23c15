//! The trainer's side: a batch filler that asks servers.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use feedline::dataset::Rows;
use feedline::filler::{BatchFiller, DataDescription, Fill, FillOutcome, FillRequest};
use feedline::{Error, ErrorKind, ReadError, Result};
use tonic::metadata::{Ascii, MetadataValue};

use crate::direct::Message;
use crate::fetch::{Answer, Failure, Received, fetch};
use crate::hosts::{Name, expand_hosts};
use crate::network::{Attempt, CONNECT, Network, PER_SERVER, Place};
use crate::table::{ServerStatus, Table};
use crate::ticket::{Form, Ticket};

/// Default requests in flight: per server known when the loader is built; and the min and max of their sum.
const IN_FLIGHT: (usize, usize, usize) = (4, 8, 64);

/// Default limit for each message of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Servers that are asked for one batch before the workers get it, one after another.
const TRIES: usize = 3;

/// The longest wait before the thread looks whether the batch is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// Decode servers as the [filler](feedline::LoaderBuilder::filler) of a loader.
///
/// Servers and the loader's workers compete for batches. A server that fails is asked again later, with a
/// back-off; its batches are made elsewhere. Clones share connections and figures, also between loaders of
/// the same or other data.
///
/// ```
/// use feedline::{InMemory, Loader};
/// use feedline_decode::{Server, Servers};
///
/// let numbers = || InMemory::new().field("x", [], (0..100_u8).collect::<Vec<_>>());
/// let server = Server::new().dataset(numbers()?).bind("127.0.0.1:0")?;
///
/// let servers = Servers::new([server.address().to_string()])?;
/// let builder = Loader::builder(numbers()?).batch_size(10).shuffle().seed(7);
/// let mut loader = builder.filler(servers).build_host()?;
/// assert_eq!(loader.epoch(0)?.map(|batch| Ok(batch?.len())).sum::<feedline::Result<usize>>()?, 100);
/// println!("{}", loader.report()); // names the batches that servers filled
/// # Ok::<(), feedline::Error>(())
/// ```
#[derive(Clone)]
pub struct Servers {
    names: Vec<Name>,
    transforms: String,
    form: Form,
    token: Option<MetadataValue<Ascii>>,
    roots: Option<Vec<u8>>,
    timeout: Duration,
    in_flight: Option<usize>,
    has_second: bool,
    network: Arc<OnceLock<Arc<Network>>>,
}

/// A message from a server.
enum Event {
    Piece(Message),
    End(Result<Answer, Failure>),
}

impl Servers {
    /// Servers at `addresses`, each `HOST:PORT`. A name with several addresses, such as the name of a
    /// headless service of Kubernetes, counts as that many servers. Names are looked up every ten seconds; if
    /// that fails, the addresses before it are kept.
    ///
    /// # Errors
    /// `Config` for an address of another form, or none.
    pub fn new(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let names =
            addresses.into_iter().map(|text| Name::parse(text.as_ref())).collect::<Result<Vec<_>>>()?;
        if names.is_empty() {
            return Err(config("there is no decode server: give HOST:PORT, or leave the servers out"));
        }
        Ok(Self {
            names,
            transforms: String::new(),
            form: Form::Stored,
            token: None,
            roots: None,
            timeout: TIMEOUT,
            in_flight: None,
            has_second: true,
            network: Arc::default(),
        })
    }

    /// One server on each host of a Slurm host list, such as the value of `SLURM_JOB_NODELIST`.
    ///
    /// # Errors
    /// As [`expand_hosts`].
    pub fn on_hosts(list: &str, port: u16) -> Result<Self> {
        Self::new(expand_hosts(list)?.iter().map(|host| format!("{host}:{port}")))
    }

    /// The version of the transforms and the tokenizer, which the servers must state too. Default: none.
    pub fn transforms(self, version: impl Into<String>) -> Self {
        Self { transforms: version.into(), ..self }
    }

    /// How the servers make the data set of their files. Default: every field as it is stored.
    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Sends this bearer token with every request. Without TLS everybody on the way can read it.
    ///
    /// # Errors
    /// `Config` for a token with characters that a header cannot have.
    pub fn token(self, token: &str) -> Result<Self> {
        let value = MetadataValue::try_from(format!("Bearer {}", token.trim()));
        let value = value.map_err(|_| config("the token has characters that a header cannot have"))?;
        Ok(Self { token: Some(value), ..self })
    }

    /// Uses TLS, and trusts the certificates in `roots`, which are in PEM.
    pub fn tls(self, roots: impl Into<Vec<u8>>) -> Self {
        Self { roots: Some(roots.into()), ..self }
    }

    /// The limit for each message of an answer; a server that takes longer counts as failed. Default: 30
    /// seconds.
    pub fn timeout(self, limit: Duration) -> Self {
        Self { timeout: limit, ..self }
    }

    /// Max requests at a time, over all servers. Each takes a thread and a host slot of the loader. Default:
    /// four per address, 8 to 64.
    pub fn in_flight(self, requests: usize) -> Self {
        Self { in_flight: Some(requests.max(1)), ..self }
    }

    /// Whether a second server is asked where the first one is slow. Default: yes.
    pub fn second_requests(self, has_second: bool) -> Self {
        Self { has_second, ..self }
    }

    /// The state of each server; empty before a loader is built.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.network.get().map(|network| network.table().status()).unwrap_or_default()
    }

    /// Asks one server once, without a loader.
    ///
    /// # Errors
    /// `Unavailable` with the reason of the server; as for a batch of a loader.
    pub fn fetch(&self, ticket: &Ticket, rows: &mut Rows<'_>) -> Result<FillOutcome> {
        let network = self.network()?;
        let unavailable = |why: &str| Error::new(ErrorKind::Unavailable, why);
        let place = network.place(&[]).ok_or_else(|| unavailable("no server can be asked at the moment"))?;
        let (send, events) = channel();
        let attempt = self.ask(place, (&ticket.to_json().into(), rows.len()), &send);
        let attempt = attempt.ok_or_else(|| unavailable("the network has ended"))?;
        let mut received = Received::new(!is_ragged(rows));
        loop {
            match events.recv().map_err(|_| unavailable("the network has ended"))? {
                (_, Event::Piece(piece)) => received.add(piece, rows)?,
                (_, Event::End(outcome)) => {
                    attempt.end(outcome.as_ref());
                    return received.finish(&outcome.map_err(|failure| unavailable(&failure.why))?, rows);
                }
            }
        }
    }

    fn network(&self) -> Result<&Arc<Network>> {
        if let Some(network) = self.network.get() {
            return Ok(network);
        }
        let network = Network::new(&self.names, self.roots.as_ref())?;
        Ok(self.network.get_or_init(|| network))
    }

    /// Sends a request to the server of `place`.
    fn ask<'a>(
        &self,
        place: Place<'a>,
        (ticket, rows): (&Bytes, usize),
        events: &Sender<(SocketAddr, Event)>,
    ) -> Option<Attempt<'a>> {
        let (network, address) = (place.network, place.address);
        let (channel, ticket, token) = (place.channel.clone(), ticket.clone(), self.token.clone());
        let (limit, events) = (self.timeout, events.clone());
        let task = network.runtime.as_ref()?.spawn(async move {
            // The send fails if the request was too late: nobody waits for its answer any more.
            let send = |event| drop(events.send((address, event)));
            let on_piece = |piece| send(Event::Piece(piece));
            let end = fetch(channel, ticket, token, rows as u64, limit, on_piece).await;
            send(Event::End(end));
        });
        Some(place.asked(task.abort_handle()))
    }

    /// Waits for answers. Asks another server if one fails or is slow. Copies the first whole answer into
    /// `rows`.
    fn whole_answer(
        &self,
        first: Place<'_>,
        request: &FillRequest<'_>,
        ticket: &Bytes,
        rows: &mut Rows<'_>,
    ) -> Result<FillOutcome, String> {
        let (send, events): (_, Receiver<(SocketAddr, Event)>) = channel();
        let (network, ticket) = (first.network, (ticket, request.ids().len()));
        let (mut first, at_once) = (Some(first), !is_ragged(rows));
        let (mut attempts, mut tried) = (Vec::<(Attempt<'_>, Received)>::new(), Vec::<SocketAddr>::new());
        let mut last = "no server can be asked at the moment".to_owned();
        let wrong = |address, error: Error| {
            network.table().failed(address, &Failure::new(error.message()));
            error.message().to_owned()
        };
        loop {
            if attempts.is_empty() {
                let may_try = tried.len() < TRIES;
                let place = first.take().or_else(|| may_try.then(|| network.place(&tried)).flatten());
                let Some(attempt) = place.and_then(|place| self.ask(place, ticket, &send)) else {
                    return Err(last);
                };
                if !tried.is_empty() {
                    request.count_retry();
                }
                tried.push(attempt.address);
                attempts.push((attempt, Received::new(at_once)));
            }
            let hedge_after = network.table().hedge_after(self.timeout / 3);
            let waited = attempts[0].0.start.elapsed();
            let wait = hedge_after.saturating_sub(waited).clamp(Duration::from_millis(1), LOOK);
            match events.recv_timeout(wait) {
                Ok((address, event)) => {
                    let place = attempts.iter().position(|(attempt, _)| attempt.address == address);
                    match (place, event) {
                        (None, _) => {}
                        (Some(place), Event::Piece(piece)) => {
                            attempts[place].1.add(piece, rows).map_err(|error| wrong(address, error))?;
                        }
                        (Some(place), Event::End(outcome)) => {
                            let (attempt, received) = attempts.swap_remove(place);
                            attempt.end(outcome.as_ref());
                            match outcome {
                                // The drop of the other attempt cancels it.
                                Ok(end) => {
                                    return received
                                        .finish(&end, rows)
                                        .map_err(|error| wrong(address, error));
                                }
                                Err(failure) if failure.is_of_batch => return Err(failure.why),
                                Err(failure) => last = failure.why,
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(last),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !request.is_wanted() {
                return Err("the batch is not wanted any more".to_owned());
            }
            if attempts.len() == 1 && attempts[0].0.start.elapsed() >= hedge_after {
                let place = (self.has_second).then(|| network.place(&tried)).flatten();
                let place = place.filter(|_| network.table().may_hedge());
                if let Some(second) = place.and_then(|place| self.ask(place, ticket, &send)) {
                    request.count_hedge();
                    tried.push(second.address);
                    attempts.push((second, Received::new(false)));
                } else if self.has_second && request.has_idle_workers() {
                    return Err("the server is slow, and a worker is idle".to_owned());
                }
            }
        }
    }
}

/// Whether rows must be written in order, and once.
fn is_ragged(rows: &Rows<'_>) -> bool {
    rows.spec().fields().iter().any(|field| field.as_ragged().is_some())
}

impl BatchFiller for Servers {
    fn in_flight(&self) -> usize {
        let (per_server, min, max) = IN_FLIGHT;
        self.in_flight.unwrap_or_else(|| {
            let servers = self.network().map_or(0, |network| network.table().servers().len());
            (per_server * servers).clamp(min, max)
        })
    }

    /// Asks every server whether it has this data. One that cannot be reached is asked again later.
    fn check(&self, data: &DataDescription<'_>) -> Result<()> {
        let network = self.network()?;
        let ticket = Bytes::from(Ticket::probe(data, &self.transforms, &self.form).to_json());
        let (send, answers) = channel();
        let limit = CONNECT.1.min(self.timeout);
        for server in network.table().servers() {
            let (send, host, address) = (send.clone(), server.host.clone(), server.address);
            let probe = fetch(server.channel.clone(), ticket.clone(), self.token.clone(), 0, limit, drop);
            if let Some(runtime) = &network.runtime {
                runtime.spawn(async move { drop(send.send((host, address, probe.await))) });
            }
        }
        drop(send);
        for (host, address, outcome) in answers {
            let Err(failure) = outcome else { continue };
            if failure.is_refusal {
                let why = format!("decode server {host} ({address}): {}", failure.why);
                return Err(Error::new(ErrorKind::Config, why));
            }
            network.table().failed(address, &failure);
        }
        Ok(())
    }

    fn reserve(&self, limit: Duration) -> Option<Fill<'_>> {
        // The loader was built, so there is one.
        let network = self.network().ok()?;
        let mut taken = None;
        let is_full = |table: &mut Table| {
            taken = table.take(PER_SERVER, &[]);
            taken.is_none()
        };
        let waited = network.freed.wait_timeout_while(network.table(), limit, is_full);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let (address, channel) = taken?;
        let place = network.taken(address, channel);
        Some(Box::new(move |request, rows| self.fill(place, request, rows)))
    }
}

impl Servers {
    /// Fills a batch by the server of `first`, or by others if it fails or is slow.
    fn fill(
        &self,
        first: Place<'_>,
        request: &FillRequest<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<FillOutcome, ReadError> {
        let ticket = Ticket::of_request(request, &self.transforms, &self.form).with_records(request.records);
        let outcome = self.whole_answer(first, request, &ticket.into(), rows)?;
        let servers = self.network().map_or(0, |network| network.table().asked());
        Ok(FillOutcome { servers, ..outcome })
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names.iter().map(|name| &name.host).collect();
        f.debug_struct("Servers").field("hosts", &names).finish_non_exhaustive()
    }
}

fn config(why: &str) -> Error {
    Error::new(ErrorKind::Config, why)
}
