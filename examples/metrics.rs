//! Metrics of a loader for Prometheus: printed once, or served at `http://127.0.0.1:9090/metrics` while the
//! program loads.
//!
//! ```sh
//! cargo run --features metrics --example metrics           # prints the metrics once
//! cargo run --features metrics --example metrics -- 9090   # serves them on that port, until it is ended
//! ```
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use feedline::{Device, InMemory, Loader, Workers};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Answers every request with the metrics. A real program lets its web framework do this.
fn serve(port: u16, handle: &PrometheusHandle) -> std::io::Result<()> {
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let mut stream = stream?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        // One request per connection; only its arrival matters.
        let _ = stream.read(&mut [0; 4096])?;
        let body = handle.render();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}",
            body.len()
        );
        write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}")?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the loader is built, because building it looks up the recorder.
    let handle = PrometheusBuilder::new().install_recorder()?;
    let port = std::env::args().nth(1).map(|port| port.parse()).transpose()?;
    if let Some(port) = port {
        let handle = handle.clone();
        std::thread::spawn(move || {
            serve(port, &handle).unwrap_or_else(|error| eprintln!("metrics: {error}"))
        });
    }
    let device = Device::best()?;
    let stream = device.stream()?;
    let numbers = InMemory::new().field("number", [1024], vec![1.0_f32; 1024 * 1000])?;
    let builder = Loader::builder(numbers).batch_size(10).workers(Workers::Auto);
    let mut loader = builder.build(&device)?;
    for epoch in 0.. {
        for batch in loader.epoch(epoch)? {
            let _batch = batch?.wait_on(&stream)?;
        }
        if port.is_none() {
            print!("{}", handle.render());
            break;
        }
    }
    Ok(())
}
