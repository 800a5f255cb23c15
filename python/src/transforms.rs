//! Makes the transforms of pictures from the names and options that Python passes.

use feedline::{Error, ErrorKind};
use feedline_images::{
    CenterCrop, ColorJitter, Erase, Filter, FlipLeftRight, FlipTopBottom, GaussianBlur, Grayscale, Pad,
    RandAugment, RandomCrop, RandomResizedCrop, Resize, Size, Transforms, TrivialAugment,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raise;

/// Adds `steps` to `start`. Each step is a class name of `feedline.transforms` and its options.
pub(crate) fn transforms(
    start: Transforms,
    steps: &[(String, Bound<'_, PyDict>)],
    channels_first: bool,
    scaled_decode: bool,
) -> PyResult<Transforms> {
    let mut list = start;
    for (name, options) in steps {
        list = then(list, name, &Options { of: name, options })?;
    }
    if channels_first {
        list = list.channels_first();
    }
    Ok(if scaled_decode { list.scaled_decode() } else { list })
}

/// The options of a transform.
struct Options<'a, 'py> {
    /// The name of the transform.
    of: &'a str,
    options: &'a Bound<'py, PyDict>,
}

impl<'py> Options<'_, 'py> {
    fn get<T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>>(&self, name: &str) -> PyResult<T> {
        let value = self.options.as_any().get_item(name)?;
        value.extract().map_err(|_| {
            let why = format!("{}: {name} is {value:?}, which this option does not take", self.of);
            raise(Error::new(ErrorKind::Config, why))
        })
    }

    fn size(&self) -> PyResult<Size> {
        let (height, width) = self.get("size")?;
        Ok(Size::new(height, width))
    }

    fn filter(&self) -> PyResult<Filter> {
        let name: String = self.get("interpolation")?;
        Ok(match name.as_str() {
            "nearest" => Filter::Nearest,
            "bilinear" => Filter::Bilinear,
            "bicubic" => Filter::Bicubic,
            "lanczos" => Filter::Lanczos,
            _ => {
                let why = format!("interpolation {name:?}: use nearest, bilinear, bicubic or lanczos");
                return Err(raise(Error::new(ErrorKind::Config, why)));
            }
        })
    }
}

fn then(list: Transforms, name: &str, options: &Options<'_, '_>) -> PyResult<Transforms> {
    Ok(match name {
        "Resize" => match options.get::<Option<usize>>("shorter_side")? {
            Some(length) => {
                let longest = options.get::<Option<usize>>("max_size")?.unwrap_or(usize::MAX);
                list.then(Resize::sides(length, longest, options.filter()?))
            }
            None => list.then(Resize::exact(options.size()?, options.filter()?)),
        },
        "CenterCrop" => list.then(CenterCrop::new(options.size()?)),
        "RandomCrop" => list.then(RandomCrop::new(options.size()?)),
        "RandomResizedCrop" => {
            let (scale, ratio): ((f64, f64), (f64, f64)) = (options.get("scale")?, options.get("ratio")?);
            let crop =
                RandomResizedCrop::new(options.size()?).scale(scale.0, scale.1).ratio(ratio.0, ratio.1);
            list.then(crop.filter(options.filter()?))
        }
        "Pad" => list.then(Pad::new(options.get("padding")?, options.get("fill")?)),
        "RandomHorizontalFlip" => list.then(FlipLeftRight { probability: options.get("p")? }),
        "RandomVerticalFlip" => list.then(FlipTopBottom { probability: options.get("p")? }),
        "ColorJitter" => list.then(ColorJitter {
            brightness: options.get("brightness")?,
            contrast: options.get("contrast")?,
            saturation: options.get("saturation")?,
            hue: options.get("hue")?,
        }),
        "RandomGrayscale" => list.then(Grayscale { probability: options.get("p")? }),
        "GaussianBlur" => {
            list.then(GaussianBlur { radius: options.get("radius")?, sigma: options.get("sigma")? })
        }
        "RandAugment" => list.then(RandAugment::new(options.get("num_ops")?, options.get("magnitude")?)),
        "TrivialAugmentWide" => list.then(TrivialAugment),
        "RandomErasing" => {
            let (scale, ratio): ((f64, f64), (f64, f64)) = (options.get("scale")?, options.get("ratio")?);
            let erase = Erase::new(options.get("p")?).scale(scale.0, scale.1).ratio(ratio.0, ratio.1);
            list.then(match options.get("fill")? {
                Some(color) => erase.color(color),
                None => erase,
            })
        }
        "Normalize" => list.normalise(options.get("mean")?, options.get("std")?),
        _ => return Err(raise(Error::new(ErrorKind::Config, format!("there is no transform {name:?}")))),
    })
}
