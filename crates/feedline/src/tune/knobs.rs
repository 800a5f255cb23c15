//! The knobs of a running loader.
//!
//! All threads and slots exist from the start. A worker whose number is too high takes no work; a parked slot
//! is held here by its lease, so that the rest of the loader is not affected.

use feedline_device::Pinned;
use feedline_device::slot::{SlotRing, WriteLease};
use feedline_slots::{FillLease, Ring};

use super::Setting;
use crate::decode::{ActiveWorkers, HostInfo};

/// The knobs of one loader.
pub(crate) struct Knobs {
    /// `None` for a pool that other loaders share.
    workers: Option<ActiveWorkers>,
    host_slots: Ring<Pinned, HostInfo>,
    device_slots: SlotRing,
    parked_host: Vec<FillLease<Pinned, HostInfo>>,
    parked_device: Vec<WriteLease>,
    /// The number of device slots in use, once enough are parked.
    depth: usize,
}

impl Knobs {
    /// The knobs of a loader that uses all of them.
    pub(crate) fn new(
        workers: Option<ActiveWorkers>,
        host_slots: Ring<Pinned, HostInfo>,
        device_slots: SlotRing,
    ) -> Self {
        let depth = device_slots.len();
        let (parked_host, parked_device) = (Vec::new(), Vec::new());
        Self { workers, host_slots, device_slots, parked_host, parked_device, depth }
    }

    /// Sets both knobs. A smaller depth takes effect as slots become free. `true` if a host slot came into
    /// use.
    pub(crate) fn set(&mut self, Setting { workers, depth }: Setting) -> bool {
        if let Some(active) = &self.workers {
            active.set(workers);
        }
        self.depth = depth;
        let (host, device) = self.unused();
        let has_room = self.parked_host.len() > host;
        self.parked_host.truncate(host);
        self.parked_device.truncate(device);
        self.park();
        has_room
    }

    /// Parks free slots, until no more slots are in use than the depth requires. An error ends the loader;
    /// the transfer thread finds it too.
    pub(crate) fn park(&mut self) {
        let (host, device) = self.unused();
        while self.parked_host.len() < host {
            let Ok(Some(lease)) = self.host_slots.try_acquire() else { break };
            self.parked_host.push(lease);
        }
        while self.parked_device.len() < device {
            let Ok(Some(lease)) = self.device_slots.try_acquire() else { break };
            self.parked_device.push(lease);
        }
    }

    /// Whether a device slot is parked.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked_device.is_empty()
    }

    /// The numbers of host and device slots to park. One more host slot than device slots stays in use, as
    /// without tuning.
    fn unused(&self) -> (usize, usize) {
        let unused = |all: usize, used: usize| all.saturating_sub(used);
        (unused(self.host_slots.len(), self.depth + 1), unused(self.device_slots.len(), self.depth))
    }
}
