//! The host: cores, NUMA nodes, limits, memory and files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use feedline::Device;
use feedline_report::measure;
use serde::Serialize;

/// Bytes of the file that is read.
const FILE: usize = 128 << 20;

/// The findings.
#[derive(Debug, Serialize)]
pub struct Host {
    /// Cores of the machine.
    pub cores: usize,
    /// Cores that this process may use: affinity and the quota of its cgroup.
    pub usable_cores: usize,
    /// The quota of the cgroup in cores.
    pub quota: Option<f64>,
    pub numa_nodes: usize,
    pub memory_bytes: Option<u64>,
    /// Max bytes that may be locked; `None` without a limit.
    pub memlock_bytes: Option<u64>,
    /// Bytes per second of one thread that copies memory.
    pub memory_copy_rate: Option<f64>,
    pub read_folder: PathBuf,
    /// Bytes per second of one thread that reads a file after it was dropped from the page cache.
    pub read_rate: Option<f64>,
    /// The reason why it could not be measured.
    pub read_error: Option<String>,
}

impl Host {
    pub fn look(folder: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cores = text("/proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
        let usable_cores = available_parallelism().map_or(1, usize::from);
        let read = read_rate(folder);
        Self {
            cores: cores.max(usable_cores),
            usable_cores,
            quota: quota(&text("/sys/fs/cgroup/cpu.max")),
            numa_nodes: numa_nodes(),
            memory_bytes: kib(&text("/proc/meminfo"), "MemTotal:"),
            memlock_bytes: memlock(&text("/proc/self/limits")),
            memory_copy_rate: measure::copy_rate(
                &Device::new_host(),
                32 << 20,
                measure::From::Pinned,
                Duration::from_millis(300),
            )
            .ok(),
            read_folder: folder.to_owned(),
            read_rate: read.as_ref().ok().copied(),
            read_error: read.err().map(|error| error.to_string()),
        }
    }

    /// Lines of the table: name and value.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let gb = |rate: Option<f64>| {
            rate.map_or("not measured".to_owned(), |rate| format!("{:.1} GB/s", rate / 1e9))
        };
        let quota = self.quota.map_or(String::new(), |quota| format!(", cgroup quota {quota:.1}"));
        let gib = |bytes: Option<u64>| {
            bytes.map_or("no limit".to_owned(), |bytes| {
                let gib = bytes as f64 / f64::from(1 << 30);
                if gib < 0.1 { format!("{:.1} MiB", 1024.0 * gib) } else { format!("{gib:.1} GiB") }
            })
        };
        let read = match &self.read_error {
            Some(error) => format!("not measured in {}: {error}", self.read_folder.display()),
            None => format!("{} by one thread, from {}", gb(self.read_rate), self.read_folder.display()),
        };
        vec![
            ("cores", format!("{} usable of {}{quota}", self.usable_cores, self.cores)),
            ("NUMA nodes", self.numa_nodes.to_string()),
            ("memory", self.memory_bytes.map_or("unknown".to_owned(), |bytes| gib(Some(bytes)))),
            ("page-lock limit", gib(self.memlock_bytes)),
            ("memory copy", format!("{} by one thread", gb(self.memory_copy_rate))),
            ("file read", read),
        ]
    }
}

/// The quota of `cpu.max`, such as "150000 100000", in cores.
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    (period > 0.0).then(|| quota / period)
}

fn numa_nodes() -> usize {
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let nodes = fs::read_dir("/sys/devices/system/node").map(|entries| {
        entries.flatten().filter(|entry| is_node(&entry.file_name().to_string_lossy())).count()
    });
    nodes.unwrap_or(1).max(1)
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The soft limit of locked memory; `None` if there is none.
fn memlock(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("Max locked memory"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Drops the pages of a file from the page cache.
#[cfg(target_os = "linux")]
fn drop_from_cache(file: &fs::File) -> std::io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Fails: a read would be measured from memory.
#[cfg(not(target_os = "linux"))]
fn drop_from_cache(_: &fs::File) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Writes a file, drops it from the page cache, and reads it.
fn read_rate(folder: &Path) -> std::io::Result<f64> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut block: Vec<u8> =
        (0..1_u32 << 20).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for _ in 0..FILE / block.len() {
        file.write_all(&block)?;
    }
    file.as_file().sync_all()?;
    drop_from_cache(file.as_file())?;
    let mut reader = fs::File::open(file.path())?;
    let start = Instant::now();
    let mut bytes = 0;
    loop {
        match reader.read(&mut block)? {
            0 => break,
            count => bytes += count,
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64().max(1e-9))
}
