//! Pascal VOC's XML: one file per picture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use feedline_core::Result;
use feedline_images::BoxFormat;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use super::outline::Sides;
use super::table::{Annotation, Boxes};
use super::{Read, files, has_extension, label_of, text};
use crate::error::{data, one_line};

/// Max depth of the tags that are read. Deeper tags have no meaning, and a file may have any number of them.
const DEPTH: usize = 5;

/// The content of the file of one picture.
#[derive(Default)]
struct Page {
    filename: String,
    /// Height and width; zeros if they are not stated.
    sides: Sides,
    objects: Vec<Object>,
}

#[derive(Clone, Default)]
struct Object {
    name: String,
    corners: [Option<f32>; 4],
    is_difficult: bool,
}

pub(super) fn read(annotations: &[PathBuf], images: &Path, stated: Option<&[String]>) -> Result<Read> {
    let pictures = files(images, |file| !has_extension(file, "xml"))?;
    // Also look pictures up by file name: folders of annotations are often flat.
    let by_name: BTreeMap<_, _> =
        pictures.iter().filter_map(|(stem, file)| Some((stem.file_name()?.to_owned(), file))).collect();
    let (mut pages, mut found) = (Vec::new(), Vec::new());
    for file in annotations {
        let page = page(file)?;
        let stem = file.file_stem().unwrap_or_default();
        let named = images.join(&page.filename);
        let picture = by_name.get(stem).map(|picture| (*picture).clone());
        let picture = picture.or_else(|| (!page.filename.is_empty() && named.is_file()).then_some(named));
        let Some(picture) = picture else {
            let why = format!(
                "the picture \"{}\" is not in {}: put both in step",
                one_line(&page.filename),
                one_line(images.display())
            );
            return Err(data(why).at_path(file));
        };
        found.push(picture);
        pages.push(page);
    }
    let names: BTreeSet<_> = pages.iter().flat_map(|page| &page.objects).map(|object| &object.name).collect();
    let classes = match stated {
        Some(stated) => stated.to_vec(),
        None => names.into_iter().cloned().collect(),
    };
    let mut all = Vec::new();
    for (picture, (page, file)) in pages.iter().zip(annotations).enumerate() {
        for Object { name, corners, is_difficult } in &page.objects {
            let label = label_of(name, &classes).map_err(|error| error.at_path(file))?;
            let corners = corners.map(|place| place.unwrap_or(f32::NAN));
            all.push(Annotation { picture, corners, label, flag: *is_difficult, ..Annotation::default() });
        }
    }
    let sides = pages.iter().map(|page| page.sides).collect();
    let boxes = Boxes::new(found.len(), all, Some("difficult")).with_sides(sides, false);
    Ok(Read { format: "voc", pictures: found, boxes, box_format: BoxFormat::xyxy(), classes })
}

/// Reads the file of a picture.
fn page(path: &Path) -> Result<Page> {
    let text = text(path)?;
    let mut reader = Reader::from_str(&text);
    let (mut page, mut place, mut content) = (Page::default(), Vec::new(), String::new());
    let mut object = Object::default();
    loop {
        let event = reader.read_event();
        let at = |why: String, reader: &Reader<&[u8]>| {
            let read = usize::try_from(reader.buffer_position()).unwrap_or(text.len()).min(text.len());
            let line = text.as_bytes()[..read].iter().filter(|&&byte| byte == b'\n').count() + 1;
            data(format!("line {line}: {why}")).at_path(path)
        };
        let damaged = |error: quick_xml::Error| at(format!("this is not XML: {}", one_line(error)), &reader);
        match event.map_err(damaged)? {
            Event::Start(tag) => {
                place.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
                content.clear();
            }
            Event::Text(part) => content.push_str(&String::from_utf8_lossy(&part.into_inner())),
            Event::CData(part) => content.push_str(&String::from_utf8_lossy(&part.into_inner())),
            Event::GeneralRef(part) => match part.resolve_char_ref().map_err(damaged)? {
                Some(char) => content.push(char),
                None => {
                    let name = String::from_utf8_lossy(&part.into_inner()).into_owned();
                    match resolve_predefined_entity(&name) {
                        Some(text) => content.push_str(text),
                        None => {
                            return Err(at(
                                format!("the entity \"{}\" is not known", one_line(name)),
                                &reader,
                            ));
                        }
                    }
                }
            },
            Event::End(_) => {
                let value = content.trim();
                let names: Vec<&str> = place.iter().map(String::as_str).take(DEPTH).collect();
                match names[..] {
                    ["annotation", "filename"] => page.filename = value.to_owned(),
                    ["annotation", "size", side @ ("height" | "width")] => {
                        // Some tools leave it empty.
                        let number = if value.is_empty() { Ok(0.0) } else { value.parse::<f64>() };
                        let number = number.ok().filter(|side| side.fract() == 0.0 && *side >= 0.0);
                        let number = number.ok_or_else(|| {
                            at(format!("the {side} \"{}\" is no whole number", one_line(value)), &reader)
                        })?;
                        page.sides[usize::from(side == "width")] = number as usize;
                    }
                    ["annotation", "object", "name"] => object.name = value.to_owned(),
                    ["annotation", "object", "difficult"] => object.is_difficult = value != "0",
                    ["annotation", "object", "bndbox", side] => {
                        let side = ["xmin", "ymin", "xmax", "ymax"].iter().position(|name| *name == side);
                        if let Some(side) = side {
                            let number = value
                                .parse()
                                .map_err(|_| at(format!("\"{}\" is no number", one_line(value)), &reader))?;
                            object.corners[side] = Some(number);
                        }
                    }
                    ["annotation", "object"] => {
                        let object = std::mem::take(&mut object);
                        if object.name.is_empty() || object.corners.contains(&None) {
                            return Err(at(
                                "an object lacks its name or a side of its bndbox".into(),
                                &reader,
                            ));
                        }
                        page.objects.push(object);
                    }
                    ["annotation"] => return Ok(page),
                    _ => {}
                }
                place.pop();
                content.clear();
            }
            Event::Eof => return Err(at("the file is cut short, or is no annotation".into(), &reader)),
            _ => {}
        }
    }
}
