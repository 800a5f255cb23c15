//! Ranks as processes of one machine: together they deliver every sample once, in the same steps. Another
//! number of ranks resumes in the same global order.
//!
//! A rank is this test program, started with `--ignored --exact worlds::rank_process` and a job in its
//! environment.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{alone, elements};
use feedline::sampler::{BatchSampler, Proof};
use feedline::{Cursor, Device, LastBatch, Loader, LoaderBuilder, Sampler, Workers, World};
use feedline_core::BatchSamplerOptions;
use feedline_testkit::fixtures::Fine;
use serde_json::{Value, json};

const JOB: &str = "FEEDLINE_TEST_JOB";
const LEN: u64 = 203;
const BATCH: usize = 5;
const SEED: u64 = 41;
const LAST_BATCHES: [LastBatch; 3] = [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad];
/// The pair of variables that each launcher sets.
const LAUNCHERS: [[&str; 2]; 3] = [
    ["RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS"],
];

/// The job of all ranks of a world.
#[derive(Clone, Copy)]
struct Job<'a> {
    last_batch: LastBatch,
    /// First epoch and end; with a cursor, the rest of its epoch comes first.
    epochs: [u64; 2],
    /// The most steps that a rank takes.
    max: u64,
    /// The cursors of the world to resume.
    from: &'a [Cursor],
    launcher: [&'a str; 2],
}

/// The samples that one rank has delivered.
#[derive(Debug)]
struct Delivered {
    /// Epoch and ids of the valid rows, per step.
    steps: Vec<(u64, Vec<u64>)>,
    sizes: Vec<u64>,
    cursor: Cursor,
}

impl Job<'_> {
    const WHOLE: Self =
        Job { last_batch: LastBatch::Keep, epochs: [0, 2], max: u64::MAX, from: &[], launcher: LAUNCHERS[0] };

    /// Starts a process per rank and collects the samples they delivered.
    #[track_caller]
    fn run(&self, world: u32) -> Vec<Delivered> {
        let dir = tempfile::tempdir().unwrap();
        let ranks: Vec<Child> = (0..world).map(|rank| self.start(rank, world, dir.path())).collect();
        let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
        (0..)
            .zip(outputs)
            .map(|(rank, output)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert!(
                    output.status.success(),
                    "rank {rank} of {world}: {}{}",
                    text(&output.stdout),
                    text(&output.stderr)
                );
                read(&std::fs::read(dir.path().join(rank.to_string())).expect("the rank's file"))
            })
            .collect()
    }

    fn start(&self, rank: u32, world: u32, dir: &Path) -> Child {
        // A rank that the old world did not have may start from any cursor of that world.
        let from = self.from.get(rank as usize).or(self.from.first());
        let last_batch = LAST_BATCHES.iter().position(|last_batch| *last_batch == self.last_batch);
        let job = json!({
            "last_batch": last_batch,
            "epochs": self.epochs,
            "most": self.max,
            "from": from,
            "out": dir.join(rank.to_string()),
        });
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        for name in LAUNCHERS.concat() {
            command.env_remove(name);
        }
        command.args(["--ignored", "--exact", "worlds::rank_process"]).env(JOB, job.to_string());
        command.env(self.launcher[0], rank.to_string()).env(self.launcher[1], world.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
    }
}

fn read(bytes: &[u8]) -> Delivered {
    let value: Value = serde_json::from_slice(bytes).expect("JSON");
    let of = |name: &str| value[name].clone();
    Delivered {
        steps: serde_json::from_value(of("steps")).expect("steps"),
        sizes: serde_json::from_value(of("sizes")).expect("sizes"),
        cursor: serde_json::from_value(of("cursor")).expect("a cursor"),
    }
}

/// One rank, as started by the launcher.
#[test]
#[ignore = "started by the other tests as a process"]
fn rank_process() {
    let Ok(job) = std::env::var(JOB) else {
        eprintln!("rank_process: not run, the other tests start it as a process");
        return;
    };
    alone(|| {
        let job: Value = serde_json::from_str(&job).expect("a job");
        let number = |value: &Value| value.as_u64().expect("a number");
        let last_batch = LAST_BATCHES[number(&job["last_batch"]) as usize];
        let device = Device::new_host();
        let compute = device.stream().unwrap();
        let mut loader = builder(last_batch).world(World::from_env().unwrap()).build(&device).unwrap();

        let mut from: Option<Cursor> = serde_json::from_value(job["from"].clone()).expect("a cursor");
        let begin = from.map_or(number(&job["epochs"][0]), |cursor| cursor.epoch());
        let mut left = number(&job["most"]);
        let (mut steps, mut sizes) = (Vec::new(), Vec::new());
        for epoch in begin..number(&job["epochs"][1]) {
            let mut batches = match from.take() {
                Some(cursor) => loader.resume(cursor).unwrap(),
                None if left > 0 => loader.epoch(epoch).unwrap(),
                None => break,
            };
            while left > 0
                && let Some(batch) = batches.next()
            {
                let batch = batch.unwrap();
                steps.push((epoch, batch.ids()[..batch.valid_rows()].to_vec()));
                sizes.push(batch.len());
                // The ids in the rows themselves.
                let batch = batch.wait_on(&compute).unwrap();
                let ids = elements(&compute, batch.field::<i64>("id").unwrap());
                assert!(ids.iter().map(|&id| id as u64).eq(batch.ids().iter().copied()));
                left -= 1;
            }
        }
        let delivered = json!({ "steps": steps, "sizes": sizes, "cursor": loader.cursor() });
        std::fs::write(job["out"].as_str().expect("a path"), delivered.to_string()).unwrap();
    });
}

fn builder(last_batch: LastBatch) -> LoaderBuilder {
    let data = Fine::new(LEN, 8).unwrap();
    Loader::builder(data)
        .batch_size(BATCH)
        .shuffle()
        .seed(SEED)
        .last_batch(last_batch)
        .workers(Workers::Count(2))
        .epochs(2)
}

/// The samples of an epoch in global order, from the definition of the shuffle.
fn order_of(epoch: u64) -> Vec<u64> {
    let mut ids = vec![0; LEN as usize];
    Sampler::Shuffle.fill(LEN, SEED, epoch, 0, &mut ids);
    ids
}

/// The batch sampler of rank 0. Proofs and step counts are the same for all ranks.
fn batch_sampler(last_batch: LastBatch, world: u32) -> BatchSampler {
    let world = World::new(0, world).unwrap();
    BatchSampler::new(BatchSamplerOptions {
        len: LEN,
        sampler: Sampler::Shuffle,
        seed: SEED,
        batch: BATCH,
        last_batch,
        world,
    })
    .unwrap()
}

/// The ids that a world delivered in `epoch`, step by step and within a step rank by rank: the global order.
#[track_caller]
fn merged(ranks: &[Delivered], epoch: u64) -> Vec<u64> {
    let steps = ranks[0].steps.len();
    assert!(ranks.iter().all(|rank| rank.steps.len() == steps), "the ranks took different numbers of steps");
    let mut ids = Vec::new();
    for step in 0..steps {
        for rank in ranks {
            assert_eq!(rank.steps[step].0, ranks[0].steps[step].0, "ranks in different epochs");
            if rank.steps[step].0 == epoch {
                ids.extend(&rank.steps[step].1);
            }
        }
    }
    ids
}

fn proof<'a>(ranks: impl IntoIterator<Item = &'a Cursor>) -> Proof {
    let mut proof = Proof::default();
    for cursor in ranks {
        proof.merge(cursor.proof());
    }
    proof
}

#[test]
fn every_sample_is_delivered_once_over_the_ranks_of_any_world() {
    alone(|| {
        for world in [1, 2, 4, 8] {
            for last_batch in LAST_BATCHES {
                let ranks = Job { last_batch, ..Job::WHOLE }.run(world);
                let global = u64::from(world) * BATCH as u64;
                let kept = if last_batch == LastBatch::Drop { LEN - LEN % global } else { LEN };
                for epoch in [0, 1] {
                    assert_eq!(
                        merged(&ranks, epoch),
                        order_of(epoch)[..kept as usize],
                        "{world} ranks, {last_batch:?}"
                    );
                }
                for rank in &ranks {
                    let full = |size: &u64| *size == BATCH as u64;
                    assert!(
                        last_batch == LastBatch::Keep || rank.sizes.iter().all(full),
                        "{last_batch:?}: {:?}",
                        rank.sizes
                    );
                }
                let cursors: Vec<Cursor> = ranks.iter().map(|rank| rank.cursor).collect();
                assert!(cursors.iter().all(|cursor| cursor.is_at_end(&batch_sampler(last_batch, world))));
                proof(&cursors).check(&Proof::expected(&batch_sampler(last_batch, world), 0..2)).unwrap();
            }
        }
    });
}

#[test]
fn another_world_resumes_in_the_same_global_order() {
    alone(|| {
        let steps = LEN.div_ceil(4 * BATCH as u64);
        for stop in [1, 4, steps - 1, steps] {
            let before = Job { max: stop, ..Job::WHOLE }.run(4);
            let cursors: Vec<Cursor> = before.iter().map(|rank| rank.cursor).collect();
            for world in [2, 8] {
                let after = Job { from: &cursors, ..Job::WHOLE }.run(world);
                let mut ids = merged(&before, 0);
                ids.extend(merged(&after, 0));
                assert_eq!(ids, order_of(0), "4 ranks for {stop} steps, then {world}");
                assert_eq!(merged(&after, 1), order_of(1));
                // The proof includes the parts of ranks that no longer exist.
                let gone = cursors.iter().skip(world as usize);
                let all = proof(after.iter().map(|rank| &rank.cursor).chain(gone));
                all.check(&Proof::expected(&batch_sampler(LastBatch::Keep, world), 0..2)).unwrap();
            }
        }
    });
}

#[test]
fn a_world_that_shrinks_and_grows_again_loses_nothing() {
    alone(|| {
        let mut ids = Vec::new();
        let (mut cursors, mut gone) = (Vec::new(), Vec::new());
        for (world, max) in [(8, 2), (1, 3), (4, 2), (2, u64::MAX)] {
            let ranks = Job { max, epochs: [0, 1], from: &cursors, ..Job::WHOLE }.run(world);
            ids.extend(merged(&ranks, 0));
            gone.extend(cursors.into_iter().skip(world as usize));
            cursors = ranks.iter().map(|rank| rank.cursor).collect();
        }
        assert_eq!(ids, order_of(0));
        let all = proof(cursors.iter().chain(&gone));
        all.check(&Proof::expected(&batch_sampler(LastBatch::Keep, 1), 0..1)).unwrap();
    });
}

#[test]
fn every_launcher_makes_the_same_world() {
    alone(|| {
        let of = |launcher| {
            let ranks = Job { launcher, epochs: [0, 1], ..Job::WHOLE }.run(2);
            ranks.into_iter().map(|rank| rank.steps).collect::<Vec<_>>()
        };
        let [torchrun, others @ ..] = LAUNCHERS.map(of);
        assert_eq!(torchrun.len(), 2);
        assert!(others.into_iter().all(|steps| steps == torchrun));
    });
}

#[test]
fn a_lost_and_a_repeated_sample_are_found_by_the_merged_proof() {
    alone(|| {
        let ranks = Job { epochs: [0, 1], ..Job::WHOLE }.run(4);
        let expected = Proof::expected(&batch_sampler(LastBatch::Keep, 4), 0..1);
        let lost = proof(ranks[..3].iter().map(|rank| &rank.cursor)).check(&expected).unwrap_err();
        let part = ranks[3].cursor.proof().count();
        assert_eq!(lost.message(), format!("{part} of {LEN} samples were not delivered"));
        let twice = proof([0, 1, 2, 3, 3].map(|rank| &ranks[rank].cursor)).check(&expected).unwrap_err();
        assert!(twice.message().contains("than the 203 expected"), "{twice}");
        // Rank 2 in place of rank 3: about the same number of samples, but not the same samples.
        let swapped = proof([0, 1, 2, 2].map(|rank| &ranks[rank].cursor)).check(&expected).unwrap_err();
        assert!(!swapped.message().is_empty());
    });
}
