//! Predicts the effect of other settings from the service times of a run; needs no GPU.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use feedline_core::named;
use feedline_report::{Cause, Prediction, Profile, WhatIf};
use lexopt::prelude::{Long, Short, Value, ValueExt};
use serde_json::json;

const HELP: &str = "\
Predicts from the service times of a run what other settings would give.

usage: feedline whatif FILE [options]
  --workers N     workers [as measured]
  --depth N       batches on the device at a time [as measured]
  --step-us T     the consumer's time per batch [as measured]
  --decode-us T   one worker's time to decode a batch [as measured]
  --copy-us T     time of a copy on the device [as measured]
  --map-us T      time of the device map on the device; for a run that had one [as measured]
  --servers N     decode servers, 0 for none; for a run that had some [as measured]
  --network-us T  time of a server's batch on the way [as measured]
  --batches N     batches to replay [1000]
  --json          print one JSON object
  --help

FILE holds the service times of a run: SAVED_BY. The replay is in virtual time.
";

/// The text of `--help`.
pub(crate) fn help() -> String {
    HELP.replace(
        "SAVED_BY",
        named("mlp --profile FILE, or Profile::write", "loader.report().save_profile(FILE)"),
    )
}

struct Options {
    path: PathBuf,
    what: WhatIf,
    batches: usize,
    json: bool,
}

/// The prediction as text, or as JSON.
pub(crate) fn run(parser: lexopt::Parser) -> Result<String, Box<dyn Error>> {
    let Some(options) = parse(parser)? else {
        return Ok(help() + "\nexit code: 0 done, 2 an error\n");
    };
    let profile = Profile::read(&options.path)?;
    let measured = WhatIf::default().predict(&profile, options.batches);
    let asked = options.what.predict(&profile, options.batches);
    let gain = asked.batches_per_s() / measured.batches_per_s();
    if options.json {
        let of = |prediction: &Prediction| {
            let Prediction { account } = prediction;
            json!({ "batches_per_s": prediction.batches_per_s(), "account": account })
        };
        return Ok(format!(
            "{}\n",
            json!({ "measured": of(&measured), "asked": of(&asked), "gain": gain,
            "servers": profile.servers })
        ));
    }
    let mut text = format!("{:<22} {:>12} {:>12}\n", "", "as measured", "what if");
    let rates = [&measured, &asked].map(|prediction| prediction.batches_per_s());
    text += &format!("{:<22} {:>12.1} {:>12.1}\n", "batches per second", rates[0], rates[1]);
    if let Some(served) = &profile.servers {
        text +=
            &format!("{:<22} {:>10.1} %  {}\n", "batches of servers", 100.0 * served.share(), served.filler);
    }
    for cause in Cause::ALL {
        let [before, after] = [&measured, &asked].map(|prediction| 100.0 * prediction.account.share(cause));
        text += &format!("{cause:<22} {before:>10.1} % {after:>10.1} %\n");
    }
    Ok(text + &format!("predicted change: {:+.1} %\n", 100.0 * (gain - 1.0)))
}

fn parse(mut parser: lexopt::Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut path, mut what, mut batches, mut json) = (None, WhatIf::default(), 1000, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("workers") => what.workers = Some(count(&mut parser, feedline::report::MAX_WORKERS)?),
            Long("depth") => what.depth = Some(count(&mut parser, 1 << 16)?),
            Long("step-us") => what.step = Some(micros(count(&mut parser, 1 << 40)?)),
            Long("decode-us") => what.decode = Some(micros(count(&mut parser, 1 << 40)?)),
            Long("copy-us") => what.copy = Some(micros(count(&mut parser, 1 << 40)?)),
            Long("map-us") => what.device_map = Some(micros(count(&mut parser, 1 << 40)?)),
            Long("servers") => what.servers = Some(parser.value()?.parse::<usize>()?.min(1 << 16)),
            Long("network-us") => what.network = Some(micros(parser.value()?.parse::<usize>()?)),
            Long("batches") => batches = count(&mut parser, 1 << 20)?,
            Long("json") => json = true,
            Long("help") | Short('h') => return Ok(None),
            Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            other => return Err(other.unexpected()),
        }
    }
    let path = path.ok_or("give the file of service times: see --help")?;
    Ok(Some(Options { path, what, batches, json }))
}

/// The option's value, from 1 to `max`.
fn count(parser: &mut lexopt::Parser, max: usize) -> Result<usize, lexopt::Error> {
    let value: usize = parser.value()?.parse()?;
    if (1..=max).contains(&value) { Ok(value) } else { Err(format!("give a number from 1 to {max}").into()) }
}

fn micros(count: usize) -> Duration {
    Duration::from_micros(count as u64)
}
