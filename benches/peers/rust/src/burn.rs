//! burn: `DataLoaderBuilder` with a batcher that makes one `Vec` per batch.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use burn_core::data::dataloader::batcher::Batcher;
use burn_core::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn_core::data::dataset::{Dataset, DatasetError};
use burn_core::tensor::Device;

use crate::table::{BYTES, Batch, Feed, Form, Pool, Pooled, SAMPLES, Table};

/// Opens a loader. The last batch of an epoch may be short. With workers, each worker's last batch may be.
pub fn open(table: &Arc<Table>, form: Form, batch: usize, workers: usize) -> Box<dyn Feed> {
    let table = table.clone();
    match form {
        Form::Items => Box::new(Loaded {
            loader: build(Concatenate, Items(table), batch, workers),
            bytes: |batch: &Vec<u8>| batch,
        }),
        Form::Indices => Box::new(Loaded {
            loader: build(Fresh(table), Indices, batch, workers),
            bytes: |batch: &Vec<u8>| batch,
        }),
        Form::Recycled => Box::new(Loaded {
            loader: build(Recycled(table, Pool::default()), Indices, batch, workers),
            bytes: |batch: &Pooled| &batch.bytes,
        }),
    }
}

fn build<I, O>(
    batcher: impl Batcher<I, O> + 'static,
    dataset: impl Dataset<I> + 'static,
    batch: usize,
    workers: usize,
) -> Arc<dyn DataLoader<O>>
where
    I: Send + Sync + Clone + Debug + 'static,
    O: Send + Clone + Debug + 'static,
{
    DataLoaderBuilder::new(batcher).batch_size(batch).shuffle(1).num_workers(workers).build(dataset)
}

struct Loaded<O> {
    loader: Arc<dyn DataLoader<O>>,
    bytes: fn(&O) -> &[u8],
}

impl<O> Feed for Loaded<O> {
    fn epoch(&mut self, take: &mut dyn FnMut(Batch<'_>)) -> Result<(), Box<dyn Error>> {
        for batch in self.loader.iter() {
            take(Batch::Flat((self.bytes)(&batch?)));
        }
        Ok(())
    }
}

struct Items(Arc<Table>);

impl Dataset<Vec<u8>> for Items {
    fn get(&self, index: usize) -> Result<Vec<u8>, DatasetError> {
        Ok(self.0.sample(index).to_vec())
    }

    fn len(&self) -> usize {
        SAMPLES
    }
}

struct Indices;

impl Dataset<usize> for Indices {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        Ok(index)
    }

    fn len(&self) -> usize {
        SAMPLES
    }
}

struct Concatenate;

impl Batcher<Vec<u8>, Vec<u8>> for Concatenate {
    fn batch(&self, items: Vec<Vec<u8>>, _: &Device) -> Vec<u8> {
        let mut out = Vec::with_capacity(items.len() * BYTES);
        items.iter().for_each(|item| out.extend_from_slice(item));
        out
    }
}

struct Fresh(Arc<Table>);

impl Batcher<usize, Vec<u8>> for Fresh {
    fn batch(&self, ids: Vec<usize>, _: &Device) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.gather(&ids, &mut out);
        out
    }
}

struct Recycled(Arc<Table>, Pool);

impl Batcher<usize, Pooled> for Recycled {
    fn batch(&self, ids: Vec<usize>, _: &Device) -> Pooled {
        let mut out = self.1.buffer();
        self.0.gather(&ids, &mut out.bytes);
        out
    }
}
