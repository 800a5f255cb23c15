//! The program: killed, stopped and drained by signals.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use feedline::{Loader, LoaderBuilder, Workers};
use feedline_datasets::{Bounded, open};
use feedline_decode::Servers;
use feedline_testkit::fixtures::Before;
use feedline_testkit::with_watchdog;

const LIMIT: Duration = Duration::from_secs(120);
const LEN: u32 = 400;

/// A process of `feedline-decode serve`. Dropping this kills it.
pub struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    pub address: String,
}

impl Process {
    pub fn start(data: &std::path::Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_feedline-decode"))
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--workers", "1"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, output, address }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// A file of `LEN` samples of 16 bytes.
fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.idx");
    let mut bytes = [&[0, 0, 8, 2][..], &LEN.to_be_bytes(), &16_u32.to_be_bytes()].concat();
    bytes.extend((0..LEN * 16).map(|value| (value.wrapping_mul(0x9E37_79B9) >> 24) as u8));
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// A loader whose one worker takes 2 ms per sample.
fn builder(path: &std::path::Path) -> LoaderBuilder {
    let set = Bounded::new(open(path).unwrap()).unwrap();
    let slow = Before::new(set, |_| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    });
    Loader::builder(Arc::new(slow)).batch_size(8).shuffle().seed(7).epochs(2).workers(Workers::Count(1))
}

fn ids(builder: LoaderBuilder, mut each: impl FnMut(usize)) -> (Vec<u64>, u64, feedline::report::Report) {
    let mut loader = builder.build_host().unwrap();
    let mut all = Vec::new();
    for epoch in 0..2 {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap();
            for (&id, row) in batch.ids().iter().zip(batch.field_at::<u8>(0).unwrap().chunks(16)) {
                let first = (id as u32 * 16).wrapping_mul(0x9E37_79B9) >> 24;
                assert_eq!(u32::from(row[0]), first, "sample {id}");
            }
            all.extend_from_slice(batch.ids());
            each(all.len());
        }
    }
    (all, loader.cursor().order_hash(), loader.report())
}

#[test]
fn processes_are_killed_stopped_continued_and_restarted_while_a_run_goes_on() {
    with_watchdog(LIMIT, || {
        let (_folder, path) = file();
        let want = ids(builder(&path), |_| {});
        let mut processes: Vec<_> = (0..3).map(|_| Process::start(&path, &[])).collect();
        let servers = Servers::new(processes.iter().map(|process| &process.address)).unwrap();
        let filler = servers.timeout(Duration::from_secs(2)).in_flight(6);
        let (mut step, mut killed) = (0, None);
        let (order, hash, report) = ids(builder(&path).filler(filler.clone()), |rows| {
            if rows < 100 * (step + 1) {
                return;
            }
            step += 1;
            match step {
                1 => processes[0].signal("STOP"),
                2 => killed = processes.pop(),
                3 => processes[0].signal("CONT"),
                4 => processes.push(Process::start(&path, &[])),
                5 => processes[1].signal("TERM"),
                _ => {}
            }
            // The third one is dead, its process gone.
            if step == 2 {
                drop(killed.take());
            }
        });
        assert!((order, hash) == (want.0, want.1), "{:?}", filler.status());
        let report = report.filler.expect("a report");
        assert!(report.batches > 10 && report.rejected == 0, "{report}");
    });
}

#[test]
fn sigterm_drains_and_the_program_says_what_it_did() {
    with_watchdog(LIMIT, || {
        let (_folder, path) = file();
        let mut process = Process::start(&path, &["--metrics", "127.0.0.1:0"]);
        let servers = Servers::new([&process.address]).unwrap();
        let (_, _, report) = ids(builder(&path).filler(servers), |_| {});
        assert!(report.to_string().contains("1 server filled"), "{report}");
        process.signal("TERM");
        assert!(process.child.wait().unwrap().success());
        let mut rest = String::new();
        process.output.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("metrics at 127.0.0.1:") && rest.contains("rows decoded"), "{rest}");
    });
}

#[test]
fn wrong_options_are_one_line_and_exit_code_2() {
    let (_folder, path) = file();
    let path = path.to_str().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&[], "no command"),
        (&["sirve"], "sirve"),
        (&["serve", "--data", path], "--listen HOST:PORT is missing"),
        (&["serve", "--listen", "127.0.0.1:0"], "no data to serve"),
        (&["serve", "--data", "/nowhere", "--listen", "127.0.0.1:0"], "/nowhere"),
        (&["serve", "--data", path, "--listen", "127.0.0.1:0", "--cert", path], "belong together"),
        (&["serve", "--data", path, "--listen", "127.0.0.1:0", "--cert", path, "--key", path], "certificate"),
        (&["serve", "--data", path, "--listen", "nowhere"], "cannot listen at nowhere"),
    ];
    for (arguments, says) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_feedline-decode")).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}
