//! Pictures: folders of classes, folders of the hub, archives, MNIST, CIFAR.

use super::*;

pub(super) fn classes() -> Done {
    let train = open("pictures/train")?;
    let classes = train.about().classes.map(<[String]>::to_vec);
    let val = open_with("pictures/val", &OpenOptions { classes, ..Default::default() })?; // lacks "bee"
    let train = Pictures::new(train, Transforms::new().random_resized_crop(8).flip(0.5))?;
    let val = Pictures::new(val, Transforms::new().center_crop(8))?;
    let mut loader = Loader::builder(train).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (images, labels) = (batch.field::<u8>("image")?, batch.field::<i64>("label")?);
        assert_eq!(images.len(), labels.len() * 8 * 8 * 3); // rows, columns, RGB
    }
    assert_eq!(val.inner().about().classes.unwrap(), ["ant", "bee", "cat"]);
    assert_eq!(column::<i64>(val, "label")?, [0, 2]);
    let mut labels = Vec::new();
    for batch in delivered(&mut loader)? {
        labels.extend_from_slice(batch.field::<i64>("label")?);
    }
    labels.sort_unstable();
    assert_eq!(labels, [0, 1, 2]);
    Ok(())
}

pub(super) fn masks() -> Done {
    let pairs = Paired::open("photographs", "masks")?; // the files of one name
    let transforms = Transforms::new().random_resized_crop(8).flip(0.5).color_jitter(0.2, 0.2, 0.2, 0.0);
    let data = Pictures::new(Arc::new(pairs), Parts::new().mask("mask").with(transforms))?;
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (images, masks) = (batch.field::<u8>("image")?, batch.field::<u8>("mask")?);
        assert_eq!(images.len(), 3 * masks.len()); // a class for each pixel
    }
    let mut classes = std::collections::BTreeSet::new();
    for batch in delivered(&mut loader)? {
        classes.extend(batch.field::<u8>("mask")?.to_vec());
    }
    assert_eq!(classes.into_iter().collect::<Vec<_>>(), [4, 5, 6]);
    Ok(())
}

pub(super) fn boxes() -> Done {
    let photographs = Annotated::open("photographs", "instances.json")?; // or a folder of .xml, or of .txt
    let transforms = Transforms::new().random_resized_crop(8).flip(0.5);
    let data = Pictures::annotated(photographs, transforms)?;
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (boxes, of) = batch.ragged::<f32>("boxes")?; // sample n has the boxes of[n]..of[n + 1]
        let (labels, _) = batch.ragged::<i64>("labels")?; // also `area`, `iscrowd`, `image_id`
        assert_eq!((boxes.len(), of.len()), (4 * labels.len(), batch.ids().len() + 1));
    }
    let photographs = Annotated::open("photographs", "instances.json")?;
    let whole = Pictures::annotated(photographs, Transforms::new().center_crop(8))?;
    let mut loader = Loader::builder(whole).batch_size(3).build_host()?;
    let batches = delivered(&mut loader)?;
    let (boxes, of) = batches[0].ragged::<f32>("boxes")?;
    assert_eq!((boxes, of), (&[1.0, 1.0, 4.0, 5.0, 0.0, 0.0, 8.0, 8.0][..], &[0, 1, 1, 2][..]));
    assert_eq!(batches[0].ragged::<i64>("labels")?.0, [2, 1]);
    assert_eq!(batches[0].field::<i64>("image_id")?, [4, 5, 6]);
    Ok(())
}

pub(super) fn views() -> Done {
    let large = Transforms::new().random_resized_crop(8).flip(0.5).color_jitter(0.4, 0.4, 0.2, 0.1);
    let small = Transforms::new().random_resized_crop(4).flip(0.5);
    let data = Pictures::new(open("photographs")?, Views::new().add(2, large).add(4, small))?;
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let (one, other) = (batch.field::<u8>("view0")?, batch.field::<u8>("view1")?); // to `view5`
        assert_eq!(one.len(), other.len());
    }
    let batches = delivered(&mut loader)?;
    assert_eq!(batches[0].field::<u8>("view5")?.len(), 2 * 4 * 4 * 3);
    assert_ne!(batches[0].field::<u8>("view0")?, batches[0].field::<u8>("view1")?);
    Ok(())
}

pub(super) fn list() -> Done {
    let ants = open("pictures/{train,val}/ant/*.bmp")?; // no classes: the list is one of sets
    let files = open("pictures/train/*/*.bmp")?; // classes: ant, bee, cat
    let data = Pictures::new(files, Transforms::new().center_crop(8))?;
    let options = OpenOptions { class_from: Some(1), ..Default::default() };
    let both = open_with("pictures/*/*/*.bmp", &options)?;
    assert_eq!((ants.len(), ants.about().classes), (2, None));
    assert_eq!(data.inner().about().classes.unwrap(), ["ant", "bee", "cat"]);
    assert_eq!(column::<i64>(data, "label")?, [0, 1, 2]);
    assert_eq!(both.about().classes.unwrap(), ["ant", "bee", "cat"]);
    let both = Pictures::new(both, Transforms::new().center_crop(8))?;
    assert_eq!(column::<i64>(both, "label")?, [0, 1, 2, 0, 2]);
    Ok(())
}

pub(super) fn manifest() -> Done {
    let options = ManifestOptions { root: Some("pictures".into()), ..Default::default() };
    let files = open_pictures("pictures.csv", &options)?; // columns `file` and `species`
    let data = Pictures::new(files, Transforms::new().center_crop(8))?; // fields `image`, `species`
    let one = BadSamples::Substitute { budget: Budget::Count(1) };
    let mut loader = Loader::builder(data).batch_size(2).bad_samples(one).build_host()?;
    let (mut species, mut replaced) = (Vec::new(), 0);
    for batch in delivered(&mut loader)? {
        assert_eq!(batch.field::<u8>("image")?.len() / (8 * 8 * 3), batch.field::<i64>("species")?.len());
        species.extend_from_slice(batch.field::<i64>("species")?);
        replaced += batch.substituted().len();
    }
    // Row 1 names a file that is not there.
    assert_eq!((species[0], species[2], species.len(), replaced), (1, 1, 3, 1));
    for other in ["pictures.jsonl", "pictures.parquet"] {
        let other = Pictures::new(open_pictures(other, &options)?, Transforms::new().center_crop(8))?;
        assert_eq!(column::<i64>(other.subset([0, 2])?, "species")?, [1, 1]);
    }
    let files = open_pictures("pictures.csv", &options)?;
    assert_eq!(files.about().classes.unwrap(), ["an ant", "bee"]);
    let strict = Pictures::new(files, Transforms::new().center_crop(8))?;
    let error = Loader::builder(strict).batch_size(3).build_host()?.epoch(0)?.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("column \"file\" names in row 1"), "{error}");
    Ok(())
}

pub(super) fn clips() -> Done {
    let options = ManifestOptions { files: vec!["clip".into()], ..Default::default() };
    let data = Bounded::measured(Arc::new(Manifest::open("clips.csv", &options)?))?; // fields `clip`, `word`
    let mut loader = Loader::builder(data).batch_size(2).build_host()?;
    let batches = delivered(&mut loader)?;
    let (bytes, offsets) = batches[0].ragged::<u8>("clip")?;
    assert_eq!((bytes, offsets), (&b"yesno"[..], &[0, 3, 5][..]));
    assert_eq!(batches[0].field::<i64>("word")?, [1, 0]);
    Ok(())
}

pub(super) fn saved() -> Done {
    let options = OpenOptions { split: Some(Split::Train), ..Default::default() };
    let files = open_with("saved", &options)?; // the folder that `save_to_disk` wrote
    let classes = files.about().classes.unwrap_or_default().to_vec(); // the names of its ClassLabel
    let data = Pictures::new(files, Transforms::new().center_crop(8))?;
    assert_eq!(classes, ["ant", "bee", "cat"]);
    assert_eq!(column::<i64>(data, "label")?, [0, 1, 2]);
    Ok(())
}

pub(super) fn hub() -> Done {
    let options = OpenOptions {
        split: Some(Split::Train),
        columns: Some(vec!["price".into(), "words".into()]),
        ..Default::default()
    };
    let data = Bounded::measured(open_with("repository", &options)?)?; // data/train-*.parquet
    let first = open("repository/data/train-00000-of-00002.parquet")?.len();
    assert_eq!(data.len(), 2 * first);
    Ok(())
}

pub(super) fn webdataset() -> Done {
    let files = open("pictures-{000..001}.tar")?; // 0.jpg beside 0.cls, 1.jpg beside 1.cls, ...
    let data = Pictures::new(files, Transforms::new().center_crop(8))?; // `cls` is the field `label`
    let mut loader = Loader::builder(data).batch_size(2).shuffle().seed(7).build_host()?;
    let mut labels = Vec::new();
    for batch in delivered(&mut loader)? {
        labels.extend_from_slice(batch.field::<i64>("label")?);
    }
    labels.sort_unstable();
    assert_eq!(labels, [0, 1, 5, 6]);
    Ok(())
}

pub(super) fn mnist() -> Done {
    let (train, test) = (Idx::open_train("mnist")?, Idx::open_test("mnist")?); // `image` and `label`, u8
    assert_eq!(column::<u8>(train, "label")?, [7, 9]);
    assert_eq!(column::<u8>(test, "image")?, [9, 8, 7, 6]);
    Ok(())
}

pub(super) fn cifar() -> Done {
    let train = Bounded::new(open("cifar-10-batches-bin")?)?; // the five training files
    let options = OpenOptions { split: Some(Split::Test), ..Default::default() };
    let test = Bounded::new(open_with("cifar-10-batches-bin", &options)?)?;
    assert_eq!(column::<u8>(train, "label")?, [1, 2, 3, 4, 5]);
    assert_eq!(column::<u8>(test, "label")?, [6]);
    Ok(())
}
