//! `raw` to all GPUs of the host at once; the baseline copies from pinned memory to all of them.

use std::sync::Mutex;

use feedline::device::BackendKind;
use feedline::{Device, ErrorKind, Result, TransferMode, Workers};
use serde_json::json;

use crate::baseline::Bare;
use crate::measure::{each, sides, steps};
use crate::options::Options;
use crate::records::{Filed, RAW, epoch_steps};
use crate::row::{Entry, Report, Target};
use crate::setting::Setting;

/// Runs the benchmark on all GPUs, or on two host devices. `--workers` counts the decode threads of all
/// devices together.
///
/// # Errors
/// An error of the file, a device or the pipeline.
pub fn run(options: &Options, report: &mut Report) -> Result<()> {
    let devices = match options.device.kind() {
        BackendKind::Cuda => all_gpus()?,
        _ => vec![Device::new_host(), Device::new_host()],
    };
    let filed = Filed::new(options, RAW)?;
    let batch = if options.smoke { 16 } else { 256 };
    for &mode in &options.transfer_modes {
        for &workers in &options.workers {
            let setting = Setting { batch, workers: Workers::Count(workers), depth: RAW.depth };
            one(options, report, &devices, &filed, setting, mode)?;
            if mode == TransferMode::ZeroCopy {
                break; // Its workers write ids only.
            }
        }
    }
    Ok(())
}

fn all_gpus() -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    loop {
        match Device::cuda(devices.len()) {
            Ok(device) => devices.push(device),
            Err(error) if error.kind() == ErrorKind::Unavailable && !devices.is_empty() => {
                return Ok(devices);
            }
            Err(error) => return Err(error),
        }
    }
}

fn one(
    options: &Options,
    report: &mut Report,
    devices: &[Device],
    filed: &Filed,
    setting: Setting,
    mode: TransferMode,
) -> Result<()> {
    let bytes = setting.batch * RAW.row_bytes();
    let builder = filed.builder(filed.open()?, setting).transfer_mode(mode);
    let builder = builder.pinned_budget(options.file_bytes as usize + (4 << 30));
    let loaders = builder.build_each(devices)?;
    let chosen = loaders[0].transfer_mode().to_string();
    let per_epoch = epoch_steps(&loaders[0])?;
    let streams = devices.iter().map(Device::stream).collect::<Result<Vec<_>>>()?;
    let fed: Vec<_> = loaders.into_iter().zip(streams).map(|fed| Mutex::new((fed, 0))).collect();
    let bare = |device| Ok(Mutex::new(Bare::new(device, setting.depth, bytes)?));
    let bare = devices.iter().map(bare).collect::<Result<Vec<_>>>()?;
    let copies = |steps: usize| each(&bare, |bare| bare.copies(steps));
    let feed = |steps: usize| {
        each(&fed, |((loader, stream), epoch)| {
            for _ in 0..steps / per_epoch {
                for batch in loader.epoch(*epoch)? {
                    drop(batch?.wait_on(stream)?);
                }
                *epoch += 1;
            }
            stream.synchronize()
        })
    };
    // Whole epochs, as in `raw`.
    let whole = |steps: usize| steps.div_ceil(per_epoch) * per_epoch;
    let turn = whole(steps(options, copies)?);
    let sides = sides(options, (whole(4 * setting.depth), turn), feed, copies)?;
    let rate = |seconds: f64| (devices.len() * bytes) as f64 / seconds / 1e9;
    report.add(
        "devices",
        Entry {
            parameters: json!({
                "devices": devices.len(), "transfer_mode": chosen, "batch": setting.batch,
                "workers": setting.workers(),
            }),
            target: Target::RatioAtLeast(0.95),
            more: json!({ "steps": turn, "depth": setting.depth, "row_bytes": RAW.row_bytes() }),
            ..Entry::of(&sides, "GB/s", rate)
        },
    )
}
