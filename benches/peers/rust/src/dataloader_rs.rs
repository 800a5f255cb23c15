//! dataloader-rs: its `RandomSampler` and default prefetch, with the default collator or one that gathers.

use std::error::Error;
use std::sync::Arc;

use dataloader_rs::error::Result as Loaded;
use dataloader_rs::{Collator, DataLoader, Dataset, RandomSampler};

use crate::table::{Batch, Feed, Form, Pool, Pooled, SAMPLES, Table};

/// Opens a loader. The last batch of an epoch may be short.
pub fn open(table: &Arc<Table>, form: Form, batch: usize, workers: usize) -> Box<dyn Feed> {
    let table = table.clone();
    match form {
        Form::Items => {
            let builder = DataLoader::builder(Items(table)).batch_size(batch).num_workers(workers);
            let mut loader = builder.sampler(RandomSampler::new(1)).build();
            Box::new(Epochs(move |take: &mut dyn FnMut(Batch<'_>)| {
                for batch in &mut loader {
                    take(Batch::Rows(&batch?));
                }
                Ok(())
            }))
        }
        Form::Indices => {
            let builder = DataLoader::builder(Indices).batch_size(batch).num_workers(workers);
            let mut loader = builder.sampler(RandomSampler::new(1)).collator(Fresh(table)).build();
            Box::new(Epochs(move |take: &mut dyn FnMut(Batch<'_>)| {
                for batch in &mut loader {
                    take(Batch::Flat(&batch?));
                }
                Ok(())
            }))
        }
        Form::Recycled => {
            let builder = DataLoader::builder(Indices).batch_size(batch).num_workers(workers);
            let collator = Recycled(table, Pool::default());
            let mut loader = builder.sampler(RandomSampler::new(1)).collator(collator).build();
            Box::new(Epochs(move |take: &mut dyn FnMut(Batch<'_>)| {
                for batch in &mut loader {
                    take(Batch::Flat(&batch?.bytes));
                }
                Ok(())
            }))
        }
    }
}

struct Epochs<F>(F);

impl<F: FnMut(&mut dyn FnMut(Batch<'_>)) -> Loaded<()>> Feed for Epochs<F> {
    fn epoch(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<(), Box<dyn Error>> {
        (self.0)(take).map_err(|error| error.to_string().into())
    }
}

struct Items(Arc<Table>);

impl Dataset for Items {
    type Item = Vec<u8>;

    fn get(&self, index: usize) -> Loaded<Vec<u8>> {
        Ok(self.0.sample(index).to_vec())
    }

    fn len(&self) -> usize {
        SAMPLES
    }
}

struct Indices;

impl Dataset for Indices {
    type Item = usize;

    fn get(&self, index: usize) -> Loaded<usize> {
        Ok(index)
    }

    fn get_batch(&self, indices: &[usize]) -> Loaded<Vec<usize>> {
        Ok(indices.to_vec())
    }

    fn len(&self) -> usize {
        SAMPLES
    }
}

struct Fresh(Arc<Table>);

impl Collator<usize> for Fresh {
    type Batch = Vec<u8>;

    fn collate(&self, ids: Vec<usize>) -> Loaded<Vec<u8>> {
        let mut out = Vec::new();
        self.0.gather(&ids, &mut out);
        Ok(out)
    }
}

struct Recycled(Arc<Table>, Pool);

impl Collator<usize> for Recycled {
    type Batch = Pooled;

    fn collate(&self, ids: Vec<usize>) -> Loaded<Pooled> {
        let mut out = self.1.buffer();
        self.0.gather(&ids, &mut out.bytes);
        Ok(out)
    }
}
