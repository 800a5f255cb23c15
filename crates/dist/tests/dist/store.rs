//! The client of a store, with our server and with PyTorch's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use feedline_core::ErrorKind;
use feedline_dist::{Server, Store};
use feedline_testkit::{not_run, watchdog, with_watchdog};

const LIMIT: Duration = Duration::from_secs(10);

fn works_as_a_store(port: u16) {
    let open = |prefix| Store::connect("127.0.0.1", port, prefix, LIMIT).unwrap();
    let (one, two, other) = (open("a"), open("a"), open("b"));
    assert!(!one.has("key").unwrap());
    one.set("key", b"value").unwrap();
    assert_eq!(two.get("key", LIMIT).unwrap(), b"value");
    assert!(!other.has("key").unwrap(), "another run sees the key");
    // A client sees at once a value that another one has set.
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
    // The system never picks a port below 1024 for a server.
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

/// Connects to `server` and sends nothing.
fn silent(server: &Server) -> TcpStream {
    let connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    connection
}

#[test]
fn a_late_answer_is_not_taken_for_that_of_the_next_question() {
    with_watchdog(watchdog::LIMIT, || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (timed_out, waiting) = std::sync::mpsc::channel();
        let late = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            // The hello, and the question: its kind, the length of the key, the key, the number.
            connection.read_exact(&mut [0; 5 + 1 + 8 + "/feedline/run/a".len() + 8]).unwrap();
            waiting.recv().unwrap();
            // The client may have closed the connection.
            let _ = connection.write_all(&7i64.to_le_bytes());
            let _ = connection.read_to_end(&mut Vec::new());
        });
        let store = Store::connect("127.0.0.1", port, "run", Duration::from_millis(600)).unwrap();
        let first = store.add("a", 1).unwrap_err();
        assert_eq!(first.kind(), ErrorKind::Unavailable, "{first}");
        timed_out.send(()).unwrap();
        let later = [store.add("b", 1).map(drop), store.set("c", b"").map(drop), store.has("d").map(drop)];
        for later in later.into_iter().chain([store.get("e", LIMIT).map(drop)]) {
            assert_eq!(later.unwrap_err().to_string(), first.to_string());
        }
        drop(store);
        late.join().unwrap();
    });
}

#[test]
fn a_store_that_does_not_answer_is_given_up_after_the_limit() {
    with_watchdog(watchdog::LIMIT, || {
        // The system connects clients although nobody accepts them.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let store = Store::connect("127.0.0.1", port, "run", LIMIT).unwrap();
        let start = Instant::now();
        let error = store.get("key", Duration::from_millis(700)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(start.elapsed() < LIMIT / 2, "it took {:?}", start.elapsed());
    });
}

#[test]
fn a_limit_that_no_clock_can_hold_is_no_error() {
    with_watchdog(watchdog::LIMIT, || {
        let server = Server::start("127.0.0.1", 0).unwrap();
        let store = Store::connect("127.0.0.1", server.port(), "run", Duration::MAX).unwrap();
        store.set("key", b"value").unwrap();
        assert_eq!(store.get("key", Duration::MAX).unwrap(), b"value");
    });
}

/// Threads of this process that serve clients of stores.
fn client_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // The thread may have ended meanwhile.
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    });
    names.filter(|name| name.trim_end() == "fl-dist-client").count()
}

#[test]
fn silent_connections_take_few_threads_and_are_closed() {
    with_watchdog(watchdog::LIMIT, || {
        let server = Server::start("127.0.0.1", 0).unwrap();
        let mut strangers: Vec<_> = (0..120).map(|_| silent(&server)).collect();
        // The store still serves a client after all these connections.
        works_as_a_store(server.port());
        // The store has at most 64 threads; tests that run at the same time have a few.
        assert!(client_threads() < 90, "{} threads", client_threads());
        for stranger in &mut strangers {
            assert_eq!(stranger.read(&mut [0]).expect("closed within the limit"), 0);
        }
    });
}

#[test]
fn a_request_that_is_cut_short_is_given_up() {
    with_watchdog(watchdog::LIMIT, || {
        let server = Server::start("127.0.0.1", 0).unwrap();
        let mut stranger = silent(&server);
        stranger.set_read_timeout(Some(3 * LIMIT)).unwrap();
        // The hello, and a key of 5 bytes of which 1 arrives.
        stranger.write_all(&[0, 0xCE, 0xF7, 0x85, 0x3C, 3, 5, 0, 0, 0, 0, 0, 0, 0, b'k']).unwrap();
        assert_eq!(stranger.read(&mut [0]).expect("closed within the limit"), 0);
    });
}

#[test]
fn a_full_store_takes_nothing_more_and_keeps_what_it_has() {
    with_watchdog(watchdog::LIMIT, || {
        let server = Server::start("127.0.0.1", 0).unwrap();
        let open = || Store::connect("127.0.0.1", server.port(), "run", LIMIT).unwrap();
        let (first, greedy) = (open(), open());
        first.set("key", b"value").unwrap();
        let value = vec![1; 1 << 20];
        let stored = (0..200).take_while(|index| greedy.set(&format!("large-{index}"), &value).is_ok());
        let stored = stored.count();
        assert!((32..=64).contains(&stored), "{stored} MiB are stored");
        assert!(greedy.has("key").unwrap_err().to_string().contains("full"));
        assert_eq!(first.get("key", LIMIT).unwrap(), b"value");
        // Replacing a value needs no room for both.
        (0..200).for_each(|_| first.set("large-0", &value).unwrap());
    });
}

#[test]
fn a_key_or_value_that_no_store_takes_is_refused_before_it_is_sent() {
    let server = Server::start("127.0.0.1", 0).unwrap();
    let store = Store::connect("127.0.0.1", server.port(), "run", LIMIT).unwrap();
    let error = store.set("key", &vec![0; (1 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("\"key\" has 1048577 bytes"), "{error}");
    assert_eq!(store.has(&"k".repeat(2 << 20)).unwrap_err().kind(), ErrorKind::Config);
    assert!(!store.has("key").unwrap(), "the connection is still good");
}

/// Seconds that the threads of this process have computed, by its `/proc/self/stat`.
fn computed(file: &std::fs::File) -> f64 {
    let mut bytes = [0; 1024];
    let len = std::os::unix::fs::FileExt::read_at(file, &mut bytes, 0).unwrap();
    let stat = String::from_utf8_lossy(&bytes[..len]);
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in hundredths of a second.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// The child process of `without_file_descriptors_the_store_waits`. It has few descriptors.
#[test]
#[ignore = "a test starts it, in a process of its own"]
fn without_file_descriptors() {
    let server = Server::start("127.0.0.1", 0).unwrap();
    let stat = std::fs::File::open("/proc/self/stat").unwrap();
    let mut taken: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    // One is left for the client, and none for the server's end of the connection. The server may have taken
    // it meanwhile for a connection that has not come yet: then the client gets the next one.
    let mut client = loop {
        taken.pop().expect("a descriptor for the client");
        match TcpStream::connect(("127.0.0.1", server.port())) {
            Ok(client) => break client,
            Err(error) => assert_eq!(error.raw_os_error(), Some(24), "{error}"), // EMFILE
        }
    };
    let before = computed(&stat);
    std::thread::sleep(Duration::from_secs(1));
    let spent = computed(&stat) - before;
    assert!(spent < 0.1, "the store has computed for {spent} s of 1 s in which nothing happened");
    // Once there is a descriptor, the server serves the waiting client.
    drop(taken);
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let check =
        [&[0, 0xCE, 0xF7, 0x85, 0x3C, 5, 1, 0, 0, 0, 0, 0, 0, 0][..], &1u64.to_le_bytes(), b"k"].concat();
    client.write_all(&check).unwrap();
    let mut answer = [9];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [1]);
}

#[test]
fn without_file_descriptors_the_store_waits() {
    with_watchdog(watchdog::LIMIT, || {
        let this = std::env::current_exe().unwrap();
        let output = Command::new("sh")
            .args(["-c", "ulimit -n 32; exec \"$0\" --exact store::without_file_descriptors --ignored"])
            .arg(this)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    });
}
