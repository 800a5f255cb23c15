//! Any Flight client reads the batches: pyarrow does, which knows nothing of feedline.
//!
//! `FEEDLINE_PYTHON` names the interpreter, `python3` by default.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use feedline::InMemory;
use feedline_decode::Server;
use feedline_testkit::{not_run, with_watchdog};

const CLIENT: &str = r#"
import json, sys
import pyarrow.flight as flight
client = flight.connect("grpc://" + sys.argv[1])
options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer secret")])
info = next(iter(client.list_flights(options=options)))
ticket = json.loads(info.endpoints[0].ticket.ticket)
assert info.total_records == 6, info.total_records
ticket["ids"] = [5, 0, 3]
table = client.do_get(flight.Ticket(json.dumps(ticket)), options).read_all()
table.validate(full=True)
picture = table.column("picture").combine_chunks()
assert picture.to_numpy_ndarray().shape == (3, 2, 3), picture.type
print(json.dumps({
    "picture": picture.to_numpy_ndarray().reshape(-1).tolist(),
    "label": table.column("label").to_pylist(),
    "text": table.column("text").to_pylist(),
    "pairs": table.column("pairs").to_pylist(),
}))
"#;

#[test]
fn pyarrow_reads_the_columns_that_the_loader_gets() {
    let python = std::env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_flight = Command::new(&python).args(["-c", "import pyarrow.flight"]).output();
    if !has_flight.is_ok_and(|output| output.status.success()) {
        return not_run("batches read by pyarrow", "this python3 has no pyarrow: set FEEDLINE_PYTHON");
    }
    with_watchdog(Duration::from_secs(120), || {
        let texts: [&[i32]; 6] = [&[7], &[], &[1, 2, 3], &[-1, -2], &[], &[9, 8]];
        let pairs: [&[f32]; 6] = [&[], &[], &[], &[0.5, 1.5], &[], &[2.0, 2.5, 3.0, 3.5]];
        let set = InMemory::new()
            .field("picture", [2, 3], (0..36_u8).collect::<Vec<_>>())
            .and_then(|set| set.field("label", [], [10_i64, 11, 12, 13, 14, 15]))
            .and_then(|set| set.ragged("text", [], 4, texts))
            .and_then(|set| set.ragged("pairs", [2], 3, pairs))
            .map(Arc::new)
            .unwrap();
        let server = Server::new().dataset(set).token("secret").workers(2).bind("127.0.0.1:0").unwrap();
        let output =
            Command::new(&python).args(["-c", CLIENT, &server.address().to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let want = serde_json::json!({
            "picture": (30..36).chain(0..6).chain(18..24).collect::<Vec<u8>>(),
            "label": [15, 10, 13],
            "text": [[9, 8], [7], [-1, -2]],
            "pairs": [[[2.0, 2.5], [3.0, 3.5]], [], [[0.5, 1.5]]],
        });
        assert_eq!(read, want);
    });
}
