//! Text to ids per core: `cargo run --release -p feedline-datasets --features tokenizers --example tokenize
//! -- TOKENIZER TEXT [FIELD]`. Reads the text on one thread, without and with the tokenizer.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use feedline_core::{Context, Dataset, Result, Sink};
use feedline_datasets::{Tokenized, open};

/// The time in which `reader` is read once, and the bytes of its field `field`.
fn read(reader: &dyn Dataset, field: usize) -> Result<(Duration, u64)> {
    let (mut context, mut bytes, start) = (Context::new(0, 0), 0, Instant::now());
    for sample in 0..reader.len() {
        let mut add = |at: usize, part: &[u8], _: Option<&[usize]>| {
            bytes += if at == field { part.len() as u64 } else { 0 };
            Ok(())
        };
        reader.visit(sample, &mut Sink::new(&mut add), &mut context)?;
    }
    Ok((start.elapsed(), bytes))
}

fn run(tokenizer: &str, path: &str, field: &str) -> Result<()> {
    let text = open(path)?;
    let at = text.spec().fields().iter().position(|of| of.name() == field).unwrap_or_default();
    let (plain, bytes) = read(&*text, at)?;
    let texts = text.len();
    let reader = Tokenized::new(text, field, tokenizer)?;
    // The second time, the tokenizer's caches are warm.
    for round in 1..=2 {
        let (time, id_bytes) = read(&reader, at)?;
        let (ids, seconds) = (id_bytes / size_of::<i64>() as u64, time.as_secs_f64());
        println!(
            "round {round}: {texts} texts, {bytes} bytes, {ids} ids in {seconds:.3} s: {:.2} MB/s, \
             {:.2} million ids/s",
            bytes as f64 / seconds / 1e6,
            ids as f64 / seconds / 1e6
        );
    }
    println!("reading alone: {:.3} s", plain.as_secs_f64());
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [tokenizer, path] => run(tokenizer, path, "text"),
        [tokenizer, path, field] => run(tokenizer, path, field),
        _ => {
            eprintln!("tokenize: give a tokenizer.json, a text or table, and its field if not \"text\"");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tokenize: {error}");
            ExitCode::FAILURE
        }
    }
}
