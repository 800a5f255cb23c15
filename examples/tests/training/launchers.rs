//! mpirun, torchrun and srun launch the trainer; when a rank is killed, the run ends and can be resumed.
//!
//! A launcher that is not installed is reported as not run: Debian's openmpi-bin, torchrun of PyPI's torch
//! (or `FEEDLINE_TORCHRUN`), and a Slurm that runs jobs, such as that of `ci/slurm.sh`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::trainer::{binary, command, losses, run, small_set, text};
use crate::world::{World, free_port, read_report, report};
use feedline_testkit::{not_run, watchdog::LIMIT, with_watchdog};
use serde_json::Value;

const ARGUMENTS: [&str; 14] = [
    "--data", ".", "--device", "host", "--hidden", "24", "--seed", "3", "--batch", "16", "--epochs", "24",
    "--every", "7",
];
const SAVED: &str = "saved.ckpt";

/// The trainer as a script would start it, again and again; the first time, rank 1 is killed after a
/// checkpoint. Its arguments are the trainer's program and whether to kill.
const SCRIPT: &str = r#"
mlp=$1 kills=$2
shift 2
rank=${RANK:-${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}
resume=
if [ -e saved.ckpt ]; then
    resume="--resume saved.ckpt"
elif [ "$kills $rank" = "kills 1" ]; then
    (while ! [ -e saved.ckpt ]; do sleep 0.01; done; kill -9 $$) &
fi
exec "$mlp" "$@" $resume
"#;

/// Everything that must be the same; losses by their bits.
fn result(report: &Value) -> (Vec<u32>, [Value; 5]) {
    let fields =
        ["order_hash", "test_accuracy", "steps", "proof", "exactly_once"].map(|name| report[name].clone());
    (losses(report).into_iter().map(f32::to_bits).collect(), fields)
}

/// The results of two ranks started by hand.
fn by_hand(set: &Path) -> (Vec<u32>, [Value; 5]) {
    let report = report(set, 2, &ARGUMENTS);
    assert_eq!((&report["exactly_once"], report["steps"].as_u64()), (&Value::Bool(true), Some(240)));
    result(&report)
}

/// Lets `launcher` start the script.
fn launch(set: &Path, mut launcher: Command, kills: bool) -> std::process::Output {
    let script = set.join("script.sh");
    std::fs::write(&script, SCRIPT).expect("the script");
    launcher.current_dir(set).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    launcher.args(["sh", "script.sh"]).arg(binary()).arg(if kills { "kills" } else { "spares" });
    launcher.args(ARGUMENTS).args([
        "--quiet",
        "--json",
        "report.json",
        "--rank-limit",
        "20",
        "--checkpoint",
        SAVED,
    ]);
    run(&mut launcher)
}

/// Runs two ranks to their end, and again with a kill and a resume. A launcher that `restarts` resumes by
/// itself.
fn launches(launcher: impl Fn() -> Command, restarts: bool) {
    let set = small_set();
    let wanted = by_hand(set.path());
    let output = launch(set.path(), launcher(), false);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let whole = read_report(set.path());
    assert_eq!(whole["world"].as_u64(), Some(2));
    assert!(result(&whole) == wanted, "the launcher changes the results");
    std::fs::remove_file(set.path().join(SAVED)).unwrap();

    let output = launch(set.path(), launcher(), true);
    if !restarts {
        let said = text(&output.stderr);
        assert!(!output.status.success(), "the kill is not seen");
        assert!(said.contains("rank 1 ended before the run did"), "{said}");
        assert!(set.path().join(SAVED).exists() && !set.path().join("report.json").exists());
        let output = launch(set.path(), launcher(), true);
        assert!(output.status.success(), "{}", text(&output.stderr));
    } else {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert!(result(&read_report(set.path())) == wanted, "a killed and resumed run has other results");
}

/// Whether the program `name` can be started.
fn runs(name: &str, arguments: &[&str]) -> bool {
    let quiet = || Command::new(name).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet().is_ok_and(|status| status.success())
}

#[test]
fn mpirun_launches_it() {
    if !runs("mpirun", &["--version"]) {
        return not_run("mpirun launches the trainer", "no mpirun: apt install openmpi-bin");
    }
    with_watchdog(LIMIT, || {
        let mpirun = || {
            let mut mpirun = Command::new("mpirun");
            mpirun.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
            mpirun.args(["--oversubscribe", "-n", "2"]);
            mpirun
        };
        launches(mpirun, false);
    });
}

#[test]
fn torchrun_launches_it_and_restarts_it() {
    let torchrun = std::env::var("FEEDLINE_TORCHRUN").unwrap_or_else(|_| "torchrun".to_owned());
    if !runs(&torchrun, &["--help"]) {
        return not_run(
            "torchrun launches the trainer",
            "no torchrun: pip install torch, or set FEEDLINE_TORCHRUN",
        );
    }
    with_watchdog(2 * LIMIT, move || {
        let port = free_port().to_string();
        let launcher = || {
            let mut launcher = Command::new(&torchrun);
            launcher.args(["--nnodes", "1", "--master-addr", "127.0.0.1", "--master-port", &port]);
            launcher.args(["--nproc-per-node", "2", "--max-restarts", "2", "--no-python"]);
            launcher
        };
        launches(launcher, true);
    });
}

#[test]
fn srun_launches_it() {
    if !runs("srun", &["--ntasks", "2", "true"]) {
        return not_run(
            "srun launches the trainer",
            "no Slurm that runs jobs on this machine: see ci/slurm.sh",
        );
    }
    with_watchdog(LIMIT, || {
        let srun = || {
            let mut srun = Command::new("srun");
            srun.args(["--ntasks", "2", "--kill-on-bad-exit=0"]);
            srun
        };
        launches(srun, false);
    });
}

/// The variables that srun sets for each task, without Slurm.
#[test]
fn the_variables_of_srun_launch_it() {
    with_watchdog(LIMIT, || {
        let set = small_set();
        let wanted = by_hand(set.path());
        // The port is derived from the job.
        let job = (std::process::id() % 100_000).to_string();
        let task = |rank: &str| {
            let mut command = command(set.path());
            command.args(ARGUMENTS).args(["--quiet", "--json", "report.json"]).envs([
                ("SLURM_JOB_ID", job.as_str()),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", rank),
                ("SLURM_LOCALID", rank),
                ("SLURM_NTASKS", "2"),
                ("SLURM_NNODES", "1"),
                ("SLURM_JOB_NODELIST", "node[01-02]"),
            ]);
            command.spawn().unwrap()
        };
        let mut world = World { ranks: vec![task("0"), task("1")] };
        world.wait(&[], Duration::from_secs(60));
        for output in world.outputs() {
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        assert!(result(&read_report(set.path())) == wanted);
    });
}
