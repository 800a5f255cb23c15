//! The client of a store, with the own server and with that of PyTorch.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use feedline_core::ErrorKind;
use feedline_dist::{Server, Store};
use feedline_testkit::not_run;

const LIMIT: Duration = Duration::from_secs(10);

fn works_as_a_store(port: u16) {
    let open = |prefix| Store::connect("127.0.0.1", port, prefix, LIMIT).unwrap();
    let (one, two, other) = (open("a"), open("a"), open("b"));
    assert!(!one.has("key").unwrap());
    one.set("key", b"value").unwrap();
    assert_eq!(two.get("key", LIMIT).unwrap(), b"value");
    assert!(!other.has("key").unwrap(), "another run sees the key");
    // What one client has set, the other sees at once.
    for round in 0..500u32 {
        one.set("key", &round.to_le_bytes()).unwrap();
        assert_eq!(two.get("key", LIMIT).unwrap(), round.to_le_bytes());
    }
    one.set("key", &[]).unwrap();
    assert_eq!(two.get("key", LIMIT).unwrap(), b"");
    let large: Vec<u8> = (0..100_000u32).map(|index| index as u8).collect();
    one.set("large", &large).unwrap();
    assert_eq!(two.get("large", LIMIT).unwrap(), large);
    let sums: Vec<i64> = [5, -2, 10].map(|number| one.add("sum", number).unwrap()).to_vec();
    assert_eq!(sums, [5, 3, 13]);
    assert_eq!(two.get("sum", LIMIT).unwrap(), b"13");
    // A key that is set later is waited for.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| two.get("late", LIMIT).unwrap());
        one.set("late", b"now").unwrap();
        assert_eq!(waiting.join().unwrap(), b"now");
    });
    let start = Instant::now();
    let error = two.get("never", Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("has no \"never\"") && start.elapsed() < LIMIT, "{error}");
    assert_eq!(two.get("key", LIMIT).unwrap(), b"", "the store works on after a wait that was given up");
}

#[test]
fn the_own_server_works_as_a_store() {
    let server = Server::start("127.0.0.1", 0).unwrap();
    works_as_a_store(server.port());
}

/// The interpreter with PyTorch: `FEEDLINE_PYTHON`, or python3.
fn python() -> String {
    std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

#[test]
fn the_store_of_torch_works_as_a_store() {
    for libuv in ["True", "False"] {
        let what = format!("the client of a store with that of PyTorch, use_libuv={libuv}");
        let program = format!(
            "import torch.distributed as dist\n\
             options = dict(is_master=True, wait_for_workers=False, use_libuv={libuv})\n\
             store = dist.TCPStore('127.0.0.1', 0, **options)\n\
             print(store.port, flush=True)\ninput()"
        );
        let python = Command::new(python())
            .args(["-c", &program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut python = match python {
            Ok(python) => python,
            Err(error) => {
                not_run(&what, error);
                continue;
            }
        };
        let mut line = String::new();
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.trim().parse() {
            Ok(port) => works_as_a_store(port),
            Err(_) => not_run(&what, "this python3 has no PyTorch: set FEEDLINE_PYTHON"),
        }
        drop(python.stdin.take());
        python.wait().unwrap();
    }
}

#[test]
fn without_a_store_the_error_says_what_to_check() {
    let start = Instant::now();
    // A port that no server takes by chance: those below 1024 are given out by name only.
    let error = Store::connect("127.0.0.1", 1, "run", Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("MASTER_ADDR") && start.elapsed() < LIMIT, "{error}");
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let server = Server::start("127.0.0.1", 0).unwrap();
    let error = Server::start("127.0.0.1", server.port()).unwrap_err();
    assert!(error.to_string().contains(&format!("port {}", server.port())), "{error}");
}

#[test]
fn a_stranger_is_turned_away_and_the_server_lives_on() {
    let server = Server::start("127.0.0.1", 0).unwrap();
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 1, 2, 3, 4], &[0, 0xCE, 0xF7, 0x85, 0x3C, 99]] {
        let mut stranger = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        stranger.write_all(said).unwrap();
        // Closed by the server, with or without a reset.
        assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)));
    }
    // A key that is announced as huge.
    let mut stranger = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stranger.set_read_timeout(Some(LIMIT)).unwrap();
    stranger.write_all(&[&[0, 0xCE, 0xF7, 0x85, 0x3C, 3][..], &u64::MAX.to_le_bytes()].concat()).unwrap();
    assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)));
    works_as_a_store(server.port());
}
