//! One request to one server: collects the messages of a batch, with a limit for each.
//!
//! The messages stay in the memory in which they arrived until one answer is whole; only then are they copied
//! into the slot, by the thread that has it.

use std::time::{Duration, Instant};

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, Ticket as FlightTicket};
use bytes::Bytes;
use feedline::Result;
use feedline::dataset::Rows;
use feedline::filler::{BatchContent, FillOutcome};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::wire::{order_of, piece_of, write_piece};

/// A whole answer.
pub(crate) struct Answer {
    schema: FlightData,
    pieces: Vec<FlightData>,
    /// The time from the request to the last message.
    pub(crate) service: Duration,
    /// The part of it that the server did not need.
    pub(crate) network: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// In one line.
    pub(crate) why: String,
    /// Whether the server has other data or does not accept the token, so that asking again is in vain.
    pub(crate) is_refusal: bool,
    /// Whether the server itself is well, and the batch is at fault.
    pub(crate) is_of_batch: bool,
}

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_refusal: false, is_of_batch: false }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = status.code();
        Self {
            why: format!("{}: {}", code.description(), status.message().lines().next().unwrap_or_default()),
            is_refusal: matches!(
                code,
                Code::FailedPrecondition
                    | Code::Unauthenticated
                    | Code::InvalidArgument
                    | Code::Unimplemented
            ),
            is_of_batch: matches!(code, Code::Aborted | Code::ResourceExhausted),
        }
    }
}

/// Asks for the batch of `ticket`, which has `rows` rows; each message may take `limit`.
pub(crate) async fn fetch(
    mut client: FlightServiceClient<Channel>,
    ticket: Bytes,
    token: Option<MetadataValue<Ascii>>,
    rows: u64,
    limit: Duration,
) -> Result<Answer, Failure> {
    let start = Instant::now();
    let late = |_| Failure::new(format!("no message for {:.1} s", limit.as_secs_f64()));
    let mut request = Request::new(FlightTicket { ticket });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token);
    }
    // A limit of tonic would hold for the head of the answer only.
    let answered = tokio::time::timeout(limit, client.do_get(request)).await.map_err(late)?;
    let mut messages = answered?.into_inner();
    let mut next = async || tokio::time::timeout(limit, messages.message()).await.map_err(late);
    let schema = next().await??.ok_or_else(|| Failure::new("the answer is empty"))?;
    let (mut pieces, mut received, mut server) = (Vec::new(), 0, 0);
    while let Some(message) = next().await?? {
        let piece = piece_of(&message).map_err(|error| Failure::new(error.message()))?;
        if piece.first != received || piece.rows == 0 || piece.rows > rows - received {
            return Err(Failure::new("rows are missing, or come twice"));
        }
        received += piece.rows;
        server = piece.sent_ns;
        pieces.push(message);
    }
    if received != rows {
        return Err(Failure::new(format!("only {received} of {rows} rows came")));
    }
    let service = start.elapsed();
    let network = service.saturating_sub(Duration::from_nanos(server));
    Ok(Answer { schema, pieces, service, network })
}

impl Answer {
    /// Copies the rows into those of the slot.
    ///
    /// # Errors
    /// `Data` for messages that do not fit the spec.
    pub(crate) fn write(&self, rows: &mut Rows<'_>) -> Result<FillOutcome> {
        let mut content = BatchContent::new();
        self.pieces.iter().try_for_each(|piece| write_piece(piece, rows, &mut content))?;
        Ok(FillOutcome { order: order_of(&self.schema)?, content, network: self.network })
    }
}

#[cfg(test)]
impl Answer {
    /// An answer without rows that took so long.
    pub(crate) fn in_time(service: Duration, network: Duration) -> Self {
        Self { schema: FlightData::default(), pieces: Vec::new(), service, network }
    }
}
