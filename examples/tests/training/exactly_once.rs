//! The proof covers all parts of a run, even with different batch sizes. A run that lost a sample fails and
//! reports it.

use crate::report::Report;
use crate::trainer::{TRAIN, command, small_set, text, train};
use feedline::ErrorKind;
use feedline::sampler::Proof;
use feedline_core::Random;
use feedline_testkit::{watchdog::LIMIT, with_watchdog};

const SAVED: &str = "saved.ckpt";
const ARGUMENTS: [&str; 7] = ["--data", ".", "--device", "host", "--hidden", "8", "--epochs"];
const EPOCHS: &str = "3";

/// The number of samples that a run of three epochs delivers, counted independently. `parts` are
/// (steps, batch size); the last part runs to the end.
fn delivered(parts: &[(usize, usize)]) -> usize {
    let (mut epoch, mut position, mut delivered) = (0, 0, 0);
    for &(steps, batch) in parts {
        for _ in 0..steps {
            if position + batch > TRAIN {
                if epoch == 2 {
                    break;
                }
                (epoch, position) = (epoch + 1, 0);
            }
            (position, delivered) = (position + batch, delivered + batch);
        }
    }
    delivered
}

#[test]
fn a_run_resumed_with_other_batch_sizes_is_proved_from_its_beginning() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let mut random = Random::from_key(20);
        for _ in 0..28 {
            let mut draw = |of: &[usize]| of[random.below(of.len() as u64) as usize];
            let sizes = [7, 16, 33, 48, 100, 160, 319];
            let (first, second) = ((draw(&[1, 5, 10]), draw(&sizes)), (draw(&[1, 4, 9]), draw(&sizes)));
            let parts = [first, second, (usize::MAX, draw(&sizes))];
            let (mut steps, mut resume) = (0, &[][..]);
            for (more, batch) in &parts[..2] {
                steps += more;
                let (steps, batch) = (steps.to_string(), batch.to_string());
                let part = ["--quiet", "--checkpoint", SAVED, "--steps", &steps, "--batch", &batch];
                // The run may reach the end of the last epoch before these steps.
                train(command(set.path()).args(ARGUMENTS).arg(EPOCHS).args(part).args(resume));
                resume = &["--resume", SAVED];
            }
            let batch = parts[2].1.to_string();
            let last = ["--json", "report.json", "--batch", &batch];
            let output = train(command(set.path()).args(ARGUMENTS).arg(EPOCHS).args(last).args(resume));
            let said = text(&output.stdout);
            assert!(said.contains(", each exactly once"), "{parts:?}: {said}");
            let report = std::fs::read(set.path().join("report.json")).unwrap();
            let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
            assert_eq!(report["exactly_once"], true, "{parts:?}");
            assert_eq!(report["expected_proof"], report["proof"], "{parts:?}");
            assert_eq!(report["proof"]["count"], delivered(&parts), "{parts:?}");
            std::fs::remove_file(set.path().join(SAVED)).unwrap();
        }
    });
}

/// The report of a run that should have delivered the samples 0 to 9 and delivered `ids`.
fn report_of(ids: &[u64]) -> Report {
    let (mut proof, mut expected_proof) = (Proof::default(), Proof::default());
    proof.add_all(0, ids);
    expected_proof.add_all(0, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    Report {
        device: String::new(),
        world: 1,
        connection: String::new(),
        kernels: String::new(),
        transfer_mode: String::new(),
        samples_per_s: 1.0,
        seconds: 1.0,
        first_step_seconds: 1.0,
        steps: 1,
        losses: vec![1.0],
        test_accuracy: 1.0,
        order_hash: String::new(),
        proof,
        expected_proof,
        exactly_once: proof == expected_proof,
        bad_samples: Vec::new(),
        wait_share: 0.0,
        diagnosis: String::new(),
        slow_rank: None,
        stalls: feedline::report::Report::default(),
        peak_pinned_bytes: 0,
        peak_device_bytes: 0,
    }
}

#[test]
fn a_run_that_lost_a_sample_says_so_and_fails() {
    let whole = report_of(&[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert!(whole.check().is_ok() && whole.to_string().contains("10, each exactly once"), "{whole}");
    for (ids, part) in [
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8][..], "1 of 10 samples were not delivered"),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9], "1 more samples were delivered than the 10 expected"),
        (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 8], "not the expected ones"),
    ] {
        let report = report_of(ids);
        let error = report.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(part) && !error.to_string().contains('\n'), "{error}");
        let said = report.to_string();
        assert!(said.contains("NOT EXACTLY ONCE") && said.contains(part), "{said}");
        assert!(report.json().unwrap().contains(r#""exactly_once":false"#));
    }
}
