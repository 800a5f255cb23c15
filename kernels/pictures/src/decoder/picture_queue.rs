//! The pictures of a batch that no processor has taken yet.

use std::ops::Range;
use std::sync::Mutex;

use feedline_images::Size;

use super::gpu_queue::GpuQueue;
use super::locked;

/// A picture and its part of the memory for pixels.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) row: usize,
    pub(super) bytes: &'a [u8],
    pub(super) size: Size,
    pub(super) range: Range<usize>,
    /// The part for the CPU to write.
    pub(super) pixels: &'a mut [u8],
}

/// Pictures in the GPU's order; those that it refuses come last. The CPU takes from the end.
pub(super) struct PictureQueue<'a> {
    left: Mutex<Left<'a>>,
    gpu_queue: &'a GpuQueue,
}

struct Left<'a> {
    pictures: Vec<Picture<'a>>,
    /// The number of first pictures that the CPU may not take.
    gpu_only: usize,
}

impl<'a> PictureQueue<'a> {
    /// The CPU leaves the first `gpu_only` pictures to the GPU. Notifies `gpu_queue` once empty.
    pub(super) fn new(pictures: Vec<Picture<'a>>, gpu_only: usize, gpu_queue: &'a GpuQueue) -> Self {
        Self { left: Mutex::new(Left { pictures, gpu_only }), gpu_queue }
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.left).pictures.len()
    }

    /// A picture for the CPU, if there is one.
    pub(super) fn take(&self) -> Option<Picture<'a>> {
        let mut left = locked(&self.left);
        if left.pictures.len() <= left.gpu_only {
            return None;
        }
        let picture = left.pictures.pop();
        let is_last = left.pictures.is_empty();
        drop(left);
        if is_last {
            self.gpu_queue.notify();
        }
        picture
    }

    /// Takes the remaining pictures among the first `max` for the GPU, and returns their number. The CPU may
    /// take all others.
    pub(super) fn take_first(&self, max: usize) -> usize {
        let mut left = locked(&self.left);
        let count = max.min(left.pictures.len());
        left.pictures.drain(..count);
        left.gpu_only = 0;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(queue: &PictureQueue<'_>) -> Vec<usize> {
        std::iter::from_fn(|| queue.take()).map(|picture| picture.row).collect()
    }

    /// Pictures 0 to 5 in this order.
    fn queue(gpu_only: usize, gpu_queue: &GpuQueue) -> PictureQueue<'_> {
        let picture = |row| Picture { row, bytes: &[], size: Size::default(), range: 0..0, pixels: &mut [] };
        PictureQueue::new((0..6).map(picture).collect(), gpu_only, gpu_queue)
    }

    #[test]
    fn every_picture_is_taken_once_from_one_end_or_the_other() {
        let gpu_queue = GpuQueue::default();
        let shared = queue(0, &gpu_queue);
        assert_eq!([(); 2].map(|()| shared.take().unwrap().row), [5, 4]);
        // The GPU could take five; four of them are left.
        assert_eq!((shared.take_first(5), shared.len()), (4, 0));
        let shared = queue(0, &gpu_queue);
        assert_eq!((shared.take_first(3), rows(&shared)), (3, vec![5, 4, 3]));
        let shared = queue(0, &gpu_queue);
        assert_eq!((rows(&shared).len(), shared.take_first(6)), (6, 0));
    }

    #[test]
    fn the_cpu_leaves_the_gpus_pictures_until_the_gpu_has_taken_some() {
        let gpu_queue = GpuQueue::default();
        let split = queue(4, &gpu_queue);
        assert_eq!(rows(&split), [5, 4]);
        assert_eq!((split.take_first(4), rows(&split)), (4, vec![]));
        // The CPU takes the pictures that the GPU has left.
        let split = queue(4, &gpu_queue);
        assert_eq!((split.take_first(1), rows(&split)), (1, vec![5, 4, 3, 2, 1]));
    }
}
