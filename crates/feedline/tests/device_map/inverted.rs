//! A device map over [`Fine`] samples, which a test can check to the last byte. Its lanes read batches on the
//! device or in host slots.

use feedline::batch::{BatchInfo, DeviceBatch, PinnedBatch};
use feedline::{DType, LoaderBuilder, Ready, Result, Spec, Stream};
use feedline_device::launch_host;
use feedline_testkit::fixtures::Fine;
use feedline_testkit::pattern;

use crate::common::{alone, alone_in_parts, elements};

/// Bytes per row of [`fine`].
pub const ROW: usize = 48;

/// `len` samples with an `id` and [`ROW`] bytes.
pub fn fine(len: u64) -> Fine {
    Fine::new(len, ROW).expect("a set")
}

/// The fields of [`invert`].
pub fn spec() -> Spec {
    let spec = Spec::new().field("inverted", DType::U8, [ROW]).expect("a spec");
    let spec = spec.field("draw", DType::I64, []).expect("a spec");
    spec.field("id", DType::I64, []).expect("a spec")
}

/// Passes `id` on, inverts every bit of `bytes`, and writes a random number into `draw`.
pub fn invert(stream: &Stream, batch: &mut DeviceBatch<'_>) -> Result<()> {
    let (bytes, inverted) = (batch.field::<u8>("bytes")?, batch.output::<u8>("inverted")?);
    launch_host(stream, "invert", [bytes.into()], [inverted.into()], |memory| {
        memory.output::<u8>(0).iter_mut().zip(memory.input::<u8>(0)).for_each(|(to, from)| *to = !from);
    })?;
    let number = batch.random().next_u64() as i64;
    let draw = batch.output::<i64>("draw")?;
    launch_host(stream, "draw", [], [draw.into()], move |memory| memory.output::<i64>(0).fill(number))?;
    batch.copy("id")
}

/// The same from a host slot.
fn invert_filled(stream: &Stream, batch: &mut PinnedBatch<'_>) -> Result<()> {
    let bytes: Vec<u8> = batch.field::<u8>("bytes")?.iter().map(|byte| !byte).collect();
    let number = batch.random().next_u64() as i64;
    // Lanes block, like lanes that decode pictures.
    stream.synchronize()?;
    let (inverted, draw) = (batch.output::<u8>("inverted")?, batch.output::<i64>("draw")?);
    launch_host(stream, "invert", [], [inverted.into(), draw.into()], move |memory| {
        memory.output::<u8>(0).copy_from_slice(&bytes);
        memory.output::<i64>(1).fill(number);
    })?;
    batch.copy("id")
}

/// The memory that the lanes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Batches on the device.
    Map,
    /// Batches in their host slots.
    Produce,
}

pub const WAYS: [Way; 2] = [Way::Map, Way::Produce];

/// Calls `test` for each way, as `alone` does.
#[track_caller]
pub fn each_way(test: impl Fn(Way)) {
    WAYS.iter().for_each(|way| alone(|| test(*way)));
}

/// Calls `test` for each way, as `alone_in_parts` does.
#[track_caller]
pub fn each_way_in_parts(test: impl Fn(Way)) {
    WAYS.iter().for_each(|way| alone_in_parts(|| test(*way)));
}

impl Way {
    /// `builder` with [`invert`] on `lanes` lanes.
    pub fn inverted(self, builder: LoaderBuilder, lanes: usize) -> LoaderBuilder {
        self.before_invert(builder, lanes, |_| Ok(()))
    }

    /// The same; each lane calls `before` first.
    pub fn before_invert(
        self,
        builder: LoaderBuilder,
        lanes: usize,
        before: impl Fn(&BatchInfo) -> Result<()> + Clone + Send + Sync + 'static,
    ) -> LoaderBuilder {
        let builder = match self {
            Self::Map => builder.device_map(spec(), move |stream: &Stream| {
                let (stream, before) = (stream.clone(), before.clone());
                Ok(move |batch: &mut DeviceBatch<'_>| {
                    before(batch)?;
                    invert(&stream, batch)
                })
            }),
            Self::Produce => builder.produce(spec(), move |stream: &Stream| {
                let (stream, before) = (stream.clone(), before.clone());
                Ok(move |batch: &mut PinnedBatch<'_>| {
                    before(batch)?;
                    invert_filled(&stream, batch)
                })
            }),
        };
        builder.device_lanes(lanes)
    }
}

/// Checks every byte of a mapped batch; returns its random number, 0 for a batch without rows.
#[track_caller]
pub fn check(fine: &Fine, batch: &Ready) -> i64 {
    let stream = batch.stream();
    let ids = elements(stream, batch.field::<i64>("id").expect("the ids"));
    assert!(ids.iter().map(|&id| id as u64).eq(batch.ids().iter().copied()), "{ids:?} in {batch:?}");
    let mut bytes = elements(stream, batch.field::<u8>("inverted").expect("the bytes"));
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    for (&id, row) in batch.ids().iter().zip(bytes.chunks(ROW)) {
        if let Err(wrong) = pattern::check(row, fine.key(batch.epoch()), id) {
            panic!("{batch:?}: {wrong}");
        }
    }
    let draws = elements(stream, batch.field::<i64>("draw").expect("the draws"));
    assert!(draws.len() == ids.len() && draws.windows(2).all(|pair| pair[0] == pair[1]), "{draws:?}");
    draws.first().copied().unwrap_or(0)
}
