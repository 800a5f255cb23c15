//! The lines of Cargo.toml and Rust that load a file or folder.

use std::path::Path;

use feedline_datasets::{ElementType, Reader, Values};

/// The lines; `values` is one sample.
pub(super) fn load(path: &Path, reader: &dyn Reader, values: &Values) -> String {
    let name = path.display().to_string();
    let is_url = name.contains("://");
    let has_picture = super::picture::encoded(reader, values).is_some();
    let mut features: Vec<_> = feature(reader.format()).into_iter().collect();
    features.extend(has_picture.then_some("images"));
    features.extend(is_url.then_some("object-store"));
    let features: Vec<_> = features.iter().map(|name| format!("\"{name}\"")).collect();
    let features = if features.is_empty() {
        "feedline-datasets = \"0.1\"".into()
    } else {
        format!("feedline-datasets = {{ version = \"0.1\", features = [{}] }}", features.join(", "))
    };
    let data = if has_picture {
        format!(
            "let transforms = Transforms::new().random_resized_crop(224).flip(0.5); // feedline_images\n  \
             let data = ImageDataset::new(open({name:?})?, transforms)?;"
        )
    } else if reader.schema().spec().is_ok() {
        format!("let data = Fixed::new(open({name:?})?)?;")
    } else if reader.schema().fields().iter().any(|field| field.element == ElementType::U64) {
        format!("let data = open({name:?})?; // a column of u64: leave it out, or store it as i64")
    } else {
        let longest = values.fields().iter().map(|value| value.bytes.len()).max().unwrap_or(1);
        format!(
            "let data = Ragged::new(open({name:?})?, {})?; // max items of a sample",
            longest.max(1).next_power_of_two()
        )
    };
    format!(
        "  # Cargo.toml\n  feedline = \"0.1\"\n  {features}\n\n  {data}\n  \
         let mut loader = Loader::builder(data).batch_size(256).shuffle(7).build(&Device::best()?)?;\n"
    )
}

/// The feature of `feedline-datasets` that reads a format.
fn feature(format: &str) -> Option<&'static str> {
    let all = [
        ("arrow", "arrow"),
        ("csv", "csv"),
        ("jsonl", "jsonl"),
        ("mds", "mds"),
        ("npz", "npz"),
        ("parquet", "parquet"),
        ("safetensors", "safetensors"),
        ("tfrecord", "tfrecord"),
        ("webdataset", "tar"),
        ("tar", "tar"),
    ];
    all.into_iter().find(|(name, _)| *name == format).map(|(_, feature)| feature)
}
