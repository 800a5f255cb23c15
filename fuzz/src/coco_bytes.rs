//! Any bytes are COCO's annotations, or an error that names the file.

/// Opens `data`, and reads its samples.
pub fn check(data: &[u8]) {
    crate::annotations::check("coco", &[("x.json", data)], "x.json");
}
