//! Boxes of COCO's JSON, Pascal VOC's XML and YOLO's text files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use feedline_core::{CheckOptions, Context, Dataset, Error, ErrorKind, Layout, Values, check_dataset};
use feedline_datasets::{Annotated, Pictures};
use feedline_images::{CenterCrop, Decoder, Plane, Size, Transforms};
use feedline_testkit::{cpu_time, emulated};
use tempfile::{TempDir, tempdir};

use crate::made::{png, png_of, write};

const COCO: &str = r#"{"info": {"year": "NaN"}, "licenses": [],
    "images": [{"id": 9, "file_name": "c.png", "width": 24, "height": 24}, {"id": 2, "file_name": "a.png"},
        {"id": 5, "file_name": "b.png"}],
    "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "a \"person\""}],
    "annotations": [
        {"id": 70, "image_id": 9, "category_id": 3, "bbox": [1, 2, 3.5, 4], "area": 9.5, "iscrowd": 1,
         "segmentation": [[1, 2, 3, 4]], "keypoints": [1, 2, 2, 3, 4, 1], "num_keypoints": 2},
        {"id": 71, "image_id": 2, "category_id": 1, "bbox": [NaN, 2, 3, 4], "area": 12, "iscrowd": 0},
        {"id": 72, "image_id": 9, "category_id": 1, "bbox": [5, 6, 7, 8]}]}"#;

const VOC: &str = r#"<?xml version="1.0"?>
<annotation>
    <folder>VOC2012</folder><filename>elsewhere.jpg</filename>
    <size><width>24</width><height>24</height><depth>3</depth></size>
    <object><name>dog &amp; cat</name><difficult>1</difficult>
        <bndbox><xmin>2</xmin><ymin>3</ymin><xmax>10.5</xmax><ymax>12</ymax></bndbox>
      <part><name>head</name><bndbox><xmin>4</xmin><ymin>4</ymin><xmax>6</xmax><ymax>6</ymax></bndbox></part>
    </object><object>
        <name><![CDATA[bird]]></name><bndbox><ymin>1</ymin><xmin>5</xmin><ymax>7</ymax><xmax>9</xmax></bndbox>
    </object>
</annotation>"#;

fn picture() -> Vec<u8> {
    png(24, 8, 0, &[7; 24 * 24])
}

/// The files of all three formats.
fn made() -> TempDir {
    let dir = tempdir().unwrap();
    for name in ["a", "b", "c"] {
        write(dir.path(), &format!("images/{name}.png"), &picture());
    }
    write(dir.path(), "coco.json", COCO.as_bytes());
    write(dir.path(), "voc/a.xml", VOC.as_bytes());
    write(dir.path(), "voc/c.xml", b"<annotation><filename>c.png</filename></annotation>");
    write(dir.path(), "yolo/b.txt", b"2 0.5 0.25 0.5 0.5\n\n0\t0.1 0.1 2e-1 0.2\n");
    write(dir.path(), "yolo/classes.txt", b"bird\ncat\ndog\n");
    dir
}

fn opened(dir: &TempDir, annotations: &str) -> Result<Annotated, Error> {
    Annotated::open(dir.path().join("images"), dir.path().join(annotations))
}

/// Each field of a sample, without the picture.
fn sample(reader: &dyn Dataset, sample: u64) -> Vec<(Vec<u8>, Vec<usize>)> {
    let mut values = Values::new();
    values.read(reader, sample).unwrap();
    assert_eq!(values.fields()[0].bytes, picture());
    values.fields()[1..].iter().map(|value| (value.bytes.clone(), value.shape.clone())).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn longs(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

#[test]
fn cocos_file_is_read_in_the_order_of_ids() {
    let dir = made();
    let reader = opened(&dir, "coco.json").unwrap();
    assert_eq!((reader.about().format, reader.len()), ("coco", 3));
    assert_eq!(
        reader.spec().to_string(),
        "image bytes [?], boxes f32 [?, 4], labels i64 [?], iscrowd bool [?], area f32 [?], keypoints f32 \
         [?, 2, 3], image_id i64 [], width i64 [], height i64 []"
    );
    assert_eq!(reader.about().classes.unwrap(), ["N/A", "a \"person\"", "N/A", "cat"]);
    let [first, empty, last] = [0, 1, 2].map(|id| sample(&reader, id));
    assert!(floats(&first[0].0)[0].is_nan() && first[0].1 == [1, 4]);
    assert_eq!((empty[0].0.len(), longs(&empty[5].0)), (0, vec![5]));
    assert_eq!(floats(&last[0].0), [1.0, 2.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!((longs(&last[1].0), &last[2].0[..]), (vec![3, 1], &[1, 0][..]));
    // If no area is stated, it is that of the box.
    assert_eq!(floats(&last[3].0), [9.5, 56.0]);
    assert_eq!(floats(&last[4].0), [1.0, 2.0, 2.0, 3.0, 4.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!((last[4].1.as_slice(), longs(&last[5].0)), (&[2, 2, 3][..], vec![9]));
    // The size as the file states it; 0 if it does not.
    assert_eq!([&last[6], &last[7], &empty[6]].map(|field| longs(&field.0)), [[24], [24], [0]]);
    assert!(reader.path(2).unwrap().ends_with("images/c.png"));
    let classes = reader.about().classes.unwrap().to_vec();
    let (images, path) = (dir.path().join("images"), dir.path().join("coco.json"));
    assert_eq!(
        Annotated::open_with(&images, &path, Some(&classes)).unwrap().fingerprint(),
        reader.fingerprint()
    );
    let error = Annotated::open_with(&images, &path, Some(&classes[1..])).unwrap_err();
    assert!(error.to_string().contains("its categories are not the stated classes"), "{error}");
}

#[test]
fn pascal_vocs_files_have_the_boxes_of_objects_and_not_of_parts() {
    let dir = made();
    let reader = opened(&dir, "voc").unwrap();
    assert_eq!((reader.about().format, reader.len()), ("voc", 2));
    assert_eq!(
        reader.spec().to_string(),
        "image bytes [?], boxes f32 [?, 4], labels i64 [?], difficult bool [?], width i64 [], height i64 []"
    );
    assert_eq!(reader.about().classes.unwrap(), ["bird", "dog & cat"]);
    let fields = sample(&reader, 0);
    assert_eq!(floats(&fields[0].0), [2.0, 3.0, 10.5, 12.0, 5.0, 1.0, 9.0, 7.0]);
    assert_eq!((longs(&fields[1].0), &fields[2].0[..]), (vec![1, 0], &[1, 0][..]));
    assert_eq!(sample(&reader, 1)[0].1, [0, 4]);
    let classes = ["dog & cat", "cow", "bird"].map(str::to_owned);
    let (images, voc) = (dir.path().join("images"), dir.path().join("voc"));
    let stated = Annotated::open_with(&images, &voc, Some(&classes)).unwrap();
    assert_eq!(longs(&sample(&stated, 0)[1].0), [0, 2]);
    let error = Annotated::open_with(&images, &voc, Some(&classes[..2])).unwrap_err();
    assert_eq!(error.path(), Some(&*voc.join("a.xml")));
    assert!(error.to_string().contains("the class \"bird\" is none of the 2 stated classes"), "{error}");
}

#[test]
fn yolos_texts_may_be_missing_and_may_lie_beside_the_pictures() {
    let dir = made();
    let check = |reader: Annotated| {
        assert_eq!((reader.about().format, reader.len()), ("yolo", 3));
        assert_eq!(reader.about().classes.unwrap(), ["bird", "cat", "dog"]);
        assert_eq!(
            (sample(&reader, 0)[0].1.as_slice(), sample(&reader, 2)[0].1.as_slice()),
            (&[0, 4][..], &[0, 4][..])
        );
        let fields = sample(&reader, 1);
        assert_eq!(floats(&fields[0].0), [0.5, 0.25, 0.5, 0.5, 0.1, 0.1, 0.2, 0.2]);
        assert_eq!(longs(&fields[1].0), [2, 0]);
    };
    check(opened(&dir, "yolo").unwrap());
    for name in ["b.txt", "classes.txt"] {
        fs::rename(dir.path().join("yolo").join(name), dir.path().join("images").join(name)).unwrap();
    }
    check(opened(&dir, "images").unwrap());
}

#[test]
fn a_byte_order_mark_is_no_part_of_annotations_and_a_blank_line_is_a_class() {
    let dir = made();
    let mark = |name: &str, text: &[u8]| write(dir.path(), name, &[b"\xEF\xBB\xBF", text].concat());
    let plain = ["coco.json", "voc", "yolo"].map(|name| opened(&dir, name).unwrap());
    mark("coco.json", COCO.as_bytes());
    mark("voc/a.xml", VOC.as_bytes());
    mark("yolo/b.txt", &fs::read(dir.path().join("yolo/b.txt")).unwrap());
    mark("yolo/classes.txt", b"bird\r\ncat\r\ndog\r\n\r\n");
    for (name, plain) in ["coco.json", "voc", "yolo"].into_iter().zip(plain) {
        let marked = opened(&dir, name).unwrap();
        assert_eq!(marked.about().classes, plain.about().classes, "{name}");
        assert_eq!(marked.fingerprint(), plain.fingerprint(), "{name}");
    }
    // The number of a class is the number of its line.
    write(dir.path(), "yolo/classes.txt", b"bird\n\ndog\n");
    assert_eq!(opened(&dir, "yolo").unwrap().about().classes.unwrap(), ["bird", "", "dog"]);
}

#[test]
fn coordinates_of_pascal_voc_may_count_from_one() {
    let dir = made();
    let reader = opened(&dir, "voc").unwrap();
    let (before, counted) = (reader.fingerprint(), reader.one_based().unwrap());
    assert_eq!(floats(&sample(&counted, 0)[0].0), [1.0, 2.0, 10.5, 12.0, 4.0, 0.0, 9.0, 7.0]);
    assert_ne!(before, counted.fingerprint());
    let error = opened(&dir, "coco.json").unwrap().one_based().unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.message().contains("only Pascal VOC's"), "{error}");
}

#[test]
fn annotations_that_do_not_fit_are_refused_with_their_file_and_place() {
    let dir = made();
    let root = dir.path();
    let coco = |old: &str, new: &str| {
        let text = COCO.replacen(old, new, 1);
        assert_ne!(text, COCO);
        write(root, "bad.json", text.as_bytes())
    };
    let refused = |path: PathBuf, part: &str| {
        let error = Annotated::open(root.join("images"), &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.path().is_some_and(|at| at.starts_with(&path)), "{error}");
        assert!(error.to_string().contains(part) && !error.to_string().contains('\n'), "{error}");
    };
    refused(coco("\"image_id\": 2", "\"image_id\": 4"), "the annotation with the id 71 is of the picture 4");
    refused(
        coco("\"category_id\": 3", "\"category_id\": 8"),
        "the annotation with the id 70 has the category 8, which is not in the list of categories",
    );
    refused(coco("[5, 6, 7, 8]", "[5, 6, 7]"), "the annotation with the id 72 has no bbox of four numbers");
    refused(coco("\"id\": 5", "\"id\": 9"), "two pictures have the id 9");
    refused(coco("\"id\": 70", "\"id\": 71"), "two annotations have the id 71");
    refused(coco("{\"id\": 1,", "{\"id\": 3,"), "two categories have the id 3");
    refused(coco("[1, 2, 2, 3, 4, 1]", "[1, 2, 2, 3]"), "has 4 numbers of keypoints");
    refused(coco("\"annotations\"", "\"notes\""), "this is not COCO's JSON: missing field `annotations`");
    let voc = |name: &str, old: &str, new: &str| {
        let text = VOC.replacen(old, new, 1);
        assert_ne!(text, VOC);
        let folder = root.join(name);
        write(root, &format!("{name}/a.xml"), text.as_bytes());
        folder
    };
    refused(voc("v0", "<xmin>2</xmin>", "<xmin>two</xmin>"), "line 6: \"two\" is no number");
    refused(voc("v1", "<xmin>2</xmin>", ""), "line 8: an object lacks its name or a side of its bndbox");
    refused(voc("v2", "</size>", "</sizes>"), "line 4: this is not XML");
    refused(voc("v3", "&amp;", "&dog;"), "the entity \"dog\" is not known");
    write(root, "v4/z.xml", VOC.as_bytes());
    refused(root.join("v4"), "the picture \"elsewhere.jpg\" is not in");
    let yolo = |name: &str, file: &str, text: &str| {
        write(root, &format!("{name}/{file}"), text.as_bytes());
        root.join(name)
    };
    refused(
        yolo("y0", "a.txt", "0 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1\n"),
        "line 2: a box is a class and four numbers",
    );
    refused(yolo("y1", "a.txt", "0.5 0.5 0.5 0.1 0.1"), "line 1: the class \"0.5\" is no whole number");
    refused(yolo("y2", "a.txt", "0 1 2 3 4 5 6 7"), "polygons are not boxes");
    refused(yolo("y3", "z.txt", "0 0.5 0.5 0.1 0.1"), "no picture in");
    write(root, "y4/classes.txt", b"bird\n");
    refused(yolo("y4", "a.txt", "1 0.5 0.5 0.1 0.1"), "there is no class 1: there are 1 names");
    refused(root.join("images"), "these are no annotations");
    refused(write(root, "boxes.xml", b""), "these are no annotations");
}

/// Polygons, run lengths as numbers and as text, and overlaps: `golden/coco_masks.py` writes the expected
/// masks.
#[test]
fn masks_of_cocos_objects_are_pycocotools_to_the_pixel() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/coco_masks.json");
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&golden).unwrap()).unwrap();
    let wanted = whole["wanted"].as_array().unwrap();
    let dir = tempdir().unwrap();
    (0..wanted.len()).for_each(|number| drop(write(dir.path(), &format!("{number}.png"), &picture())));
    let reader = Annotated::open_segmented(dir.path(), &golden, None).unwrap();
    let field = reader.spec().fields().iter().position(|field| field.name() == "segmentation").unwrap();
    let (mut decoder, mut mask, mut objects) = (Decoder::new(), Plane::<u8>::new(), 0);
    for (number, wanted) in wanted.iter().enumerate() {
        let runs: Vec<u64> = wanted.as_array().unwrap().iter().map(|run| run.as_u64().unwrap()).collect();
        let runs = runs.as_chunks::<2>().0.iter();
        let wanted: Vec<u8> = runs.flat_map(|&[level, count]| vec![level as u8; count as usize]).collect();
        let file = &sample(&reader, number as u64)[field - 1].0;
        decoder.decode_plane(file, &mut mask).unwrap();
        assert_eq!(mask.pixels().len(), wanted.len());
        let wrong = mask.pixels().iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count();
        assert_eq!(wrong, 0, "pixels of picture {number}, {}", mask.size());
        objects += wanted.iter().filter(|&&level| level > 0).count();
    }
    assert!(objects > 10_000, "{objects} pixels of objects");
    let plain = Annotated::open(dir.path(), &golden).unwrap();
    assert!(plain.spec().fields().iter().all(|field| field.name() != "segmentation"));
    assert_ne!(plain.fingerprint(), reader.fingerprint());
}

#[test]
fn outlines_that_cannot_be_masks_are_refused_by_id() {
    let dir = made();
    let whole = r#"{"images": [{"id": 9, "file_name": "a.png", "width": 24, "height": 20}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 300, "name": "dog"}], "annotations": [
        {"id": 70, "image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4],
            "segmentation": [[1, 2, 9, 2, 9, 9]]}]}"#;
    let opened = |old: &str, new: &str| {
        let text = whole.replacen(old, new, 1);
        assert!(text != whole || old == new);
        let path = write(dir.path(), "masks.json", text.as_bytes());
        Annotated::open_segmented(dir.path().join("images"), path, None)
    };
    opened("9", "9").unwrap();
    let outline = "[[1, 2, 9, 2, 9, 9]]";
    for (old, new, why) in [
        (outline, "[[1, 2, 9, 2]]", "id 70 has a polygon of 4 numbers"),
        (outline, "[[1, 2, 9, 2, 9, 9, 1]]", "a polygon of 7 numbers"),
        (outline, "[[1, 2, 9, 2, NaN, 9]]", "with a point that is not finite"),
        (outline, "[[1, 2, 9, 2, 1e9, 9]]", "far outside of its picture of 24 x 20"),
        (outline, r#"{"counts": [1, 2], "size": [20, 24]}"#, "run lengths of 3 pixels, and its picture 480"),
        (outline, r#"{"counts": [480], "size": [24, 20]}"#, "a mask of 20 x 24, and its picture is 24 x 20"),
        (outline, r#"{"counts": "~~", "size": [20, 24]}"#, "run lengths that cannot be read"),
        (outline, r#"{"counts": "ooooooooooooo", "size": [20, 24]}"#, "run lengths that cannot be read"),
        (outline, "null", "has no segmentation"),
        (outline, "\"none\"", "this is not COCO's JSON"),
        ("\"category_id\": 3", "\"category_id\": 300", "the category 300, and a mask has room for 1 to 254"),
        (", \"height\": 20", "", "the picture 9 has no width and height"),
        ("\"height\": 20", "\"height\": 20000000", "no width and height of up to 2^27 pixels"),
    ] {
        let error = opened(old, new).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.path().is_some_and(|path| path.ends_with("masks.json")), "{error}");
        assert!(error.to_string().contains(why) && !error.to_string().contains('\n'), "{error}");
    }
    for folder in ["voc", "yolo"] {
        let images = dir.path().join("images");
        let error = Annotated::open_segmented(images, dir.path().join(folder), None).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.message().contains("Paired"), "{error}");
    }
    // The file states a wrong size here.
    let set = Pictures::annotated(opened("9", "9").unwrap(), Transforms::new().center_crop(8)).unwrap();
    let error = read(&set, 0).unwrap_err();
    assert!(error.to_string().contains("of a picture of 24 x 20, and it is 24 x 24 decoded"), "{error}");
    let right = opened("\"height\": 20", "\"height\": 24").unwrap();
    let set = Pictures::annotated(right, Transforms::new().center_crop(24)).unwrap();
    let mask = &read(&set, 0).unwrap()[set.spec().index_of("segmentation").unwrap()];
    assert_eq!((mask.len(), mask.iter().filter(|&&level| level == 3).count() > 20), (24 * 24, true));
    assert!(mask.iter().all(|&level| level == 0 || level == 3));
}

#[test]
fn tags_of_any_depth_are_read_soon() {
    let dir = made();
    let depth = 60_000;
    let text = format!("<annotation>{}{}</annotation>", "<a>".repeat(depth), "</a>".repeat(depth));
    write(dir.path(), "deep/a.xml", text.as_bytes());
    let start = cpu_time();
    assert_eq!(opened(&dir, "deep").unwrap().len(), 1);
    let took = cpu_time() - start;
    assert!(took < Duration::from_secs(1) || emulated("deep tags are read in a second"), "{took:?}");
}

#[test]
fn annotations_cut_anywhere_are_errors() {
    let dir = made();
    for end in 0..COCO.len() {
        let path = write(dir.path(), "cut.json", &COCO.as_bytes()[..end]);
        let error = Annotated::open(dir.path().join("images"), &path).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(&*path)), "{end}: {error}");
    }
    for end in 0..VOC.len() {
        let path = write(dir.path(), "cut/a.xml", &VOC.as_bytes()[..end]);
        let error = Annotated::open(dir.path().join("images"), dir.path().join("cut")).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(&*path)), "{end}: {error}");
    }
}

/// A sample of `set`: the bytes of each field.
fn read(set: &dyn Dataset, id: u64) -> Result<Vec<Vec<u8>>, Error> {
    let layout = Layout::new(set.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = feedline_core::Rows::new(&layout, &mut slab, 1);
    let mut context = Context::new(7, 0);
    context.begin(0, id);
    set.read(id, &mut rows.row(0), &mut context).map_err(|error| *error.downcast::<Error>().unwrap())?;
    drop(rows);
    let bytes = |(index, field): (usize, &feedline_core::Field)| match field.as_ragged() {
        Some(_) => layout.row_values(&slab, index, 0).to_vec(),
        None => slab[layout.offset(index)..][..field.row_bytes()].to_vec(),
    };
    Ok(set.spec().fields().iter().enumerate().map(bytes).collect())
}

/// The pixels of a picture of 20 x 16: 255 in the box 12, 2 to 18, 6.
fn stored() -> Vec<u8> {
    let is_inside = |at: usize| (12..18).contains(&(at % 20)) && (2..6).contains(&(at / 20));
    (0..20 * 16).map(|at| if is_inside(at) { 255 } else { 0 }).collect()
}

/// The same box in the picture that each orientation of EXIF, 1 to 8, shows: 20 x 16 up to 4, then 16 x 20.
const SHOWN: [[f32; 4]; 8] = [
    [12.0, 2.0, 18.0, 6.0],
    [2.0, 2.0, 8.0, 6.0],
    [2.0, 10.0, 8.0, 14.0],
    [12.0, 10.0, 18.0, 14.0],
    [2.0, 12.0, 6.0, 18.0],
    [10.0, 12.0, 14.0, 18.0],
    [10.0, 2.0, 14.0, 8.0],
    [2.0, 2.0, 6.0, 8.0],
];

#[test]
fn boxes_are_of_the_picture_as_exif_shows_it_and_those_of_another_size_are_refused() {
    let dir = tempdir().unwrap();
    let set = |format: &str, [width, height]: [usize; 2], [left, top, right, bottom]: [f32; 4]| {
        let annotations = match format {
            "coco" => {
                let (w, h) = (right - left, bottom - top);
                let text = format!(
                    r#"{{"images": [{{"id": 1, "file_name": "a.png", "width": {width}, "height": {height}}}],
                    "categories": [{{"id": 1, "name": "x"}}], "annotations": [{{"id": 1, "image_id": 1,
                    "category_id": 1, "bbox": [{left}, {top}, {w}, {h}]}}]}}"#
                );
                write(dir.path(), "a.json", text.as_bytes())
            }
            _ => {
                let text = format!(
                    "<annotation><size><width>{width}</width><height>{height}</height></size><object>\
                     <name>x</name><bndbox><xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax>\
                     <ymax>{bottom}</ymax></bndbox></object></annotation>"
                );
                write(dir.path(), "voc/a.xml", text.as_bytes()).parent().unwrap().to_path_buf()
            }
        };
        Annotated::open(dir.path().join("images"), annotations).unwrap()
    };
    for (orientation, shown) in (1..).zip(SHOWN) {
        let file = png_of([20, 16], (8, 0), Some(orientation), &stored());
        write(dir.path(), "images/a.png", &file);
        let size = if orientation < 5 { [20, 16] } else { [16, 20] };
        for format in ["coco", "voc"] {
            let joint = |size: [usize; 2], of: [usize; 2], corners| {
                let crop = Transforms::new().then(CenterCrop::new(Size::new(size[1], size[0])));
                let set = Pictures::annotated(set(format, of, corners), crop).unwrap();
                assert!(set.spec().fields().iter().all(|field| !["width", "height"].contains(&field.name())));
                read(&set, 0)
            };
            // Also if the size is not known.
            for of in [size, [0, 0]] {
                let fields = joint(size, of, shown).unwrap();
                assert_eq!(floats(&fields[1]), shown, "{format}, {orientation}");
                let [left, top, right, bottom] = shown.map(|side| side as usize);
                for (at, pixel) in fields[0].chunks(3).enumerate() {
                    let (x, y) = (at % size[0], at / size[0]);
                    let is_inside = (left..right).contains(&x) && (top..bottom).contains(&y);
                    assert_eq!(pixel[0] == 255, is_inside, "{format}, {orientation}: {x}, {y}");
                }
            }
            // A box that lies in every such picture.
            let inside = [2.0, 3.0, 8.0, 7.0];
            for of in [[20, 16], [16, 20], [40, 32], [19, 16], [20, 17]].into_iter().filter(|of| *of != size)
            {
                let error = joint(size, of, inside).unwrap_err();
                let ([w, h], [width, height]) = (of, size);
                let why = format!("of a picture of {w} x {h}, and it is {width} x {height} ");
                assert!(error.kind() == ErrorKind::Sample && error.to_string().contains(&why), "{error}");
                assert_eq!(
                    error.to_string().contains("remove EXIF's orientation"),
                    of == [size[1], size[0]],
                    "{error}"
                );
                assert!(error.path().is_some_and(|path| path.ends_with("images/a.png")), "{error}");
            }
        }
    }
}

#[test]
fn boxes_of_each_format_become_corners_that_moved_with_their_picture() {
    let dir = made();
    let crop = || Transforms::new().center_crop(20);
    // The crop has the pixels 2 to 22.
    for (annotations, id, boxes, labels) in [
        ("coco.json", 2, [0.0, 0.0, 2.5, 4.0, 3.0, 4.0, 10.0, 12.0], [3, 1]),
        ("voc", 0, [0.0, 1.0, 8.5, 10.0, 3.0, 0.0, 7.0, 5.0], [1, 0]),
        ("yolo", 1, [4.0, 0.0, 16.0, 10.0, 0.0, 0.0, 2.8, 2.8], [2, 0]),
    ] {
        let set = Pictures::annotated(opened(&dir, annotations).unwrap(), crop()).unwrap();
        let field = |name: &str| set.spec().index_of(name).unwrap();
        let fields = read(&set, id).unwrap();
        let found = floats(&fields[field("boxes")]);
        assert!(found.len() == 8 && found.iter().zip(boxes).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}");
        assert_eq!(longs(&fields[field("labels")]), labels);
        if annotations != "coco.json" {
            assert!(check_dataset(&set, &CheckOptions::default()).unwrap().is_clean());
            continue;
        }
        assert_eq!(longs(&fields[field("image_id")]), [9]);
        // The first point has left the picture, the second one is (1, 2) there.
        assert_eq!(floats(&fields[field("keypoints")])[..6], [0.0, 0.0, 0.0, 1.0, 2.0, 1.0]);
        let error = read(&set, 0).unwrap_err();
        assert_eq!((error.kind(), error.sample()), (ErrorKind::Sample, Some(0)));
        assert_eq!(error.path(), Some(&*dir.path().join("images/a.png")));
        assert!(error.to_string().contains("box 0, from x NaN"), "{error}");
    }
    let missing: &Path = &dir.path().join("images/a.png");
    fs::remove_file(missing).unwrap();
    let set = Pictures::annotated(opened(&dir, "coco.json").unwrap(), crop()).unwrap();
    assert_eq!(read(&set, 0).unwrap_err().path(), Some(missing));
}
