//! Collectives on streams: NCCL between GPUs, TCP between hosts as devices.
//!
//! They run on a stream of their own and overlap with work of the compute stream: see
//! [`Collectives::overlap`].
//!
//! | part | file |
//! | --- | --- |
//! | the calls, and their order with the compute stream | `mod.rs` |
//! | reductions and copies over TCP, for the host device | `host.rs` |
//! | NCCL: its functions, and a communicator | `nccl/` |

mod host;
#[cfg(feature = "nccl")]
mod nccl;

use std::sync::{Arc, Mutex, PoisonError};

use feedline_core::{DType, Element, Result, World};
use feedline_device::backend::{Span, StreamId, Task, TypedSpan};
use feedline_device::{BackendKind, Buffer, Event, Input, Output, Priority, Stream, View, ViewMut, submit};

use crate::{Group, config};
use host::Hosts;

/// How a reduction combines the values of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their mean.
    Average,
}

/// Collectives of all ranks, in order with one compute stream.
///
/// All ranks make the same calls in the same order, with the same lengths. Calls queue work and return; if a
/// rank does not take part, the others wait on the device. When the run fails, they stop waiting, their
/// results are undefined, and [`Group::error`] has the cause. A host device is then lost; on a GPU the
/// communicator is aborted.
///
/// On the host device a reduction adds the ranks' values in the order of ranks and gives the same bits in
/// every run. NCCL chooses its own order.
///
/// On the host device all `Collectives` of a group share one connection per rank: those on different streams
/// must not run at the same time. If calls of different sets meet, the run fails.
#[derive(Clone)]
pub struct Collectives {
    inner: Arc<Inner>,
}

struct Inner {
    world: World,
    compute: Stream,
    /// The stream of the collectives, and the events of its fork and join.
    stream: Stream,
    forked: Event,
    joined: Event,
    transport: Transport,
    /// The one element that a barrier reduces.
    token: Mutex<Buffer<f32>>,
}

/// The transport between the ranks.
enum Transport {
    /// A world of one.
    Alone,
    /// TCP, for devices whose memory is host memory.
    Hosts(Hosts),
    /// NCCL, for GPUs.
    #[cfg(feature = "nccl")]
    Gpus(nccl::Communicator),
}

/// The operation of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Reduce(Reduce),
    /// The rank with this number sends to all.
    Broadcast(u32),
    /// Each rank's input is copied to the output of all ranks.
    Gather,
}

impl Collectives {
    /// The collectives of `group` for work on `compute`. On GPUs, blocks until all ranks have called it.
    ///
    /// # Errors
    /// `Config` if the ranks have different kinds of device; `Unavailable` without NCCL, or in a build
    /// without the feature `nccl`; `Rank` if a rank does not come within the group's limit; a device failure.
    pub fn new(group: &Group, compute: &Stream) -> Result<Self> {
        let (device, world) = (compute.device(), group.world());
        let stream = device.named_stream("collectives", Priority::High)?;
        let transport = if world.size() == 1 {
            Transport::Alone
        } else {
            group.agree("the kind of device", &format!("{:?}", compute.device().kind()))?;
            match compute.device().kind() {
                #[cfg(feature = "nccl")]
                BackendKind::Cuda => Transport::Gpus(nccl::Communicator::new(group, &device)?),
                #[cfg(not(feature = "nccl"))]
                BackendKind::Cuda => {
                    let why =
                        "this build has no collectives for GPUs: build feedline-dist with the feature nccl";
                    return Err(feedline_core::Error::new(feedline_core::ErrorKind::Unavailable, why));
                }
                _ => Transport::Hosts(Hosts {
                    shared: group.shared().clone(),
                    number: group.next_collectives(),
                }),
            }
        };
        let token = Mutex::new(Buffer::new(compute, 1)?);
        let (forked, joined) = (device.event()?, device.event()?);
        let inner = Inner { world, compute: compute.clone(), stream, forked, joined, transport, token };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Rank and number of ranks.
    pub fn world(&self) -> World {
        self.inner.world
    }

    /// The transport between the ranks, for logs.
    pub fn describe(&self) -> String {
        match &self.inner.transport {
            Transport::Alone => "one rank".to_owned(),
            Transport::Hosts(_) => format!("{} ranks over TCP", self.world().size()),
            #[cfg(feature = "nccl")]
            Transport::Gpus(communicator) => {
                format!("{} ranks, {}", self.world().size(), communicator.describe())
            }
        }
    }

    /// Runs `work`. Its collectives overlap with the work that it submits to the compute stream. At the end
    /// the compute stream waits for them; the host does not.
    ///
    /// The memory of a collective stays borrowed until the end, so nothing reads it before.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use feedline_device::{Buffer, Device};
    /// # use feedline_dist::{Collectives, Group, Launch, Reduce};
    /// # let group = Group::join(&Launch::single(), Duration::from_secs(5))?;
    /// # let stream = Device::new_host().stream()?;
    /// # let collectives = Collectives::new(&group, &stream)?;
    /// # let (mut first, mut last) = (Buffer::<f32>::new(&stream, 8)?, Buffer::<f32>::new(&stream, 8)?);
    /// collectives.overlap(|overlap| {
    ///     // queue the backward pass of the last layer here; then its gradients travel ...
    ///     overlap.all_reduce([last.view_mut()], Reduce::Average)?;
    ///     // ... while that of the first layer runs
    ///     overlap.all_reduce([first.view_mut()], Reduce::Average)
    /// })?;
    /// // queue the update here
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of `work`; a device failure.
    pub fn overlap<'v, T>(&self, work: impl FnOnce(&mut Overlap<'_, 'v>) -> Result<T>) -> Result<T> {
        let mut overlap = Overlap { inner: &self.inner, forked: false, views: std::marker::PhantomData };
        let done = work(&mut overlap);
        // Joins after an error too, since a collective may still use the memory. After a panic, `drop` does
        // it.
        let joined = overlap.join();
        done.and_then(|done| joined.map(|()| done))
    }

    /// Replaces `values` by their sum or mean over all ranks.
    ///
    /// # Errors
    /// `Config` for a view of another stream; a device failure.
    pub fn all_reduce(&self, values: ViewMut<'_, f32>, reduce: Reduce) -> Result<()> {
        self.overlap(|overlap| overlap.all_reduce([values], reduce))
    }

    /// Replaces `values` by those of rank `root`.
    ///
    /// # Errors
    /// `Config` for a view of another stream, or if there is no such rank; a device failure.
    pub fn broadcast<T: Element>(&self, values: ViewMut<'_, T>, root: u32) -> Result<()> {
        self.overlap(|overlap| overlap.broadcast(values, root))
    }

    /// Writes the `part` of each rank to `all`, in the order of ranks.
    ///
    /// # Errors
    /// `Config` for a view of another stream, or if `all` is not as long as all parts; a device failure.
    pub fn all_gather<T: Element>(&self, part: View<'_, T>, all: ViewMut<'_, T>) -> Result<()> {
        self.overlap(|overlap| overlap.all_gather(part, all))
    }

    /// Makes the compute stream wait, on the device, until the streams of all ranks have reached this call.
    ///
    /// # Errors
    /// A device failure.
    pub fn barrier(&self) -> Result<()> {
        let mut token = self.inner.token.lock().unwrap_or_else(PoisonError::into_inner);
        self.all_reduce(token.view_mut(), Reduce::Sum)
    }
}

/// Collectives that overlap with work of the compute stream; see [`Collectives::overlap`].
pub struct Overlap<'a, 'v> {
    inner: &'a Arc<Inner>,
    /// Whether the collectives' stream has work that the compute stream must wait for.
    forked: bool,
    views: std::marker::PhantomData<fn(&'v ()) -> &'v ()>,
}

impl<'v> Overlap<'_, 'v> {
    /// Starts to replace each of `values` by its sum or mean over all ranks, after the work submitted to the
    /// compute stream so far. One call with several views is faster than several calls.
    ///
    /// # Errors
    /// As for [`Collectives::all_reduce`].
    pub fn all_reduce<const N: usize>(
        &mut self,
        values: [ViewMut<'v, f32>; N],
        reduce: Reduce,
    ) -> Result<()> {
        let values = values.map(Output::from);
        self.start("all-reduce", Call::Reduce(reduce), &[], &values)
    }

    /// Starts to replace `values` by those of rank `root`.
    ///
    /// # Errors
    /// As for [`Collectives::broadcast`].
    pub fn broadcast<T: Element>(&mut self, values: ViewMut<'v, T>, root: u32) -> Result<()> {
        let size = self.inner.world.size();
        if root >= size {
            return Err(config(format!("broadcast from rank {root}: ranks are 0 to {}", size - 1)));
        }
        self.start("broadcast", Call::Broadcast(root), &[], &[values.into()])
    }

    /// Starts to write the `part` of each rank to `all`.
    ///
    /// # Errors
    /// As for [`Collectives::all_gather`].
    pub fn all_gather<T: Element>(&mut self, part: View<'v, T>, all: ViewMut<'v, T>) -> Result<()> {
        let size = self.inner.world.size() as usize;
        if part.len().checked_mul(size) != Some(all.len()) {
            let (part, all) = (part.len(), all.len());
            return Err(config(format!("all-gather: {size} parts of {part} elements do not make {all}")));
        }
        self.start("all-gather", Call::Gather, &[part.into()], &[all.into()])
    }

    fn start(
        &mut self,
        name: &'static str,
        call: Call,
        inputs: &[Input<'v>],
        outputs: &[Output<'v>],
    ) -> Result<()> {
        let inner = self.inner;
        let is_alone = matches!(inner.transport, Transport::Alone);
        if is_alone && call != Call::Gather {
            // A world of one still checks the views.
            return submit(&inner.compute, name, inputs, outputs, |_| Ok(()));
        }
        // Set before the work is queued: an error below may leave part of it queued.
        self.forked = true;
        submit(&inner.compute, name, inputs, outputs, |submission| {
            inner.order(&inner.forked, submission.stream, StreamId::from(&inner.stream))?;
            match &inner.transport {
                #[cfg(feature = "nccl")]
                Transport::Gpus(communicator) => {
                    // A recorded step uses the communicator as long as its graph lives.
                    inner.compute.keep_with_graph(|| inner.clone());
                    communicator.call(&inner.stream, call, inputs, outputs)
                }
                Transport::Alone => inner.on_hosts(name, call, None, inputs, outputs),
                Transport::Hosts(hosts) => inner.on_hosts(name, call, Some(hosts.clone()), inputs, outputs),
            }
        })
    }

    fn join(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.forked) {
            return Ok(());
        }
        let inner = self.inner;
        let joined = submit(&inner.compute, "a join of collectives", &[], &[], |submission| {
            inner.order(&inner.joined, StreamId::from(&inner.stream), submission.stream)
        });
        if joined.is_err() {
            // The borrow of the collectives' memory ends here, so their work must have ended too.
            let _ = inner.stream.synchronize();
        }
        joined
    }
}

impl Drop for Overlap<'_, '_> {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            self.inner.compute.device().report(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The communicator ends after its work. A run that has failed has aborted it.
        #[cfg(feature = "nccl")]
        if let Transport::Gpus(communicator) = &self.transport
            && !communicator.has_failed()
            && let Err(error) = self.stream.synchronize()
        {
            self.compute.device().report(error);
        }
    }
}

impl Inner {
    /// Makes `to` wait for the work submitted to `from` so far. In a recorded step this adds `to` to the
    /// recording.
    fn order(&self, event: &Event, from: StreamId, to: StreamId) -> Result<()> {
        let device = self.compute.device();
        // SAFETY: the event and the streams belong to this device; `self` and the submission keep them alive.
        unsafe { feedline_device::backend(&device).record(event.into(), from) }?;
        // SAFETY: as above.
        unsafe { feedline_device::backend(&device).wait(to, event.into()) }
    }

    /// Runs a collective of devices whose memory is host memory, on the collectives' stream.
    fn on_hosts(
        &self,
        name: &'static str,
        call: Call,
        hosts: Option<Hosts>,
        inputs: &[Input<'_>],
        outputs: &[Output<'_>],
    ) -> Result<()> {
        // Only reductions compute; the others move bytes.
        let typed = |span: Span, dtype: DType| -> TypedSpan {
            span.of(if matches!(call, Call::Reduce(_)) { dtype } else { DType::U8 })
        };
        let count = outputs.len();
        let task = Task::new(
            name,
            inputs.iter().map(|input| typed(input.span(), input.dtype())),
            outputs.iter().map(|output| typed(output.span(), output.dtype())),
            move |memory| {
                if let Err(error) = host::run(call, hosts.as_ref(), memory, count) {
                    // Loses the device, like a failed collective on a GPU: its memory is undefined now.
                    std::panic::resume_unwind(Box::new(error));
                }
            },
        )?;
        let device = self.compute.device();
        // SAFETY: the spans are borrowed until the compute stream waits for this work (`Overlap::join`), and
        // buffers and slots drain that stream before they free memory. This stream waits for all work that
        // was submitted to the compute stream before (`order`), and the borrow keeps later work off the
        // memory.
        unsafe { feedline_device::backend(&device).run(StreamId::from(&self.stream), task) }
    }
}

impl std::fmt::Debug for Collectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collectives({})", self.describe())
    }
}

impl std::fmt::Debug for Overlap<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Overlap(forked: {})", self.forked)
    }
}

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Collectives>();
};
