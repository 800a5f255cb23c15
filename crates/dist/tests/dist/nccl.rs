//! Collectives of two GPUs through NCCL, with two threads as ranks. Without two GPUs they are not run.

use std::time::Duration;

use crate::ranks::{SOON, assert_blames, run};
use feedline_core::Result;
use feedline_device::{Buffer, Device, Stream};
use feedline_dist::{Collectives, Group, Reduce};
use feedline_testkit::{Exclusive, exclusive, not_run, watchdog, with_watchdog};

const LONG: Duration = Duration::from_secs(60);
const LEN: usize = 300_001;

/// Keeps other tests from the GPUs; `None` if there are not two of them.
fn two_gpus(test: &str) -> Option<Exclusive> {
    let what = format!("two GPUs: {test}");
    let alone = exclusive();
    Device::cuda(1).inspect_err(|error| not_run(&what, error)).ok()?;
    Some(alone)
}

fn open(group: &Group) -> Result<(Stream, Collectives)> {
    let stream = Device::cuda(group.world().rank() as usize)?.stream()?;
    let collectives = Collectives::new(group, &stream)?;
    Ok((stream, collectives))
}

#[test]
fn two_gpus_give_the_same_sums_means_and_parts() {
    let Some(_alone) = two_gpus("sums, means, broadcasts and parts") else { return };
    with_watchdog(watchdog::LIMIT, || {
        let results = run(2, LONG, |group| {
            let (stream, collectives) = open(&group)?;
            let rank = group.world().rank();
            let values: Vec<f32> = (0..LEN).map(|index| (index % 1000) as f32 + rank as f32).collect();
            let mut buffer = Buffer::<f32>::new(&stream, LEN)?;
            let mut reduced = Vec::new();
            for reduce in [Reduce::Sum, Reduce::Average] {
                buffer.write(&values)?;
                collectives.all_reduce(buffer.view_mut(), reduce)?;
                reduced.push(buffer.read()?);
            }
            let mut bytes = Buffer::<u8>::new(&stream, LEN)?;
            bytes.write(&vec![rank as u8 + 3; LEN])?;
            collectives.broadcast(bytes.view_mut(), 1)?;
            let mut parts = Buffer::<u8>::new(&stream, 2 * LEN)?;
            let mut own = Buffer::<u8>::new(&stream, LEN)?;
            own.write(&vec![rank as u8 + 7; LEN])?;
            collectives.all_gather(own.view(), parts.view_mut())?;
            collectives.barrier()?;
            let (bytes, parts) = (bytes.read()?, parts.read()?);
            drop((buffer, own, collectives, stream));
            group.finish()?;
            Ok((reduced, bytes, parts))
        });
        for result in results {
            let (reduced, bytes, parts) = result.unwrap();
            let wanted = |index: usize| 2.0 * (index % 1000) as f32 + 1.0;
            assert!(reduced[0].iter().enumerate().all(|(index, sum)| *sum == wanted(index)));
            assert!(reduced[1].iter().enumerate().all(|(index, mean)| *mean == wanted(index) / 2.0));
            assert!(bytes.iter().all(|byte| *byte == 4));
            assert!(parts[..LEN].iter().all(|byte| *byte == 7) && parts[LEN..].iter().all(|byte| *byte == 8));
        }
    });
}

#[test]
fn a_recorded_step_of_two_gpus_holds_its_collectives() {
    let Some(_alone) = two_gpus("collectives in a graph") else { return };
    with_watchdog(watchdog::LIMIT, || {
        let results = run(2, LONG, |group| {
            let (stream, collectives) = open(&group)?;
            let (mut first, mut second) =
                (Buffer::<f32>::new(&stream, LEN)?, Buffer::<f32>::new(&stream, LEN)?);
            first.write(&vec![1.0; LEN])?;
            second.write(&vec![2.0; LEN])?;
            // NCCL connects at the first call, which is not recorded.
            let mut step = || {
                collectives.overlap(|overlap| {
                    overlap.all_reduce([first.view_mut()], Reduce::Sum)?;
                    overlap.all_reduce([second.view_mut()], Reduce::Sum)
                })
            };
            step()?;
            let mut graph = feedline_device::record_graph(&stream, None, &mut step)?;
            for _ in 0..4 {
                graph.launch(None)?;
            }
            stream.synchronize()?;
            drop(graph);
            let sums = (first.read()?, second.read()?);
            drop((first, second, collectives, stream));
            group.finish()?;
            Ok(sums)
        });
        for result in results {
            // Doubled five times: once at once, four times by the graph.
            let (first, second) = result.unwrap();
            assert!(first.iter().all(|sum| *sum == 32.0) && second.iter().all(|sum| *sum == 64.0));
        }
    });
}

#[test]
fn a_gpu_that_waits_for_a_rank_that_has_failed_is_released() {
    let Some(_alone) = two_gpus("an abort") else { return };
    with_watchdog(watchdog::LIMIT, || {
        let results = run(2, LONG, |group| {
            let (stream, collectives) = open(&group)?;
            let mut values = Buffer::<f32>::new(&stream, LEN)?;
            collectives.all_reduce(values.view_mut(), Reduce::Sum)?;
            stream.synchronize()?;
            if group.world().rank() == 1 {
                return Ok(Duration::ZERO);
            }
            // Rank 1 never comes: NCCL's kernel waits until it is aborted.
            collectives.all_reduce(values.view_mut(), Reduce::Sum)?;
            let start = std::time::Instant::now();
            let _ = stream.synchronize();
            assert!(start.elapsed() < SOON, "it waited for {:?}", start.elapsed());
            group.barrier().map(|()| start.elapsed())
        });
        assert_blames(&results, &[1], "rank 1 left the run before its end");
    });
}
