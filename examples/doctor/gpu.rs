//! The first GPU: driver, link, copy rates, and whether copies run beside kernels.

use std::fs;
use std::path::Path;
use std::time::Duration;

use feedline::{Device, Result};
use feedline_device::Readback;
use feedline_kernels::ops::Kernels;
use feedline_report::measure;
use serde::Serialize;

/// Bytes of a copy.
const COPY: usize = 64 << 20;
const LIMIT: Duration = Duration::from_millis(400);

/// The findings.
#[derive(Debug, Serialize)]
pub struct Gpu {
    pub name: String,
    pub driver: Option<String>,
    /// Each NVIDIA GPU of the machine.
    pub links: Vec<Link>,
    /// Bytes per second to the device.
    pub pinned_rate: Option<f64>,
    pub pageable_rate: Option<f64>,
    /// The share of a copy's time during which a kernel runs, from 0 to 1.
    pub overlap: Option<f64>,
}

/// The PCIe link of a GPU.
#[derive(Debug, Serialize)]
pub struct Link {
    pub address: String,
    /// The speed of a lane in GT/s, current and max.
    pub speed: Option<f64>,
    pub max_speed: Option<f64>,
    /// Lanes, current and max.
    pub width: Option<u32>,
    pub max_width: Option<u32>,
}

impl Gpu {
    /// # Errors
    /// Why there is no GPU that can be used.
    pub fn look() -> Result<Self> {
        let device = Device::cuda(0)?;
        let rate = |from| measure::copy_rate(&device, COPY, from, LIMIT).ok();
        Ok(Self {
            name: device.name(),
            driver: driver(),
            links: links(Path::new("/sys/bus/pci/devices")),
            pinned_rate: rate(measure::From::Pinned),
            pageable_rate: rate(measure::From::Pageable),
            overlap: overlap(&device).ok(),
        })
    }

    /// Lines of the table: name and value.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let gb = |rate: Option<f64>| {
            rate.map_or("not measured".to_owned(), |rate| format!("{:.1} GB/s", rate / 1e9))
        };
        let mut lines = vec![
            ("GPU", self.name.clone()),
            ("driver", self.driver.clone().unwrap_or_else(|| "unknown".to_owned())),
        ];
        lines.extend(self.links.iter().map(|link| ("PCIe", link.to_string())));
        lines.push(("pinned copy", gb(self.pinned_rate)));
        lines.push(("pageable copy", format!("{}, through pinned memory", gb(self.pageable_rate))));
        let share =
            self.overlap.map(|share| format!("{:.0} % of a copy is hidden behind a kernel", 100.0 * share));
        lines.push(("copy and compute", share.unwrap_or_else(|| "not measured".to_owned())));
        lines
    }
}

impl Link {
    /// The generation of PCIe with this speed of a lane.
    pub fn generation(speed: f64) -> u32 {
        match speed {
            speed if speed >= 64.0 => 6,
            speed if speed >= 32.0 => 5,
            speed if speed >= 16.0 => 4,
            speed if speed >= 8.0 => 3,
            speed if speed >= 5.0 => 2,
            _ => 1,
        }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = |speed: Option<f64>, width: Option<u32>| match (speed, width) {
            (Some(speed), Some(width)) => format!("generation {} x{width}", Self::generation(speed)),
            _ => "unknown".to_owned(),
        };
        let (now, max) = (link(self.speed, self.width), link(self.max_speed, self.max_width));
        write!(f, "{now}, at most {max} ({})", self.address)
    }
}

fn driver() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

/// The links of the NVIDIA display controllers below `devices`.
fn links(devices: &Path) -> Vec<Link> {
    let mut links: Vec<_> = fs::read_dir(devices)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let read = |file: &str| {
                fs::read_to_string(entry.path().join(file)).ok().map(|text| text.trim().to_owned())
            };
            if read("vendor")? != "0x10de" || !read("class")?.starts_with("0x03") {
                return None;
            }
            // "32.0 GT/s PCIe"
            let speed = |file| read(file).and_then(|text| text.split_whitespace().next()?.parse().ok());
            let width = |file| read(file).and_then(|text| text.parse().ok());
            Some(Link {
                address: entry.file_name().to_string_lossy().into_owned(),
                speed: speed("current_link_speed"),
                max_speed: speed("max_link_speed"),
                width: width("current_link_width"),
                max_width: width("max_link_width"),
            })
        })
        .collect();
    links.sort_by(|a, b| a.address.cmp(&b.address));
    links
}

/// The share of a copy that runs at the same time as a kernel on another stream.
fn overlap(device: &Device) -> Result<f64> {
    let (compute, copies) = (device.stream()?, device.stream()?);
    let kernels = Kernels::new(&compute)?;
    let mut results = Readback::<f32>::new(&copies, 4 << 20, 2)?;
    let copy = || {
        results.begin()?;
        results.send()?;
        results.wait().map(drop)
    };
    Ok(measure::overlap(8, (&compute, || kernels.spin(1_000_000)), (&copies, copy))?.share())
}
