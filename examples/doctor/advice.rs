//! Advice in words: what will limit training, and what to change.

use super::gpu::{Gpu, Link};
use super::host::Host;
use super::libraries::Library;

/// Decode threads that usually keep a training step fed.
const ENOUGH_CORES: usize = 8;

/// Default max of a loader's pinned memory.
const PINNED: u64 = 2 << 30;

pub fn advise(host: &Host, gpu: Option<&Gpu>, libraries: &[Library]) -> Vec<String> {
    let mut advice = Vec::new();
    match gpu {
        Some(gpu) => of_gpu(gpu, host, &mut advice),
        None => advice.push(
            "No GPU can be used: everything runs on the host device, which is for tests. Training will be \
             limited by the cores."
                .to_owned(),
        ),
    }
    of_host(host, gpu.is_some(), &mut advice);
    let found_driver =
        libraries.iter().any(|library| library.name == "driver library" && library.path.is_some());
    if gpu.is_none() && found_driver {
        advice.push(
            "The driver's library is there, but no GPU answers: check nvidia-smi, and that the container \
             may see the device."
                .to_owned(),
        );
    }
    if gpu.is_some() {
        for library in libraries.iter().filter(|library| library.path.is_none()) {
            advice.push(format!("{} was not found: {}.", library.name, library.missing));
        }
    }
    advice
}

fn of_gpu(gpu: &Gpu, host: &Host, advice: &mut Vec<String>) {
    if let Some(link) = gpu.links.iter().find(|link| link.width < link.max_width) {
        advice.push(format!(
            "The GPU at {} has fewer lanes than it could: {link}. Look at the slot and the riser.",
            link.address
        ));
    }
    if let Some(rate) = gpu.pinned_rate {
        advice.push(format!(
            "Copies reach {:.0} GB/s: batches of 38.5 MB (256 images of 224 x 224 x 3 bytes) arrive at most \
             {:.0} times a second. Send bytes and widen them on the device; f32 pixels take four times as \
             long.",
            rate / 1e9,
            rate / 38.5e6
        ));
        let could = gpu.links.iter().filter_map(|link| {
            let speed = link.max_speed?;
            Some(could_move(speed, link.max_width?) * f64::from(u8::from(Link::generation(speed) > 0)))
        });
        if let Some(max) = could.reduce(f64::max).filter(|max| rate < 0.6 * max) {
            advice.push(format!(
                "That is little for this link, which could move about {:.0} GB/s: another process may use \
                 it, or \
                 the cores are on another NUMA node than the GPU (start with numactl).",
                max / 1e9
            ));
        }
        if let Some(copy) = host.memory_copy_rate.filter(|copy| *copy < rate) {
            advice.push(format!(
                "One thread copies memory at {:.1} GB/s: it takes {:.0} workers to fill slots as fast as \
                 the link \
                 empties them, before any decoding.",
                copy / 1e9,
                (rate / copy).ceil()
            ));
        }
    }
    if gpu.overlap.is_some_and(|share| share < 0.5) {
        advice.push(
            "Copies hardly run beside kernels: is CUDA_LAUNCH_BLOCKING set, or another process on the \
             GPU? Until \
             that changes, prefetching to the device gains little."
                .to_owned(),
        );
    }
}

fn of_host(host: &Host, has_gpu: bool, advice: &mut Vec<String>) {
    if host.usable_cores < ENOUGH_CORES && has_gpu {
        advice.push(format!(
            "{} cores may decode: for images that is little. Store them decoded or smaller, cache them, \
             or use \
             zero copy, which needs no decoding.",
            host.usable_cores
        ));
    }
    if host.usable_cores < host.cores {
        advice.push(format!(
            "This process may use {} of {} cores (affinity or the cgroup's quota): raise the limit of the \
             container or the job if decoding is slow.",
            host.usable_cores, host.cores
        ));
    }
    if host.numa_nodes > 1 {
        advice.push(format!(
            "The machine has {} NUMA nodes: run each process on the node of its GPU (numactl --cpunodebind).",
            host.numa_nodes
        ));
    }
    if let Some(limit) = host.memlock_bytes.filter(|limit| *limit < PINNED) {
        advice.push(format!(
            "At most {:.0} MiB may be locked in memory (ulimit -l). CUDA's pinned memory is not counted, but \
             mapped files that are locked are.",
            limit as f64 / f64::from(1 << 20)
        ));
    }
    if let Some(rate) = host.read_rate.filter(|rate| *rate < 0.5e9) {
        advice.push(format!(
            "Files are read at {:.2} GB/s by one thread: the first epoch will wait for them. Keep the set \
             in the \
             page cache, or on a local disk.",
            rate / 1e9
        ));
    }
}

/// Bytes per second of a link, without the overhead of packets.
fn could_move(speed: f64, width: u32) -> f64 {
    let coding = if speed >= 8.0 { 128.0 / 130.0 } else { 0.8 };
    speed * 1e9 / 8.0 * coding * f64::from(width) * 0.9
}
