//! The ledger against a real pipeline is tested in `tests/ledger.rs`; here is what needs no threads.

use super::*;

#[test]
fn a_report_goes_to_json_and_back() {
    let setup = Setup { workers: 2, host_slots: 4, device_slots: 3, batch_size: 8, ..Setup::default() };
    let reporter = Ledger::new(setup, None).reporter();
    let report = reporter.report();
    let json = report.json();
    for key in ["\"source_read\":0", "\"no_device_slot\":0", "\"workers\":2", "\"waiting\":null"] {
        assert!(json.contains(key), "{key} in {json}");
    }
    assert_eq!(serde_json::from_str::<Report>(&json).expect("a report"), report);
}

#[test]
fn a_file_that_is_not_a_profile_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    for (text, why) in [("{", "not a file of service times"), ("{\"setup\":", "not a file")] {
        std::fs::write(&path, text).expect("a file");
        assert!(Profile::read(&path).expect_err("an error").to_string().contains(why));
    }
    let profile = Profile::default();
    profile.write(&path).expect("a file");
    assert!(Profile::read(&path).expect_err("an error").to_string().contains("no service times"));
    let profile = Profile { samples: vec![ServiceTimes { step_ns: 7, ..Default::default() }], ..profile };
    profile.write(&path).expect("a file");
    assert_eq!(Profile::read(&path).expect("a profile"), profile);
}
