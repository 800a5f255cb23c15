//! The program `serve`: its errors, and SIGTERM under load.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::running::{ask, model, pixels, wait_until};
use bytes::Bytes;
use feedline::Device;
use feedline_mlp::sealed::seal;
use feedline_serve::load;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_serve"));
    program.args(["--listen", "127.0.0.1:0", "--device", "host", "--classes", "10", "--inputs", "16"]);
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program
}

fn write_checkpoint(path: &Path) {
    let bytes: Vec<u8> =
        model(&Device::new_host()).parameters.iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], &bytes).unwrap();
    std::fs::write(path, seal(vec![("parameters", view)], HashMap::new()).unwrap()).unwrap();
}

#[test]
fn sigterm_under_load_ends_it_after_the_last_answer() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mlp.ckpt");
        write_checkpoint(&path);
        let mut server = program().args(["--hidden", "8", "--checkpoint"]).arg(&path).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").expect("an address").split_once(',').unwrap().0;
        let address: SocketAddr = address.parse().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let clients = runtime.spawn(load::run(address, 8, 2 * LIMIT, Bytes::from(pixels(1))));
        let answered = |text: &str| {
            let count = text.lines().find_map(|line| line.strip_prefix("serve_latency_seconds_count "));
            count.unwrap().parse::<u64>().unwrap()
        };
        wait_until("there is load", || answered(&ask(address, "GET /metrics", b"").1) > 100);
        let kill = Command::new("sh").args(["-c", &format!("kill -TERM {}", server.id())]).status();
        assert!(kill.unwrap().success());
        let status = server.wait().unwrap();
        let outcome = runtime.block_on(clients).unwrap();
        let (mut rest, number) = (String::new(), outcome.answered);
        lines.read_to_string(&mut rest).unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(rest, format!("drained: {number} accepted, {number} answered\n"));
        assert_eq!((outcome.other, outcome.closed), (0, 8));
    });
}

#[test]
fn load_measures_the_server_that_was_started() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mlp.ckpt");
        write_checkpoint(&path);
        let mut server = program().args(["--hidden", "8", "--checkpoint"]).arg(&path).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").expect("an address").split_once(',').unwrap().0;
        let load = |arguments: &[&str]| {
            let mut load = Command::new(env!("CARGO_BIN_EXE_load"));
            load.args(["--server", address, "--connections", "2", "--seconds", "0.2"]);
            let output = load.args(arguments).output().unwrap();
            let (out, err) =
                (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            (output.status.code(), out, err)
        };
        let (status, out, err) = load(&["--inputs", "16"]);
        assert!(status == Some(0) && out.lines().count() == 3, "{out}{err}");
        let accepted = || {
            let (_, text) = ask(address.parse().unwrap(), "GET /metrics", b"");
            let count = text.lines().find_map(|line| line.strip_prefix("serve_accepted_total "));
            count.unwrap().parse::<u64>().unwrap()
        };
        let before = accepted();
        assert!(before > 0, "no request has arrived");
        let (status, _, err) = load(&["--inputs", "15"]);
        assert!(status == Some(2) && err.contains("--inputs") && err.lines().count() == 1, "{err}");
        server.kill().unwrap();
        server.wait().unwrap();
        let (status, _, err) = load(&[]);
        assert!(status == Some(2) && err.contains("no server") && err.lines().count() == 1, "{err}");
    });
}

#[test]
fn a_checkpoint_that_does_not_fit_is_one_line() {
    with_watchdog(LIMIT, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mlp.ckpt");
        let says = |hidden: &str, part: &str| {
            let output = program().args(["--hidden", hidden, "--checkpoint"]).arg(&path).output().unwrap();
            let line = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{line}");
            assert!(
                line.starts_with("serve: ") && line.lines().count() == 1 && line.contains(part),
                "{line}"
            );
        };
        says("8", "cannot read the checkpoint");
        write_checkpoint(&path);
        says("9", "give the sizes of the run that saved it");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        says("8", "its checksum does not match");
    });
}
