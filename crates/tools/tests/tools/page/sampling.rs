//! The order of samples, parts of a set, predictions, and a set of one's own over another.

use super::*;

/// Flowers of three kinds.
fn flowers() -> feedline::Result<Arc<feedline_datasets::Bounded>> {
    Ok(Arc::new(Table::open("flowers.csv").select(["length", "kind"]).build()?))
}

/// The samples of epoch 0.
fn drawn(loader: &mut feedline::HostLoader) -> feedline::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for batch in loader.epoch(0)? {
        ids.extend_from_slice(batch?.ids());
    }
    Ok(ids)
}

pub(super) fn weighted() -> Done {
    let data = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let balanced = Sampler::balanced(&[0, 1, 2], 3)?; // the class of each sample, and the number of classes
    let weighted = Sampler::weighted(&[1.0, 1.0, 2.0])?.draws(100)?; // sample 2 twice as often as each other
    let once = Sampler::weighted_without_replacement(&[1.0, 1.0, 2.0])?.draws(2)?; // 2 of the 3
    let mut loader = Loader::builder(data).batch_size(4).sampler(weighted).seed(7).build_host()?;
    let kinds = drawn(&mut loader)?;
    let third = kinds.iter().filter(|&&kind| kind == 2).count();
    assert!(kinds.len() == 100 && (30..70).contains(&third), "{third}");
    for (sampler, count) in [(balanced, 3), (once, 2)] {
        let mut loader = Loader::builder(flowers()?).batch_size(1).sampler(sampler).seed(7).build_host()?;
        let mut ids = drawn(&mut loader)?;
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
    Ok(())
}

pub(super) fn folds() -> Done {
    let data = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let kinds = [0, 0, 1]; // the label of each sample; `None` does not stratify
    for [train, val] in data.folds(2, Some(&kinds), 7)? {
        let mut loader = Loader::builder(train).batch_size(2).shuffle().seed(7).build_host()?;
        assert_eq!(loader.epoch(0)?.count(), 1);
        println!("{:?}", val.ids()); // their ids in `data`
    }
    let all = flowers()?.folds(2, Some(&kinds), 7)?;
    let mut ids: Vec<_> = all.iter().flat_map(|[_, val]| val.ids().to_vec()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
    assert!(all.iter().all(|[_, val]| val.ids().iter().filter(|&&id| id < 2).count() == 1));
    Ok(())
}

pub(super) fn curriculum() -> Done {
    let data = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let easy = Sampler::weighted(&[1.0, 1.0, 0.0])?; // for epochs 0 and 1: 3 draws, never sample 2
    let sampler = Sampler::by_epoch([(0, easy), (2, Sampler::Shuffle)])?; // from epoch 2 on: all
    let mut loader = Loader::builder(data).batch_size(3).sampler(sampler).seed(7).build_host()?;
    for epoch in 0..4 {
        for batch in loader.epoch(epoch)? {
            assert!(epoch > 1 || !batch?.ids().contains(&2));
        }
    }
    Ok(())
}

pub(super) fn own_order() -> Done {
    let data = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let ids = [2, 1, 0]; // the longest first
    let sampler = Sampler::custom("by length", 3, move |_epoch, position| ids[position as usize])?;
    let mut loader = Loader::builder(data).batch_size(3).sampler(sampler).build_host()?;
    for batch in loader.epoch(0)? {
        assert_eq!(batch?.ids(), ids);
    }
    Ok(())
}

pub(super) fn repeated() -> Done {
    let flowers = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let data = flowers.repeated(4)?; // 3 samples, 12 rows
    let mut loader = Loader::builder(data).batch_size(8).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        for copies in batch.ids().chunks(4) {
            assert_eq!(copies[3], copies[0] + 3); // of one sample: `copies[0] / 4`
        }
    }
    Ok(())
}

pub(super) fn own_batches() -> Done {
    let data = Table::open("flowers.csv").select(["length", "kind"]).build()?;
    let named = |epoch: u64, step: u64| {
        Ok(if step == 0 { vec![epoch % 3] } else { vec![(epoch + 1) % 3, (epoch + 2) % 3] })
    };
    let sampler = Sampler::batches(2, false, named)?; // 2 steps per epoch; no sample twice
    let mut loader = Loader::builder(data).batch_size(2).sampler(sampler).build_host()?;
    let batches: Vec<_> =
        loader.epoch(1)?.map(|batch| Ok(batch?.ids().to_vec())).collect::<feedline::Result<_>>()?;
    assert_eq!(batches, [vec![1], vec![2, 0]]);
    Ok(())
}

pub(super) fn hard_examples() -> Done {
    let data = Arc::new(Table::open("flowers.csv").select(["length", "kind"]).build()?);
    let pool = WorkerPool::new(Workers::PerCore)?; // the threads of all epochs
    let mut losses = vec![f64::INFINITY; data.len() as usize]; // a sample without a loss comes first
    for epoch in 0..4 {
        let mut ids: Vec<u64> = (0..data.len()).collect();
        ids.sort_by(|&a, &b| losses[b as usize].total_cmp(&losses[a as usize]));
        let hard = Sampler::subset(ids[..2].to_vec(), Sampler::Shuffle)?; // the 2 with the largest losses
        let builder = Loader::builder(data.clone()).batch_size(2).sampler(hard).seed(7);
        for batch in builder.pool(&pool).build_host()?.epoch(epoch)? {
            let batch = batch?;
            for (&id, &length) in batch.ids().iter().zip(batch.field::<f64>("length")?) {
                losses[id as usize] = length; // what the model says of the sample
            }
        }
    }
    // Each sample has been seen, and so has the last one, which epoch 0 left out.
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    assert_eq!(losses[1..], [3.0, 5.25]);
    Ok(())
}

pub(super) fn predictions() -> Done {
    let data = Arc::new(Table::open("flowers.csv").select(["length", "kind"]).build()?);
    let kept = data.clone().filter(|sample| sample.field::<i64>(1).is_ok_and(|kind| kind[0] > 0))?;
    let rows = kept.ids().to_vec(); // sample n of `kept` is row rows[n]
    let mut predicted = vec![None; data.len() as usize];
    let mut loader = Loader::builder(kept).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        for (&id, &length) in batch.ids().iter().zip(batch.field::<f64>("length")?) {
            predicted[rows[id as usize] as usize] = Some(2.0 * length); // a model's output
        }
    }
    assert_eq!(predicted, [None, Some(6.0), Some(10.5)]);
    Ok(())
}

/// The number of bytes of a text.
struct Sizes {
    texts: Arc<dyn Dataset>,
    spec: Spec,
}

impl Dataset for Sizes {
    fn len(&self) -> u64 {
        self.texts.len()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let size = &mut row.field_mut::<i64>(0)?[0];
        let mut count = |_: usize, text: &[u8], _: Option<&[usize]>| {
            *size = text.len() as i64;
            Ok(())
        };
        Ok(self.texts.visit(id, &mut Sink::new(&mut count), context)?)
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn read_many(&self, ids: &[u64], rows: &mut Rows<'_>, context: &mut Context) -> Result<(), RowError> {
        for (at, &id) in ids.iter().enumerate() {
            // One call for a batch: here is the place for a request of several samples.
            self.read(id, &mut rows.row(at), context).map_err(|error| (at, error))?;
        }
        Ok(())
    }
}

impl Storage for Sizes {
    fn prefetch(&self, ids: &[u64], context: &mut Context) -> Prefetched {
        self.texts.storage().prefetch(ids, context) // decodes a group ahead, where the format has groups
    }
}

pub(super) fn own_over_another() -> Done {
    let data = Sizes { texts: open("corpus.txt")?, spec: Spec::new().field("bytes", DType::I64, [])? };
    assert!(check_dataset(&data, &CheckOptions::default())?.is_clean()); // in a test
    assert_eq!(column::<i64>(data, "bytes")?, [9, 16]);
    Ok(())
}
