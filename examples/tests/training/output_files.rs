//! The trainer's files are always complete, even if other processes write there or something is in the way.
//! It reads only regular files.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::checkpoint::Checkpoint;
use crate::trainer::{assert_says, command, listing, put, run, small_set, text, train};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use tempfile::TempDir;

const SAVED: &str = "saved.ckpt";
const ARGUMENTS: [&str; 7] = ["--device", "host", "--batch", "16", "--hidden", "24", "--quiet"];

/// A folder with a data set, and an empty folder to write to.
fn folders() -> (TempDir, TempDir) {
    (small_set(), TempDir::new().expect("a folder"))
}

fn trainer(set: &TempDir, work: &TempDir, more: &[&str]) -> Command {
    let mut trainer = command(work.path());
    trainer.args(ARGUMENTS).arg("--data").arg(set.path()).args(more);
    trainer
}

/// The names in a folder; works while files come and go.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("the folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn two_trainers_with_one_path_always_leave_a_complete_checkpoint() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        let saved = work.path().join(SAVED);
        for _ in 0..5 {
            let mut trainers: Vec<_> = ["1", "2"]
                .map(|seed| {
                    let more = ["--seed", seed, "--epochs", "4", "--every", "1", "--checkpoint", SAVED];
                    trainer(&set, &work, &more).spawn().expect("the trainer starts")
                })
                .into();
            let mut whole = 0;
            while trainers.iter_mut().any(|child| child.try_wait().expect("its state").is_none()) {
                if saved.exists() {
                    Checkpoint::read(&saved)
                        .and_then(|bytes| Checkpoint::parse(&bytes, &saved))
                        .unwrap_or_else(|error| panic!("after {whole} whole ones: {error}"));
                    whole += 1;
                }
            }
            for child in trainers.drain(..) {
                let output = child.wait_with_output().expect("its output");
                assert!(output.status.success(), "{}", text(&output.stderr));
            }
            assert!(whole > 0, "nothing was read while they ran");
            assert_eq!(names(work.path()), [SAVED]);
            std::fs::remove_file(&saved).unwrap();
        }
    });
}

#[test]
fn leftovers_of_interrupted_runs_are_removed_and_files_being_written_are_kept() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        put(&work, ".mlp-part-left", b"half a checkpoint");
        put(&work, ".mlp-part-busy", b"of a trainer that writes");
        put(&work, "notes", b"of somebody");
        let busy = File::options().write(true).open(work.path().join(".mlp-part-busy")).unwrap();
        busy.lock().unwrap();
        train(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", SAVED]));
        assert_eq!(names(work.path()), [".mlp-part-busy", "notes", SAVED]);
        drop(busy);
        train(&mut trainer(&set, &work, &["--steps", "2", "--json", "report.json"]));
        assert_eq!(names(work.path()), ["notes", "report.json", SAVED]);
    });
}

/// Kills the trainer at random moments of its run. Most of the run it writes the large model.
#[test]
fn the_next_run_removes_what_a_trainer_killed_while_writing_leaves() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        let mut left = 0;
        for kill in 0..200 {
            let more = ["--hidden", "512", "--epochs", "99", "--every", "1", "--checkpoint", SAVED];
            let mut child = trainer(&set, &work, &more).spawn().expect("the trainer starts");
            while names(work.path()).iter().all(|name| !name.starts_with(".mlp-part-")) {
                assert!(child.try_wait().expect("its state").is_none(), "it ended by itself");
            }
            child.kill().expect("the kill");
            child.wait().expect("its end");
            left += usize::from(names(work.path()).iter().any(|name| name.starts_with(".mlp-part-")));
            if left >= 3 {
                train(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", SAVED]));
                assert_eq!(names(work.path()), [SAVED], "after {kill} kills");
                return;
            }
        }
        panic!("no kill of 200 left an unfinished file three times, but {left} times");
    });
}

#[test]
fn a_link_is_kept_and_its_target_is_replaced() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        let other = TempDir::new().unwrap();
        let real = other.path().join("real.ckpt");
        put(&other, "real.ckpt", b"old");
        symlink(&real, work.path().join(SAVED)).unwrap();
        train(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", SAVED]));
        assert!(work.path().join(SAVED).is_symlink());
        Checkpoint::parse(&Checkpoint::read(&real).unwrap(), &real).unwrap();
        assert_eq!((names(work.path()), names(other.path())), (vec![SAVED.into()], vec!["real.ckpt".into()]));

        symlink(other.path().join("nothing"), work.path().join("dangling")).unwrap();
        let output = run(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", "dangling"]));
        assert_says(&output, &["cannot write the checkpoint", "a symbolic link to nothing", "dangling"]);
    });
}

/// Older trainers wrote to this name first: they followed a link there, and blocked on a named pipe.
#[test]
fn no_fixed_name_next_to_the_checkpoint_is_touched() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        put(&work, "precious", b"precious");
        let (link, pipe) = (work.path().join(".link.part"), work.path().join(".pipe.part"));
        symlink(work.path().join("precious"), &link).unwrap();
        mkfifo(&pipe);
        for saved in ["link", "pipe"] {
            train(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", saved]));
        }
        assert_eq!(std::fs::read(work.path().join("precious")).unwrap(), b"precious");
        assert_eq!(names(work.path()), [".link.part", ".pipe.part", "link", "pipe", "precious"]);
    });
}

fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn a_named_pipe_is_refused_wherever_a_path_is_given() {
    with_watchdog(LIMIT, || {
        for (option, parts) in [
            ("--resume", &["cannot read the checkpoint", "not a regular file"]),
            ("--checkpoint", &["cannot write the checkpoint", "this is not a file"]),
            ("--json", &["cannot write the report", "this is not a file"]),
            ("--data", &["not a regular file", "pipe"]),
        ] {
            let (set, work) = folders();
            mkfifo(&work.path().join("pipe"));
            assert_says(&run(&mut trainer(&set, &work, &[option, "pipe"])), parts);
        }
        let (set, work) = folders();
        std::fs::remove_file(set.path().join("t10k-labels-idx1-ubyte")).unwrap();
        mkfifo(&set.path().join("t10k-labels-idx1-ubyte"));
        assert_says(&run(&mut trainer(&set, &work, &[])), &["not a regular file", "t10k-labels-idx1-ubyte"]);
    });
}

/// A file whose header claims a huge size is not read.
#[test]
fn a_checkpoint_of_absurd_size_is_refused_at_once() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        for (name, first) in [("zeros", [0; 8]), ("header", [255, 255, 255, 255, 255, 0, 0, 0])] {
            put(&work, name, &first);
            File::options().write(true).open(work.path().join(name)).unwrap().set_len(1 << 42).unwrap();
            let output = run(&mut trainer(&set, &work, &["--resume", name]));
            assert_says(&output, &["cannot read the checkpoint", "does not begin as a checkpoint", name]);
        }
    });
}

#[test]
fn no_output_replaces_a_file_of_the_run() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        train(&mut trainer(&set, &work, &["--steps", "2", "--checkpoint", SAVED]));
        symlink(work.path(), work.path().join("here")).unwrap();
        let before = (listing(set.path()), std::fs::read(work.path().join(SAVED)).unwrap());
        let images = set.path().join("train-images-idx3-ubyte");
        let labels = set.path().join("t10k-labels-idx1-ubyte");
        let (images, labels) = (images.to_str().unwrap(), labels.to_str().unwrap());
        for (arguments, parts) in [
            (
                ["--checkpoint", "x", "--json", "x"],
                &["the report would replace the checkpoint", "another path"],
            ),
            (["--checkpoint", "x", "--json", "./x"], &["the report would replace the checkpoint", "./x"]),
            (
                ["--checkpoint", "x", "--json", "here/x"],
                &["the report would replace the checkpoint", "here/x"],
            ),
            (["--resume", SAVED, "--json", SAVED], &["the report would replace", "to resume from"]),
            (
                ["--resume", SAVED, "--json", "here/saved.ckpt"],
                &["the report would replace", "here/saved.ckpt"],
            ),
            (["--json", images, "--steps", "1"], &["the report would replace", "a file of the data set"]),
            (
                ["--checkpoint", labels, "--steps", "1"],
                &["the checkpoint would replace", "a file of the data"],
            ),
        ] {
            assert_says(&run(&mut trainer(&set, &work, &arguments)), parts);
            assert_eq!(names(work.path()), ["here", SAVED], "{arguments:?}");
        }
        let after = (listing(set.path()), std::fs::read(work.path().join(SAVED)).unwrap());
        assert!(before == after, "something was replaced");
    });
}

#[test]
fn the_longest_file_name_works_and_a_longer_one_is_refused_at_the_start() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        for len in 249..=255 {
            let name = "n".repeat(len);
            train(&mut trainer(&set, &work, &["--steps", "1", "--checkpoint", &name, "--every", "1"]));
            train(&mut trainer(&set, &work, &["--steps", "1", "--json", &name]));
            assert_eq!(names(work.path()), [name.as_str()]);
            std::fs::remove_file(work.path().join(name)).unwrap();
        }
        for option in ["--checkpoint", "--json"] {
            let name = "n".repeat(256);
            // A number of epochs so large that an error at the end would never come.
            let output = run(&mut trainer(&set, &work, &["--epochs", "9999999999", option, &name]));
            assert_says(&output, &["cannot write the", "File name too long", "give a path"]);
        }
        assert_eq!(names(work.path()), [""; 0]);
    });
}

/// Runs the trainer with a file size limit of one KiB, as on a full disk.
fn on_a_full_disk(trainer: &Command) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]).arg(trainer.get_program());
    shell.args(trainer.get_args()).current_dir(trainer.get_current_dir().expect("a folder"));
    run(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_full_disk_leaves_the_old_checkpoint_and_no_part_of_a_new_one() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        put(&work, SAVED, b"old");
        let output = on_a_full_disk(&trainer(&set, &work, &["--steps", "40", "--checkpoint", SAVED]));
        assert_says(&output, &["cannot write the checkpoint", "File too large", SAVED]);
        assert_eq!(std::fs::read(work.path().join(SAVED)).unwrap(), b"old");
        assert_eq!(names(work.path()), [SAVED]);
    });
}

#[test]
fn a_report_that_cannot_be_written_goes_to_standard_output() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        put(&work, "report.json", b"old");
        let more = ["--epochs", "2", "--json", "report.json"];
        let output = on_a_full_disk(&trainer(&set, &work, &more));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("cannot write the report") && said.contains("report.json"), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report");
        assert_eq!(report["losses"].as_array().map(Vec::len), Some(40));
        assert_eq!(std::fs::read(work.path().join("report.json")).unwrap(), b"old");
        assert_eq!(names(work.path()), ["report.json"]);
    });
}

fn full_device() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

#[test]
fn a_full_standard_error_or_output_is_exit_code_2_and_no_panic() {
    with_watchdog(LIMIT, || {
        let (set, work) = folders();
        let refused = run(trainer(&set, &work, &["--batch", "none"]).stderr(full_device()));
        assert_eq!(refused.status.code(), Some(2), "an error with a full standard error");

        let mut loud = command(work.path());
        loud.arg("--data").arg(set.path()).args(["--device", "host", "--batch", "16", "--epochs", "1"]);
        for mut printing in [loud, {
            let mut help = command(work.path());
            help.arg("--help");
            help
        }] {
            let output = run(printing.stdout(full_device()));
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.contains("cannot write to standard output"), "{said}");
        }
    });
}
