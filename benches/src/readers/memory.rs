//! Plain loops over formats in memory: rows are copied.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use super::files::IMAGE;
use super::threads::{Plain, by_id};
use super::{Order, Outcome};

/// Rows of one field, at equal distances in some bytes.
#[derive(Clone)]
struct Column {
    bytes: Arc<Vec<u8>>,
    first: usize,
    distance: usize,
    len: usize,
}

impl Column {
    /// Rows without gaps.
    fn dense(bytes: &Arc<Vec<u8>>, first: usize, len: usize) -> Self {
        Self { bytes: bytes.clone(), first, distance: len, len }
    }

    fn row(&self, id: u64) -> &[u8] {
        &self.bytes[self.first + id as usize * self.distance..][..self.len]
    }
}

fn rows(columns: Vec<Column>) -> Plain {
    by_id(move |block, id, ()| match columns.as_slice() {
        [one] => block.put(id, &[one.row(id)]),
        [one, two] => block.put(id, &[one.row(id), two.row(id)]),
        _ => Err("one or two columns".into()),
    })
}

pub fn idx(path: &Path, _: Order) -> Outcome<Plain> {
    let images = Arc::new(fs::read(path.join("train-images-idx3-ubyte"))?);
    let labels = Arc::new(fs::read(path.join("train-labels-idx1-ubyte"))?);
    Ok(rows(vec![Column::dense(&images, 16, IMAGE), Column::dense(&labels, 8, 1)]))
}

pub fn cifar(path: &Path, _: Order) -> Outcome<Plain> {
    let bytes = Arc::new(fs::read(path)?);
    let column = |first, len| Column { bytes: bytes.clone(), first, distance: 1 + IMAGE, len };
    Ok(rows(vec![column(0, 1), column(1, IMAGE)]))
}

/// Where an array's data begins.
fn npy_start(bytes: &[u8]) -> usize {
    10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))
}

pub fn npy(path: &Path, _: Order) -> Outcome<Plain> {
    let bytes = Arc::new(fs::read(path)?);
    Ok(rows(vec![Column::dense(&bytes, npy_start(&bytes), IMAGE)]))
}

pub fn npz(path: &Path, _: Order) -> Outcome<Plain> {
    let mut bytes = Vec::new();
    zip::ZipArchive::new(fs::File::open(path)?)?.by_name("image.npy")?.read_to_end(&mut bytes)?;
    let start = npy_start(&bytes);
    Ok(rows(vec![Column::dense(&Arc::new(bytes), start, IMAGE)]))
}

pub fn safetensors(path: &Path, _: Order) -> Outcome<Plain> {
    let bytes = Arc::new(fs::read(path)?);
    let (header, metadata) = ::safetensors::SafeTensors::read_metadata(&bytes)?;
    let column = |name: &str, len| {
        let tensor = metadata.info(name).ok_or("a tensor is missing")?;
        Ok::<_, super::ReadError>(Column::dense(&bytes, 8 + header + tensor.data_offsets.0, len))
    };
    Ok(rows(vec![column("image", IMAGE)?, column("label", 1)?]))
}

/// The batches of the crate, all in memory.
pub fn arrow(path: &Path, _: Order) -> Outcome<Plain> {
    let file = fs::File::open(path)?;
    let batches: Vec<_> = arrow_ipc::reader::FileReader::try_new(file, None)?.collect::<Result<_, _>>()?;
    let group = batches.first().map_or(1, |batch| batch.num_rows()) as u64;
    Ok(by_id(move |block, id, ()| {
        let (batch, row) = (&batches[(id / group) as usize], (id % group) as usize);
        let image = batch.column(0).as_fixed_size_binary().value(row);
        let label = batch.column(1).as_primitive::<Int64Type>().value(row);
        block.put(id, &[image, &label.to_le_bytes()])
    }))
}
