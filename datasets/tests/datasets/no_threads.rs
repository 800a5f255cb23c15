//! If the system refuses threads, as in a container with a limit of processes, data is opened on the calling
//! thread.

use feedline_core::Dataset as _;
use feedline_datasets::{Bounded, open};
use feedline_testkit::{emulated, own_process};

/// Opens shards and measures texts, in a process whose threads would need more stack than any machine has.
#[test]
fn shards_are_opened_and_texts_measured_without_threads() {
    let test = "no_threads::shards_are_opened_and_texts_measured_without_threads";
    let has_none = |this: &mut std::process::Command| {
        this.env("RUST_MIN_STACK", (1_u64 << 47).to_string());
    };
    if emulated(test) || !own_process(test, has_none) {
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "a thread was started");
    let folder = tempfile::tempdir().unwrap();
    for shards in ["shards", "texts"] {
        std::fs::create_dir(folder.path().join(shards)).unwrap();
    }
    for shard in 0..20 {
        let path = folder.path().join(format!("shards/{shard:02}.csv"));
        std::fs::write(path, format!("a,b\n{shard},1\n2,3\n")).unwrap();
    }
    let lines: String = (0..2000).map(|line| format!("{}\n", "x".repeat(line % 7 + 1))).collect();
    std::fs::write(folder.path().join("texts/all.txt"), lines).unwrap();
    assert_eq!(open(folder.path().join("shards")).unwrap().len(), 40);
    let texts = Bounded::measured(open(folder.path().join("texts/all.txt")).unwrap()).unwrap();
    assert_eq!(texts.len(), 2000);
}
