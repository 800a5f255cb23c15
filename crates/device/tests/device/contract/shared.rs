//! Shared buffers: one stream writes, others read, and each waits for the other on the device.

use feedline_core::{ErrorKind, Result};
use feedline_device::{Device, Pinned, SharedBuffer, Stream};

use super::rig::{Ending, Rig, everywhere, poll};

const BYTES: usize = 4096;

fn write(rig: &Rig, buffer: &mut SharedBuffer<u8>, value: u8) -> Result<()> {
    let (to, len) = (buffer.view_mut()?.address(), buffer.len());
    rig.fill_at(buffer.stream(), to, value, len)
}

fn read(rig: &Rig, buffer: &SharedBuffer<u8>, stream: &Stream, to: &Pinned) -> Result<()> {
    rig.fetch(stream.into(), buffer.on(stream)?.address(), to)
}

#[test]
fn a_reader_waits_for_the_last_write_and_the_host_does_not() {
    everywhere("a_reader_waits_for_the_last_write_and_the_host_does_not", Ending::Clean, |rig| {
        let (owner, left, right) = (rig.stream("owner")?, rig.stream("left")?, rig.stream("right")?);
        let mut buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
        let results: Vec<Pinned> = (0..4).map(|_| Pinned::new(&rig.device, BYTES)).collect::<Result<_>>()?;
        for (round, to) in (1..).zip(results.chunks(2)) {
            let gate = rig.gate(&owner)?;
            write(rig, &mut buffer, round)?;
            read(rig, &buffer, &left, &to[0])?;
            read(rig, &buffer, &right, &to[1])?;
            drop(gate);
            left.synchronize()?;
            right.synchronize()?;
            for to in to {
                assert_eq!(rig.bytes(to)?, [round; BYTES]);
            }
        }
        Ok(())
    });
}

#[test]
fn a_write_waits_for_every_reader_and_the_host_does_not() {
    everywhere("a_write_waits_for_every_reader_and_the_host_does_not", Ending::Clean, |rig| {
        let (owner, left, right) = (rig.stream("owner")?, rig.stream("left")?, rig.stream("right")?);
        let mut buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
        let results = [Pinned::new(&rig.device, BYTES)?, Pinned::new(&rig.device, BYTES)?];
        let written = rig.device.event()?;
        for slow in [&left, &right] {
            write(rig, &mut buffer, 1)?;
            let gate = rig.gate(slow)?;
            for (stream, to) in [&left, &right].into_iter().zip(&results) {
                read(rig, &buffer, stream, to)?;
            }
            write(rig, &mut buffer, 2)?;
            owner.record(&written)?;
            assert!((0..100).all(|_| written.query().is_ok_and(|done| !done)), "written under a reader");
            drop(gate);
            poll(&written)?;
            for to in &results {
                assert_eq!(rig.bytes(to)?, [1; BYTES]);
            }
            assert_eq!(buffer.read()?, [2; BYTES]);
        }
        Ok(())
    });
}

#[test]
fn branches_run_beside_each_other_and_what_the_owner_gets_later() {
    everywhere("branches_run_beside_each_other_and_what_the_owner_gets_later", Ending::Clean, |rig| {
        let (owner, left, right) = (rig.stream("owner")?, rig.stream("left")?, rig.stream("right")?);
        let mut buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
        let results = [Pinned::new(&rig.device, BYTES)?, Pinned::new(&rig.device, BYTES)?];
        let ended = rig.device.event()?;
        write(rig, &mut buffer, 5)?;
        let gate = rig.gate(&left)?;
        read(rig, &buffer, &left, &results[0])?;
        owner.synchronize()?;
        // Work that the owner gets after the fork delays no branch.
        let late = rig.gate(&owner)?;
        read(rig, &buffer, &right, &results[1])?;
        right.record(&ended)?;
        poll(&ended)?;
        drop((gate, late));
        left.synchronize()?;
        assert_eq!([rig.bytes(&results[0])?, rig.bytes(&results[1])?], [[5; BYTES]; 2]);
        Ok(())
    });
}

#[test]
fn readers_of_what_is_published_do_not_wait_for_what_the_owner_gets_later() {
    everywhere(
        "readers_of_what_is_published_do_not_wait_for_what_the_owner_gets_later",
        Ending::Clean,
        |rig| {
            let (owner, reader) = (rig.stream("owner")?, rig.stream("reader")?);
            let mut buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
            let (to, ended) = (Pinned::new(&rig.device, BYTES)?, rig.device.event()?);
            for round in 1..3 {
                write(rig, &mut buffer, round)?;
                buffer.publish()?;
                owner.synchronize()?;
                let late = rig.gate(&owner)?;
                read(rig, &buffer, &reader, &to)?;
                reader.record(&ended)?;
                poll(&ended)?;
                drop(late);
                assert_eq!(rig.bytes(&to)?, [round; BYTES]);
            }
            Ok(())
        },
    );
}

#[test]
fn the_memory_outlives_the_work_of_its_readers() {
    everywhere("the_memory_outlives_the_work_of_its_readers", Ending::Clean, |rig| {
        let (owner, reader) = (rig.stream("owner")?, rig.stream("reader")?);
        let mut buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
        let (to, ended) = (Pinned::new(&rig.device, BYTES)?, rig.device.event()?);
        write(rig, &mut buffer, 9)?;
        read(rig, &buffer, &reader, &to)?;
        reader.record(&ended)?;
        drop(buffer);
        assert!(ended.query()?, "freed before its reader was done");
        assert_eq!(rig.bytes(&to)?, [9; BYTES]);
        Ok(())
    });
}

#[test]
fn a_stream_of_another_device_cannot_read_it() {
    everywhere("a_stream_of_another_device_cannot_read_it", Ending::Clean, |rig| {
        let (owner, elsewhere) = (rig.stream("owner")?, Device::new_host().stream()?);
        let buffer = SharedBuffer::<u8>::new(&owner, BYTES)?;
        let error = buffer.on(&elsewhere).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        Ok(())
    });
}
