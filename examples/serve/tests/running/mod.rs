//! A server in this process, and requests to it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline::{Device, Stream};
use feedline_device::Buffer;
use feedline_kernels::ops::{Kernels, Sgd};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};
use feedline_serve::{Metrics, Model, Pool, PoolOptions, Server};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub const INPUTS: usize = 16;
pub const HIDDEN: usize = 8;
pub const CLASSES: usize = 10;

/// The drain limit of the server: no test whose clients read their answers reaches it.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// The maximum wait for something that should happen.
pub const LONG: Duration = Duration::from_secs(30);

/// The pixels of request `number`.
pub fn pixels(number: usize) -> Vec<u8> {
    (0..INPUTS).map(|at| (number * 37 + at * 11) as u8).collect()
}

/// A model for `batch` rows, trained for a few steps.
pub fn trained(stream: &Stream, batch: usize) -> Mlp {
    let shape = Shape { inputs: INPUTS, hidden: HIDDEN, classes: CLASSES, batch };
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.5, momentum: 0.9 });
    let mut mlp = Mlp::new(stream, Kernels::new(stream).unwrap(), shape, Init::Random(1), optimizer).unwrap();
    let (mut image, mut label) =
        (Buffer::new(stream, batch * INPUTS).unwrap(), Buffer::new(stream, batch).unwrap());
    image.write(&(0..batch).flat_map(pixels).collect::<Vec<_>>()).unwrap();
    label.write(&(0..batch).map(|number| (number % CLASSES) as u8).collect::<Vec<_>>()).unwrap();
    let mut result = Buffer::new(stream, 2).unwrap();
    (0..10).for_each(|_| mlp.step(image.view(), label.view(), result.view_mut()).unwrap());
    mlp
}

pub fn parameters(mlp: &Mlp) -> Vec<f32> {
    mlp.state().unwrap().parts.into_iter().find(|(name, _)| *name == "parameters").unwrap().1
}

pub fn model(device: &Device) -> Model {
    let parameters = parameters(&trained(&device.stream().unwrap(), 40));
    Model { inputs: INPUTS, hidden: HIDDEN, classes: CLASSES, parameters }
}

/// A server on a free port.
pub struct Running {
    pub runtime: Runtime,
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<usize>,
}

impl Running {
    pub fn new(device: &Device, options: PoolOptions) -> Self {
        Self::with_drain_limit(device, options, DRAIN_LIMIT)
    }

    pub fn with_drain_limit(device: &Device, options: PoolOptions, drain_limit: Duration) -> Self {
        let runtime = Runtime::new().unwrap();
        let pool = Pool::start(device, &model(device), options).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = runtime.block_on(Server::bind(any, pool)).unwrap();
        let (address, metrics) = (server.address().unwrap(), server.pool().metrics().clone());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let ended = runtime.spawn(server.run(stopped, drain_limit));
        Self { runtime, address, metrics, stop, ended }
    }

    /// Drains without closing any connection early. Returns once the server has ended, with the runtime,
    /// which clients may still use.
    pub fn drain(self) -> Runtime {
        let (cut, runtime) = self.drain_and_cut();
        assert_eq!(cut, 0, "connections without an answer");
        runtime
    }

    /// Drains. Also returns the number of connections that were closed early.
    pub fn drain_and_cut(self) -> (usize, Runtime) {
        self.stop.send(()).unwrap();
        let ended = self.runtime.block_on(async { tokio::time::timeout(LONG, self.ended).await });
        (ended.expect("in time").unwrap(), self.runtime)
    }

    pub fn predict(&self, pixels: &[u8]) -> (u16, String) {
        ask(self.address, "POST /predict", pixels)
    }
}

/// The status and the body of one request on a connection of its own.
pub fn ask(to: SocketAddr, what: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(LONG)).unwrap();
    let len = body.len();
    let head = format!("{what} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Blocks until `happened` returns true, for at most [`LONG`].
#[track_caller]
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
