//! Any bytes are boxes of YOLO, or an error that names the file.

/// Opens `data` (the names of the classes, a zero byte, and the boxes) and reads its samples.
pub fn check(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (names, boxes) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    crate::annotations::check("yolo", &[("txt/classes.txt", names), ("txt/a.txt", boxes)], "txt");
}
