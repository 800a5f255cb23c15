//! Refusals of a server and a trainer: one line each, without secrets.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::Ticket as FlightTicket;
use arrow_flight::flight_service_client::FlightServiceClient;
use feedline::{Dataset, ErrorKind};
use feedline_decode::ticket::{Data, Ticket};
use feedline_decode::{Server, Servers};
use feedline_testkit::fixtures::Fine;
use feedline_testkit::with_watchdog;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::common::{builder, run, serve, servers};

const LIMIT: Duration = Duration::from_secs(60);

fn fine(len: u64) -> Arc<Fine> {
    Arc::new(Fine::new(len, 16).unwrap())
}

/// The error of a loader with these servers.
fn refused(set: &Arc<Fine>, servers: Servers) -> String {
    let error = builder(set).filler(servers).build_host().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains("decode server 127.0.0.1 (127.0.0.1:"), "{text}");
    text
}

#[test]
fn other_data_is_one_error_that_names_both_sides_before_the_first_batch() {
    with_watchdog(LIMIT, || {
        let (own, other) = (fine(100), fine(101));
        let text = refused(&own, servers(&[serve(&other).address()]));
        assert!(text.contains("number of samples: the trainer has 100, the server 101"), "{text}");
        let wider = Arc::new(Fine::new(100, 17).unwrap());
        let text = refused(&own, servers(&[serve(&wider).address()]));
        assert!(text.contains("bytes u8 [16]") && text.contains("bytes u8 [17]"), "{text}");
        let server = Server::new().dataset(own.clone()).transforms("v2").bind("127.0.0.1:0").unwrap();
        let text = refused(&own, servers(&[server.address()]).transforms("v1"));
        assert!(text.contains("the trainer has \"v1\", the server \"v2\""), "{text}");
    });
}

#[test]
fn a_wrong_token_and_missing_tls_are_refused() {
    with_watchdog(LIMIT, || {
        let set = fine(50);
        let server = Server::new().dataset(set.clone()).token("right").bind("127.0.0.1:0").unwrap();
        for asked in [servers(&[server.address()]), servers(&[server.address()]).token("wrong").unwrap()] {
            let text = refused(&set, asked);
            assert!(text.contains("token is missing or wrong") && !text.contains("right"), "{text}");
        }
        assert!(run(builder(&set).filler(servers(&[server.address()]).token("right").unwrap())).1.is_some());

        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (key.cert.pem(), key.signing_key.serialize_pem());
        let server = Server::new().dataset(set.clone()).tls(certificate.clone(), key);
        let server = server.bind("127.0.0.1:0").unwrap();
        // Without TLS there is no answer at all; the workers make the batches, and the status says why.
        let plain = servers(&[server.address()]);
        let (delivered, report) = run(builder(&set).filler(plain.clone()));
        assert_eq!((delivered, report.unwrap().batches), (run(builder(&set)).0, 0));
        assert!(plain.status()[0].last_error.is_some(), "{:?}", plain.status());
        // A certificate of somebody else is refused too.
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
        let port = server.address().port();
        let mistrusted =
            Servers::new([format!("localhost:{port}")]).unwrap().tls(other).timeout(Duration::from_secs(2));
        assert_eq!(run(builder(&set).filler(mistrusted.clone())).1.unwrap().batches, 0);
        assert!(mistrusted.status().iter().all(|server| server.last_error.is_some()));
    });
}

/// The server's answer to `ticket`: the number of messages, or the error.
fn ask(server: &feedline_decode::Running, ticket: Vec<u8>) -> Result<usize, Status> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
        let mut client = FlightServiceClient::new(endpoint.connect().await.unwrap());
        let answer = client.do_get(Request::new(FlightTicket { ticket: ticket.into() })).await?;
        let (mut messages, mut count) = (answer.into_inner(), 0);
        while messages.message().await?.is_some() {
            count += 1;
        }
        Ok(count)
    })
}

#[test]
fn forged_tickets_and_huge_requests_are_refused_and_the_server_goes_on() {
    with_watchdog(LIMIT, || {
        let set = fine(100);
        let server = Server::new().dataset(set.clone()).memory(64 << 10).bind("127.0.0.1:0").unwrap();
        let data = Data::new(set.spec(), set.len(), set.fingerprint(), "");
        let ticket = |ids: Vec<u64>| Ticket { data: data.clone(), seed: 7, epoch: 0, ids, draws: Vec::new() };
        let json = |ticket: &Ticket| ticket.to_json();
        let with = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut value = serde_json::from_slice(&json(&ticket(vec![1]))).unwrap();
            change(&mut value);
            value.to_string().into_bytes()
        };
        assert!(ask(&server, json(&ticket(vec![1, 2, 1]))).unwrap() > 1, "a schema and rows");
        assert_eq!(ask(&server, json(&ticket(vec![]))).unwrap(), 1, "a schema");
        let cases: Vec<(Vec<u8>, Code)> = vec![
            (vec![], Code::InvalidArgument),
            (vec![0xFF; 1000], Code::InvalidArgument),
            (vec![b'['; 100_000], Code::InvalidArgument),
            (with(&|ticket| ticket["path"] = "/etc/passwd".into()), Code::InvalidArgument),
            (with(&|ticket| ticket["data"]["path"] = "../..".into()), Code::InvalidArgument),
            (with(&|ticket| ticket["ids"] = "all".into()), Code::InvalidArgument),
            (with(&|ticket| ticket["ids"][0] = (-1).into()), Code::InvalidArgument),
            (with(&|ticket| ticket["draws"] = serde_json::json!([1, 2])), Code::InvalidArgument),
            (with(&|ticket| ticket["data"]["version"] = 0.into()), Code::FailedPrecondition),
            (with(&|ticket| ticket["data"]["feedline"] = "0.0.1".into()), Code::FailedPrecondition),
            (with(&|ticket| ticket["data"]["fingerprint"] = "0x1".into()), Code::FailedPrecondition),
            (with(&|ticket| ticket["data"]["fields"] = serde_json::json!([])), Code::FailedPrecondition),
            (json(&ticket(vec![100])), Code::InvalidArgument),
            (json(&ticket(vec![u64::MAX])), Code::InvalidArgument),
            (json(&ticket(vec![0; 10_000])), Code::ResourceExhausted),
            // Larger than any message may be.
            (json(&ticket(vec![99; 2 << 20])), Code::OutOfRange),
        ];
        for (index, (bytes, code)) in cases.into_iter().enumerate() {
            let status = ask(&server, bytes).expect_err("a refusal");
            assert_eq!(status.code(), code, "case {index}: {status}");
            assert!(!status.message().contains('\n') && status.message().len() < 500, "{status}");
        }
        assert_eq!(run(builder(&set)).0, run(builder(&set).filler(servers(&[server.address()]))).0);
    });
}

#[test]
fn a_path_is_served_as_it_was_given_and_never_named() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret-name.idx");
        let mut bytes = vec![0, 0, 8, 2, 0, 0, 0, 40, 0, 0, 0, 16];
        bytes.extend((0..40 * 16).map(|value| (value % 251) as u8));
        std::fs::write(&path, bytes).unwrap();
        let server = Server::new().data(&path).bind("127.0.0.1:0").unwrap();
        let set = || feedline_datasets::Bounded::new(feedline_datasets::open(&path).unwrap()).unwrap();
        let data = Data::new(set().spec(), set().len(), set().fingerprint(), "");
        let ticket = Ticket { data, seed: 0, epoch: 0, ids: (0..40).collect(), draws: Vec::new() };
        assert!(ask(&server, ticket.to_json()).unwrap() > 1);
        // A form that the file does not have.
        let mut ragged = ticket.clone();
        ragged.data.fields[0].max = Some(3);
        std::fs::remove_file(&path).unwrap();
        let status = ask(&server, ragged.to_json()).unwrap_err();
        assert!(!status.message().contains("secret-name"), "{status}");
        let error = Server::new().data(&path).bind("127.0.0.1:0").unwrap_err();
        assert!(error.to_string().contains("secret-name"), "the operator sees it: {error}");
    });
}

#[test]
fn servers_that_cannot_be_are_errors_at_once() {
    let none: [&str; 0] = [];
    assert!(Servers::new(none).unwrap_err().to_string().contains("no decode server"));
    assert!(Servers::new(["host"]).unwrap_err().to_string().contains("write HOST:PORT"));
    assert!(Servers::new(["host:1"]).unwrap().token("a\nb").is_err());
    assert!(Server::new().bind("127.0.0.1:0").unwrap_err().to_string().contains("no data to serve"));
    let set = fine(9);
    assert!(Server::new().dataset(set.clone()).bind("999.0.0.1:0").is_err());
    assert!(Server::new().dataset(set.clone()).workers(0).bind("127.0.0.1:0").is_err());
    assert!(Server::new().dataset(set.clone()).tls("no PEM", "none").bind("127.0.0.1:0").is_err());
    // Nobody listens there: the run goes on with the workers.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = servers(&[closed]);
    assert_eq!(run(builder(&set).filler(absent.clone())).1.unwrap().batches, 0);
    assert!(absent.status()[0].last_error.is_some());
}
