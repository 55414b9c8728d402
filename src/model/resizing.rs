//! What a processor is given, and to what size it brings a picture or the frames of a video.
//!
//! Sources: transformers 5.17 models/qwen2_vl/image_processing_qwen2_vl.py `smart_resize`,
//! models/pixtral/image_processing_pixtral.py `get_resize_output_image_size`,
//! models/gemma4/image_processing_gemma4.py `get_aspect_ratio_preserving_size`; of videos models/qwen2_vl/video_processing_qwen2_vl.py and
//! models/qwen3_vl/video_processing_qwen3_vl.py `smart_resize`. Pictures that are cut: `tiles.rs`.

/// To what size a processor brings a picture, in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resizing {
    /// As many rows and columns as that, whatever it was.
    Square(u64),
    /// Both sides to multiples of a token's, the whole between the fewest and the most.
    Between(u64, u64),
    /// No side longer than that, then both up to multiples of a token's.
    Longest(u64),
    /// Both sides to multiples of a token's, with at most so many patches in all, and as many as may be.
    Most(u64),
    /// Cut into square tiles, whose rows and columns are as near to the ratio of its sides as at most so many can be, and where they
    /// are several the whole as one more.
    Tiles {
        /// Pixels along a tile.
        side: u64,
        /// The most tiles, the whole aside.
        most: u64,
    },
    /// Padded to the canvas of at most so many square tiles that takes it with the least that is lost or added, and cut into them; where they are
    /// several the whole is one more.
    Canvas {
        /// Pixels along a tile.
        side: u64,
        /// The most tiles, the whole aside.
        most: u64,
    },
    /// Brought to one of these sizes with its sides' ratio kept and what lacks padded, then cut into square tiles; the whole is one more.
    Points {
        /// Pixels along a tile.
        side: u64,
        /// Rows and columns of pixels of each size.
        points: Vec<[u64; 2]>,
    },
}

/// A picture as the processor is given it; or a video, whose frames are of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Rows of pixels.
    pub height: u64,
    /// Columns of pixels.
    pub width: u64,
    /// Frames of a video as they were sampled; 1 of a picture.
    pub frames: u64,
}

impl Picture {
    /// One that does not move, of so many rows and columns of pixels.
    pub const fn still(height: u64, width: u64) -> Picture {
        Picture { height, width, frames: 1 }
    }

    /// Rows and columns of pixels.
    pub(super) fn sides(self) -> (u64, u64) {
        (self.height, self.width)
    }
}

/// How a processor makes patches of a video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Video {
    /// Frames that become one layer of patches (`temporal_patch_size`).
    pub merge: u64,
    /// The fewest and the most pixels of all frames together; none where each is resized as a picture is.
    pub pixels: Option<(u64, u64)>,
    /// Whether a time is written before each layer of patches, and a start and an end stand around it.
    pub timed: bool,
}

/// `smart_resize`: both sides become multiples of a token's, and the whole lies between the fewest and the most pixels; that of so many
/// frames, as they are and as they are counted first.
pub(super) fn between(
    (least, most): (u64, u64),
    factor: u64,
    (height, width): (u64, u64),
    [frames, counted]: [f64; 2],
) -> [u64; 2] {
    let (tall, wide) = (height.max(1) as f64, width.max(1) as f64);
    // Python rounds halves to the even number
    let nearest = |side: f64| (side / factor as f64).round_ties_even() * factor as f64;
    let (mut rows, mut columns) = (nearest(tall), nearest(wide));
    if counted * rows * columns > most as f64 {
        let beta = (frames * tall * wide / most as f64).sqrt();
        let shrunk = |side: f64| ((side / beta / factor as f64).floor() * factor as f64).max(factor as f64);
        (rows, columns) = (shrunk(tall), shrunk(wide));
    } else if counted * rows * columns < least as f64 {
        let beta = (least as f64 / (frames * tall * wide)).sqrt();
        let grown = |side: f64| (side * beta / factor as f64).ceil() * factor as f64;
        (rows, columns) = (grown(tall), grown(wide));
    }
    [rows as u64, columns as u64]
}

/// The same of all frames of a video, which are counted in multiples of those that become one layer of patches; what is smaller than a
/// token grows first.
pub(super) fn all_between((merge, bounds): (u64, (u64, u64)), factor: u64, picture: Picture) -> [u64; 2] {
    let (merge, frames) = (merge.max(1) as f64, picture.frames as f64);
    let counted = (frames / merge).round_ties_even() * merge;
    let (tall, wide) = (picture.height.max(1) as f64, picture.width.max(1) as f64);
    let scale = (factor as f64 / tall).max(factor as f64 / wide).max(1.0);
    between(bounds, factor, ((tall * scale) as u64, (wide * scale) as u64), [frames, counted])
}

/// `get_resize_output_image_size`: what is too long shrinks with the sides' ratio kept, then both sides grow to multiples of a
/// token's.
pub(super) fn no_longer(longest: u64, factor: u64, (height, width): (u64, u64)) -> [u64; 2] {
    let sides = [height.max(1), width.max(1)];
    let ratio = sides.map(|side| side as f64 / longest.max(1) as f64).into_iter().fold(0.0, f64::max);
    sides.map(|side| {
        let side = if ratio > 1.0 { (side as f64 / ratio).floor() as u64 } else { side };
        side.max(1).div_ceil(factor).saturating_mul(factor)
    })
}

/// `get_aspect_ratio_preserving_size`: as many patches as there may be with the sides' ratio kept.
pub(super) fn as_many(patches: u64, (patch, merge): (u64, u64), (height, width): (u64, u64)) -> [u64; 2] {
    let factor = patch.saturating_mul(merge);
    let (tall, wide) = (height.max(1) as f64, width.max(1) as f64);
    let pixels = patches.saturating_mul(patch).saturating_mul(patch) as f64;
    let scale = (pixels / (tall * wide)).sqrt();
    let [rows, columns] = [tall, wide].map(|side| (scale * side / factor as f64).floor() as u64 * factor);
    // a side that comes to nothing is one token, and the other as long as the ratio says
    let longest = (patches / merge.saturating_mul(merge)).saturating_mul(factor);
    let along = |ratio: f64| (ratio.floor() as u64).saturating_mul(factor).min(longest);
    match (rows, columns) {
        (0, _) => [factor, along(wide / tall)],
        (_, 0) => [along(tall / wide), factor],
        sides => sides.into(),
    }
}
