//! Loaders for several devices of one process.

use feedline_core::{Error, ErrorKind, Result, World};
use feedline_device::Device;

use super::LoaderBuilder;
use crate::Loader;
use crate::decode::{WorkerPool, Workers};
use crate::numa::{Node, node_of};

impl<T: ?Sized> LoaderBuilder<T> {
    /// Builds a loader for each of `devices`, in this process. They share the data set and the workers, and
    /// each sample is read once: device `i` of `n` gets the samples of rank `i` in a world of `n`, so its
    /// batches depend on the options only. In a world of several processes, each with `n` devices, its rank
    /// is `rank * n + i`.
    ///
    /// The loaders do not wait for each other: each has its own slots, its own copy stream and its own thread
    /// that drives it. A slow device fills its slots and then occupies no more workers. Batch size, depth and
    /// budgets apply to each device.
    ///
    /// On a machine with devices on several NUMA nodes, each node has its own workers, which decode for its
    /// devices. [`workers`](Self::workers) counts the workers of all nodes together. A given
    /// [`pool`](Self::pool) is shared unchanged.
    ///
    /// ```
    /// use feedline::{Device, InMemory, Loader};
    /// let numbers = InMemory::new().field("number", [], (0..10).collect::<Vec<u8>>())?;
    /// let devices = [Device::new_host(), Device::new_host()];
    /// let mut loaders = Loader::builder(numbers).batch_size(2).build_each(&devices)?;
    /// let ids = |loader: &mut Loader| -> feedline::Result<Vec<u64>> {
    ///     let mut ids = Vec::new();
    ///     let compute = loader.device().stream()?;
    ///     for batch in loader.epoch(0)? {
    ///         ids.extend(batch?.wait_on(&compute)?.ids());
    ///     }
    ///     Ok(ids)
    /// };
    /// assert_eq!(ids(&mut loaders[0])?, [0, 1, 4, 5, 8]);
    /// assert_eq!(ids(&mut loaders[1])?, [2, 3, 6, 7, 9]);
    /// # Ok::<(), feedline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` without devices, or for a world that is too large; as [`build`](Self::build).
    pub fn build_each(self, devices: &[Device]) -> Result<Vec<Loader>> {
        let refuse = |why: &str| Error::new(ErrorKind::Config, why);
        if devices.is_empty() {
            return Err(refuse("there are no devices: give build_each one or more"));
        }
        self.options.workers.threads()?;
        let too_many = || refuse("the world is too large: it has 2^32 devices or more");
        let count = u32::try_from(devices.len()).map_err(|_| too_many())?;
        let size = self.options.world.size().checked_mul(count).ok_or_else(too_many)?;
        let pools = match &self.options.pool {
            Some(pool) => vec![pool.clone(); devices.len()],
            None => {
                let nodes: Vec<_> = devices.iter().map(node_of).collect();
                pools(self.options.workers, &nodes.iter().map(Option::as_ref).collect::<Vec<_>>())?
            }
        };
        let loader = |((device, pool), number): ((&Device, WorkerPool), u32)| {
            let world = World::new(self.options.world.rank() * count + number, size)?;
            self.clone().world(world).pool(&pool).build(device)
        };
        devices.iter().zip(pools).zip(0..count).map(loader).collect()
    }
}

/// The pool of each device: one shared pool, or one per node if the devices are on several nodes.
fn pools(workers: Workers, of: &[Option<&Node>]) -> Result<Vec<WorkerPool>> {
    let nodes: Vec<&Node> = of.iter().copied().flatten().collect();
    if nodes.len() < of.len() || nodes.iter().all(|node| *node == nodes[0]) {
        return Ok(vec![WorkerPool::new(workers)?; of.len()]);
    }
    let mut pools: Vec<(&Node, WorkerPool)> = Vec::new();
    for node in nodes {
        if pools.iter().all(|(other, _)| *other != node) {
            let devices = of.iter().filter(|of| **of == Some(node)).count();
            let workers = match workers {
                Workers::Count(all) => Workers::Count((all * devices / of.len()).max(1)),
                other => other,
            };
            // New threads may use the cores of the thread that starts them. `Auto` counts these cores.
            let _on = node.enter();
            pools.push((node, WorkerPool::new(workers)?));
        }
    }
    let pool = |of: &Option<&Node>| {
        let found = pools.iter().find(|(node, _)| Some(*node) == *of);
        found.map(|(_, pool)| pool.clone()).ok_or_else(|| {
            let why = "no pool was started for the NUMA node of a device: this is a bug in feedline, please \
                           report it";
            Error::new(ErrorKind::Stopped, why)
        })
    };
    of.iter().map(pool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::node;

    #[test]
    fn devices_share_one_pool_unless_they_are_on_several_nodes() {
        let (left, right) = (node(0, vec![0]), node(1, vec![0]));
        let sizes = |of: &[Option<&Node>], workers| -> Vec<usize> {
            pools(Workers::Count(workers), of).unwrap().iter().map(WorkerPool::workers).collect()
        };
        let (l, r) = (Some(&left), Some(&right));
        assert_eq!(sizes(&[l, l], 4), [4, 4]);
        assert_eq!(sizes(&[None, None, None], 4), [4, 4, 4]);
        assert_eq!(sizes(&[l, None], 4), [4, 4], "a device whose node is not known");
        assert_eq!(sizes(&[l, r, l, l], 8), [6, 2, 6, 6]);
        assert_eq!(sizes(&[l, r], 1), [1, 1]);
    }
}
