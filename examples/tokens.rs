//! Trains a small network to guess the next character of a text from the twelve before it, and validates it
//! on the last tenth of the text: `cargo run --release --example tokens -- PATH [STEPS]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use feedline::{
    Context, DType, Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, ReadError, Row, Spec,
};
use feedline_device::Buffer;
use feedline_kernels::ops::{AdamW, Kernels};
use feedline_mlp::{Init, Mlp, Optimizer, Shape};

/// Characters that the network sees.
const CONTEXT: usize = 12;
const BATCH: usize = 256;
/// Steps between two validations.
const ROUND: usize = 250;

/// Every window of a text: the characters of the context, each as a 255 among zeros, and the next one.
struct Windows {
    spec: Spec,
    tokens: Vec<u8>,
    vocabulary: usize,
}

impl Windows {
    fn loader(tokens: &[u8], vocabulary: usize) -> feedline::Result<LoaderBuilder> {
        let spec =
            Spec::new().field("context", DType::U8, [CONTEXT, vocabulary])?.field("next", DType::U8, [])?;
        Ok(Loader::builder(Self { spec, tokens: tokens.to_vec(), vocabulary })
            .batch_size(BATCH)
            .last_batch(feedline::LastBatch::Drop))
    }
}

impl Dataset for Windows {
    fn len(&self) -> u64 {
        self.tokens.len().saturating_sub(CONTEXT) as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let window = &self.tokens[id as usize..][..CONTEXT + 1];
        let context = row.bytes_mut(0);
        context.fill(0);
        for (place, &token) in context.chunks_exact_mut(self.vocabulary).zip(window) {
            place[usize::from(token)] = 255;
        }
        row.bytes_mut(1)[0] = window[CONTEXT];
        Ok(())
    }
}

fn run(path: &str, steps: usize) -> feedline::Result<()> {
    let text = std::fs::read(path).map_err(|error| {
        Error::new(ErrorKind::Data, "cannot read the text").with_source(error).at_path(path)
    })?;
    let mut vocabulary = text.clone();
    vocabulary.sort_unstable();
    vocabulary.dedup();
    let tokens = text.iter().map(|byte| vocabulary.binary_search(byte).unwrap_or(0) as u8);
    let tokens: Vec<u8> = tokens.collect();
    let (training, validation) = tokens.split_at(tokens.len() / 10 * 9);

    let device = Device::best()?;
    let compute = device.stream()?;
    let mut training = Windows::loader(training, vocabulary.len())?.shuffle().seed(7).build(&device)?;
    let mut validation = Windows::loader(validation, vocabulary.len())?.shuffle().seed(8).build(&device)?;
    let (inputs, classes) = (CONTEXT * vocabulary.len(), vocabulary.len());
    let shape = Shape { inputs, hidden: 128, classes, batch: BATCH };
    let optimizer = Optimizer::AdamW(AdamW::default());
    let mut model = Mlp::new(&compute, Kernels::new(&compute)?, shape, Init::Random(1), optimizer)?;
    println!("{} characters, {classes} different ones, on {}", tokens.len(), device.name());

    let (mut result, mut step, mut epoch) = (Buffer::<u32>::new(&compute, 2)?, 0, 0);
    while step < steps {
        for batch in training.epoch(epoch)?.take(steps - step) {
            let batch = batch?.wait_on(&compute)?;
            model.step(batch.field("context")?, batch.field("next")?, result.view_mut())?;
            drop(batch);
            step += 1;
            if step % ROUND == 0 || step == steps {
                let loss = f32::from_bits(result.read()?[0]);
                let (mut hits, mut rows) = (Buffer::<u32>::new(&compute, 1)?, 0);
                for batch in validation.epoch(0)?.take(40) {
                    let batch = batch?.wait_on(&compute)?;
                    model.evaluate(batch.field("context")?, batch.field("next")?, hits.view_mut())?;
                    rows += batch.len();
                }
                let share = 100.0 * f64::from(hits.read()?[0]) / rows as f64;
                println!("step {step}: training loss {loss:.3}, {share:.1} % of the validation right");
            }
        }
        epoch += 1;
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let steps = |text: Option<String>| text.map_or(Ok(2000), |text| text.parse());
    let outcome = match (arguments.next(), steps(arguments.next())) {
        (Some(path), Ok(steps)) => run(&path, steps).map_err(|error| error.to_string()),
        _ => Err("give the path of a text, and how many steps if not 2000".to_owned()),
    };
    outcome.map_or_else(
        |why| {
            eprintln!("tokens: {why}");
            ExitCode::from(2)
        },
        |()| ExitCode::SUCCESS,
    )
}
