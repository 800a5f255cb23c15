//! `feedline replay`: makes batches of a run again, and checks that their bytes are the same.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Outcome;
use feedline_record::{
    Replayed, Run, Verdict, field_values, other_form, row_text, safetensors, samples_page, samples_section,
};
use lexopt::prelude::{Long, Value};
use serde_json::{Value as Json, json};

use super::common::{Data, long, number, run};

pub const COMMAND: super::Command = super::Command {
    name: "replay",
    about: "makes the batch of a step again, and says whether its bytes are those of the run",
    help: || HELP.to_owned(),
    run: replay,
};

const HELP: &str = "\
usage: feedline replay RUN --step N [options]
  --step N      the step, counted from 0 over all epochs
  --from N --to M   the steps from N to M instead, both included
  --rank R      one rank only [all]
  --data PATH   the data, if it is not where the record says
  --test, --fill    as for inspect
  --save DIR    writes each batch to DIR/step-N-rank-R.safetensors
  --html FILE   writes a page with the samples side by side
  --json        prints one JSON object per batch
";

#[derive(Default)]
struct Options {
    run: Option<PathBuf>,
    from: Option<u64>,
    to: Option<u64>,
    rank: Option<u32>,
    data: Data,
    save: Option<PathBuf>,
    html: Option<PathBuf>,
    json: bool,
}

fn parse(mut parser: lexopt::Parser) -> Result<Options, Box<dyn Error>> {
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("step") => {
                options.from = Some(number(&mut parser)?);
                options.to = options.from;
            }
            Long("from") => options.from = Some(number(&mut parser)?),
            Long("to") => options.to = Some(number(&mut parser)?),
            Long("rank") => options.rank = Some(u32::try_from(number(&mut parser)?)?),
            Long("save") => options.save = Some(parser.value()?.into()),
            Long("html") => options.html = Some(parser.value()?.into()),
            Long("json") => options.json = true,
            Value(folder) if options.run.is_none() => options.run = Some(folder.into()),
            argument => options.data.take(long(argument)?, &mut parser)?,
        }
    }
    Ok(options)
}

fn replay(parser: lexopt::Parser) -> Result<Outcome, Box<dyn Error>> {
    let Options { run: folder, from, to, rank, data, save, html, json } = parse(parser)?;
    let run = run(folder)?;
    let (Some(from), Some(to)) = (from, to) else {
        return Err("there is no step: give --step N, or --from N and --to M".into());
    };
    if to < from {
        return Err(format!("--from {from} is after --to {to}: give the first step first").into());
    }
    if let Some(folder) = &save {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let (mut text, mut differs, mut page) = (String::new(), false, String::new());
    let ranks = rank.map_or(0..run.header(from).world(), |rank| rank..rank.saturating_add(1));
    let builder = data.open(&run.header(from))?;
    for rank in ranks {
        let mut replayer = run.replayer(builder.clone(), rank);
        replayer.steps(from..to.saturating_add(1), |replayed| {
            differs |= !replayed.verdict.is_equal();
            if let Some(folder) = &save {
                let path = folder.join(format!("step-{}-rank-{rank}.safetensors", replayed.number));
                write(&path, &safetensors(&replayed.batch)?)?;
            }
            text += &if json { as_json(&run, &replayed, rank)? } else { as_text(&run, &replayed, rank)? };
            if html.is_some() {
                page += &samples_section(&replayed)?;
            }
            Ok(())
        })?;
    }
    if let Some(path) = &html {
        write(path, samples_page(&run, &page).as_bytes())?;
    }
    Ok(Outcome { text, differs })
}

fn write(path: &Path, bytes: &[u8]) -> feedline::Result<()> {
    std::fs::write(path, bytes).map_err(|error| {
        let why = "cannot write the file, check its folder";
        feedline::Error::new(feedline::ErrorKind::Data, why).with_source(error).at_path(path)
    })
}

/// The verdict in words, with the sample and the file if known.
fn says(run: &Run, replayed: &Replayed) -> String {
    match replayed.verdict {
        Verdict::Equal => "its bytes are those of the run".into(),
        Verdict::SameSamples => {
            let content = run.header(replayed.number).as_json()["content"].clone();
            format!(
                "its samples are those of the run; bytes were not recorded ({})",
                content.as_str().unwrap_or("?")
            )
        }
        Verdict::OtherSamples => {
            "other samples than in the run: a sample could be read then and not now, or the other way round"
                .into()
        }
        Verdict::OtherBytes { .. } => match replayed.changed() {
            Some((sample, Some(path))) => {
                format!("sample {sample} has changed since the run, in {}", path.display())
            }
            Some((sample, None)) => format!("sample {sample} has changed since the run"),
            None => {
                let files = run.changed_files(replayed.paths.iter().flatten().map(PathBuf::as_path));
                if files.is_empty() {
                    format!(
                        "several samples are not those of the run: if no file has changed, {}",
                        other_form()
                    )
                } else {
                    format!("several samples have changed since the run: {}", files.join("; "))
                }
            }
        },
    }
}

fn as_text(run: &Run, replayed: &Replayed, rank: u32) -> feedline::Result<String> {
    let Replayed { number, epoch, batch, .. } = replayed;
    let mut text =
        format!("step {number}, rank {rank}, epoch {epoch}, {} rows: {}\n", batch.len(), says(run, replayed));
    let fields = field_values(batch)?;
    for (row, id) in batch.ids().iter().enumerate() {
        let file =
            replayed.paths[row].as_ref().map_or_else(String::new, |path| format!("  {}", path.display()));
        let mut line = format!("  {row:>4}  sample {id}{file}");
        for field in &fields {
            // Writing to a string does not fail.
            let _ = write!(line, "  {}: {}", field.name, row_text(field, row));
        }
        text += &line.replace(char::is_control, " ");
        text.push('\n');
    }
    Ok(text)
}

fn as_json(run: &Run, replayed: &Replayed, rank: u32) -> feedline::Result<String> {
    let fields = field_values(&replayed.batch)?;
    let rows = replayed.batch.ids().iter().enumerate().map(|(row, id)| {
        let values: serde_json::Map<String, Json> =
            fields.iter().map(|field| (field.name.to_owned(), json!(row_text(field, row)))).collect();
        json!({"sample": id, "file": replayed.paths[row], "fields": values})
    });
    let substituted = replayed.batch.substituted().iter();
    let substituted: Vec<_> = substituted
        .map(|row| {
            let sample = row.failures.first().map(|failure| failure.sample);
            json!({"row": row.row, "sample": sample, "substitute": row.substitute})
        })
        .collect();
    let changed = replayed.changed().map(|(sample, path)| json!({"sample": sample, "file": path}));
    let verdict = match replayed.verdict {
        Verdict::Equal => "equal",
        Verdict::SameSamples => "same samples",
        Verdict::OtherBytes { .. } => "other bytes",
        Verdict::OtherSamples => "other samples",
    };
    let object = json!({
        "step": replayed.number,
        "epoch": replayed.epoch,
        "rank": rank,
        "verdict": verdict,
        "says": says(run, replayed),
        "changed": changed,
        "substituted": substituted,
        "rows": rows.collect::<Vec<_>>(),
    });
    Ok(format!("{object}\n"))
}
