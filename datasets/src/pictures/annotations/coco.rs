//! COCO's JSON: one file with all pictures, categories and annotations.

use std::collections::HashMap;
use std::path::Path;

use feedline_core::{Error, ErrorKind, Result};
use feedline_images::BoxFormat;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::outline::{self, Outline, Sides};
use super::table::{Annotation, Boxes};
use super::{Read, content};
use crate::error::{data, one_line};

/// The largest category id. The list of classes is indexed by these ids.
const MAX_CLASS: i64 = 1 << 16;

/// `S` is the type of an object's outline. Without masks, it is a type that skips the outline.
#[derive(Deserialize)]
struct File<S> {
    images: Vec<Image>,
    #[serde(default)]
    categories: Vec<Category>,
    annotations: Vec<Item<S>>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    file_name: String,
    width: Option<usize>,
    height: Option<usize>,
}

#[derive(Deserialize)]
struct Category {
    id: i64,
    name: String,
}

#[derive(Deserialize)]
struct Item<S> {
    id: Option<i64>,
    image_id: i64,
    category_id: Option<i64>,
    bbox: Option<Vec<Option<f64>>>,
    area: Option<f64>,
    #[serde(default)]
    iscrowd: Crowd,
    #[serde(default)]
    keypoints: Vec<Option<f64>>,
    segmentation: Option<S>,
}

/// A number. Some tools write `true` and `false` instead.
#[derive(Deserialize)]
#[serde(untagged)]
enum Crowd {
    Number(i64),
    Bool(bool),
}

impl Default for Crowd {
    fn default() -> Self {
        Self::Bool(false)
    }
}

/// Reads the file. If `masks` is true, also reads the outlines of the objects.
pub(super) fn read(path: &Path, images: &Path, stated: Option<&[String]>, masks: bool) -> Result<Read> {
    if masks {
        return read_as(path, images, stated, Some(&Outline::new));
    }
    read_as::<IgnoredAny>(path, images, stated, None)
}

/// Checks an object's outline against the sides of its picture.
type Check<'a, S> = &'a dyn Fn(S, Sides) -> Result<Outline, String>;

fn read_as<S: DeserializeOwned>(
    path: &Path,
    images: &Path,
    stated: Option<&[String]>,
    outlined: Option<Check<'_, S>>,
) -> Result<Read> {
    let bytes = content(path)?;
    let refuse = |why: String| data(why).at_path(path);
    let bytes = null_for_nan(bytes);
    let File::<S> { images: mut listed, mut categories, annotations } = serde_json::from_slice(&bytes)
        .map_err(|error| refuse(format!("this is not COCO's JSON: {}", one_line(error))))?;
    drop(bytes);
    listed.sort_by_key(|image| image.id);
    if let Some(twice) = listed.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(refuse(format!("two pictures have the id {}: give each an id of its own", twice[0].id)));
    }
    let number_of: HashMap<_, _> =
        listed.iter().enumerate().map(|(number, image)| (image.id, number)).collect();
    categories.sort_by_key(|category| category.id);
    if let Some(twice) = categories.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(refuse(format!(
            "two categories have the id {}: give each an id of its own",
            twice[0].id
        )));
    }
    let mut ids: Vec<_> = annotations.iter().filter_map(|item| item.id).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refuse(format!(
            "two annotations have the id {}: give each an id of its own, or leave the ids out",
            twice[0]
        )));
    }
    let known: HashMap<_, _> = categories.iter().map(|category| (category.id, &category.name)).collect();
    let mut all = Vec::with_capacity(annotations.len());
    for (place, item) in annotations.into_iter().enumerate() {
        let name = item.id.map_or(format!("number {place}"), |id| format!("with the id {id}"));
        let bad = |why: String| refuse(format!("the annotation {name} {why}"));
        let Some(&picture) = number_of.get(&item.image_id) else {
            return Err(bad(format!(
                "is of the picture {}, which is not in the list of images",
                item.image_id
            )));
        };
        let bbox: Option<[f32; 4]> = item.bbox.and_then(|bbox| numbers(&bbox).try_into().ok());
        let Some(corners) = bbox else { return Err(bad("has no bbox of four numbers".into())) };
        let Some(label) = item.category_id.filter(|id| known.contains_key(id)) else {
            return Err(bad(match item.category_id {
                Some(id) => format!("has the category {id}, which is not in the list of categories"),
                None => "has no category_id".to_owned(),
            }));
        };
        if !item.keypoints.len().is_multiple_of(3) {
            return Err(bad(format!(
                "has {} numbers of keypoints, which are not threes",
                item.keypoints.len()
            )));
        }
        let outline = match outlined {
            None => None,
            Some(check) => Some(outline(item.segmentation, label, &listed[picture], check).map_err(bad)?),
        };
        let flag = !matches!(item.iscrowd, Crowd::Number(0) | Crowd::Bool(false));
        let area = item.area.map_or(corners[2] * corners[3], |area| area as f32);
        let keypoints = numbers(&item.keypoints);
        all.push(Annotation { picture, corners, label, area, flag, keypoints, outline });
    }
    let classes = names(&categories);
    if stated.is_some_and(|stated| !classes.is_empty() && stated != classes) {
        let why = "its categories are not the stated classes: labels are category ids, so leave out classes";
        return Err(Error::new(ErrorKind::Config, why).at_path(path));
    }
    let ids = listed.iter().map(|image| image.id).collect();
    let sides_of = |image: &Image| match outlined {
        None => Ok(image.height.zip(image.width).map_or([0, 0], |(height, width)| [height, width])),
        Some(_) => sides(image).map_err(refuse),
    };
    let sides = listed.iter().map(sides_of).collect::<Result<_>>()?;
    Ok(Read {
        format: "coco",
        pictures: listed.iter().map(|image| images.join(&image.file_name)).collect(),
        boxes: Boxes::new(listed.len(), all, Some("iscrowd"))
            .with_ids(ids)
            .with_sides(sides, outlined.is_some()),
        box_format: BoxFormat::xywh(),
        classes,
    })
}

/// The height and the width of a picture, for its mask.
fn sides(image: &Image) -> Result<Sides, String> {
    let sides = image.height.zip(image.width).map(|(height, width)| [height, width]);
    sides.filter(|sides| outline::is_small(*sides)).ok_or_else(|| {
        format!(
            "the picture {} has no width and height of up to 2^27 pixels, in which a mask is made",
            image.id
        )
    })
}

/// The checked outline of an object whose label is `label`.
fn outline<S>(given: Option<S>, label: i64, image: &Image, check: Check<'_, S>) -> Result<Outline, String> {
    let sides = sides(image)?;
    if !(1..=outline::MAX_LABEL).contains(&label) {
        return Err(format!(
            "has the category {label}, and a mask has room for 1 to {}: 0 is what belongs to none",
            outline::MAX_LABEL
        ));
    }
    let Some(given) = given else { return Err("has no segmentation: leave out masks".into()) };
    check(given, sides)
}

/// The numbers. A `null` becomes NaN: reading a sample with NaN is an error.
fn numbers(given: &[Option<f64>]) -> Vec<f32> {
    given.iter().map(|number| number.map_or(f32::NAN, |number| number as f32)).collect()
}

/// The names, indexed by category id. Empty if an id cannot be an index.
fn names(categories: &[Category]) -> Vec<String> {
    let Some(last) = categories.last().filter(|last| last.id < MAX_CLASS && categories[0].id >= 0) else {
        return Vec::new();
    };
    let mut names = vec!["N/A".to_owned(); last.id as usize + 1];
    for category in categories {
        names[category.id as usize].clone_from(&category.name);
    }
    names
}

/// Replaces `NaN` and infinities by `null`. Python writes them, but JSON does not have them. So only their
/// samples are refused, not the whole file.
fn null_for_nan(json: Vec<u8>) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let (mut plain, mut copied, mut at, mut is_text) = (Vec::new(), 0, 0, false);
    while let Some(byte) = json.get(at) {
        match byte {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            b'N' | b'I' | b'-' if !is_text => {
                if let Some(word) = WORDS.into_iter().find(|word| json[at..].starts_with(word)) {
                    plain.extend_from_slice(&json[copied..at]);
                    plain.extend_from_slice(b"null");
                    at += word.len() - 1;
                    copied = at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return json;
    }
    plain.extend_from_slice(&json[copied..]);
    plain
}
