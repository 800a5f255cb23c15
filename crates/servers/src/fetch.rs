//! One request to one server: receives the messages of a batch, with a limit for each.
//!
//! A message stays in the memory in which it arrived until the thread that has the slot copies its rows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use feedline::Result;
use feedline::dataset::Rows;
use feedline::filler::{BatchContent, FillOutcome};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::direct::{Message, do_get};
use crate::wire::{hashes_of, piece_of, ticket_hash, write_piece};

/// The end of a whole answer.
pub(crate) struct Answer {
    /// The order hash that the server states.
    order: u64,
    /// The time from the request to the last message.
    pub(crate) service: Duration,
    /// The part of it that the server did not need.
    pub(crate) network: Duration,
}

/// The reason why there is no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The reason, as one line.
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
            is_of_batch: matches!(code, Code::Aborted | Code::ResourceExhausted | Code::OutOfRange),
        }
    }
}

/// Asks for the batch of `ticket`, which has `rows` rows; each message may take `limit`. Calls `on_piece`
/// with each piece as it arrives.
pub(crate) async fn fetch(
    channel: Channel,
    ticket: Bytes,
    token: Option<MetadataValue<Ascii>>,
    rows: u64,
    limit: Duration,
    mut on_piece: impl FnMut(Message),
) -> Result<Answer, Failure> {
    let start = Instant::now();
    let late = |_| Failure::new(format!("no message for {:.1} s", limit.as_secs_f64()));
    // A limit of tonic would hold for the head of the answer only.
    let asked = ticket_hash(&ticket);
    let answered = tokio::time::timeout(limit, do_get(channel, ticket, token)).await.map_err(late)?;
    let mut messages = answered?;
    let mut next = async || tokio::time::timeout(limit, messages.message()).await.map_err(late);
    let schema = next().await??.ok_or_else(|| Failure::new("the answer is empty"))?;
    let [order, arrived] = hashes_of(&schema).map_err(|error| Failure::new(error.message()))?;
    if arrived != asked {
        return Err(Failure::new("the request was damaged on its way"));
    }
    let (mut received, mut server) = (0, 0);
    while let Some(message) = next().await?? {
        let piece = piece_of(&message).map_err(|error| Failure::new(error.message()))?;
        if piece.first != received || piece.rows == 0 || piece.rows > rows - received {
            return Err(Failure::new("rows are missing, or come twice"));
        }
        received += piece.rows;
        server = piece.waited_ns;
        on_piece(message);
    }
    if received != rows {
        return Err(Failure::new(format!("only {received} of {rows} rows came")));
    }
    let service = start.elapsed();
    let network = service.saturating_sub(Duration::from_nanos(server));
    Ok(Answer { order, service, network })
}

/// The pieces of one answer: copied into the slot as they arrive, or kept until the answer is whole.
///
/// Rows of fixed size may be written again by another answer, so the first answer to a batch is copied at
/// once. Ragged rows are written once, in order, and two answers must not mix: these are kept.
pub(crate) struct Received {
    kept: Option<Vec<Message>>,
    content: BatchContent,
}

impl Received {
    /// Pieces that are copied `at_once`, or kept.
    pub(crate) fn new(at_once: bool) -> Self {
        Self { kept: (!at_once).then(Vec::new), content: BatchContent::new() }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// `Data` for a message that does not fit the spec.
    pub(crate) fn add(&mut self, piece: Message, rows: &mut Rows<'_>) -> Result<()> {
        match &mut self.kept {
            None => write_piece(&piece, rows, &mut self.content),
            Some(kept) => {
                kept.push(piece);
                Ok(())
            }
        }
    }

    /// Copies the pieces that were kept; `answer` is the end.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn finish(mut self, answer: &Answer, rows: &mut Rows<'_>) -> Result<FillOutcome> {
        let mut kept = self.kept.into_iter().flatten();
        kept.try_for_each(|piece| write_piece(&piece, rows, &mut self.content))?;
        // The caller knows the number of servers.
        let (order, network) = (answer.order, answer.network);
        Ok(FillOutcome { order, content: self.content, network, servers: 0 })
    }
}

#[cfg(test)]
impl Answer {
    /// The end of an answer that took the times `service` and `network`.
    pub(crate) fn in_time(service: Duration, network: Duration) -> Self {
        Self { order: 0, service, network }
    }
}
