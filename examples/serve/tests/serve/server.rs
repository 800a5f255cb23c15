//! The server: answers, refusals, and drains that lose no request.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::running::{CLASSES, INPUTS, Running, ask, pixels, trained, wait_until};
use bytes::Bytes;
use feedline::{Device, Error, ErrorKind, Result};
use feedline_device::Buffer;
use feedline_device::backend::Backend;
use feedline_device::backend::host::Host;
use feedline_serve::{PoolOptions, load};
use feedline_sim::interceptors::{Call, Intercepted, Interceptor, Op};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

const OPTIONS: PoolOptions =
    PoolOptions { streams: 3, batch: 4, delay: Duration::from_micros(100), queue: 64 };

/// Holds up or fails copies to the device.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Open,
    Closed,
    Broken,
}

impl Gate {
    fn set(&self, state: State) {
        *self.0.0.lock().unwrap() = state;
        self.0.1.notify_all();
    }
}

impl Interceptor for Gate {
    fn intercept<R>(&self, _: &dyn Backend, call: Call, make: impl FnOnce() -> Result<R>) -> Result<R> {
        if call.op == Op::CopyToDevice {
            let state = self.0.0.lock().unwrap();
            let state = self.0.1.wait_while(state, |state| *state == State::Closed).unwrap();
            if *state == State::Broken {
                return Err(Error::new(ErrorKind::Device, "planned"));
            }
        }
        make()
    }
}

#[test]
fn answers_are_those_of_the_trainers_forward_pass() {
    with_watchdog(LIMIT, || {
        let device = Device::new_host();
        let running = Running::new(&device, OPTIONS);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let running = &running;
            let client = |number| scope.spawn(move || running.predict(&pixels(number)));
            let clients: Vec<_> = (0..40).map(client).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let stream = device.stream().unwrap();
        let (mut mlp, mut image) = (trained(&stream, 40), Buffer::new(&stream, 40 * INPUTS).unwrap());
        image.write(&(0..40).flat_map(pixels).collect::<Vec<_>>()).unwrap();
        let mut logits = Buffer::<f32>::new(&stream, 40 * CLASSES).unwrap();
        mlp.forward(image.view(), logits.view_mut()).unwrap();
        let logits = logits.read().unwrap();
        let mut classes = Vec::new();
        for (wanted, (status, answer)) in logits.chunks(CLASSES).zip(&answers) {
            assert_eq!(*status, 200, "{answer}");
            let answer: serde_json::Value = serde_json::from_str(answer).unwrap();
            let found = answer["logits"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32);
            assert_eq!(found.collect::<Vec<_>>(), wanted);
            let class = answer["class"].as_u64().unwrap() as usize;
            assert!(wanted.iter().all(|logit| *logit <= wanted[class]), "class {class} of {wanted:?}");
            classes.push(class);
        }
        classes.sort_unstable();
        classes.dedup();
        assert!(classes.len() > 2, "requests cannot be told apart: {classes:?}");
        assert_eq!(running.metrics.answered.get(), 40);
        running.drain();
    });
}

#[test]
fn a_full_queue_refuses_with_429_and_answers_what_it_took() {
    with_watchdog(LIMIT, || {
        let gate = Gate::default();
        let device = feedline_device::with_backend(Intercepted::with(Host::new(), gate.clone()));
        let options = PoolOptions { streams: 1, batch: 1, queue: 3, ..OPTIONS };
        let running = Running::new(&device, options);
        gate.set(State::Closed);
        std::thread::scope(|scope| {
            let client = || scope.spawn(|| running.predict(&pixels(1)));
            let mut clients = vec![client()];
            wait_until("the first request is on the stream", || running.metrics.batches.get() == 1);
            clients.extend((0..3).map(|_| client()));
            wait_until("the queue is full", || running.metrics.accepted.get() == 4);
            let (status, line) = running.predict(&pixels(2));
            assert_eq!((status, line.as_str()), (429, "the queue is full: try again later\n"));
            let (_, text) = ask(running.address, "GET /metrics", b"");
            assert!(
                text.contains("\nserve_queued 3\n") && text.contains("\nserve_refused_total 1\n"),
                "{text}"
            );
            gate.set(State::Open);
            for client in clients {
                assert_eq!(client.join().unwrap().0, 200);
            }
        });
        assert_eq!(running.predict(&pixels(2)).0, 200, "there is room again");
        running.drain();
    });
}

#[test]
fn a_drain_under_load_loses_no_request() {
    with_watchdog(LIMIT, || {
        for streams in [1, 4] {
            let running = Running::new(&Device::new_host(), PoolOptions { streams, ..OPTIONS });
            let (metrics, body) = (running.metrics.clone(), Bytes::from(pixels(3)));
            let clients = running.runtime.spawn(load::run(running.address, 16, 2 * LIMIT, body));
            wait_until("there is load", || metrics.answered.get() > 300);
            let runtime = running.drain();
            let outcome = runtime.block_on(clients).unwrap();
            let (accepted, answered) = (metrics.accepted.get(), metrics.answered.get());
            assert_eq!(accepted, answered, "requests that were taken and not answered");
            assert_eq!(outcome.answered, answered, "answers that did not arrive");
            assert_eq!((outcome.refused, outcome.other), (metrics.refused.get(), 0));
            assert_eq!(outcome.closed, 16, "every connection was closed by the drain");
        }
    });
}

#[test]
fn a_drain_answers_what_waits_in_the_queue() {
    with_watchdog(LIMIT, || {
        let gate = Gate::default();
        let device = feedline_device::with_backend(Intercepted::with(Host::new(), gate.clone()));
        let running = Running::new(&device, PoolOptions { streams: 1, batch: 2, queue: 8, ..OPTIONS });
        gate.set(State::Closed);
        let (address, metrics) = (running.address, running.metrics.clone());
        std::thread::scope(|scope| {
            let client = || scope.spawn(|| ask(address, "POST /predict", &pixels(4)));
            let clients: Vec<_> = (0..6).map(|_| client()).collect();
            wait_until("all are taken", || metrics.accepted.get() == 6);
            let draining = scope.spawn(|| {
                let runtime = running.drain();
                assert_eq!(metrics.answered.get(), 6, "the drain waits for the answers");
                drop(runtime);
            });
            wait_until("no new connection is taken", || TcpStream::connect(address).is_err());
            gate.set(State::Open);
            for client in clients {
                assert_eq!(client.join().unwrap().0, 200);
            }
            draining.join().unwrap();
        });
    });
}

#[test]
fn a_drain_ends_although_a_client_reads_no_answers() {
    with_watchdog(LIMIT, || {
        let limit = Duration::from_secs(1);
        let running = Running::with_drain_limit(&Device::new_host(), OPTIONS, limit);
        let mut client = TcpStream::connect(running.address).unwrap();
        client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let requests = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
        // Once the server waits for a client to read, it takes no more requests of this client, but still
        // answers others.
        let (mut sent, mut stalls) = (0, 0);
        while stalls < 3 {
            match client.write(&requests[sent % requests.len()..]) {
                Ok(bytes) => (sent, stalls) = (sent + bytes, 0),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                    assert_eq!(ask(running.address, "GET /health", b""), (200, "ok\n".to_owned()));
                    stalls += 1;
                }
            }
        }
        assert_eq!(running.drain_and_cut().0, 1);
        drop(client);
    });
}

#[test]
fn a_delay_that_no_clock_can_hold_is_no_error() {
    with_watchdog(LIMIT, || {
        let options = PoolOptions { delay: Duration::MAX, batch: 1, ..OPTIONS };
        let running = Running::new(&Device::new_host(), options);
        assert_eq!(running.predict(&pixels(1)).0, 200);
        running.drain();
    });
}

#[test]
fn wrong_requests_get_one_line_and_harm_nobody() {
    with_watchdog(LIMIT, || {
        let running = Running::new(&Device::new_host(), OPTIONS);
        let wrong = [
            ("POST /predict", vec![1; 15], 400, "the body has 15 bytes: send 16, one per pixel\n"),
            ("POST /predict", vec![], 400, "the body has 0 bytes: send 16, one per pixel\n"),
            (
                "POST /predict",
                vec![1; 9999],
                400,
                "the body has more than 16 bytes: send 16, one per pixel\n",
            ),
            ("GET /predict", vec![], 405, "send the pixels with POST\n"),
            ("POST /metrics", vec![], 405, "ask with GET\n"),
            ("GET /", vec![], 404, "there are POST /predict, GET /metrics and GET /health\n"),
        ];
        for (what, body, status, line) in wrong {
            assert_eq!(ask(running.address, what, &body), (status, line.to_owned()), "{what}");
        }
        // A client that disconnects in the middle of its body.
        let mut gone = TcpStream::connect(running.address).unwrap();
        gone.write_all(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n123").unwrap();
        drop(gone);
        wait_until("it is noticed", || running.metrics.wrong.get() == 4);
        assert_eq!(ask(running.address, "GET /health", b""), (200, "ok\n".to_owned()));
        assert_eq!(running.predict(&pixels(0)).0, 200);
        let (_, text) = ask(running.address, "GET /metrics", b"");
        for line in ["serve_wrong_total 4", "serve_accepted_total 1", "serve_latency_seconds_count 1"] {
            assert!(text.contains(&format!("\n{line}\n")), "no {line:?} in\n{text}");
        }
        running.drain();
    });
}

#[test]
fn a_failed_micro_batch_gets_500_and_other_streams_go_on() {
    with_watchdog(LIMIT, || {
        let gate = Gate::default();
        let device = feedline_device::with_backend(Intercepted::with(Host::new(), gate.clone()));
        let running = Running::new(&device, PoolOptions { streams: 2, batch: 1, ..OPTIONS });
        gate.set(State::Broken);
        let (status, line) = running.predict(&pixels(0));
        assert!(status == 500 && line.contains("planned") && line.lines().count() == 1, "{status}: {line}");
        gate.set(State::Open);
        assert_eq!(running.metrics.failed.get(), 1);
        running.drain();
    });
}
