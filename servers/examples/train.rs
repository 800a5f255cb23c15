//! Trains a linear classifier on the host, fed by workers and decode servers. The losses are the same with
//! and without servers.
//!
//!     cargo run --release --example train -- --data PATH [--servers HOST:PORT,...] [--token-file FILE]
//!
//! The data has samples of one size: an image or other bytes as its largest field, and a class.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};

use feedline::{DType, HostBatch, Loader, Spec};
use feedline_datasets::{Fixed, open};
use feedline_decode::Servers;
use lexopt::prelude::{Long, ValueExt};

const CLASSES: usize = 10;
const EPOCHS: u64 = 3;
const RATE: f32 = 0.05;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut data, mut servers, mut token) = (None, None, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("data") => data = Some(PathBuf::from(arguments.value()?)),
            Long("servers") => servers = Some(arguments.value()?.string()?),
            Long("token-file") => token = Some(std::fs::read_to_string(arguments.value()?)?),
            other => return Err(other.unexpected().into()),
        }
    }
    let set = Fixed::new(open(data.as_deref().unwrap_or(Path::new("digits")))?)?;
    let (image, class) = fields(&feedline::Dataset::spec(&set).clone())?;
    let builder = Loader::builder(set).batch_size(64).shuffle(1).epochs(EPOCHS);
    let builder = match &servers {
        None => builder,
        Some(list) => {
            let servers = Servers::new(list.split(','))?;
            builder.filler(match &token {
                Some(token) => servers.token(token)?,
                None => servers,
            })
        }
    };
    let mut loader = builder.build_host()?;
    let mut model = Vec::new();
    for epoch in 0..EPOCHS {
        let (mut loss, mut rows) = (0.0, 0);
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            rows += batch.len();
            loss += step(&mut model, &batch, image, class)?;
        }
        println!("epoch {epoch}: loss {:.6}, order {:#x}", loss / rows as f32, loader.cursor().order_hash());
    }
    eprint!("{}", loader.report());
    Ok(())
}

/// The field with the most bytes, and the one with the class.
fn fields(spec: &Spec) -> Result<(usize, usize), String> {
    let fields = spec.fields().iter().enumerate();
    let image = fields
        .clone()
        .filter(|(_, field)| field.dtype() == DType::U8)
        .max_by_key(|(_, field)| field.row_bytes());
    let class = fields
        .clone()
        .filter(|(_, field)| field.elements() == 1 && matches!(field.dtype(), DType::U8 | DType::I64));
    match (image, class.max_by_key(|(index, _)| *index)) {
        (Some((image, _)), Some((class, _))) if image != class => Ok((image, class)),
        _ => Err("the data needs a field of bytes and one with a class of type u8 or i64".to_owned()),
    }
}

/// A step of softmax regression; returns the summed loss.
fn step(model: &mut Vec<f32>, batch: &HostBatch, image: usize, class: usize) -> feedline::Result<f32> {
    let pixels = batch.field_at::<u8>(image)?;
    let classes: Vec<usize> = match batch.spec().fields()[class].dtype() {
        DType::U8 => batch.field_at::<u8>(class)?.iter().map(|&class| class as usize).collect(),
        _ => batch.field_at::<i64>(class)?.iter().map(|&class| class as usize).collect(),
    };
    let width = pixels.len() / batch.len().max(1);
    model.resize(CLASSES * width, 0.0);
    let (mut loss, mut change) = (0.0, vec![0.0; model.len()]);
    for (row, class) in pixels.chunks_exact(width).zip(classes) {
        let score =
            |weights: &[f32]| weights.iter().zip(row).map(|(w, &x)| w * f32::from(x) / 255.0).sum::<f32>();
        let scores: Vec<f32> = model.chunks_exact(width).map(score).collect();
        let max = scores.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = scores.iter().map(|score| (score - max).exp()).sum();
        loss += sum.ln() + max - scores[class.min(CLASSES - 1)];
        for (index, (score, change)) in scores.iter().zip(change.chunks_exact_mut(width)).enumerate() {
            let error = (score - max).exp() / sum - if index == class { 1.0 } else { 0.0 };
            change.iter_mut().zip(row).for_each(|(change, &x)| *change += error * f32::from(x) / 255.0);
        }
    }
    let rate = RATE / batch.len().max(1) as f32;
    model.iter_mut().zip(change).for_each(|(weight, change)| *weight -= rate * change);
    Ok(loss)
}
