//! A reader that claims to be too large to be shuffled as a whole and too large for its cache, and the sets
//! over it: what they say of their order.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use feedline_audio::{Crop, Sounds};
use feedline_core::{
    About, Context, DType, Dataset, ElementType, Field, Groups, ReadError, Result, Row, Spec, Storage,
};
use feedline_datasets::labelled::{Labelled, LabelledOptions};
use feedline_datasets::{Bounded, Parts, Pictures, SoundDataset, Table, Tokenized, Views, shards};
use feedline_images::Transforms;

use crate::files::{bitmap, wav};
use crate::golden::Found;
use crate::texts::tokenizer;

/// The bytes of a sample.
type Makes = fn(u64) -> Vec<u8>;

#[derive(Debug)]
struct Large {
    schema: Spec,
    makes: Vec<Makes>,
}

impl Large {
    /// A number, which is also a label, and another field.
    fn of(other: Option<(Field, Makes)>) -> Arc<dyn Dataset> {
        let number = Field::fixed("label", ElementType::Number(DType::I64), &[]);
        let label: Makes = |id| (id as i64 % 7).to_le_bytes().to_vec();
        let (fields, makes) = [(number, label)].into_iter().chain(other).unzip::<_, _, Vec<_>, Vec<_>>();
        Arc::new(Self { schema: Spec::of_fields(fields), makes })
    }

    fn texts() -> Arc<dyn Dataset> {
        let field = Field::variable("text", ElementType::Text);
        Self::of(Some((field, |id| format!("{id}:").repeat(1 + id as usize % 3).into_bytes())))
    }

    fn files(name: &str, makes: Makes) -> Arc<dyn Dataset> {
        Self::of(Some((Field::variable(name, ElementType::Bytes), makes)))
    }
}

impl Dataset for Large {
    fn spec(&self) -> &Spec {
        &self.schema
    }

    fn len(&self) -> u64 {
        160
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let mut makes = self.makes.iter().enumerate();
        Ok(makes.try_for_each(|(field, makes)| row.put(field, &makes(sample)))?)
    }

    fn about(&self) -> About<'_> {
        let groups = Some(Groups { largest: 20, bytes: 1 << 30 });
        let block_shuffle = Some((20, 40));
        About { format: "large", groups, block_shuffle, row_memory: 100, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, _: u64) -> Option<&Path> {
        Some(Path::new("folder/large.x"))
    }

    fn fingerprint(&self) -> u64 {
        11
    }
}

impl Storage for Large {
    fn group(&self, sample: u64) -> Range<u64> {
        sample / 20 * 20..(sample / 20 + 1) * 20
    }
}

/// A set of numbers.
pub(crate) fn numbers() -> Bounded {
    Bounded::new(Large::of(None)).unwrap()
}

/// A set of texts.
pub(crate) fn texts() -> Bounded {
    Bounded::limited(Large::texts(), 100).unwrap()
}

fn picture(id: u64) -> Vec<u8> {
    bitmap([8, 8], |x, y| [x as u8, y as u8, id as u8])
}

pub(crate) fn values(found: &mut Found) {
    found.set("large, Fixed", &numbers());
    found.set("large, Ragged", &texts());
    found.set("large, Ragged, measured", &Bounded::measured(Large::texts()).unwrap());
    let shards = || Arc::new(shards(vec![Large::texts(), Large::texts()]).unwrap());
    found.set("large, Shards", &Bounded::limited(shards(), 100).unwrap());
    let tokenized = Tokenized::new(Large::texts(), "text", tokenizer(&found.dir)).unwrap();
    found.set("large, Tokenized", &Bounded::limited(Arc::new(tokenized), 100).unwrap());
    let table = || Table::new(Large::of(None)).cast("label", DType::F32);
    found.set("large, table", &table().build().unwrap());
    found.set("large, reader of a table", &Bounded::limited(table().rows().unwrap(), 100).unwrap());
    let crop = || Transforms::new().center_crop(8);
    let pictures = || Large::files("image", picture);
    found.set("large, images", &Pictures::new(pictures(), crop()).unwrap());
    found.set("large, views", &Pictures::new(pictures(), Views::new().add(1, crop())).unwrap());
    found.set("large, joint", &Pictures::new(pictures(), Parts::new().with(crop())).unwrap());
    let sounds = Large::files("sound", |id| wav(100 + id as usize));
    let crop = Sounds::new().crop(64, Crop::From(0));
    found.set("large, sounds", &SoundDataset::new(sounds, crop).unwrap());
    let pixels = Field::fixed("image", ElementType::Number(DType::U8), &[2]);
    let pixels = Large::of(Some((pixels, |id| vec![id as u8; 2])));
    let options = LabelledOptions { input: None, label: None, classes: 10 };
    found.set("large, labelled", &Labelled::new(pixels, &options).unwrap());
    let zip = numbers().zip(feedline_core::InMemory::new().field("x", [], [7u8; 160]).unwrap());
    found.set("large, zip", &zip.unwrap());
    let mix = feedline_core::Mix::builder(7).dataset(numbers(), 1.0).dataset(numbers(), 1.0).build();
    found.set("large, mix", &mix.unwrap());
    found.set("large, negatives", &numbers().negatives(&["label"], 2, 30, 9).unwrap());
}
