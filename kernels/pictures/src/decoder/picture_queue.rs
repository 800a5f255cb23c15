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

/// Pictures in the GPU's order. Pictures that the GPU refuses come last. The CPU takes pictures from the end.
pub(super) struct PictureQueue<'a> {
    left: Mutex<Left<'a>>,
    gpu_queue: &'a GpuQueue,
    /// Whether the CPU may now take pictures that the GPU can decode too.
    helps: &'a (dyn Fn() -> bool + Sync),
}

struct Left<'a> {
    pictures: Vec<Picture<'a>>,
    /// Number of first pictures that are for the GPU unless the CPU helps.
    for_gpu: usize,
}

impl<'a> PictureQueue<'a> {
    /// The GPU can decode the first `for_gpu` pictures. The CPU takes some of them while `helps` returns
    /// true. The queue notifies `gpu_queue` once it is empty.
    pub(super) fn new(
        pictures: Vec<Picture<'a>>,
        for_gpu: usize,
        (gpu_queue, helps): (&'a GpuQueue, &'a (dyn Fn() -> bool + Sync)),
    ) -> Self {
        Self { left: Mutex::new(Left { pictures, for_gpu }), gpu_queue, helps }
    }

    /// The number of pictures that the CPU may take.
    pub(super) fn for_cpu(&self) -> usize {
        let (left, helps) = (locked(&self.left), (self.helps)());
        left.pictures.len() - if helps { 0 } else { left.for_gpu.min(left.pictures.len()) }
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.left).pictures.len()
    }

    /// A picture for the CPU, if there is one.
    pub(super) fn take(&self) -> Option<Picture<'a>> {
        let mut left = locked(&self.left);
        if left.pictures.len() <= left.for_gpu && !(self.helps)() {
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
    /// take all other pictures.
    pub(super) fn take_first(&self, max: usize) -> usize {
        let mut left = locked(&self.left);
        let count = max.min(left.pictures.len());
        left.pictures.drain(..count);
        left.for_gpu = 0;
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
    fn queue<'a>(
        for_gpu: usize,
        gpu_queue: &'a GpuQueue,
        helps: &'a (dyn Fn() -> bool + Sync),
    ) -> PictureQueue<'a> {
        let picture = |row| Picture { row, bytes: &[], size: Size::default(), range: 0..0, pixels: &mut [] };
        PictureQueue::new((0..6).map(picture).collect(), for_gpu, (gpu_queue, helps))
    }

    #[test]
    fn every_picture_is_taken_once_from_one_end_or_the_other() {
        let gpu_queue = GpuQueue::default();
        let shared = queue(6, &gpu_queue, &|| true);
        assert_eq!((shared.for_cpu(), [(); 2].map(|()| shared.take().unwrap().row)), (6, [5, 4]));
        // The GPU could take five pictures, but only four of them are left.
        assert_eq!((shared.take_first(5), shared.len()), (4, 0));
        let shared = queue(6, &gpu_queue, &|| true);
        assert_eq!((shared.take_first(3), rows(&shared)), (3, vec![5, 4, 3]));
        let shared = queue(6, &gpu_queue, &|| true);
        assert_eq!((rows(&shared).len(), shared.take_first(6)), (6, 0));
    }

    #[test]
    fn without_help_the_cpu_takes_what_the_gpu_refuses_and_what_it_has_left() {
        let gpu_queue = GpuQueue::default();
        let split = queue(4, &gpu_queue, &|| false);
        assert_eq!((split.for_cpu(), rows(&split), split.for_cpu()), (2, vec![5, 4], 0));
        assert_eq!((split.take_first(4), rows(&split)), (4, vec![]));
        // The CPU takes the pictures that the GPU has left.
        let split = queue(4, &gpu_queue, &|| false);
        assert_eq!((split.take_first(1), rows(&split)), (1, vec![5, 4, 3, 2, 1]));
    }

    /// The CPU reads before it helps.
    #[test]
    fn the_cpu_stops_helping_when_it_is_needed_elsewhere() {
        let (gpu_queue, left) = (GpuQueue::default(), std::sync::atomic::AtomicUsize::new(4));
        let helps = || left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 1;
        let shared = queue(5, &gpu_queue, &helps);
        // One picture that the GPU refuses, and three that the CPU takes as help.
        assert_eq!(rows(&shared), [5, 4, 3, 2]);
        assert_eq!(shared.take_first(5), 2);
    }
}
