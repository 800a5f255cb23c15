//! Starting a loader: its slots, its threads and its channels.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crossbeam_channel::bounded;
use feedline_core::{BatchSampler, Dataset as _, Error, ErrorKind, Layout, Result, Sampler};
use feedline_device::device_slots::{Held, SlotRing};
use feedline_device::slots::Ring;
use feedline_device::zero_copy::StridedColumns;
use feedline_device::{BackendKind, Device, Pinned, Priority, Stream};

use super::{Loader, MemoryUse};
use crate::builder::LoaderOptions;
use crate::decode::{ActiveWorkers, Decoder, Filling, WorkerPool, start_filling};
use crate::device_map::{DeviceLanes, MapWork, Outcome, streams};
use crate::job::{HostInfo, Requests, SourceReader};
use crate::numa::{Node, node_of};
use crate::progress::Progress;
use crate::report::{Ledger, Setup};
use crate::shutdown::{Closers, Running};
use crate::trace::{LoaderTrace, Trace};
use crate::transfer::Transfer;
use crate::transfer_mode::{Chosen, ChosenMode, slot_bytes};
use crate::tune::Tuner;

impl Loader {
    pub(crate) fn start(
        builder: LoaderOptions,
        (mode, columns): Chosen,
        batch_sampler: BatchSampler,
        (layout, mapped): (Layout, Option<Layout>),
        device: &Device,
    ) -> Result<Self> {
        let (batch_sampler, layout) = (Arc::new(batch_sampler), Arc::new(layout));
        let delivered = mapped.map_or_else(|| layout.clone(), Arc::new);
        let trace = builder.trace.as_ref().map(Trace::loader);
        let map = builder.device_map.as_ref();
        let lanes = map.map(|map| map.lanes(builder.device_lanes, device, trace.as_ref())).transpose()?;
        let layouts = (&*layout, &*delivered);
        let reads_host = map.is_some_and(|map| map.reads_host);
        let host_readers = lanes.as_deref().filter(|_| reads_host).map(streams);
        let (memory_use, Slots { host: host_slots, copied, delivered: slots }) =
            allocate(&builder, columns.as_deref(), layouts, (device, host_readers.as_deref()))?;
        let pool = builder.start_pool(&mode)?;
        let requests = Arc::new(Requests::new(host_slots.len()));
        let (loaded, to_consumer) = bounded(slots.len());
        let stop = Arc::new(OnceLock::new());
        let closers = Closers {
            stop: stop.clone(),
            host_slots: host_slots.clone(),
            device_slots: vec![slots.clone(), copied.clone()],
            requests: requests.clone(),
        };
        let mut running = Running::new(closers, device.clone(), pool.clone());

        let len = batch_sampler.options().len;
        let reader = builder.input.reader(&batch_sampler, layout.capacity(), builder.last_batch);
        let dataset = builder.input.stable_dataset().map(|set| Arc::downgrade(set.inner()));
        let fingerprint = builder.fingerprint(len)?;
        let (content, recorder) = builder.open_record(&mode, &batch_sampler, &layout, fingerprint)?;
        let is_source = reader.is_some();
        let counts = (host_slots.len(), slots.len());
        let setup = setup(&builder, &mode, &batch_sampler, &layout, &pool, counts, device);
        let (ledger, tuning, filling) = observe(&builder, setup, trace.clone(), &pool, len)?;
        let host_fields = builder.host_fields()?;
        let reads_whole = builder.input.stable_dataset().is_some_and(|set| set.about().is_whole);
        let (ended, owner) = (running.stage("decode"), device.clone());
        let decoder = Arc::new(Decoder {
            // The last thread that uses the decoder drops the data set with it.
            input: Some(builder.input.of_workers(columns.as_deref())),
            batch_sampler: batch_sampler.clone(),
            layout: layout.clone(),
            bad_samples: builder.bad_samples,
            map_batch: builder.map_batch,
            content,
            host_fields,
            reads_whole,
            rest: columns.as_ref().and_then(|columns| columns.rest()),
            workers: pool.active(),
            requests: requests.clone(),
            stop,
            filling,
            trace,
            row_ns: Default::default(),
            prefetch: Default::default(),
            splits: Default::default(),
            on_end: Box::new(move |dropped| {
                dropped.unwrap_or_else(|error| owner.report(error));
                ended();
            }),
        });
        // Without a device map, the consumer is the next stage.
        let (lanes, next, outcome): (_, _, Outcome) = match lanes {
            None => (None, loaded, Box::new(running.outcome())),
            Some(lanes) => {
                let (batch_sampler, requests) = (batch_sampler.clone(), requests.clone());
                let (layouts, device) = ((layout.clone(), delivered.clone()), device.clone());
                let work = MapWork { slots: slots.clone(), layouts, batch_sampler, requests, device };
                let room = if reads_host { host_slots.len() } else { copied.len() };
                let (lanes, to_lanes, outcome) = DeviceLanes::new(lanes, work, room, loaded, &mut running)?;
                (Some(lanes), to_lanes, outcome)
            }
        };
        // On the host a copy also takes the time of a core.
        let counts_copies = device.kind() == BackendKind::Cuda && columns.is_none();
        let transfer = Transfer {
            columns,
            host_slots,
            device_slots: copied,
            stream: device.named_stream("copy", Priority::High)?,
            pool: pool.clone(),
            decoder: decoder.clone(),
            next,
            lanes_read_host: reads_host,
            copies: counts_copies.then(|| ledger.reporter().copies().clone()),
        };
        start_threads(&mut running, (transfer, outcome), &decoder, &pool, reader)?;
        lanes.map_or(Ok(()), |lanes| lanes.start(&mut running))?;
        let record = recorder.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (cursor, unreleased) =
            (feedline_core::Cursor::new(&batch_sampler, fingerprint), slots.unreleased().clone());
        let reporter = ledger.reporter().clone();
        Ok(Self {
            progress: Progress::new(
                cursor,
                (unreleased, builder.bad_samples),
                device.clone(),
                reporter,
                record,
            ),
            recorder,
            fingerprint,
            is_source,
            transfer_mode: mode,
            memory_use,
            batch_sampler,
            ids_again: Vec::new(),
            dataset,
            layout,
            delivered,
            device: device.clone(),
            loaded: to_consumer,
            held_timeout: builder.held_timeout,
            held: (Held::Free, Duration::ZERO),
            slots,
            requests,
            current: None,
            epochs: builder.epochs,
            drop_timeout: builder.drop_timeout,
            running,
            ledger,
            tuning,
        })
    }
}

/// The tuner of [`Workers::Auto`](crate::Workers::Auto), and the workers that it sets.
type Tuning = (Tuner, ActiveWorkers);

/// Connects the ledger with the tuner of [`Workers::Auto`](crate::Workers::Auto) and the filler.
fn observe(
    builder: &LoaderOptions,
    setup: Setup,
    trace: Option<LoaderTrace>,
    pool: &WorkerPool,
    len: u64,
) -> Result<(Ledger, Option<Tuning>, Option<Filling>)> {
    let ledger = Ledger::new(setup, trace);
    let tuning = builder.tunes_workers(setup.is_zero_copy).then(|| {
        let tuner = Tuner::new(setup.workers, setup.device_slots);
        ledger.reporter().set_tuning(tuner.tuning());
        (tuner, pool.active_workers())
    });
    let filler = builder.filler.clone();
    let filling = filler
        .map(|filler| Ok(Filling::new((filler, builder.lanes), builder.input.fingerprint()?, len)))
        .transpose()?;
    if let Some(filling) = &filling {
        ledger.reporter().set_filler(filling.counts().clone());
    }
    Ok((ledger, tuning, filling))
}

/// Starts `fl-transfer`, and the threads of a filler.
fn start_threads(
    running: &mut Running,
    (transfer, outcome): (Transfer, Outcome),
    decoder: &Arc<Decoder>,
    pool: &WorkerPool,
    reader: Option<Box<SourceReader>>,
) -> Result<()> {
    let ended = running.stage("transfer");
    let thread = transfer.start(reader, move |result, transfer| {
        outcome(result);
        // The order matters: the slots are released only after the stage is reported as ended.
        drop(transfer);
        ended();
    })?;
    running.join(thread);
    start_filling(decoder, pool)?.into_iter().for_each(|thread| running.join(thread));
    Ok(())
}

/// The setup that the report shows; `slots` are the numbers of host and device slots.
fn setup(
    builder: &LoaderOptions,
    mode: &ChosenMode,
    batch_sampler: &BatchSampler,
    layout: &Layout,
    pool: &WorkerPool,
    slots: (usize, usize),
    device: &Device,
) -> Setup {
    let about = builder.input.about();
    let blocks = about.block_shuffle;
    let shares_queues = builder.device_map.is_some() && device.kind() == BackendKind::Cuda;
    Setup {
        workers: pool.workers().div_ceil(builder.threads_per_worker),
        threads_per_worker: builder.threads_per_worker,
        host_slots: slots.0,
        device_slots: slots.1,
        batch_size: layout.capacity(),
        batch_bytes: layout.bytes(),
        map_lanes: if builder.device_map.is_some() { builder.device_lanes } else { 0 },
        lanes_read_host: builder.reads_host(),
        lanes_use_cpu: builder.lanes_use_cpu,
        has_few_queues: shares_queues
            && are_few(std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().as_deref()),
        is_source: builder.input.stable_dataset().is_none(),
        is_zero_copy: mode.needs_no_decoding(),
        is_under_one_lock: builder.is_under_one_lock,
        table_rows: about.table_rows,
        plain_shuffle: builder.plain_shuffle(batch_sampler),
        block_shuffle: blocks.filter(|(_, window)| match batch_sampler.options().sampler.of_groups() {
            Sampler::Shuffle => true,
            // The windows of `shuffle` do not depend on the cache.
            _ => builder.plain_shuffle(batch_sampler).is_some_and(|(_, plain)| plain > *window),
        }),
        // The window is half of the cache.
        groups_held: blocks.map(|(block, window)| (window / block.max(1)).max(1).saturating_mul(2)),
    }
}

/// Whether `variable`, the value of `CUDA_DEVICE_MAX_CONNECTIONS`, leaves CUDA its default of 8 work queues
/// or fewer. nvJPEG alone has 14 streams.
fn are_few(variable: Option<&str>) -> bool {
    variable.and_then(|value| value.trim().parse::<u32>().ok()).is_none_or(|queues| queues <= 8)
}

/// On the host device, the two slots of a batch of more bytes exchange their memory, and a smaller batch is
/// copied: it stays in the cache of the worker that fills it.
///
/// Handed over, batches of rows of 784 bytes to 150 KB came 0.7 to 1.0 times as fast at 100 to 200 KB, 0.8 to
/// 1.6 at 260 to 400 KB, 1.0 to 1.8 at 520 to 800 KB, 0.6 to 1.5 at 1 MB, 1.0 to 2.3 at 1.2 to 10 MB: medians
/// of seven runs in turns, two workers, on two cores of an EPYC that other work shared, 2026-11-28.
const COPIED: usize = 512 << 10;

/// The slots of a loader.
struct Slots {
    host: Ring<Pinned, HostInfo>,
    /// The slots that batches are copied into. If nothing is copied, the slots that the consumer gets.
    copied: Arc<SlotRing>,
    /// The slots that the consumer gets. With a device map they are not the copied ones.
    delivered: Arc<SlotRing>,
}

/// Allocates the slots, with room for the info of a batch in each, so that loading a batch allocates nothing.
/// `layouts` are the layouts of batches as workers fill them, and as the consumer gets them. `host_readers`
/// are the streams that read host slots; without them the copy stream does.
fn allocate(
    builder: &LoaderOptions,
    columns: Option<&StridedColumns>,
    (layout, delivered): (&Layout, &Layout),
    (device, host_readers): (&Device, Option<&[Stream]>),
) -> Result<(MemoryUse, Slots)> {
    let slot_bytes = slot_bytes(layout, columns);
    let host_count = builder.host_slots(layout);
    let pinned = {
        // Memory lies on the node of the core whose thread touches it first.
        let node = node_of(device);
        let _on = node.as_ref().and_then(Node::enter);
        let pinned = |slot| {
            let pinned = Pinned::new(device, slot_bytes)?.named(&format!("host slot {slot}"));
            host_readers.map_or(Ok(()), |streams| pinned.set_readers(streams))?;
            Ok(pinned)
        };
        (0..host_count).map(pinned).collect::<Result<Vec<_>>>()?
    };
    let host_slots = Ring::<Pinned, HostInfo>::new(pinned);
    let ring = |count, layout: &Layout| SlotRing::new(device, count, layout.bytes());
    let (copied, slots) = match (&builder.device_map, host_readers) {
        (None, _) => {
            let slots = ring(builder.copied_slots(layout), layout)?;
            if layout.bytes() > COPIED {
                slots.take_over_host_slots();
            }
            (slots.clone(), slots)
        }
        (Some(_), None) => {
            (ring(builder.copied_slots(layout), layout)?, ring(builder.device_slots(delivered), delivered)?)
        }
        (Some(_), Some(_)) => {
            let slots = ring(builder.device_slots(delivered), delivered)?;
            (slots.clone(), slots)
        }
    };
    let device_rings = if Arc::ptr_eq(&copied, &slots) { vec![&slots] } else { vec![&slots, &copied] };
    let mut host = (0..host_count).map(|_| host_slots.acquire()).collect::<Result<Vec<_>>>()?;
    let mut on_device = Vec::new();
    for ring in &device_rings {
        on_device.extend((0..ring.len()).map(|_| ring.acquire()).collect::<Result<Vec<_>>>()?);
    }
    let rows = layout.capacity();
    let reserve = |ids: &mut Vec<u64>| {
        ids.try_reserve(rows).map_err(|_| {
            let why = format!("no memory for the ids of a batch of {rows} samples: take a smaller batch");
            Error::new(ErrorKind::Budget, why)
        })
    };
    host.iter_mut().try_for_each(|slot| reserve(&mut slot.info_mut().draws))?;
    let infos = host.iter_mut().map(|slot| &mut slot.info_mut().batch);
    for info in infos.chain(on_device.iter_mut().map(|slot| slot.info_mut())) {
        reserve(&mut info.ids)?;
        info.extents.reserve(layout.spec().fields().len());
    }
    drop((host, on_device));
    let (registered, resident) = columns.map_or((0, 0), |columns| (columns.bytes(), columns.device_bytes()));
    let memory_use = MemoryUse {
        pinned_bytes: (slot_bytes * host_count + registered) as u64,
        device_bytes: (device_rings.iter().map(|ring| ring.bytes()).sum::<usize>() + resident) as u64,
    };
    Ok((memory_use, Slots { host: host_slots, copied, delivered: slots }))
}

#[cfg(test)]
mod tests {
    use super::are_few;

    #[test]
    fn cuda_has_few_work_queues_unless_the_variable_says_more() {
        for (variable, few) in
            [(None, true), (Some("8"), true), (Some("1"), true), (Some("many"), true), (Some("32"), false)]
        {
            assert_eq!(are_few(variable), few, "{variable:?}");
        }
    }
}
