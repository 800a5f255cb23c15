//! Pictures and sounds as data sets. Nothing is resized or resampled here: other tests have the values of
//! that.

use std::path::Path;
use std::sync::Arc;

use feedline_audio::{Channels, Crop, Sounds};
use feedline_core::{Dataset, Result};
use feedline_datasets::labelled::{Labelled, LabelledOptions, LabelledSets};
use feedline_datasets::{
    Annotated, Idx, ManifestOptions, Paired, Parts, Pictures, SoundDataset, Views, open, open_sounds,
};
use feedline_images::Transforms;

use crate::files::{bitmap, wav};
use crate::golden::Found;
use crate::made::write;

/// Pictures of two classes.
pub(crate) fn labelled_pictures(dir: &Path) -> std::path::PathBuf {
    for at in 0..6 {
        let picture = bitmap([12, 10], |x, y| [x as u8, y as u8, at as u8]);
        write(dir, &format!("labelled/{}/{at}.bmp", ["ant", "bee"][at % 2]), &picture);
    }
    dir.join("labelled")
}

pub(crate) fn values(found: &mut Found) {
    let dir = found.dir.clone();
    let folder = labelled_pictures(&dir);
    let reader = || open(&folder).unwrap();
    let crop = || Transforms::new().center_crop(8);
    let lanes = || Transforms::new().on_device().random_crop(8).flip(0.5);
    let set = Pictures::new(reader(), crop()).unwrap();
    found.set("images", &set);
    let random = Transforms::new().random_crop(8).flip(0.5);
    found.set("images, cropped at random", &Pictures::new(reader(), random).unwrap());
    found.set("images, encoded", &Pictures::encoded_up_to(reader(), lanes(), 1000).unwrap());
    let views = || Views::new().add(2, Transforms::new().random_crop(8)).add(1, crop());
    found.set("views", &Pictures::new(reader(), views()).unwrap());
    let encoded = Pictures::encoded(reader(), Views::new().add(2, lanes())).unwrap();
    found.set("views, encoded", &encoded);
    found.fact("views, encoded", "picture bytes", encoded.picture_bytes());
    let pairs = || Arc::new(Paired::open(dir.join("pictures"), dir.join("masks")).unwrap());
    let masks = || Parts::new().mask("mask");
    found.set("joint", &Pictures::new(pairs(), masks().with(crop())).unwrap());
    let random = Transforms::new().random_crop(8);
    found.set(
        "joint, cropped at random",
        &Pictures::new(pairs(), masks().report_moves().with(random)).unwrap(),
    );
    let encoded = Pictures::encoded(pairs(), masks().with(lanes())).unwrap();
    found.set("joint, encoded", &encoded);
    found.fact("joint, encoded", "picture bytes", encoded.picture_bytes());
    for (name, path) in [("coco", "coco.json"), ("voc", "voc"), ("yolo", "yolo")] {
        let annotated = Annotated::open(dir.join("pictures"), dir.join(path)).unwrap();
        found.set(&format!("joint, {name}"), &Pictures::annotated(annotated, crop()).unwrap());
    }
    let segmented = Annotated::open_segmented(dir.join("pictures"), dir.join("coco.json"), None).unwrap();
    found.set("joint, coco with masks", &Pictures::annotated(segmented, crop()).unwrap());
    labelled(found);
    sounds(found).unwrap();
}

fn labelled(found: &mut Found) {
    let dir = found.dir.clone();
    let options = LabelledOptions { input: None, label: None, classes: 10 };
    let cifar = open(dir.join("cifar")).unwrap();
    found.set("labelled", &Labelled::new(cifar, &options).unwrap());
    let sets = LabelledSets::open(&dir.join("cifar"), &options).unwrap();
    found.set("labelled, training set", &*sets.train);
    found.set("labelled, test set", &*sets.test);
    let images = |samples: u8| {
        [
            &[0, 0, 8, 3, 0, 0, 0, samples, 0, 0, 0, 1, 0, 0, 0, 2][..],
            &vec![samples; 2 * usize::from(samples)],
        ]
        .concat()
    };
    let labels =
        |samples: u8| [&[0, 0, 8, 1, 0, 0, 0, samples][..], &(0..samples).collect::<Vec<_>>()].concat();
    for (name, samples) in [("train", 4), ("t10k", 2)] {
        write(&dir, &format!("mnist/{name}-images-idx3-ubyte"), &images(samples));
        write(&dir, &format!("mnist/{name}-labels-idx1-ubyte"), &labels(samples));
    }
    let mnist = Idx::open_train(dir.join("mnist")).unwrap();
    found.set("mnist", &mnist);
    found.set("mnist, all bytes hashed", &mnist.hash_content().unwrap());
    found.set("mnist, test set", &Idx::open_test(dir.join("mnist")).unwrap());
    let sets = LabelledSets::open(&dir.join("mnist"), &options).unwrap();
    found.set("labelled mnist", &*sets.train);
    let npz = LabelledSets::open(&dir.join("a.npz"), &options).unwrap();
    found.set("labelled, all but a tenth", &*npz.train);
    found.set("labelled, a tenth", &*npz.test);
}

/// Sounds of two classes.
pub(crate) fn sound_folder(dir: &Path) -> std::path::PathBuf {
    for (at, frames) in [700, 40, 90, 1200].into_iter().enumerate() {
        write(dir, &format!("sounds/{}/{at}.wav", ["bird", "cat"][at % 2]), &wav(frames));
    }
    dir.join("sounds")
}

fn sounds(found: &mut Found) -> Result<()> {
    let folder = sound_folder(&found.dir);
    let reader = || -> Result<Arc<dyn Dataset>> { open_sounds(&folder, &ManifestOptions::default()) };
    let whole = SoundDataset::new(reader()?, Sounds::new())?;
    found.set("sounds", &whole);
    found.fact("sounds", "lengths", whole.lengths());
    for (name, at) in
        [("from a frame", Crop::From(3)), ("in the middle", Crop::Center), ("at random", Crop::Random)]
    {
        let set = SoundDataset::new(reader()?, Sounds::new().crop(64, at))?;
        found.set(&format!("sounds, cropped {name}"), &set);
    }
    let channels = Sounds::new().channels(Channels::Exactly(1)).crop(64, Crop::From(0));
    found.set("sounds, a channel", &SoundDataset::new(reader()?, channels)?);
    let rows = "path,sentence,speaker\nsounds/bird/0.wav,open the door,3\nsounds/cat/1.wav,stop,5\n";
    let clips = open_sounds(write(&found.dir, "clips.csv", rows.as_bytes()), &ManifestOptions::default())?;
    let clips = SoundDataset::new(clips, Sounds::new().crop(64, Crop::From(0)))?.beside(["sentence"])?;
    found.set("sounds of a manifest", &clips);
    Ok(())
}
