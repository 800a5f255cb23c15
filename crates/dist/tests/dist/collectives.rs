//! Collectives of host devices: the same bits on every rank and in every run, and no wait without an end.

use std::time::Duration;

use crate::ranks::{LIMIT, assert_blames, run, soon};
use feedline_core::random::splitmix64;
use feedline_core::{Error, ErrorKind, Result};
use feedline_device::{Buffer, Device, Stream, launch_host};
use feedline_dist::{Collectives, Group, Launch, Reduce};
use feedline_testkit::{watchdog, with_watchdog};

const LONG: Duration = Duration::from_secs(30);

/// More than a chunk of the host's reduction, and not a multiple of it.
const LEN: usize = 100_003;

fn watched(work: impl FnOnce() + Send + 'static) {
    with_watchdog(watchdog::LIMIT, work);
}

fn open(group: &Group) -> Result<(Stream, Collectives)> {
    let stream = Device::new_host().stream()?;
    let collectives = Collectives::new(group, &stream)?;
    Ok((stream, collectives))
}

/// Numbers whose sum depends on the order of addition.
fn values(rank: u32, round: u64) -> Vec<f32> {
    let bits = |index| splitmix64((u64::from(rank) << 48) ^ (round << 32) ^ index);
    (0..LEN as u64).map(|index| (bits(index) >> 40) as f32 * 1e-3 - 8000.0).collect()
}

#[test]
fn a_sum_is_that_of_the_ranks_in_their_order() {
    watched(|| {
        for size in [2, 3, 4] {
            for (reduce, share) in [(Reduce::Sum, 1.0), (Reduce::Average, 1.0 / size as f32)] {
                let results = run(size, LONG, |group| {
                    let (stream, collectives) = open(&group)?;
                    let mut buffer = Buffer::<f32>::new(&stream, LEN)?;
                    let mut sums = Vec::new();
                    for round in 0..3 {
                        buffer.write(&values(group.world().rank(), round))?;
                        collectives.all_reduce(buffer.view_mut(), reduce)?;
                        sums.push(buffer.read()?);
                    }
                    group.finish()?;
                    Ok(sums)
                });
                for (round, rank) in
                    (0..3).flat_map(|round| (0..size as usize).map(move |rank| (round, rank)))
                {
                    let mut wanted = values(0, round);
                    for other in 1..size {
                        wanted.iter_mut().zip(values(other, round)).for_each(|(sum, value)| *sum += value);
                    }
                    wanted.iter_mut().for_each(|sum| *sum *= share);
                    let got = &results[rank].as_ref().unwrap()[round as usize];
                    let first =
                        got.iter().zip(&wanted).position(|(got, wanted)| got.to_bits() != wanted.to_bits());
                    assert_eq!(first, None, "{reduce:?} of {size}, round {round}, rank {rank}");
                }
            }
        }
    });
}

#[test]
fn a_broadcast_and_an_all_gather_move_every_byte() {
    watched(|| {
        let results = run(3, LONG, |group| {
            let (stream, collectives) = open(&group)?;
            let rank = group.world().rank();
            let (mut part, mut all) =
                (Buffer::<u32>::new(&stream, LEN)?, Buffer::<u32>::new(&stream, 3 * LEN)?);
            let mut broadcast = Vec::new();
            for root in 0..3 {
                part.write(&(0..LEN as u32).map(|index| index * 3 + rank).collect::<Vec<_>>())?;
                collectives.broadcast(part.view_mut(), root)?;
                broadcast.push(part.read()?);
            }
            part.write(&vec![rank + 40; LEN])?;
            collectives.all_gather(part.view(), all.view_mut())?;
            collectives.barrier()?;
            let all = all.read()?;
            group.finish()?;
            Ok((broadcast, all))
        });
        for result in results {
            let (broadcast, all) = result.unwrap();
            for (root, got) in broadcast.iter().enumerate() {
                assert!(
                    got.iter().zip(0..).all(|(got, index)| *got == index * 3 + root as u32),
                    "from {root}"
                );
            }
            assert!(all.iter().zip(0..).all(|(got, index)| *got == (index / LEN) as u32 + 40));
        }
    });
}

#[test]
fn the_compute_stream_waits_for_collectives_that_overlap_with_its_work() {
    watched(|| {
        let results = run(2, LONG, |group| {
            let (stream, collectives) = open(&group)?;
            let (mut one, mut two) = (Buffer::<f32>::new(&stream, LEN)?, Buffer::<f32>::new(&stream, LEN)?);
            let mut right = true;
            for round in 0..20 {
                let fill = |stream: &Stream, view: feedline_device::ViewMut<'_, f32>, value: f32| {
                    launch_host(stream, "fill", [], [view.into()], move |memory| {
                        memory.output::<f32>(0).fill(value)
                    })
                };
                let value = (group.world().rank() + 1) as f32 + round as f32;
                collectives.overlap(|overlap| {
                    let mut first = one.view_mut();
                    fill(&stream, first.reborrow(), value)?;
                    overlap.all_reduce([first], Reduce::Sum)?;
                    let mut second = two.view_mut();
                    fill(&stream, second.reborrow(), 10.0 * value)?;
                    overlap.all_reduce([second], Reduce::Sum)
                })?;
                let wanted = 3.0 + 2.0 * round as f32;
                right &= one.read()?.iter().all(|sum| *sum == wanted);
                right &= two.read()?.iter().all(|sum| *sum == 10.0 * wanted);
            }
            // Ends their work, so that without the wait the sums are wrong and no freed memory is written.
            drop(collectives);
            group.finish()?;
            Ok(right)
        });
        assert!(results.into_iter().all(|right| right.unwrap()));
    });
}

#[test]
fn ranks_that_make_different_calls_are_told_so() {
    watched(|| {
        let results = soon(|| {
            run(3, LIMIT, |group| {
                let (stream, collectives) = open(&group)?;
                let mut values = Buffer::<f32>::new(&stream, if group.world().rank() == 2 { 7 } else { 8 })?;
                collectives.all_reduce(values.view_mut(), Reduce::Sum)?;
                values.read().map_err(|error| group.error().unwrap_or(error))
            })
        });
        assert_blames(&results, &[], "rank 2 called an all-reduce (sum) of 28 bytes, where rank 0 called");
    });
}

#[test]
fn two_sets_of_collectives_do_not_take_each_others_values() {
    watched(|| {
        let results = soon(|| {
            run(2, LIMIT, |group| {
                let (stream, first) = open(&group)?;
                let second = Collectives::new(&group, &stream)?;
                let mut values = Buffer::<f32>::new(&stream, 8)?;
                let order = if group.world().rank() == 0 { [first, second] } else { [second, first] };
                for collectives in order {
                    collectives.all_reduce(values.view_mut(), Reduce::Sum)?;
                }
                values.read().map_err(|error| group.error().unwrap_or(error))
            })
        });
        assert_blames(
            &results,
            &[],
            "rank 1 called an all-reduce (sum) of 32 bytes of collectives 1, where rank 0",
        );
    });
}

#[test]
fn a_rank_that_ends_in_the_middle_ends_the_others() {
    watched(|| {
        for gone in [0, 1, 2] {
            let results = soon(|| {
                run(3, LONG, |group| {
                    let (stream, collectives) = open(&group)?;
                    let mut values = Buffer::<f32>::new(&stream, LEN)?;
                    for step in 0..1000 {
                        if step == 20 && group.world().rank() == gone {
                            return Ok(());
                        }
                        collectives.all_reduce(values.view_mut(), Reduce::Average)?;
                    }
                    values.read().map(drop).map_err(|error| {
                        assert_eq!(error.kind(), ErrorKind::DeviceLost);
                        group.error().unwrap_or(error)
                    })
                })
            });
            assert_blames(&results, &[gone as usize], &format!("rank {gone} left the run before its end"));
        }
    });
}

#[test]
fn a_failure_ends_collectives_that_wait_for_a_rank_that_lives_on() {
    watched(|| {
        for failing in [0, 1] {
            // Keeps the connections open until all have ended.
            let ended = std::sync::Barrier::new(3);
            let results = soon(|| {
                run(3, LONG, |group| {
                    let (stream, collectives) = open(&group)?;
                    let mut values = Buffer::<f32>::new(&stream, LEN)?;
                    let outcome = if group.world().rank() == failing {
                        group.fail(&Error::new(ErrorKind::Sample, "sample 417 is not a JPEG"));
                        group.barrier()
                    } else {
                        let started = collectives.all_reduce(values.view_mut(), Reduce::Average);
                        started.and_then(|()| values.read().map(drop))
                    };
                    ended.wait();
                    outcome.map_err(|error| group.error().unwrap_or(error))
                })
            });
            assert_blames(&results, &[], "sample 417 is not a JPEG");
        }
    });
}

#[test]
fn a_rank_that_does_not_take_part_is_named() {
    watched(|| {
        for stuck in [0, 1] {
            let results = soon(|| {
                run(3, LIMIT, |group| {
                    let (stream, collectives) = open(&group)?;
                    let mut values = Buffer::<f32>::new(&stream, 64)?;
                    if group.world().rank() == stuck {
                        let (tell, told) = std::sync::mpsc::channel();
                        group.on_failure(move |_| tell.send(()).unwrap());
                        told.recv().unwrap();
                        return group.barrier();
                    }
                    group.progress(1);
                    collectives.all_reduce(values.view_mut(), Reduce::Sum)?;
                    values.read().map(drop).map_err(|error| group.error().unwrap_or(error))
                })
            });
            assert_blames(&results, &[], &format!("rank {stuck} "));
        }
    });
}

#[test]
fn views_that_do_not_fit_are_refused() {
    let group = Group::join(&Launch::single(), LIMIT).unwrap();
    let (stream, collectives) = open(&group).unwrap();
    let mut values = Buffer::<f32>::new(&stream, 8).unwrap();
    assert_eq!(collectives.broadcast(values.view_mut(), 1).unwrap_err().kind(), ErrorKind::Config);
    let part = Buffer::<f32>::new(&stream, 5).unwrap();
    assert_eq!(collectives.all_gather(part.view(), values.view_mut()).unwrap_err().kind(), ErrorKind::Config);
    let other = Device::new_host().stream().unwrap();
    let mut foreign = Buffer::<f32>::new(&other, 8).unwrap();
    assert_eq!(
        collectives.all_reduce(foreign.view_mut(), Reduce::Sum).unwrap_err().kind(),
        ErrorKind::Config
    );
}

#[test]
fn alone_every_collective_gives_back_its_own() {
    let group = Group::join(&Launch::single(), LIMIT).unwrap();
    let (stream, collectives) = open(&group).unwrap();
    let (mut part, mut all) =
        (Buffer::<f32>::new(&stream, 3).unwrap(), Buffer::<f32>::new(&stream, 3).unwrap());
    part.write(&[1.0, 2.0, 3.0]).unwrap();
    collectives.all_reduce(part.view_mut(), Reduce::Average).unwrap();
    collectives.broadcast(part.view_mut(), 0).unwrap();
    collectives.all_gather(part.view(), all.view_mut()).unwrap();
    collectives.barrier().unwrap();
    assert_eq!(all.read().unwrap(), [1.0, 2.0, 3.0]);
}
