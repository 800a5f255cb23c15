//! Ranks join, exchange bytes, and get errors that name a missing, stuck or lost rank.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::ranks::{LIMIT, SOON, assert_blames, launch, run, server, soon};
use feedline_core::{Error, ErrorKind, World};
use feedline_dist::{Group, Launch, Rendezvous, Server, Store};
use feedline_testkit::{watchdog, with_watchdog};

/// A limit that no test without a failure reaches.
const LONG: Duration = Duration::from_secs(30);

fn watched(work: impl FnOnce() + Send + 'static) {
    with_watchdog(watchdog::LIMIT, work);
}

#[test]
fn every_rank_gets_the_parts_of_all_in_their_order() {
    watched(|| {
        let results = run(4, LONG, |group| {
            let rank = group.world().rank() as u8;
            let mut seen = Vec::new();
            for round in 0..50u8 {
                // Parts of different lengths, one of them empty.
                seen.push(group.all_gather(&vec![round; usize::from(rank)])?);
            }
            let large = group.broadcast(&vec![rank + 7; 3 << 20])?;
            // Two exchanges under way at once, collected in the other order.
            let (one, two) = (group.post(&[rank])?, group.post(&[rank + 100])?);
            let (two, one) = (group.collect(two)?, group.collect(one)?);
            group.barrier()?;
            group.finish()?;
            Ok((seen, large, one, two))
        });
        for result in results {
            let (seen, large, one, two) = result.unwrap();
            for (round, parts) in (0..50u8).zip(seen) {
                assert_eq!(parts, [vec![], vec![round], vec![round; 2], vec![round; 3]]);
            }
            assert!(large.len() == 3 << 20 && large.iter().all(|byte| *byte == 7));
            assert_eq!(one, [[0], [1], [2], [3]]);
            assert_eq!(two, [[100], [101], [102], [103]]);
        }
    });
}

#[test]
fn alone_no_socket_is_opened_and_exchanges_return_at_once() {
    let group = Group::join(&Launch::single(), LIMIT).unwrap();
    assert_eq!(group.all_gather(&[5]).unwrap(), [[5]]);
    assert_eq!(group.broadcast(&[6]).unwrap(), [6]);
    group.agree("batch", "128").unwrap();
    assert!(group.store().is_none() && group.error().is_none());
    group.finish().unwrap();
}

#[test]
fn ranks_that_differ_are_named_with_both_values() {
    watched(|| {
        let results = run(3, LONG, |group| {
            let batch = if group.world().rank() == 2 { "64" } else { "128" };
            group.agree("--seed", "1")?;
            let agreed = group.agree("--batch", batch);
            group.finish()?;
            agreed
        });
        assert_blames(&results, &[], "--batch differs: rank 2 has \"64\", rank 0 has \"128\"");
    });
}

/// Rank 0 may leave because of the values it has received, for example after an option that differs.
#[test]
fn an_exchange_reaches_all_ranks_before_the_end_that_it_causes() {
    watched(|| {
        let results = run(4, LONG, |group| {
            let rank = group.world().rank();
            if rank == 3 {
                // Its part is the last one, so that another thread of rank 0 ends the exchange.
                std::thread::sleep(Duration::from_millis(50));
            }
            let parts = group.all_gather(&vec![rank as u8; 2 << 20]);
            parts.map(|parts| parts.len()) // the group is dropped at once
        });
        for (rank, result) in results.into_iter().enumerate() {
            assert_eq!(result.unwrap_or_else(|error| panic!("rank {rank}: {error}")), 4);
        }
    });
}

#[test]
fn ranks_with_another_hash_are_named() {
    watched(|| {
        for (hashes, part) in [
            (vec![7, 7, 8, 7], "the parameters of rank 2 differ"),
            (vec![9, 7, 8, 7], "the parameters of ranks 0 and 2 differ"),
            (vec![7, 8], "the parameters of rank 1 differ"),
        ] {
            let results = run(hashes.len() as u32, LONG, |group| {
                group.agree_on_hash("the parameters", 5)?;
                let agreed = group.agree_on_hash("the parameters", hashes[group.world().rank() as usize]);
                group.finish()?;
                agreed
            });
            assert_blames(&results, &[], part);
        }
    });
}

#[test]
fn ranks_that_do_not_come_are_named_by_all_that_do() {
    watched(|| {
        let server = server();
        let results: Vec<_> = soon(|| {
            std::thread::scope(|scope| {
                let join = |rank| scope.spawn(move || Group::join(&rank, LIMIT));
                let ranks = [0, 3].map(|rank| join(launch(&server, rank, 5)));
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            })
        });
        assert_blames(&results, &[], "ranks 1, 2 and 4 of 5 did not join");
    });
}

#[test]
fn a_missing_rank_0_is_named() {
    watched(|| {
        let server = server();
        let error = soon(|| Group::join(&launch(&server, 1, 2), LIMIT)).unwrap_err();
        assert!(error.to_string().contains("rank 0 of 2 did not join"), "{error}");
    });
}

#[test]
fn two_processes_with_one_rank_are_refused() {
    watched(|| {
        let server = server();
        let results: Vec<_> = std::thread::scope(|scope| {
            let join = |rank| scope.spawn(move || Group::join(&rank, LIMIT));
            let ranks = [0, 1, 1].map(|rank| join(launch(&server, rank, 3)));
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_blames(&results, &[], "two processes say that they are rank 1");
    });
}

#[test]
fn connections_that_say_nothing_do_not_hold_up_the_ranks() {
    watched(|| {
        let server = server();
        let store = Store::connect("127.0.0.1", server.port(), "test", LONG).unwrap();
        std::thread::scope(|scope| {
            let join = |rank, limit| {
                let launch = launch(&server, rank, 3);
                scope.spawn(move || soon(|| Group::join(&launch, limit)))
            };
            let ranks = [0, 1].map(|rank| join(rank, LIMIT));
            let address = store.get("rank-0", LONG).unwrap();
            let port = u16::from_le_bytes([address[0], address[1]]);
            // Half a hello is no better than none.
            let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
            silent.iter().step_by(2).for_each(|mut stranger| stranger.write_all(b"fl-dist1").unwrap());
            let results = ranks.map(|rank| rank.join().unwrap());
            assert_blames(&results, &[], "rank 2 of 3 did not join");
        });
    });
}

#[test]
fn ranks_join_beside_connections_that_say_nothing() {
    watched(|| {
        let server = server();
        let store = Store::connect("127.0.0.1", server.port(), "test", LONG).unwrap();
        std::thread::scope(|scope| {
            let join = |rank| {
                let launch = launch(&server, rank, 2);
                scope.spawn(move || Group::join(&launch, LONG)?.finish())
            };
            let rank_0 = join(0);
            let address = store.get("rank-0", LONG).unwrap();
            let port = u16::from_le_bytes([address[0], address[1]]);
            let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
            let results = soon(|| [join(1), rank_0].map(|rank| rank.join().unwrap()));
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            drop(silent);
        });
    });
}

#[test]
fn a_silent_store_does_not_hold_up_a_join() {
    watched(|| {
        // The system connects clients although nobody accepts them.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (host, port) = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let rendezvous = Rendezvous { host, port, served_by_launcher: true, run_id: "test".into() };
        for rank in [0, 1] {
            let launch = Launch::new(World::new(rank, 2).unwrap(), rank, rendezvous.clone());
            let error = soon(|| Group::join(&launch, LIMIT)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    });
}

#[test]
fn a_limit_that_no_clock_can_hold_is_no_error() {
    watched(|| {
        let results = run(2, Duration::MAX, |group| {
            group.barrier()?;
            group.finish()
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        Group::join(&Launch::single(), Duration::MAX).unwrap().barrier().unwrap();
    });
}

#[test]
fn a_rank_that_leaves_early_ends_the_others_at_once() {
    watched(|| {
        // Rank 0 must have passed the reason on before its own caller can leave.
        for _ in 0..50 {
            let results = soon(|| {
                run(4, LONG, |group| {
                    group.barrier()?;
                    if group.world().rank() == 2 {
                        // Dropped without `finish`.
                        return Ok(());
                    }
                    group.barrier()
                })
            });
            assert_blames(&results, &[2], "rank 2 left the run before its end");
        }
    });
}

#[test]
fn a_failure_reaches_every_rank_with_its_cause() {
    watched(|| {
        for failing in [0, 1] {
            let results = soon(|| {
                run(3, LONG, |group| {
                    group.barrier()?;
                    let (tell, told) = std::sync::mpsc::channel();
                    group.on_failure(move |error| tell.send(error.to_string()).unwrap());
                    if group.world().rank() == failing {
                        group.fail(&Error::new(ErrorKind::Sample, "sample 417 is not a JPEG"));
                    }
                    let waited = group.barrier();
                    assert!(told.recv().unwrap().contains("sample 417 is not a JPEG"));
                    waited
                })
            });
            assert_blames(
                &results,
                &[failing as usize],
                &format!("rank {failing} failed: sample 417 is not a JPEG"),
            );
            assert_blames(&results, &[], "sample 417 is not a JPEG");
        }
    });
}

#[test]
fn a_rank_that_does_not_come_to_an_exchange_is_named() {
    watched(|| {
        for stuck in [0, 1] {
            let results = soon(|| {
                run(3, LIMIT, |group| {
                    if group.world().rank() == stuck {
                        // Sends heartbeats, but does not come to the exchange until the run has failed.
                        let (tell, told) = std::sync::mpsc::channel();
                        group.on_failure(move |_| tell.send(()).unwrap());
                        told.recv().unwrap();
                    }
                    group.barrier()
                })
            });
            assert_blames(&results, &[], &format!("rank {stuck} kept the others waiting"));
        }
    });
}

#[test]
fn a_rank_that_stays_behind_is_named() {
    watched(|| {
        let results = soon(|| {
            run(3, LIMIT, |group| {
                let (tell, told) = std::sync::mpsc::channel();
                group.on_failure(move |_| tell.send(()).unwrap());
                // Nobody waits in an exchange, as if GPUs waited for each other.
                group.progress(if group.world().rank() == 1 { 120 } else { 124 });
                told.recv().unwrap();
                group.barrier()
            })
        });
        assert_blames(&results, &[], "rank 1 has been at step 120");
        assert_blames(&results, &[], "while others are at step 124");
    });
}

/// The two connections of a process that joins as rank 1 of 2 and then sends nothing.
fn mute(server: &Server) -> [TcpStream; 2] {
    let store = Store::connect("127.0.0.1", server.port(), "test", LONG).unwrap();
    let address = store.get("rank-0", LONG).unwrap();
    let port = u16::from_le_bytes([address[0], address[1]]);
    [0, 1].map(|kind| {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let hello = [&b"fl-dist1"[..], &address[2..], &1u32.to_le_bytes(), &[kind]].concat();
        connection.write_all(&hello).unwrap();
        connection
    })
}

/// Joins as rank 0 of 2. Returns the error that ends the run; meanwhile this rank waits for nobody.
fn alone_with(server: &Server) -> String {
    let group = Group::join(&launch(server, 0, 2), LIMIT).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    group.on_failure(move |error| tell.send(error.to_string()).unwrap());
    told.recv_timeout(SOON).expect("the run fails")
}

#[test]
fn a_process_that_is_killed_is_noticed_although_nobody_waits_for_it() {
    watched(|| {
        let server = server();
        std::thread::scope(|scope| {
            let rank_0 = scope.spawn(|| soon(|| alone_with(&server)));
            let mut connections = mute(&server);
            // Rank 0 sends that all ranks have joined.
            connections[0].read_exact(&mut [0; 9]).unwrap();
            drop(connections);
            assert!(rank_0.join().unwrap().contains("rank 1 ended before the run did"));
        });
    });
}

#[test]
fn a_process_that_says_nothing_is_noticed_although_nobody_waits_for_it() {
    watched(|| {
        let server = server();
        std::thread::scope(|scope| {
            let rank_0 = scope.spawn(|| soon(|| alone_with(&server)));
            let connections = mute(&server);
            assert!(rank_0.join().unwrap().contains("rank 1 has not answered for 1.5s"));
            drop(connections);
        });
    });
}

#[test]
fn slow_ranks_are_not_taken_for_stuck_ones() {
    watched(|| {
        let results = run(2, LIMIT, |group| {
            for step in 0..4 {
                group.progress(step);
                group.barrier()?;
                // Each pause is below the limit, their sum is above it.
                std::thread::sleep(LIMIT / 3);
            }
            group.finish()
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    });
}
