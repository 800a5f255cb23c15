//! Bad input to the trainer gives one line on standard error: the mistake, its place, and the remedy. The
//! exit code is 2, and nothing is written.

use std::path::Path;
use std::process::Output;

use crate::trainer::{SIDE, TRAIN, assert_says, command, idx, listing, put, run, small_set, text};
use feedline::Device;
use feedline_testkit::{exclusive, not_run, watchdog::LIMIT, with_watchdog};
use tempfile::TempDir;

/// Runs the trainer on the host over `data`, with a number of epochs so large that an error at the end would
/// never come.
fn refused(data: &Path, arguments: &[&str]) -> Output {
    let work = TempDir::new().unwrap();
    let before = listing(data);
    let mut trainer = command(work.path());
    trainer.arg("--data").arg(data).args([
        "--device",
        "host",
        "--batch",
        "32",
        "--hidden",
        "8",
        "--epochs",
        "9999999999",
    ]);
    let output = run(trainer.args(arguments));
    assert_eq!(listing(work.path()), [], "{arguments:?} wrote something");
    assert_eq!(listing(data), before, "{arguments:?} changed the data");
    output
}

#[test]
fn an_invalid_option_value_is_named_with_the_values_it_takes() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let whole = "give a whole number of 1 or more";
        for (arguments, parts) in [
            (&["--batch", "many"][..], &["--batch is \"many\"", whole][..]),
            (&["--batch", "0"], &["--batch is \"0\"", whole]),
            (&["--batch", "-3"], &["--batch is \"-3\"", whole]),
            (&["--batch", "1.5"], &["--batch is \"1.5\"", whole]),
            (&["--batch", "99999999999999999999"], &["--batch", whole]),
            (&["--batch", ""], &["--batch is \"\"", whole]),
            (&["--workers", "0"], &["--workers is \"0\"", "or auto"]),
            (&["--workers", "1025"], &["--workers is \"1025\"", "from 1 to 1024, or auto"]),
            (&["--workers", "18446744073709551615"], &["--workers is", "from 1 to 1024, or auto"]),
            (&["--workers", "all"], &["--workers is \"all\"", "or auto"]),
            (&["--transfer-mode", "fast"], &["--transfer-mode is \"fast\"", "auto or staged or zero-copy"]),
            (&["--depth", "0"], &["--depth is \"0\"", "give a whole number of 1 or more"]),
            (&["--depth", "auto"], &["--depth is \"auto\"", "give a whole number of 1 or more"]),
            (&["--epochs", "0"], &["--epochs is \"0\"", whole]),
            (&["--epochs", "two"], &["--epochs is \"two\"", whole]),
            (&["--steps", "0"], &["--steps is \"0\"", whole]),
            (&["--every", "0"], &["--every is \"0\"", whole]),
            (&["--hidden", "0"], &["--hidden is \"0\"", whole]),
            (&["--classes", "0"], &["--classes is \"0\"", "from 1 to 256"]),
            (&["--classes", "257"], &["--classes is \"257\"", "from 1 to 256"]),
            (&["--lr", "0"], &["--lr is \"0\"", "a number above 0"]),
            (&["--lr", "nan"], &["--lr is \"nan\"", "a number above 0"]),
            (&["--lr", "inf"], &["--lr is \"inf\"", "a number above 0"]),
            (&["--momentum", "1"], &["--momentum is \"1\"", "from 0 up to 1"]),
            (&["--seed", "-1"], &["--seed is \"-1\"", "a whole number"]),
            (&["--pinned-budget", "2G"], &["--pinned-budget is \"2G\"", "a number of bytes"]),
            (&["--device", "gpu"], &["--device is \"gpu\"", "auto, cuda, cuda:N or host"]),
            (&["--device", "cuda:first"], &["--device is \"cuda:first\"", "auto, cuda, cuda:N or host"]),
            (&["--optimizer", "lion"], &["--optimizer is \"lion\"", "sgd or adamw"]),
            (&["--init", "zero"], &["--init is \"zero\"", "random or reference"]),
            (&["--batches", "3"], &["unknown option --batches", "--help"]),
            (&["--verbose"], &["unknown option --verbose", "--help"]),
            (&["--servers", "a:1"], &["this program asks no servers", "folder servers"]),
            (&["-x"], &["-x", "--help"]),
            (&["--batch"], &["--batch", "--help"]),
            (&["--quiet=yes"], &["--quiet", "--help"]),
            (&["mnist"], &["\"mnist\"", "--help"]),
        ] {
            assert_says(&refused(set.path(), arguments), parts);
        }
    });
}

#[test]
fn inconsistent_options_are_refused_before_training() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let over = (TRAIN + 1).to_string();
        for (arguments, parts) in [
            (
                &["--batch", &over][..],
                &["--batch is ", over.as_str(), "the training set has 320 images", "smaller batch"][..],
            ),
            (&["--classes", "3"], &["is outside the 3 classes", "train-labels-idx1-ubyte", "byte", "sample"]),
            (&["--pinned-budget", "1000"], &["pinned bytes", "the budget is 1000", "raise the budget"]),
            (
                &["--transfer-mode", "zero-copy", "--pinned-budget", "20000"],
                &["zero copy is not possible", "pinned", "left", "ask for auto or staged"],
            ),
            (&["--depth", "18446744073709551615"], &["depth is 18446744073709551615", "below 65536"]),
            (&["--batch", "18446744073709551615"], &["the training set has 320 images", "smaller batch"]),
            (&["--hidden", "18446744073709551615"], &["18446744073709551615", "fewer units"]),
            (
                &["--resume", "nothing.safetensors"],
                &["cannot read the checkpoint", "give the path", "nothing.safetensors"],
            ),
            (
                &["--json", "nowhere/report.json"],
                &["cannot write the report", "nowhere/report.json", "give a path"],
            ),
            (&["--json", "."], &["cannot write the report", "this is not a file", "give a path"]),
            (&["--json", "/dev/stdout"], &["cannot write the report", "this is not a file", "give a path"]),
            (&["--json", ""], &["cannot write the report", "give a path"]),
            (&["--resume", "/dev/zero"], &["cannot read the checkpoint", "not a regular file", "/dev/zero"]),
            (&["--resume", "/dev/urandom"], &["cannot read the checkpoint", "not a regular file"]),
            (&["--resume", "."], &["cannot read the checkpoint", "not a regular file", "give the path"]),
            (&["--data", "/dev/zero"], &["/dev/zero", "not a regular file", "copy its content"]),
            (&["--checkpoint", "/dev/full"], &["cannot write the checkpoint", "this is not a file"]),
            (&["--checkpoint", "/"], &["cannot write the checkpoint", "this is not a file"]),
            (&["--checkpoint", "nowhere/c"], &["cannot write the checkpoint", "nowhere/c", "give a path"]),
        ] {
            assert_says(&refused(set.path(), arguments), parts);
        }
    });
}

#[test]
fn a_file_that_is_not_a_checkpoint_is_refused() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        put(&set, "garbage", b"no checkpoint at all");
        let path = set.path().join("garbage");
        let path = path.to_str().unwrap();
        assert_says(&refused(set.path(), &["--resume", path]), &["cannot read the checkpoint", path]);
    });
}

#[test]
fn a_missing_gpu_is_reported_in_one_line() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        // No machine has that many GPUs.
        let far = refused(set.path(), &["--device", "cuda:4000"]);
        let _alone = exclusive();
        match Device::cuda(0) {
            Err(_) => {
                let no_driver = ["no CUDA driver", "use the host device"];
                assert_says(&far, &no_driver);
                assert_says(&refused(set.path(), &["--device", "cuda"]), &no_driver);
            }
            Ok(_) => {
                assert_says(&far, &["there is no GPU 4000", "this machine has"]);
                not_run("--device cuda without a GPU", "this machine has one");
            }
        }
    });
}

/// A folder of good files except one.
fn with_bad(name: &str, bytes: &[u8]) -> TempDir {
    let set = small_set();
    put(&set, name, bytes);
    set
}

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";
const TEST_IMAGES: &str = "t10k-images-idx3-ubyte";
const TEST_LABELS: &str = "t10k-labels-idx1-ubyte";

#[test]
fn a_missing_folder_and_a_missing_file_are_named() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        assert_says(
            &refused(&set.path().join(IMAGES), &[]).clone(),
            &["this is a file: give the folder", IMAGES],
        );
        for name in [IMAGES, LABELS, TEST_IMAGES, TEST_LABELS] {
            let set = small_set();
            std::fs::remove_file(set.path().join(name)).unwrap();
            assert_says(&refused(set.path(), &[]), &[name, set.path().to_str().unwrap()]);
        }
        let nowhere = set.path().join("nowhere");
        let mut trainer = command(set.path());
        let output = run(trainer.arg("--data").arg(&nowhere));
        assert_says(&output, &["nowhere", "check the path"]);
    });
}

#[test]
fn a_truncated_or_inconsistent_file_is_named_with_its_byte() {
    with_watchdog(LIMIT, || {
        let side = SIDE as u32;
        let count = TRAIN as u32;
        let pixels = vec![9; TRAIN * SIDE * SIDE];
        let labels = vec![1; TRAIN];
        let whole = idx(&[count, side, side], &pixels);
        for (name, bytes, parts) in [
            (IMAGES, whole[..whole.len() - 1].to_vec(), &["cut short", IMAGES, "byte"][..]),
            (IMAGES, whole[..10].to_vec(), &["ends within its header", IMAGES, "byte 10"]),
            (IMAGES, Vec::new(), &["the file is empty", IMAGES]),
            (IMAGES, idx(&[count + 1, side, side], &pixels), &["cut short", "321", IMAGES]),
            (IMAGES, idx(&[count - 1, side, side], &pixels), &["longer than its header says", "319", IMAGES]),
            (
                IMAGES,
                b"not an IDX file at all".to_vec(),
                &["not an IDX file", "give the right file", IMAGES, "byte 0"],
            ),
            (
                IMAGES,
                idx(&[count, side * side], &pixels),
                &["rank 3", "rank 2", "give the right file", IMAGES],
            ),
            (LABELS, idx(&[count + 1], &labels), &["cut short", LABELS]),
            (LABELS, idx(&[count - 1], &labels), &["longer than its header says", LABELS]),
            (LABELS, idx(&[count - 1], &labels[1..]), &["319 labels here, but 320 images", LABELS]),
            (TEST_LABELS, idx(&[3], &[1, 2, 3]), &["3 labels here, but 70 images", TEST_LABELS]),
            (
                LABELS,
                idx(&[count], &vec![10; TRAIN]),
                &["label 10 is outside the 10 classes", LABELS, "byte 8, sample 0"],
            ),
            (TEST_LABELS, idx(&[70], &[255; 70]), &["label 255 is outside the 10 classes", TEST_LABELS]),
            (TEST_IMAGES, idx(&[70, 2, 2], &[0; 280]), &["both sets must have one size"]),
        ] {
            let set = with_bad(name, &bytes);
            assert_says(&refused(set.path(), &[]), parts);
        }
    });
}

/// With standard output closed, the trainer does not panic and still writes the report.
#[test]
fn a_closed_standard_output_does_not_panic() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        for arguments in
            [&["--help"][..], &["--version"], &["--epochs", "1", "--hidden", "8", "--json", "report.json"]]
        {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut trainer = command(set.path());
            trainer.args(["--data", ".", "--device", "host", "--batch", "32"]).args(arguments).stdout(writer);
            let output = run(&mut trainer);
            assert_eq!(
                (output.status.code(), text(&output.stderr)),
                (Some(0), String::new()),
                "{arguments:?}"
            );
        }
        assert!(set.path().join("report.json").exists());
    });
}
