//! The Flight service: answers tickets.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult,
    Ticket as FlightTicket,
};
use bytes::Bytes;
use feedline::filler::BatchProof;
use feedline::{Error, ErrorKind, Result};
use feedline_core::Layout;
use futures_util::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::{InFlight, Metrics};
use crate::pool::{Pool, piece_rows};
use crate::set::{Set, Sets};
use crate::shared::{Asked, Reader, Shared};
use crate::ticket::Ticket;
use crate::wire::{schema, schema_message, ticket_hash};

/// Bytes of a permit for memory: semaphores count in 32 bits.
pub(crate) const PAGE: usize = 4096;

/// Bytes of an HTTP/2 frame. 16 KiB, the default, takes several times the calls.
pub(crate) const FRAME: u32 = 256 << 10;

/// The longest wait of a request for memory, before it is sent elsewhere.
const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// Max bytes of a request, and of one with records.
const MAX_REQUEST: [usize; 2] = [4 << 20, 64 << 20];

/// The Flight service.
pub(crate) struct Service {
    pub(crate) sets: Arc<Sets>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) memory: Arc<Semaphore>,
    pub(crate) max_bytes: usize,
    pub(crate) metrics: Arc<Metrics>,
}

/// An answer in work.
struct Answer {
    reader: Reader,
    next: usize,
    /// The time that the request has waited for memory and for decoding, not for the network.
    waited: Duration,
    metrics: Arc<Metrics>,
    _memory: OwnedSemaphorePermit,
    _in_flight: InFlight,
}

impl Service {
    /// Max bytes of a request.
    pub(crate) fn max_request(&self) -> usize {
        MAX_REQUEST[usize::from(self.sets.has_sources())]
    }

    /// Starts or joins the decode of a ticket's samples.
    async fn answer(
        &self,
        ticket: Ticket,
        records: Option<Vec<Bytes>>,
        set: Arc<Set>,
    ) -> Result<Answer, Status> {
        let asked = Instant::now();
        let samples = if set.data().is_source { u64::MAX } else { set.data().samples };
        if records.is_some() != set.data().is_source {
            return Err(Status::invalid_argument(
                "the samples of a source, and only they, come with records",
            ));
        }
        if let Some(id) = ticket.ids.iter().find(|&&id| id >= samples) {
            return Err(Status::invalid_argument(format!("there is no sample {id}: the set has {samples}")));
        }
        let rows = ticket.ids.len();
        let layout =
            Layout::new(set.spec(), rows).map_err(|error| Status::invalid_argument(error.message()))?;
        let received: usize = records.iter().flatten().map(Bytes::len).sum();
        let (bytes, max) = (layout.bytes().saturating_add(received), self.max_bytes);
        if bytes > max {
            let why = format!("the batch has {bytes} bytes, and the server allows {max}: raise its --memory");
            return Err(Status::resource_exhausted(why));
        }
        let in_flight = self.metrics.requested();
        let pages = u32::try_from((bytes / PAGE).max(1)).unwrap_or(u32::MAX);
        let memory = tokio::time::timeout(MEMORY_WAIT, self.memory.clone().acquire_many_owned(pages)).await;
        let Ok(Ok(memory)) = memory else {
            return Err(Status::unavailable("the server has no memory for another batch: ask another one"));
        };
        let piece_rows = piece_rows(&set, rows, self.pool.workers());
        let Ticket { seed, epoch, ids, draws, .. } = ticket;
        let samples = Asked { seed, epoch, ids, draws, records };
        let (reader, is_new) = self.shared.batch(&set, samples, piece_rows);
        if is_new {
            self.pool.add(&reader.batch);
        }
        let metrics = self.metrics.clone();
        let waited = asked.elapsed();
        Ok(Answer { reader, next: 0, waited, metrics, _memory: memory, _in_flight: in_flight })
    }
}

impl Answer {
    /// The next message; `None` after the last one.
    async fn next(mut self) -> Result<Option<(FlightData, Self)>, Status> {
        if self.next == self.reader.batch.pieces() {
            return Ok(None);
        }
        let asked = Instant::now();
        let message = match self.reader.batch.piece(self.next).await {
            Ok(piece) => {
                self.waited += asked.elapsed();
                self.metrics.sent(piece.rows, piece.bytes());
                piece.sent(self.waited.as_nanos() as u64)
            }
            Err(why) => return Err(Status::aborted(why.clone())),
        };
        self.next += 1;
        Ok(Some((message, self)))
    }
}

pub(crate) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A difference between the trainer and the server.
fn refused(error: &Error) -> Status {
    match error.kind() {
        ErrorKind::Config => Status::failed_precondition(error.message()),
        _ => Status::internal(error.message()),
    }
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Messages<HandshakeResponse>;
    type ListFlightsStream = Messages<FlightInfo>;
    type DoGetStream = Messages<FlightData>;
    type DoPutStream = Messages<PutResult>;
    type DoExchangeStream = Messages<FlightData>;
    type DoActionStream = Messages<arrow_flight::Result>;
    type ListActionsStream = Messages<ActionType>;

    async fn do_get(&self, request: Request<FlightTicket>) -> Result<Response<Self::DoGetStream>, Status> {
        if self.metrics.is_draining() {
            return Err(Status::unavailable("the server ends: ask another one"));
        }
        let answered = async {
            let bytes = request.into_inner().ticket;
            let (ticket, records) = Ticket::parse_with_records(&bytes)
                .map_err(|error| Status::invalid_argument(error.message()))?;
            let (sets, data) = (self.sets.clone(), ticket.data.clone());
            let found = tokio::task::spawn_blocking(move || sets.find(&data)).await;
            let set = found.map_err(|_| Status::internal("the data cannot be opened"))?;
            let set = set.map_err(|error| refused(&error))?;
            let order = BatchProof::of(ticket.epoch, &ticket.ids).order();
            let first = stream::iter([Ok(schema_message(set.spec(), order, ticket_hash(&bytes)))]);
            if ticket.ids.is_empty() {
                return Ok(Box::pin(first) as Self::DoGetStream);
            }
            let answer = self.answer(ticket, records, set).await?;
            let rows = stream::try_unfold(answer, Answer::next);
            Ok(Box::pin(stream::StreamExt::chain(first, rows)) as Self::DoGetStream)
        };
        answered.await.map(Response::new).inspect_err(|_| self.metrics.refused())
    }

    /// The sets that need no further description, each with a ticket in which only the samples are missing.
    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let sets = self.sets.clone();
        let listed = tokio::task::spawn_blocking(move || sets.listed()).await;
        let listed = listed.map_err(|_| Status::internal("the data cannot be opened"))?;
        let infos = listed.into_iter().map(|set| info(&set)).collect::<Vec<_>>();
        Ok(Response::new(Box::pin(stream::iter(infos))))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        Err(unknown())
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(unknown())
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        Err(unknown())
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(unknown())
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(unknown())
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(unknown())
    }

    async fn do_action(&self, _: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        Err(unknown())
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(unknown())
    }
}

fn unknown() -> Status {
    Status::unimplemented("a decode server answers ListFlights and DoGet only")
}

fn info(set: &Set) -> Result<FlightInfo, Status> {
    let ticket = Ticket { data: set.data().clone(), seed: 0, epoch: 0, ids: Vec::new(), draws: Vec::new() };
    let (schema, options) = (schema(set.spec()), arrow_ipc::writer::IpcWriteOptions::default());
    let schema: IpcMessage = SchemaAsIpc::new(&schema, &options)
        .try_into()
        .map_err(|_| Status::internal("the schema cannot be written"))?;
    let json = ticket.to_json();
    let flight_descriptor = Some(FlightDescriptor::new_cmd(json.clone()));
    let ticket = FlightTicket { ticket: json.into() };
    let endpoint = FlightEndpoint { ticket: Some(ticket), ..FlightEndpoint::default() };
    Ok(FlightInfo {
        schema: schema.0,
        flight_descriptor,
        endpoint: vec![endpoint],
        total_records: i64::try_from(set.data().samples).unwrap_or(-1),
        total_bytes: -1,
        ..FlightInfo::default()
    })
}
