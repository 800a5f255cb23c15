//! A data set of your own: three methods, a check, and the loop.
#![forbid(unsafe_code)]

use feedline::check::CheckOptions;
use feedline::{Context, DType, Dataset, Device, Loader, ReadError, Row, Spec, check_dataset};

/// Points of a parabola.
struct Parabola(Spec);

impl Dataset for Parabola {
    fn len(&self) -> u64 {
        1000
    }
    fn spec(&self) -> &Spec {
        &self.0
    }
    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let x = id as f32 / 1000.0;
        row.field_mut::<f32>(0)?[0] = x;
        row.field_mut::<f32>(1)?[0] = x * x;
        Ok(())
    }
}

fn main() -> feedline::Result<()> {
    let data = Parabola(Spec::new().field("x", DType::F32, [])?.field("y", DType::F32, [])?);
    println!("{}", check_dataset(&data, &CheckOptions::default())?);
    let device = Device::best()?;
    let compute = device.stream()?;
    let mut loader = Loader::builder(data).batch_size(64).shuffle().seed(7).build(&device)?;
    for batch in loader.epoch(0)? {
        let batch = batch?.wait_on(&compute)?; // queue kernels that read `batch.field("x")` on `compute`
        println!("x {:?}, y {:?}", batch.to_vec::<f32>("x")?[0], batch.to_vec::<f32>("y")?[0]);
    }
    let saved = loader.checkpoint(&compute)?; // save it with the model
    println!("{} samples delivered", saved.cursor.proof().count());
    Ok(())
}
