//! Any bytes are an annotation of Pascal VOC, or an error that names the file.

/// Opens `data`, and reads its samples.
pub fn check(data: &[u8]) {
    crate::annotations::check("voc", &[("xml/a.xml", data)], "xml");
}
