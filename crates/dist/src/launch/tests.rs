//! The variables of every launcher.

use super::*;
use feedline_core::ErrorKind;

fn launch(set: &[(&str, &str)]) -> Result<Launch> {
    Launch::from_lookup(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
}

fn summary(launch: &Launch) -> (u32, u32, usize, Option<(&str, u16, bool)>) {
    let rendezvous = launch.rendezvous().map(|at| (at.host.as_str(), at.port, at.served_by_launcher));
    (launch.world().rank(), launch.world().size(), launch.local_rank(), rendezvous)
}

const TORCHRUN: [(&str, &str); 8] = [
    ("RANK", "5"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("MASTER_ADDR", "gpu01"),
    ("MASTER_PORT", "40001"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "2"),
    ("TORCHELASTIC_USE_AGENT_STORE", "True"),
];
const MPI: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "3472687105"),
];
const SRUN: [(&str, &str); 7] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NNODES", "2"),
    ("SLURM_STEP_NODELIST", "gpu[07-08]"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "0"),
];

#[test]
fn every_launcher_gives_rank_world_local_rank_and_rendezvous() {
    assert_eq!(summary(&launch(&TORCHRUN).unwrap()), (5, 8, 1, Some(("gpu01", 40001, true))));
    let mpi = launch(&MPI).unwrap();
    assert!(matches!(summary(&mpi), (1, 4, 1, Some(("127.0.0.1", 20_000..30_000, false)))), "{mpi:?}");
    let slurm = launch(&SRUN).unwrap();
    assert!(matches!(summary(&slurm), (3, 4, 1, Some(("gpu07", 20_000..30_000, false)))), "{slurm:?}");
    let plain = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "pod-0.pods")];
    assert_eq!(summary(&launch(&plain).unwrap()), (1, 2, 0, Some(("pod-0.pods", 29500, false))));
    assert_eq!(launch(&[]).unwrap(), Launch::single());
    assert_eq!(summary(&launch(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap()), (0, 1, 0, None));
}

#[test]
fn the_innermost_launcher_counts() {
    let torchrun = launch(&[&TORCHRUN[..], &MPI, &SRUN].concat()).unwrap();
    assert_eq!((torchrun.launcher(), torchrun.world().size()), ("torchrun", 8));
    let mpi = launch(&[&MPI[..], &SRUN].concat()).unwrap();
    assert_eq!((mpi.launcher(), mpi.world().rank()), ("Open MPI", 1));
    // The variables of a shell in an allocation, which srun did not start.
    assert_eq!(launch(&[("SLURM_NTASKS", "4")]).unwrap(), Launch::single());
    let batch = [("RANK", "0"), ("WORLD_SIZE", "1"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    assert_eq!(launch(&batch).unwrap().world(), World::single());
}

#[test]
fn two_attempts_and_two_jobs_do_not_meet() {
    let run = |launch: Launch| launch.rendezvous().map(|at| at.run_id.clone()).unwrap();
    let mut again = TORCHRUN;
    again[6].1 = "3";
    assert_ne!(run(launch(&TORCHRUN).unwrap()), run(launch(&again).unwrap()));
    let mut other = SRUN;
    other[5].1 = "4712";
    let port = |launch: Launch| launch.rendezvous().map(|at| at.port).unwrap();
    assert_ne!(port(launch(&SRUN).unwrap()), port(launch(&other).unwrap()));
}

#[test]
fn contradictions_name_both_variables_and_values() {
    let by_hand = [("RANK", "0"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "h")];
    for (set, parts) in [
        ([&by_hand[..], &MPI].concat(), ["RANK=0", "OMPI_COMM_WORLD_RANK=1"]),
        ([&by_hand[..], &SRUN].concat(), ["RANK=0", "SLURM_PROCID=3"]),
        (
            [&[("RANK", "1"), ("WORLD_SIZE", "2")][..], &MPI].concat(),
            ["WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=4"],
        ),
        // Each of the four tasks would train alone, so this is refused.
        ([&[("RANK", "0"), ("WORLD_SIZE", "1")][..], &SRUN].concat(), ["WORLD_SIZE=1", "SLURM_NTASKS=4"]),
        (
            [&[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")][..], &MPI].concat(),
            ["LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_RANK=1"],
        ),
    ] {
        let error = launch(&set).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error} lacks {parts:?}");
    }
    let agreed = [("RANK", "1"), ("WORLD_SIZE", "4")];
    assert_eq!(launch(&[&agreed[..], &MPI].concat()).unwrap().local_rank(), 1);
}

#[test]
fn incomplete_or_unreadable_variables_are_named() {
    for (set, part) in [
        (vec![("RANK", "1")], "RANK is set but WORLD_SIZE is not"),
        (vec![("OMPI_COMM_WORLD_SIZE", "2")], "OMPI_COMM_WORLD_SIZE is set but OMPI_COMM_WORLD_RANK is not"),
        (vec![("RANK", "x"), ("WORLD_SIZE", "2")], "RANK=\"x\" is not a whole number"),
        (vec![("RANK", "2"), ("WORLD_SIZE", "2")], "rank 2 in a world of 2"),
        (vec![("RANK", "1"), ("WORLD_SIZE", "2")], "export MASTER_ADDR"),
        (
            vec![("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "70000")],
            "MASTER_PORT=\"70000\" is not a port",
        ),
        ([&MPI[..3], &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]].concat(), "-x MASTER_ADDR"),
        (SRUN[..3].to_vec(), "SLURM_STEP_NODELIST"),
    ] {
        let error = launch(&set).unwrap_err();
        assert!(error.message().contains(part), "{error} lacks {part:?}");
    }
}
