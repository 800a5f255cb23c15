//! `feedline-decode serve`: a decode server.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use feedline_decode::Server;
use lexopt::prelude::{Long, Short, Value, ValueExt};
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
Decodes batches for trainers on other machines.

usage: feedline-decode serve --data PATH --listen HOST:PORT [options]

  --data PATH           a file or folder that feedline reads; again for more of them
  --listen HOST:PORT    port 0: a free port, which is printed
  --transforms VERSION  trainers must state the same version
  --token-file FILE     answer only requests with the bearer token in FILE
  --cert FILE --key FILE  speak TLS: the chain of certificates and the key, in PEM
  --workers N           threads that decode; default: one per core
  --memory BYTES        of batches in work; default: 1 GiB
  --shared BYTES        keep sent batches for other trainers; default: 0
  --metrics HOST:PORT   GET /metrics (Prometheus) and /health
  --drain SECONDS       after SIGTERM or SIGINT, the time for the requests in work; default: 30
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            eprintln!("feedline-decode: {}", text.replace('\n', " "));
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = lexopt::Parser::from_env();
    match arguments.next()? {
        Some(Value(name)) if name == "serve" => {}
        Some(Long("help") | Short('h')) => {
            print!("{HELP}");
            return Ok(());
        }
        Some(Long("version")) => {
            println!("feedline-decode {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        None => return Err("no command: see feedline-decode --help".into()),
        Some(argument) => return Err(argument.unexpected().into()),
    }
    let (mut server, mut listen, mut drain) = (Server::new(), None, 30);
    let (mut certificates, mut key) = (None, None);
    while let Some(argument) = arguments.next()? {
        server = match argument {
            Long("data") => server.data(PathBuf::from(arguments.value()?)),
            Long("transforms") => server.transforms(arguments.value()?.string()?),
            Long("workers") => server.workers(arguments.value()?.parse()?),
            Long("memory") => server.memory(arguments.value()?.parse()?),
            Long("shared") => server.shared(arguments.value()?.parse()?),
            Long("metrics") => server.metrics(arguments.value()?.string()?),
            Long("token-file") => {
                let path = PathBuf::from(arguments.value()?);
                let token = String::from_utf8(read(&path)?)?.trim().to_owned();
                if token.is_empty() {
                    return Err(format!("{}: the file has no token", path.display()).into());
                }
                server.token(token)
            }
            other => {
                match other {
                    Long("listen") => listen = Some(arguments.value()?.string()?),
                    Long("cert") => certificates = Some(read(arguments.value()?.as_ref())?),
                    Long("key") => key = Some(read(arguments.value()?.as_ref())?),
                    Long("drain") => drain = arguments.value()?.parse()?,
                    Long("help") | Short('h') => {
                        print!("{HELP}");
                        return Ok(());
                    }
                    other => return Err(other.unexpected().into()),
                }
                server
            }
        };
    }
    server = match (certificates, key) {
        (Some(certificates), Some(key)) => server.tls(certificates, key),
        (None, None) => server,
        _ => return Err("--cert and --key belong together: give both or none".into()),
    };
    let listen = listen.ok_or("--listen HOST:PORT is missing: see feedline-decode --help")?;
    // The signals are caught before the port is printed, so that a signal after that line drains.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    let running = server.bind(&listen)?;
    println!("feedline-decode listens at {}", running.address());
    if let Some(address) = running.metrics_address() {
        println!("feedline-decode metrics at {address}");
    }
    runtime.block_on(async {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    });
    running.drain(Duration::from_secs(drain));
    let [decoded, sent, shared] = running.rows();
    println!("feedline-decode ends: {decoded} rows decoded, {sent} sent, {shared} requests shared");
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
