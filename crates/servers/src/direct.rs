//! `DoGet` below tonic's codec, on both sides: bodies of messages are sent from the memory in which they were
//! decoded, and stay in the buffers in which they arrive. A codec copies each once more.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{FlightData, Ticket};
use bytes::Bytes;
use http_body::{Body as _, Frame};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as TowerService, http};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::chunks::{Chunks, put_field};
use crate::service::{Messages, Service};

const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Max bytes of a message. A server sends a batch in several pieces, one per message.
const MAX_MESSAGE: usize = 2 << 30;

/// Numbers of the fields of Flight's messages.
const TICKET: u64 = 1;
const HEADER: u64 = 2;
const METADATA: u64 = 3;
const BODY: u64 = 1000;

/// Messages of a body, as they arrive.
struct Received {
    body: Body,
    chunks: Chunks,
    has_trailers: bool,
}

impl Received {
    fn new(body: Body) -> Self {
        Self { body, chunks: Chunks::default(), has_trailers: false }
    }

    /// Waits for more bytes; false at the end.
    async fn more(&mut self) -> Result<bool, Status> {
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
            match frame?.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.chunks.push(bytes);
                    return Ok(true);
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    check(&trailers)?;
                    self.has_trailers = true;
                }
            }
        }
        Ok(false)
    }

    /// The next message of at most `max` bytes; `None` after the last one.
    async fn message(&mut self, max: usize) -> Result<Option<Chunks>, Status> {
        while self.chunks.len() < PREFIX {
            if !self.more().await? {
                return if self.chunks.len() == 0 { Ok(None) } else { Err(cut()) };
            }
        }
        let prefix = self.chunks.take(PREFIX).map(Chunks::joined).unwrap_or_default();
        let len = prefix.last_chunk().map_or(0, |len| u32::from_be_bytes(*len)) as usize;
        if prefix.first() != Some(&0) || len > max {
            return Err(Status::out_of_range(format!("a message is compressed, or longer than {max} bytes")));
        }
        while self.chunks.len() < len {
            if !self.more().await? {
                return Err(cut());
            }
        }
        Ok(self.chunks.take(len))
    }
}

/// The error of a connection that ended within a message.
fn cut() -> Status {
    Status::unavailable("the answer is cut")
}

/// The error that headers or trailers state.
fn check(headers: &http::HeaderMap) -> Result<(), Status> {
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok).map_or(Ok(()), Err)
}

/// A message of an answer.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The header of Arrow.
    pub header: Bytes,
    /// The server's metadata of the rows.
    pub metadata: Bytes,
    /// The buffers of the columns.
    pub body: Chunks,
}

/// The answer to a ticket.
pub(crate) struct Answered(Received);

/// Asks for the batch of `ticket`; waits for the head of the answer.
pub(crate) async fn do_get(
    mut channel: Channel,
    ticket: Bytes,
    token: Option<MetadataValue<Ascii>>,
) -> Result<Answered, Status> {
    let mut first = vec![0; PREFIX];
    put_field(&mut first, TICKET, ticket.len());
    let len = (first.len() - PREFIX + ticket.len()) as u32;
    first[1..PREFIX].copy_from_slice(&len.to_be_bytes());
    let sent = Sent { messages: None, next: VecDeque::from([first.into(), ticket]) };
    let request = http::Request::post(DO_GET)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .version(http::Version::HTTP_2);
    let request = match token.as_ref().map(|token| token.as_bytes()) {
        Some(token) => request.header("authorization", token),
        None => request,
    };
    let request = request.body(Body::new(sent)).map_err(|error| Status::internal(error.to_string()))?;
    let lost = |error: tonic::transport::Error| Status::from_error(Box::new(error));
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.map_err(lost)?;
    let response = channel.call(request).await.map_err(lost)?;
    check(response.headers())?;
    if response.status() != http::StatusCode::OK {
        return Err(Status::unavailable(format!(
            "HTTP status {}: this is not a Flight server",
            response.status()
        )));
    }
    Ok(Answered(Received::new(response.into_body())))
}

impl Answered {
    /// The next message; `None` after the last one.
    pub(crate) async fn message(&mut self) -> Result<Option<Message>, Status> {
        let damaged = |status: Status| match status.code() {
            Code::OutOfRange => Status::unavailable(status.message()),
            _ => status,
        };
        let Some(mut fields) = self.0.message(MAX_MESSAGE).await.map_err(damaged)? else {
            return if self.0.has_trailers { Ok(None) } else { Err(cut()) };
        };
        let mut message = Message::default();
        let wrong = |_| Status::unavailable("a message is damaged");
        while let Some((number, field)) = fields.field().map_err(wrong)? {
            match number {
                HEADER => message.header = field.joined(),
                METADATA => message.metadata = field.joined(),
                BODY => message.body = field,
                _ => {}
            }
        }
        Ok(Some(message))
    }
}

/// Messages to send. Each goes out as two buffers: its first bytes, and its body without a copy.
struct Sent {
    messages: Option<Messages<FlightData>>,
    next: VecDeque<Bytes>,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.next.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(messages) = self.messages.as_mut() else { return Poll::Ready(None) };
        let status = match ready!(messages.as_mut().poll_next(cx)) {
            Some(Ok(message)) => {
                let first = first_bytes(&message);
                self.next.extend(Some(message.data_body).filter(|body| !body.is_empty()));
                return Poll::Ready(Some(Ok(Frame::data(first))));
            }
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.messages = None;
        let mut trailers = http::HeaderMap::new();
        // A header cannot hold this text, so only the code is sent.
        if status.add_header(&mut trailers).is_err() {
            let _ = Status::new(status.code(), "").add_header(&mut trailers);
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.next.is_empty()
    }
}

/// The bytes of `message` before its body.
fn first_bytes(message: &FlightData) -> Bytes {
    let mut bytes = vec![0; PREFIX];
    for (number, field) in [(HEADER, &message.data_header), (METADATA, &message.app_metadata)] {
        put_field(&mut bytes, number, field.len());
        bytes.extend(field);
    }
    if !message.data_body.is_empty() {
        put_field(&mut bytes, BODY, message.data_body.len());
    }
    let len = (bytes.len() - PREFIX + message.data_body.len()) as u32;
    bytes[1..PREFIX].copy_from_slice(&len.to_be_bytes());
    bytes.into()
}

/// The Flight service of tonic, except for `DoGet`.
#[derive(Clone)]
pub(crate) struct Direct {
    service: Arc<Service>,
    others: FlightServiceServer<Service>,
}

impl Direct {
    pub(crate) fn new(service: Service) -> Self {
        let service = Arc::new(service);
        Self { others: FlightServiceServer::from_arc(service.clone()), service }
    }
}

impl NamedService for Direct {
    const NAME: &'static str = <FlightServiceServer<Service> as NamedService>::NAME;
}

impl TowerService<http::Request<Body>> for Direct {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != DO_GET {
            return self.others.call(request);
        }
        let service = self.service.clone();
        Box::pin(
            async move { Ok(answer(&service, request.into_body()).await.unwrap_or_else(Status::into_http)) },
        )
    }
}

/// Answers the request in `body`.
async fn answer(service: &Service, body: Body) -> Result<http::Response<Body>, Status> {
    let no_ticket = || Status::invalid_argument("the request is not a ticket of Flight");
    let mut fields = Received::new(body).message(service.max_request()).await?.ok_or_else(no_ticket)?;
    let mut ticket = Bytes::new();
    while let Some((number, field)) = fields.field().map_err(|_| no_ticket())? {
        if number == TICKET {
            ticket = field.joined();
        }
    }
    let messages = service.do_get(Request::new(Ticket { ticket })).await?.into_inner();
    let mut response =
        http::Response::new(Body::new(Sent { messages: Some(messages), next: VecDeque::new() }));
    let grpc = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    Ok(response)
}
