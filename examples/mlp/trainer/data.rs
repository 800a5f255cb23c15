//! The training and test sets: any data that feedline reads, or the built-in digits.

use feedline::Result;
use feedline_datasets::labelled::LabelledSets;

use super::drawn::drawn_digits;
use super::files::Output;
use super::options::Options;

/// Opens `--data`, or draws the built-in digits without it; checks that labels are classes.
pub fn open(options: &Options) -> Result<LabelledSets> {
    match &options.data {
        Some(path) => LabelledSets::open(path, &options.labelled()),
        None => LabelledSets::open(&drawn_digits(options.quiet)?, &options.labelled()),
    }
}

/// Refuses to write `output` over a file of the data.
pub fn check_spared(data: &LabelledSets, output: &Output) -> Result<()> {
    if !output.target().exists() {
        return Ok(());
    }
    for path in &data.files {
        output.spares(path, "a file of the data set")?;
    }
    for set in [&data.train, &data.test] {
        let mut last = None;
        // Neighbouring samples are in one file, so each file is checked once.
        for path in (0..set.len()).map_while(|id| set.path(id)) {
            if last != Some(path) {
                output.spares(path, "a file of the data set")?;
                last = Some(path);
            }
        }
    }
    Ok(())
}
