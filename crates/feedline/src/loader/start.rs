//! Starting a loader: its slots, its threads and its channels.

use std::sync::Arc;

use crossbeam_channel::bounded;
use feedline_core::{BatchSampler, Cursor, Layout, Result, Stop};
use feedline_device::slot::SlotRing;
use feedline_device::{Device, Pinned, Priority};
use feedline_slots::Ring;

use super::{Loader, MemoryUse};
use crate::builder::LoaderBuilder;
use crate::decode::{Decoder, DecoderOptions, Input, Note, RestOfSet, SourceReader};
use crate::deliveries::Deliveries;
use crate::numa::{Node, node_of};
use crate::progress::Progress;
use crate::report::Ledger;
use crate::service::Setup;
use crate::shutdown::{Closers, Running};
use crate::trace::Trace;
use crate::transfer::{Transfer, Wanted};
use crate::transfer_mode::Chosen;
use crate::tune::{Knobs, Tuner};

impl Loader {
    pub(crate) fn start(
        builder: LoaderBuilder,
        chosen: Chosen,
        batch_sampler: BatchSampler,
        layout: Layout,
        device: &Device,
    ) -> Result<Self> {
        let (batch_sampler, layout) = (Arc::new(batch_sampler), Arc::new(layout));
        let Chosen { mode, columns, slot_bytes } = chosen;
        let (device_slots, host_slots) = (builder.device_slots(&layout), builder.host_slots(&layout));
        let pinned = {
            // Memory that a thread touches first lies on the node of its core.
            let node = node_of(device);
            let _on = node.as_ref().and_then(Node::enter);
            let pinned = |slot| Ok(device.pinned(slot_bytes)?.named(&format!("host slot {slot}")));
            (0..host_slots).map(pinned).collect::<Result<Vec<_>>>()?
        };
        let host_ring = Ring::new(pinned);
        let slots = SlotRing::new(device, device_slots, layout.bytes())?;
        reserve_info(&host_ring, &slots, &layout)?;
        // Room for every batch that is being decoded, the reader of a source, and one wake-up.
        let (to_transfer, inbox) = bounded(host_slots + 2);
        let (loaded, to_consumer) = bounded(device_slots);
        let pool = builder.start_pool(&mode)?;
        let is_shared = builder.pool.is_some();
        let policy = builder.policy(pool.workers(), device_slots, mode.needs_no_decoding());

        let wanted = Arc::new(Wanted::default());
        let closers = Closers {
            stop: Arc::new(Stop::new()),
            host_slots: host_ring.clone(),
            device_slots: slots.clone(),
            wanted: wanted.clone(),
        };
        let mut running = Running::new(closers, device.clone(), pool.clone());
        let rest = columns.as_ref().and_then(|columns| columns.rest());
        let input = match (builder.input.clone(), &columns) {
            (Input::Dataset(dataset), Some(columns)) => match rest {
                Some(rest) => Input::Dataset(Arc::new(RestOfSet { dataset, kept: rest.kept() })),
                None => Input::ZeroCopy(dataset, columns.gather_order()),
            },
            (other, _) => other,
        };
        let setup = Setup {
            workers: pool.workers(),
            host_slots,
            device_slots,
            batch_size: layout.capacity(),
            batch_bytes: layout.bytes(),
            is_source: matches!(input, Input::Source(_)),
            is_zero_copy: mode.needs_no_decoding(),
        };
        let reader = match &input {
            Input::Source(_) => Some(Box::new(SourceReader::new(
                batch_sampler.clone(),
                layout.capacity(),
                builder.last_batch,
            ))),
            Input::Dataset(_) | Input::ZeroCopy(..) => None,
        };
        let fingerprint = builder.input.fingerprint();
        let dataset = match &builder.input {
            Input::Dataset(dataset) | Input::ZeroCopy(dataset, _) => Some(Arc::downgrade(dataset)),
            Input::Source(_) => None,
        };
        let is_source = reader.is_some();
        let options = DecoderOptions {
            input,
            batch_sampler: batch_sampler.clone(),
            layout: layout.clone(),
            bad_samples: builder.bad_samples,
            map_batch: builder.map_batch,
            rest,
            workers: pool.active(),
            host_slots,
            inbox: to_transfer,
        };
        // The last thread that needs the decoder drops the data set with it.
        drop(builder.input);
        let (ended, owner) = (running.stage("decode"), device.clone());
        let trace = builder.trace.as_ref().map(Trace::loader);
        let decoder = Decoder::new(options, move |dropped| {
            dropped.unwrap_or_else(|error| owner.stats().report(error));
            ended();
        });
        let decoder = Arc::new(decoder.traced(trace.clone()));
        running.watch(&decoder);
        let (registered, resident) =
            columns.as_ref().map_or((0, 0), |columns| (columns.bytes(), columns.device_bytes()));
        let ledger = Ledger::new(setup, trace);
        let tuner = policy.map(|policy| {
            let workers = (!is_shared).then(|| pool.active_workers());
            let tuner = Tuner::new(policy, Knobs::new(workers, host_ring.clone(), slots.clone()));
            ledger.reporter().set_tuning(tuner.tuning());
            tuner
        });
        let transfer = Transfer {
            layout: layout.clone(),
            columns,
            host_slots: host_ring,
            device_slots: slots.clone(),
            stream: device.named_stream("copy", Priority::High)?,
            pool,
            decoder,
            inbox,
            wanted,
            loaded,
        };
        let (outcome, ended) = (running.outcome(), running.stage("transfer"));
        let thread = transfer.start(batch_sampler.clone(), reader, move |result, transfer| {
            outcome(result);
            // In this order: once the stage is reported as ended, its slots are released.
            drop(transfer);
            ended();
        })?;
        running.join(thread);
        let memory_use = MemoryUse {
            pinned_bytes: (slot_bytes * host_slots + registered) as u64,
            device_bytes: (layout.bytes() * device_slots + resident) as u64,
        };
        Ok(Self {
            progress: Progress::new(
                Cursor::new(&batch_sampler, fingerprint),
                slots.in_hand().clone(),
                device.clone(),
            ),
            fingerprint,
            is_source,
            bad_samples: builder.bad_samples,
            transfer_mode: mode,
            memory_use,
            batch_sampler,
            dataset,
            layout,
            device: device.clone(),
            deliveries: Deliveries::new(to_consumer, slots.clone(), builder.held_limit),
            slots,
            current: None,
            epochs: builder.epochs,
            drop_limit: builder.drop_limit,
            running,
            ledger,
            tuner,
        })
    }
}

/// Reserves room for the description of a batch in every slot, so that loading a batch allocates nothing.
fn reserve_info(host_slots: &Ring<Pinned, Note>, device_slots: &SlotRing, layout: &Layout) -> Result<()> {
    let mut host = (0..host_slots.len()).map(|_| host_slots.acquire()).collect::<Result<Vec<_>>>()?;
    let mut device = (0..device_slots.len()).map(|_| device_slots.acquire()).collect::<Result<Vec<_>>>()?;
    let host = host.iter_mut().map(|slot| &mut slot.note_mut().info);
    for info in host.chain(device.iter_mut().map(|slot| slot.info_mut())) {
        info.ids.reserve(layout.capacity());
        info.extents.reserve(layout.spec().fields().len());
    }
    Ok(())
}
