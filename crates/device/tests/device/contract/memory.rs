//! Buffers and readbacks return what was written.

use std::time::Instant;

use feedline_core::{ErrorKind, Result, deadline};
use feedline_device::{Buffer, Readback};

use super::rig::{Ending, LIMIT, everywhere, with_host_memory};

#[test]
fn a_buffer_returns_what_was_written() {
    everywhere("a_buffer_returns_what_was_written", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut buffer = Buffer::<u32>::new(&stream, 1000)?;
        assert_eq!(buffer.read()?, [0; 1000], "a new buffer is zeroed");
        let values: Vec<u32> = (0..1000).map(|i: u32| i.wrapping_mul(0x9E37_79B9)).collect();
        buffer.write(&values)?;
        assert_eq!(buffer.read()?, values);
        let error = buffer.write(&values[1..]).expect_err("one value too few");
        assert_eq!(error.kind(), ErrorKind::Config);
        Ok(())
    });
}

#[test]
fn results_arrive_in_order_and_a_full_readback_is_an_error() {
    everywhere("results_arrive_in_order_and_a_full_readback_is_an_error", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut results = Readback::<u8>::new(&stream, 16, 3)?;
        let send = |results: &mut Readback<u8>, value| -> Result<()> {
            let cell = results.begin()?.address();
            rig.fill_at(&stream, cell, value, 16)?;
            results.send()
        };
        assert_eq!(results.wait()?, None, "no result is in flight");
        for round in 0..4 {
            (1..=3).try_for_each(|i| send(&mut results, 10 * round + i))?;
            assert!(results.is_full());
            assert_eq!(results.begin().err().map(|error| error.kind()), Some(ErrorKind::Config));
            assert_eq!(results.wait()?, Some(&[10 * round + 1; 16][..]));
            let late = deadline(LIMIT / 2);
            while results.pending() == 2 {
                if let Some(values) = results.try_next()? {
                    assert_eq!(values, [10 * round + 2; 16]);
                }
                assert!(Instant::now() < late, "the result does not arrive");
            }
            assert_eq!(results.wait()?, Some(&[10 * round + 3; 16][..]));
            assert_eq!((results.pending(), results.try_next()?), (0, None));
        }
        send(&mut results, 1) // dropped while a result is in flight
    });
}

#[test]
fn a_cell_is_sent_once_and_no_result_is_overwritten() {
    everywhere("a_cell_is_sent_once_and_no_result_is_overwritten", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let mut results = Readback::<u8>::new(&stream, 16, 2)?;
        assert_eq!(results.send().expect_err("nothing was begun").kind(), ErrorKind::Config);
        for value in [1, 2] {
            let cell = results.begin()?.address();
            rig.fill_at(&stream, cell, value, 16)?;
            results.send()?;
            let error = results.send().expect_err("already sent");
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.message().contains("begin"), "{error}");
        }
        assert_eq!(results.pending(), 2);
        assert_eq!(results.wait()?, Some(&[1; 16][..]));
        assert_eq!(results.wait()?, Some(&[2; 16][..]));
        Ok(())
    });
}

#[test]
fn a_readback_of_an_invalid_size_is_rejected() {
    with_host_memory("a_readback_of_an_invalid_size_is_rejected", Ending::Clean, |rig| {
        let stream = rig.stream("a")?;
        let sizes = [
            ((1 << 62) + 1, 4),
            (1 << 61, 2),
            (usize::MAX, 1),
            (usize::MAX, 2),
            (1, usize::MAX),
            (1, 1 << 40),
            (0, 4),
            (4, 0),
        ];
        for (width, depth) in sizes {
            let refused = Readback::<f32>::new(&stream, width, depth);
            let error = refused.err().unwrap_or_else(|| panic!("{width} x {depth} was accepted"));
            assert_eq!(error.kind(), ErrorKind::Config, "{width} x {depth}: {error}");
        }
        Ok(())
    });
}
