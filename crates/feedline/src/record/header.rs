//! The header of a record: what is needed to make the batches of a run again, as JSON.

use std::fs::Metadata;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use feedline_core::{
    Dataset, Error, ErrorKind, LastBatch, Result, Sampler, Source, Spec, ragged::Form, random::DRAWS_VERSION,
};
use serde_json::{Value, json};

use super::{RecordOptions, Run};
use crate::decode::Input;

/// Max samples whose files are looked up, evenly spread over the set.
const ASKED: u64 = 1 << 16;
/// Max number of files in a header.
const MAX_FILES: usize = 4096;

/// The header of `run`, whose rows are hashed as `content` says.
pub(super) fn describe(options: &RecordOptions, run: &Run<'_>, content: &str) -> Value {
    let Run { batch_sampler, layout, fingerprint, .. } = *run;
    let sampling = batch_sampler.options();
    let (rank, world) = (sampling.world.rank(), sampling.world.size());
    let (samples, shards, files) = match run.input {
        Input::Dataset(set) | Input::ZeroCopy(set, _) => (Some(set.len()), None, files(&**set)),
        Input::Source(source) => (None, Some(source.shards()), shard_files(&**source)),
    };
    let order = batch_sampler.records();
    // Steps are counted as if none were skipped, like the steps of a run.
    let per_step = sampling.batch as u64 * u64::from(world);
    let steps = match run.last_batch {
        LastBatch::Drop => batch_sampler.positions() / per_step,
        LastBatch::Keep | LastBatch::Pad => batch_sampler.positions().div_ceil(per_step),
    };
    let skips: Vec<_> =
        run.skips.iter().map(|(epoch, steps)| json!([epoch, steps.start, steps.end])).collect();
    json!({
        "feedline": env!("CARGO_PKG_VERSION"),
        "started": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        "data": options.data,
        "transforms": options.transforms,
        "fingerprint": hex(fingerprint),
        "samples": samples,
        "shards": shards,
        "files": files,
        "spec": spec(layout.spec()),
        "sampler": sampler(&sampling.sampler),
        "sampler_digest": hex(batch_sampler.digest()),
        "seed": sampling.seed,
        "draws_version": DRAWS_VERSION,
        "batch": run.batch_size,
        "last_batch": match run.last_batch {
            LastBatch::Keep => "keep",
            LastBatch::Drop => "drop",
            LastBatch::Pad => "pad",
        },
        "rank": rank,
        "world": world,
        "steps_per_epoch": samples.map(|_| steps),
        "skips": skips,
        "split_shards": order.split,
        "shuffle_buffer": order.buffer_bytes,
        "substitutes": run.has_substitutes,
        "map_batch": run.has_map_batch,
        "content": content,
        "content_every": options.content_every,
    })
}

/// Checks that a run with the header `now` may continue the record with the header `before`.
///
/// # Errors
/// `Cursor` if the data or an option differs; names the changed file or the option.
pub(super) fn same_run(before: &Value, now: &Value) -> Result<()> {
    let refuse = |why: String| Error::new(ErrorKind::Cursor, why);
    if before["fingerprint"] != now["fingerprint"] {
        if let Some(change) = changed_files(before, now).into_iter().next() {
            return Err(refuse(format!(
                "the data is not that of this record: {change}; restore the file, or \
                                       record into another folder"
            )));
        }
        let [was, is] =
            [before, now].map(|header| header["fingerprint"].as_str().unwrap_or("none").to_owned());
        return Err(refuse(format!(
            "the data is not that of this record (fingerprint {was}, now {is}): open the data of the run, or \
             record into another folder"
        )));
    }
    if before["draws_version"] != now["draws_version"] {
        return Err(refuse(
            "this record was begun by an earlier feedline, whose random numbers belong to samples and not to \
             draws: record into another folder"
                .to_owned(),
        ));
    }
    for (key, what) in [("seed", "seed"), ("sampler_digest", "sampler"), ("spec", "fields or their padding")]
    {
        let differs =
            if key == "spec" { field_names(before) != field_names(now) } else { before[key] != now[key] };
        if differs {
            return Err(refuse(format!(
                "this run has another {what} than that of this record: use the one of the run, or record \
                 into another folder"
            )));
        }
    }
    Ok(())
}

/// The files that differ between two headers, each with a few words.
pub fn changed_files(before: &Value, now: &Value) -> Vec<String> {
    let list = |header: &Value| -> Vec<(String, u64, u64)> {
        let files = header["files"].as_array().into_iter().flatten();
        files
            .map(|file| {
                let number = |part: usize| file[part].as_u64().unwrap_or(0);
                (file[0].as_str().unwrap_or_default().to_owned(), number(1), number(2))
            })
            .collect()
    };
    let (before, now) = (list(before), list(now));
    let mut changed = Vec::new();
    for (path, size, time) in &before {
        match now.iter().find(|(other, ..)| other == path) {
            None => changed.push(format!("{path} is not in the data any more")),
            Some((_, other, _)) if other != size => {
                changed.push(format!("{path} has {other} bytes, and had {size}"));
            }
            Some((.., other)) if other != time => {
                changed.push(format!("{path} was written after the run had begun"));
            }
            Some(_) => {}
        }
    }
    let added = now.iter().filter(|(path, ..)| !before.iter().any(|(other, ..)| other == path));
    changed.extend(added.map(|(path, ..)| format!("{path} is new")));
    changed
}

fn field_names(header: &Value) -> Vec<&Value> {
    header["spec"].as_array().into_iter().flatten().map(|field| &field["name"]).collect()
}

/// The files of a set, each with its size and the time of its last write.
pub fn files(set: &dyn Dataset) -> Vec<(String, u64, u64)> {
    let mut files: Vec<(String, u64, u64)> = Vec::new();
    let mut last: Option<&Path> = None;
    for id in (0..set.len()).step_by(set.len().div_ceil(ASKED).max(1) as usize) {
        let path = set.path(id);
        if path == last || files.len() == MAX_FILES {
            continue;
        }
        last = path;
        let Some(path) = path else { continue };
        let name = absolute(path);
        // Neighbours are usually in one file; a mix returns to earlier ones.
        if files.len() < 64 && files.iter().any(|(known, ..)| *known == name) {
            continue;
        }
        files.push(file_state(path).unwrap_or((name, 0, 0)));
    }
    files
}

/// The files of a source's shards, in the form of [`files`].
fn shard_files(source: &dyn Source) -> Vec<(String, u64, u64)> {
    let paths = (0..source.shards()).filter_map(|shard| source.path(shard));
    paths.take(MAX_FILES).map(|path| file_state(path).unwrap_or((absolute(path), 0, 0))).collect()
}

/// The path of a file, its size, and the time of its last write in nanoseconds; `None` if it is not there.
pub fn file_state(path: &Path) -> Option<(String, u64, u64)> {
    let metadata = path.metadata().ok()?;
    Some((absolute(path), metadata.len(), written(&metadata)))
}

/// A path that does not depend on the current folder.
pub fn absolute(path: &Path) -> String {
    std::path::absolute(path).as_deref().unwrap_or(path).to_string_lossy().into_owned()
}

fn written(metadata: &Metadata) -> u64 {
    let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |time| time.as_nanos() as u64)
}

fn sampler(sampler: &Sampler) -> Value {
    match sampler {
        Sampler::Sequential => json!({"kind": "sequential"}),
        Sampler::Shuffle => json!({"kind": "shuffle"}),
        Sampler::Block(block) => {
            let [block, window] = block.sizes();
            json!({"kind": "block", "block": block, "window": window})
        }
        Sampler::Weighted(_) => json!({"kind": "weighted"}),
        // The name in the records of earlier versions.
        Sampler::WithoutReplacement(_) => json!({"kind": "distinct"}),
        Sampler::Balanced(_) => json!({"kind": "balanced"}),
        Sampler::Bucketed(_) => json!({"kind": "bucketed"}),
        Sampler::Subset(_) => json!({"kind": "subset"}),
        Sampler::ByEpoch(_) => json!({"kind": "by epoch"}),
        Sampler::Custom(custom) => json!({"kind": "custom", "name": custom.name()}),
        Sampler::Grouped(_) => json!({"kind": "grouped"}),
        Sampler::Batches(_) => json!({"kind": "batches"}),
        _ => json!({"kind": "another"}),
    }
}

/// The fields of a batch, with the forms of ragged ones.
fn spec(spec: &Spec) -> Value {
    let fields = spec.fields().iter().map(|field| {
        let ragged = field.as_ragged().map(|ragged| {
            let form = match ragged.form() {
                Form::Rows => json!("rows"),
                Form::Cumulative => json!("cumulative"),
                Form::Padded(pad) => {
                    let (multiple, element) = pad.parts();
                    json!({"multiple_of": multiple, "fill": element, "left": pad.is_left()})
                }
            };
            let stated = ragged.stated_per_batch();
            json!({"max": ragged.max_per_sample(), "max_per_batch": stated, "form": form})
        });
        json!({"name": field.name(), "dtype": field.dtype().name(), "shape": field.shape(), "ragged": ragged})
    });
    fields.collect()
}

fn hex(value: u64) -> String {
    format!("{value:#018x}")
}

/// The name of the file of rank `rank` in the folder of a record.
pub fn file_name(rank: u32) -> String {
    format!("rank-{rank}.rec")
}
