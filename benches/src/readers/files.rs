//! The files of each format: images with labels, tables of numbers, lines. All samples are of one size.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::file::properties::WriterProperties;
use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use feedline_core::random::splitmix64;

use super::Outcome;
use crate::sets::scramble;

/// Bytes of an image.
pub const IMAGE: usize = 3 * 32 * 32;
/// Columns of a table, without the label.
pub const COLUMNS: usize = 15;
/// Bytes of a line, with its end.
pub const LINE: usize = 100;
/// Rows of a record batch, and of a row group.
pub const GROUP: u64 = 1024;

const CLASSES: u64 = 10;

fn image(id: u64) -> Vec<u8> {
    let mut image = vec![0; IMAGE];
    scramble(&mut image, id);
    image
}

fn label(id: u64) -> u8 {
    (id % CLASSES) as u8
}

fn wide_label(id: u64) -> i64 {
    i64::from(label(id))
}

/// Calls `write` with a new file in the folder.
fn file(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> Outcome<()>,
) -> Outcome<PathBuf> {
    let path = folder.join(name);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
    write(&mut file)?;
    file.flush()?;
    Ok(path)
}

pub fn idx(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    let count = u32::try_from(samples)?.to_be_bytes();
    file(folder, "train-images-idx3-ubyte", |file| {
        file.write_all(&[0, 0, 8, 3])?;
        file.write_all(&[count, 32u32.to_be_bytes(), 96u32.to_be_bytes()].concat())?;
        (0..samples).try_for_each(|id| Ok(file.write_all(&image(id))?))
    })?;
    file(folder, "train-labels-idx1-ubyte", |file| {
        file.write_all(&[&[0, 0, 8, 1], &count[..]].concat())?;
        (0..samples).try_for_each(|id| Ok(file.write_all(&[label(id)])?))
    })?;
    Ok(folder.to_path_buf())
}

pub fn cifar(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "data_batch_1.bin", |file| {
        (0..samples).try_for_each(|id| {
            file.write_all(&[label(id)])?;
            Ok(file.write_all(&image(id))?)
        })
    })
}

/// The header of an array of images.
fn npy_header(samples: u64) -> Vec<u8> {
    let mut text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({samples}, {IMAGE}), }}");
    while (text.len() + 11) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

pub fn npy(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "images.npy", |file| {
        file.write_all(&npy_header(samples))?;
        (0..samples).try_for_each(|id| Ok(file.write_all(&image(id))?))
    })
}

pub fn npz(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "images.npz", |file| {
        let mut zip = zip::ZipWriter::new(file);
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file("image.npy", options.compression_method(zip::CompressionMethod::Stored))?;
        zip.write_all(&npy_header(samples))?;
        (0..samples).try_for_each(|id| zip.write_all(&image(id)))?;
        zip.finish()?;
        Ok(())
    })
}

pub fn safetensors(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    use ::safetensors::tensor::{Dtype, TensorView, serialize};
    let images: Vec<u8> = (0..samples).flat_map(image).collect();
    let labels: Vec<u8> = (0..samples).map(label).collect();
    let tensors = [
        ("image", TensorView::new(Dtype::U8, vec![samples as usize, IMAGE], &images)?),
        ("label", TensorView::new(Dtype::U8, vec![samples as usize], &labels)?),
    ];
    let bytes = serialize(tensors, None)?;
    file(folder, "set.safetensors", |file| Ok(file.write_all(&bytes)?))
}

/// The samples as record batches.
fn batches(samples: u64) -> Outcome<(Arc<Schema>, impl Iterator<Item = Outcome<RecordBatch>>)> {
    let fields = [("image", DataType::FixedSizeBinary(IMAGE as i32)), ("label", DataType::Int64)];
    let schema = Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, false)).to_vec()));
    let of = schema.clone();
    let batches = (0..samples.div_ceil(GROUP)).map(move |group| {
        let ids = group * GROUP..samples.min((group + 1) * GROUP);
        let images: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(ids.clone().map(image))?);
        let labels: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.map(wide_label)));
        Ok(RecordBatch::try_new(of.clone(), vec![images, labels])?)
    });
    Ok((schema, batches))
}

fn arrow_file(folder: &Path, samples: u64, codec: Option<CompressionType>) -> Outcome<PathBuf> {
    file(folder, "set.arrow", |file| {
        let (schema, batches) = batches(samples)?;
        let options = IpcWriteOptions::default().try_with_compression(codec)?;
        let mut writer = FileWriter::try_new_with_options(file, &schema, options)?;
        for batch in batches {
            writer.write(&batch?)?;
        }
        Ok(writer.finish()?)
    })
}

pub fn arrow(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    arrow_file(folder, samples, None)
}

pub fn arrow_lz4(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    arrow_file(folder, samples, Some(CompressionType::LZ4_FRAME))
}

pub fn parquet(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    let (schema, batches) = batches(samples)?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(GROUP as usize))
        .build();
    file(folder, "set.parquet", |file| {
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
        for batch in batches {
            writer.write(&batch?)?;
        }
        writer.close()?;
        Ok(())
    })
}

pub fn tar(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "set.tar", |file| {
        let mut tar = ::tar::Builder::new(file);
        for id in 0..samples {
            for (extension, bytes) in [("bin", image(id)), ("cls", label(id).to_string().into_bytes())] {
                let mut header = ::tar::Header::new_ustar();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                tar.append_data(&mut header, format!("{id:08}.{extension}"), &*bytes)?;
            }
        }
        Ok(tar.finish()?)
    })
}

pub fn tfrecord(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    let varint = |mut value: usize| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    // A field of a message that holds bytes.
    let nested = |number: u8, bytes: &[u8]| [&[number << 3 | 2][..], &varint(bytes.len()), bytes].concat();
    let feature = |name: &str, list: u8, values: &[u8]| {
        nested(1, &[nested(1, name.as_bytes()), nested(2, &nested(list, values))].concat())
    };
    file(folder, "set.tfrecord", |file| {
        for id in 0..samples {
            let image = feature("image", 1, &nested(1, &image(id)));
            let label = feature("label", 3, &nested(1, &[label(id)]));
            let record = nested(1, &[image, label].concat());
            let len = (record.len() as u64).to_le_bytes();
            for part in [&len[..], &record] {
                file.write_all(part)?;
                file.write_all(&super::samples::masked(part).to_le_bytes())?;
            }
        }
        Ok(())
    })
}

pub fn mds(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    let columns =
        r#""column_names":["image","label"],"column_encodings":["bytes","int"],"column_sizes":[null,8]"#;
    let mut text = format!(r#"{{{columns},"compression":null,"format":"mds","hashes":[],"size_limit":null,"#);
    write!(text, r#""version":2}}"#)?;
    let (start, sample) = (4 + 4 * (samples + 1) + text.len() as u64, 4 + 8 + IMAGE as u64);
    file(folder, "shard.mds", |file| {
        file.write_all(&(samples as u32).to_le_bytes())?;
        for id in 0..=samples {
            file.write_all(&u32::try_from(start + id * sample)?.to_le_bytes())?;
        }
        file.write_all(text.as_bytes())?;
        for id in 0..samples {
            file.write_all(&(IMAGE as u32).to_le_bytes())?;
            file.write_all(&image(id))?;
            file.write_all(&wide_label(id).to_le_bytes())?;
        }
        Ok(())
    })
}

pub fn folder(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    let root = folder.join("classes");
    (0..CLASSES).try_for_each(|class| fs::create_dir_all(root.join(format!("{class}"))))?;
    for id in 0..samples {
        fs::write(root.join(format!("{}/{id:08}.bin", id * CLASSES / samples)), image(id))?;
    }
    Ok(root)
}

/// A number with three decimals.
fn number(id: u64, column: usize) -> f64 {
    (splitmix64(id * COLUMNS as u64 + column as u64) % 1_000_000) as f64 / 1000.0 - 500.0
}

pub fn csv(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "table.csv", |file| {
        for column in 0..COLUMNS {
            write!(file, "x{column},")?;
        }
        writeln!(file, "label")?;
        for id in 0..samples {
            for column in 0..COLUMNS {
                write!(file, "{:.3},", number(id, column))?;
            }
            writeln!(file, "{}", label(id))?;
        }
        Ok(())
    })
}

pub fn jsonl(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "table.jsonl", |file| {
        for id in 0..samples {
            write!(file, "{{")?;
            for column in 0..COLUMNS {
                write!(file, "\"x{column}\": {:.3}, ", number(id, column))?;
            }
            writeln!(file, "\"label\": {}}}", label(id))?;
        }
        Ok(())
    })
}

pub fn text(folder: &Path, samples: u64) -> Outcome<PathBuf> {
    file(folder, "lines.txt", |file| {
        for id in 0..samples {
            let mut line = String::new();
            while line.len() < LINE {
                write!(line, "{:016x} ", splitmix64(id * 8 + line.len() as u64))?;
            }
            line.truncate(LINE - 1);
            writeln!(file, "{line}")?;
        }
        Ok(())
    })
}
