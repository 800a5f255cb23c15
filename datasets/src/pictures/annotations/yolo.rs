//! YOLO's text files. Each picture has a file, and each box a line.

use std::path::Path;

use feedline_core::Result;
use feedline_images::BoxFormat;

use super::table::{Annotation, Boxes};
use super::{Read, files, has_extension, text};
use crate::error::{data, one_line};

/// The file with the names of the classes, as LabelImg writes it.
const CLASSES: &str = "classes.txt";

pub(super) fn read(labels: &Path, images: &Path, stated: Option<&[String]>) -> Result<Read> {
    let names = labels.join(CLASSES);
    let classes = match stated {
        Some(stated) => stated.to_vec(),
        None if names.is_file() => {
            // The number of a class is the number of its line, so a blank line between two names counts.
            text(&names)?.trim_end().lines().map(|line| line.trim().to_owned()).collect()
        }
        None => Vec::new(),
    };
    let mut texts = files(labels, |file| has_extension(file, "txt") && file != names)?;
    // The text files may be in the pictures' folder.
    let pictures = files(images, |file| !has_extension(file, "txt"))?;
    let mut all = Vec::new();
    for (picture, stem) in pictures.keys().enumerate() {
        // A picture without a text file has no boxes.
        if let Some(text) = texts.remove(stem) {
            read_text(&text, picture, &classes, &mut all)?;
        }
    }
    if let Some(text) = texts.into_values().next() {
        let why = format!("no picture in {} has this name: put both in step", one_line(images.display()));
        return Err(data(why).at_path(text));
    }
    Ok(Read {
        format: "yolo",
        boxes: Boxes::new(pictures.len(), all, None),
        pictures: pictures.into_values().collect(),
        box_format: BoxFormat::cxcywh().normalised(),
        classes,
    })
}

/// Adds the boxes of one picture.
fn read_text(path: &Path, picture: usize, classes: &[String], to: &mut Vec<Annotation>) -> Result<()> {
    let text = text(path)?;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| data(format!("line {}: {why}", number + 1)).at_path(path);
        let words: Vec<_> = line.split_whitespace().collect();
        let &[class, ref corners @ ..] = &words[..] else { continue };
        let label: i64 = class
            .parse()
            .map_err(|_| bad(format!("the class \"{}\" is no whole number", one_line(class))))?;
        if !classes.is_empty() && usize::try_from(label).is_ok_and(|label| label >= classes.len())
            || label < 0
        {
            return Err(bad(format!("there is no class {label}: there are {} names", classes.len())));
        }
        let corners: Option<Vec<f32>> = corners.iter().map(|word| word.parse().ok()).collect();
        let Some(corners) = corners.and_then(|corners| <[f32; 4]>::try_from(corners).ok()) else {
            let why = "a box is a class and four numbers, centre, width and height: polygons are not boxes";
            return Err(bad(why.into()));
        };
        to.push(Annotation { picture, corners, label, ..Annotation::default() });
    }
    Ok(())
}
