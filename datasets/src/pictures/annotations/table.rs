//! The boxes of all pictures, in memory.

use feedline_core::{DType, ElementType, Field, Fingerprint, Result, Row};

use super::outline::{self, Outline, Sides};

/// The names of the fields of a picture's stated size.
pub(super) const WIDTH: &str = "width";
pub(super) const HEIGHT: &str = "height";

/// The annotation of one box.
#[derive(Clone, Debug, Default)]
pub(super) struct Annotation {
    /// The index of the picture.
    pub(super) picture: usize,
    pub(super) corners: [f32; 4],
    pub(super) label: i64,
    pub(super) area: f32,
    /// COCO's `iscrowd`, or Pascal VOC's `difficult`.
    pub(super) flag: bool,
    /// Three numbers per point. Zeros if the box has no points.
    pub(super) keypoints: Vec<f32>,
    /// The object's outline. `None` if no masks are made.
    pub(super) outline: Option<Outline>,
}

/// The boxes of all pictures, in the order of the pictures.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    /// The index of each picture's first annotation, and the number of annotations.
    starts: Vec<usize>,
    corners: Vec<[f32; 4]>,
    labels: Vec<i64>,
    /// The area of each box. Empty if the boxes have no areas.
    areas: Vec<f32>,
    flags: Vec<bool>,
    /// The name of the flags, if there are any.
    flag: Option<&'static str>,
    /// Points per box. 0 if boxes have no points.
    points: usize,
    /// The keypoints of all boxes, one after another. Boxes may differ in their number of keypoints.
    keypoints: Vec<f32>,
    /// The index in `keypoints` of each box's first number, and the end. If there are no keypoints, only the
    /// end.
    firsts: Vec<usize>,
    /// The id of each picture. Empty if pictures have no ids.
    picture_ids: Vec<i64>,
    /// The outline of each box. Empty if there are no masks.
    outlines: Vec<Outline>,
    has_masks: bool,
    /// The stated height and width of each picture, zeros if they are not stated. Empty if the format states
    /// none.
    sides: Vec<Sides>,
}

impl Boxes {
    /// The boxes of `pictures` pictures.
    pub(super) fn new(pictures: usize, mut annotations: Vec<Annotation>, flag: Option<&'static str>) -> Self {
        // The order within a picture stays unchanged.
        annotations.sort_by_key(|annotation| annotation.picture);
        let starts = (0..=pictures).map(|picture| annotations.partition_point(|one| one.picture < picture));
        let points = annotations.iter().map(|one| one.keypoints.len() / 3).max().unwrap_or(0);
        let mut boxes = Self { starts: starts.collect(), flag, points, ..Self::default() };
        for annotation in annotations {
            boxes.corners.push(annotation.corners);
            boxes.labels.push(annotation.label);
            boxes.flags.push(annotation.flag);
            if points > 0 {
                boxes.firsts.push(boxes.keypoints.len());
                boxes.keypoints.extend(annotation.keypoints);
            }
            boxes.areas.push(annotation.area);
            boxes.outlines.extend(annotation.outline);
        }
        boxes.firsts.push(boxes.keypoints.len());
        boxes
    }

    /// Adds the id of each picture. Only COCO has ids and areas.
    pub(super) fn with_ids(self, picture_ids: Vec<i64>) -> Self {
        Self { picture_ids, ..self }
    }

    /// Adds the stated height and width of each picture. With `has_masks`, its mask is made in this size.
    pub(super) fn with_sides(self, sides: Vec<Sides>, has_masks: bool) -> Self {
        Self { sides, has_masks, ..self }
    }

    /// Subtracts 1 from the first two numbers of each box.
    pub(super) fn subtract_one(&mut self) {
        self.corners.iter_mut().for_each(|[left, top, ..]| (*left, *top) = (*left - 1.0, *top - 1.0));
    }

    /// Whether there are masks.
    pub(super) fn has_masks(&self) -> bool {
        self.has_masks
    }

    /// Whether pictures have a stated size, in the fields [`WIDTH`] and [`HEIGHT`].
    pub(super) fn has_sides(&self) -> bool {
        !self.sides.is_empty()
    }

    /// The mask of a picture as a PNG file, if there are masks.
    pub(super) fn mask(&self, picture: usize) -> Result<Option<Vec<u8>>> {
        let Some(&sides) = self.sides.get(picture).filter(|_| self.has_masks) else { return Ok(None) };
        let of = self.starts[picture]..self.starts[picture + 1];
        let objects = self.labels[of.clone()].iter().copied().zip(&self.outlines[of]);
        outline::mask(objects, sides).map(Some)
    }

    /// Points per box, if boxes have points.
    pub(super) fn keypoints(&self) -> Option<usize> {
        (self.points > 0).then_some(self.points)
    }

    /// The fields that follow the picture.
    pub(super) fn fields(&self) -> Vec<Field> {
        let number = ElementType::Number;
        let list = |name: &str, element, item: &[usize]| {
            let shape = [None].into_iter().chain(item.iter().copied().map(Some));
            Field::open(name, element, shape)
        };
        let mut fields =
            vec![list("boxes", number(DType::F32), &[4]), list("labels", number(DType::I64), &[])];
        fields.extend(self.flag.map(|flag| list(flag, ElementType::Bool, &[])));
        if !self.picture_ids.is_empty() {
            fields.push(list("area", number(DType::F32), &[]));
        }
        fields.extend(self.keypoints().map(|points| list("keypoints", number(DType::F32), &[points, 3])));
        if !self.picture_ids.is_empty() {
            fields.push(Field::fixed("image_id", number(DType::I64), &[]));
        }
        let sides = [WIDTH, HEIGHT].map(|name| Field::fixed(name, number(DType::I64), &[]));
        fields.extend(sides.into_iter().filter(|_| self.has_sides()));
        fields
    }

    /// Puts the fields of a picture into `row`, after the picture, in the order of [`fields`](Self::fields).
    pub(super) fn put(&self, picture: usize, row: &mut Row<'_, '_>) -> Result<()> {
        let of = self.starts[picture]..self.starts[picture + 1];
        let mut fields = 1..;
        let mut put = |bytes: Vec<u8>| fields.next().map_or(Ok(()), |field| row.put(field, &bytes));
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        put(bytes(self.corners[of.clone()].as_flattened()))?;
        put(self.labels[of.clone()].iter().flat_map(|label| label.to_le_bytes()).collect())?;
        if self.flag.is_some() {
            put(self.flags[of.clone()].iter().map(|&flag| u8::from(flag)).collect())?;
        }
        let id = self.picture_ids.get(picture);
        if id.is_some() {
            put(bytes(&self.areas[of.clone()]))?;
        }
        if let Some(points) = self.keypoints() {
            let mut padded = Vec::with_capacity(3 * points * of.len());
            for ends in self.firsts[of.start..=of.end].windows(2) {
                padded.extend_from_slice(&self.keypoints[ends[0]..ends[1]]);
                padded.resize(padded.len() + 3 * points - (ends[1] - ends[0]), 0.0);
            }
            put(bytes(&padded))?;
        }
        if let Some(id) = id {
            put(id.to_le_bytes().to_vec())?;
        }
        let sides = self.sides.get(picture).map(|[height, width]| [width, height]);
        sides.into_iter().flatten().try_for_each(|side| put((*side as i64).to_le_bytes().to_vec()))
    }

    /// The max number of boxes of a picture.
    pub(super) fn most(&self) -> usize {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// Adds everything to a fingerprint.
    pub(super) fn fingerprint(&self, state: Fingerprint) -> Fingerprint {
        let state = self.starts.iter().fold(state, |state, start| state.number(*start as u64));
        let numbers = self.corners.as_flattened().iter().chain(&self.areas).chain(&self.keypoints);
        let state = numbers.fold(state, |state, number| state.number(u64::from(number.to_bits())));
        let state = self.firsts.iter().fold(state, |state, first| state.number(*first as u64));
        let state =
            self.labels.iter().chain(&self.picture_ids).fold(state, |state, id| state.number(*id as u64));
        let state = self.flags.iter().fold(state, |state, flag| state.number(u64::from(*flag)));
        // Without masks, the sides change no value: they only refuse pictures.
        let sides = self.sides.as_flattened().iter().filter(|_| self.has_masks);
        let state = sides.fold(state, |state, side| state.number(*side as u64));
        self.outlines.iter().fold(state, |state, outline| outline.fingerprint(state))
    }
}
