//! Samples that are random numbers: any order of workers must give the same.

use feedline_core::{Context, DType, Dataset, ReadError, Result, Row, Spec};

/// Samples of random numbers drawn from the context: field 0 `id` (i64, scalar), field 1 `draws` (f64, `[draws]`).
#[derive(Clone, Debug)]
pub struct Random {
    spec: Spec,
    len: u64,
}

impl Random {
    /// `len` samples of `draws` numbers each.
    ///
    /// # Errors
    /// `Config` when `draws` is zero.
    pub fn new(len: u64, draws: usize) -> Result<Self> {
        let spec = Spec::new().field("id", DType::I64, [])?.field("draws", DType::F64, [draws])?;
        Ok(Self { spec, len })
    }

    /// What sample `id` is in `epoch` under the loader's `seed`, from the definition of the context's random numbers.
    pub fn expected(seed: u64, epoch: u64, id: u64, draws: usize) -> Vec<f64> {
        let mut random = feedline_core::Random::for_sample(seed, epoch, id);
        (0..draws).map(|_| random.uniform()).collect()
    }
}

impl Dataset for Random {
    fn len(&self) -> u64 {
        self.len
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(0)?[0] = id as i64;
        row.field_mut::<f64>(1)?.fill_with(|| context.random().uniform());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use feedline_core::{Layout, Rows};

    use super::*;

    #[test]
    fn the_numbers_depend_on_the_sample_alone() {
        let random = Random::new(9, 3).unwrap();
        let layout = Layout::new(random.spec(), 2).unwrap();
        let read = |ids: &[u64]| {
            let mut slab = vec![0; layout.bytes()];
            random.read_many(ids, &mut Rows::new(&layout, &mut slab, 2), &mut Context::new(7, 1)).unwrap();
            let row = |index: usize| slab[layout.offset(1) + 24 * index..][..24].to_vec();
            (row(0), row(1))
        };
        let (four, five) = read(&[4, 5]);
        assert_eq!(read(&[5, 4]), (five.clone(), four.clone()));
        assert_ne!(four, five);
        let expected: Vec<u8> = Random::expected(7, 1, 4, 3).iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(four, expected);
    }
}
