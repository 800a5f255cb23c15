//! The pictures of a batch that nobody has begun to decode.

use std::ops::Range;
use std::sync::Mutex;

use feedline_images::Size;

use super::line::Line;
use super::locked;

/// A picture and its place in the memory for pixels.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) row: usize,
    pub(super) bytes: &'a [u8],
    pub(super) size: Size,
    pub(super) range: Range<usize>,
    /// Where the CPU writes it.
    pub(super) pixels: &'a mut [u8],
}

/// Pictures in the order in which the GPU takes them, those that it refuses last. The CPU takes from the end.
pub(super) struct Queue<'a> {
    left: Mutex<Left<'a>>,
    line: &'a Line,
}

struct Left<'a> {
    pictures: Vec<Picture<'a>>,
    /// How many of the first ones the CPU may not take.
    for_gpu_alone: usize,
}

impl<'a> Queue<'a> {
    /// The CPU leaves the first `for_gpu_alone` pictures to the GPU. Who waits in `line` is told when none is
    /// left.
    pub(super) fn new(pictures: Vec<Picture<'a>>, for_gpu_alone: usize, line: &'a Line) -> Self {
        Self { left: Mutex::new(Left { pictures, for_gpu_alone }), line }
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.left).pictures.len()
    }

    /// A picture for the CPU, if there is one.
    pub(super) fn take(&self) -> Option<Picture<'a>> {
        let mut left = locked(&self.left);
        if left.pictures.len() <= left.for_gpu_alone {
            return None;
        }
        let picture = left.pictures.pop();
        let is_last = left.pictures.is_empty();
        drop(left);
        if is_last {
            self.line.changed();
        }
        picture
    }

    /// Takes those of the first `most` pictures that are left, for the GPU; returns how many. The CPU may
    /// take all others.
    pub(super) fn take_first(&self, most: usize) -> usize {
        let mut left = locked(&self.left);
        let count = most.min(left.pictures.len());
        left.pictures.drain(..count);
        left.for_gpu_alone = 0;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(queue: &Queue<'_>) -> Vec<usize> {
        std::iter::from_fn(|| queue.take()).map(|picture| picture.row).collect()
    }

    /// Pictures 0 to 5 in this order.
    fn queue(for_gpu_alone: usize, line: &Line) -> Queue<'_> {
        let picture = |row| Picture { row, bytes: &[], size: Size::default(), range: 0..0, pixels: &mut [] };
        Queue::new((0..6).map(picture).collect(), for_gpu_alone, line)
    }

    #[test]
    fn every_picture_is_taken_once_from_one_end_or_the_other() {
        let line = Line::default();
        let shared = queue(0, &line);
        assert_eq!([(); 2].map(|()| shared.take().unwrap().row), [5, 4]);
        // The GPU could take five, and gets those that are left of them.
        assert_eq!((shared.take_first(5), shared.len()), (4, 0));
        let shared = queue(0, &line);
        assert_eq!((shared.take_first(3), rows(&shared)), (3, vec![5, 4, 3]));
        let shared = queue(0, &line);
        assert_eq!((rows(&shared).len(), shared.take_first(6)), (6, 0));
    }

    #[test]
    fn the_cpu_leaves_the_gpus_pictures_until_it_has_taken_its_own() {
        let line = Line::default();
        let split = queue(4, &line);
        assert_eq!(rows(&split), [5, 4]);
        assert_eq!((split.take_first(4), rows(&split)), (4, vec![]));
        // What the GPU did not take is for the CPU.
        let split = queue(4, &line);
        assert_eq!((split.take_first(1), rows(&split)), (1, vec![5, 4, 3, 2, 1]));
    }
}
