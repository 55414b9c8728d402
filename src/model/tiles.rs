//! Into which tiles of one size a processor cuts a picture.
//!
//! Sources: transformers 5.17 models/got_ocr2/image_processing_got_ocr2.py `get_optimal_tiled_canvas` (InternVL's processor is that of
//! GOT-OCR2), models/llama4/image_processing_llama4.py `get_best_fit`, image_processing_utils.py `select_best_resolution`, models/llava_next/processing_llava_next.py `_get_unpadded_features`.

/// Rows and columns of patches, or of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
}

impl Grid {
    /// How many there are.
    pub fn patches(self) -> u64 {
        self.rows.saturating_mul(self.columns)
    }
}

/// Tiles side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Tiles.
    pub tiles: Grid,
    /// Patches of all of them.
    pub whole: Grid,
    /// Those that are no padding, each of which is a token.
    pub seen: Grid,
}

impl Laid {
    /// Tokens: those that are seen, and one behind each row.
    pub fn tokens(self) -> u64 {
        self.seen.patches().saturating_add(self.seen.rows)
    }
}

/// Rows and columns of at most so many tiles whose ratio is nearest to that of a picture's sides. Of two that are as near, the one of
/// more tiles is taken as long as they have less than twice the picture's pixels.
pub fn nearest_ratio(most: u64, side: u64, (height, width): (u64, u64)) -> [u64; 2] {
    let (height, width) = (height.max(1) as f64, width.max(1) as f64);
    let (ratio, area) = (width / height, width * height);
    let tile = (side as f64) * (side as f64);
    let mut best = [1, 1];
    let mut nearest = f64::INFINITY;
    for [rows, columns] in arrangements(most) {
        let away = (ratio - columns as f64 / rows as f64).abs();
        if away < nearest {
            (nearest, best) = (away, [rows, columns]);
        } else if away == nearest && area > 0.5 * tile * (rows * columns) as f64 {
            best = [rows, columns];
        }
    }
    best
}

/// Rows and columns of up to so many tiles: those of fewer tiles first, then those of fewer columns.
fn arrangements(most: u64) -> Vec<[u64; 2]> {
    let of_columns = |columns: u64| (1..=most / columns.max(1)).map(move |rows| [rows, columns]);
    let mut all: Vec<[u64; 2]> = (1..=most).flat_map(of_columns).collect();
    all.sort_by_key(|[rows, columns]| rows * columns);
    all
}

/// Rows and columns of at most so many tiles: of those that a picture does not shrink on the ones that it grows least on, and where there are none
/// those that it shrinks least on; of these the fewest. No two of as many are left: what has the rows of one and the columns of the other would be
/// fewer. transformers computes in float32.
pub fn canvas(most: u64, side: u64, (height, width): (u64, u64)) -> [u64; 2] {
    let scale = |along: u64, own: u64| along.saturating_mul(side) as f32 / own.max(1) as f32;
    let scaled: Vec<([u64; 2], f32)> = arrangements(most)
        .into_iter()
        .map(|[rows, columns]| ([rows, columns], scale(rows, height).min(scale(columns, width))))
        .collect();
    let scales = || scaled.iter().map(|(_, scale)| *scale);
    let chosen =
        scales().filter(|scale| *scale >= 1.0).reduce(f32::min).or_else(|| scales().reduce(f32::max));
    // those of fewer tiles come first
    scaled.iter().find(|(_, scale)| Some(*scale) == chosen).map_or([1, 1], |(own, _)| *own)
}

/// Rows and columns of tiles of the size that keeps most of a picture, and of those that keep as much wastes least.
pub fn cut(points: &[[u64; 2]], side: u64, (height, width): (u64, u64)) -> Grid {
    let (tall, wide) = (height.max(1) as f64, width.max(1) as f64);
    let mut best = [side, side];
    let (mut kept, mut wasted) = (0.0, f64::INFINITY);
    for [rows, columns] in points {
        let (rows_wide, columns_wide) = (*rows as f64, *columns as f64);
        let scale = (columns_wide / wide).min(rows_wide / tall);
        let effective = ((wide * scale).trunc() * (tall * scale).trunc()).min(tall * wide);
        let waste = rows_wide * columns_wide - effective;
        if effective > kept || effective == kept && waste < wasted {
            (kept, wasted, best) = (effective, waste, [*rows, *columns]);
        }
    }
    let [rows, columns] = best.map(|along| along / side.max(1));
    Grid { rows, columns }
}

/// Of patches that a picture was padded to, those that are left without the padding.
pub fn unpadded(whole: Grid, (height, width): (u64, u64)) -> Grid {
    let (tall, wide) = (height.max(1) as f64, width.max(1) as f64);
    let (rows, columns) = (whole.rows as f64, whole.columns as f64);
    // half of what lacks goes on either side
    let left = |along: u64, shrunk: f64| along - along.saturating_sub(rounded(shrunk)) / 2 * 2;
    if wide / tall > columns / rows {
        Grid { rows: left(whole.rows, tall * (columns / wide)), ..whole }
    } else {
        Grid { columns: left(whole.columns, wide * (rows / tall)), ..whole }
    }
}

/// Python's `int(round(number, 7))`.
fn rounded(number: f64) -> u64 {
    format!("{number:.7}").parse::<f64>().map_or(0, |number| number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture's height and width, InternVL's tiles, LLaVA-NeXT's, and the tokens of these.
    type Picture = ((u64, u64), [u64; 2], [u64; 2], u64);

    /// Computed with transformers' `get_optimal_tiled_canvas`, `select_best_resolution` and `_get_unpadded_features`.
    const PICTURES: [Picture; 13] = [
        ((448, 448), [1, 1], [2, 2], 2928),
        ((640, 480), [4, 3], [2, 2], 2352),
        ((1024, 1024), [3, 3], [2, 2], 2928),
        ((1080, 1920), [2, 4], [2, 2], 1948),
        ((300, 1200), [1, 4], [1, 3], 1890),
        ((1, 1), [1, 1], [1, 2], 1176),
        ((1, 5000), [1, 12], [1, 2], 576),
        ((5000, 1), [12, 1], [1, 2], 600),
        ((449, 450), [1, 1], [2, 2], 2928),
        ((7000, 123), [12, 1], [3, 1], 792),
        ((672, 672), [2, 2], [2, 2], 2928),
        ((634, 634), [2, 2], [2, 2], 2928),
        ((1400, 700), [4, 2], [2, 1], 1776),
    ];

    #[test]
    fn a_picture_is_cut_as_the_processors_cut_it() {
        const POINTS: [[u64; 2]; 5] = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]];
        for (sides, near, [rows, columns], tokens) in PICTURES {
            assert_eq!(nearest_ratio(12, 448, sides), near, "{sides:?}");
            let tiles = cut(&POINTS, 336, sides);
            assert_eq!(tiles, Grid { rows, columns }, "{sides:?}");
            let whole = Grid { rows: rows * 24, columns: columns * 24 };
            let laid = Laid { tiles, whole, seen: unpadded(whole, sides) };
            assert_eq!(576 + laid.tokens(), tokens, "{sides:?}");
        }
    }

    #[test]
    fn no_size_is_too_large() {
        for sides in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX), (0, 0)] {
            let [down, across] = nearest_ratio(12, 448, sides);
            assert!((1..=12).contains(&(down * across)), "{down} x {across}");
            let whole = cut(&[[u64::MAX, 336]], 336, sides);
            let seen = unpadded(whole, sides);
            assert!(seen.rows <= whole.rows && seen.columns <= whole.columns);
        }
    }

    /// Computed with transformers' `get_best_fit`.
    #[test]
    fn a_canvas_takes_a_picture_with_the_least_that_is_lost_or_added() {
        for (sides, canvas_of) in [
            ((1, 1), [1, 1]),
            ((336, 336), [1, 1]),
            ((337, 336), [2, 1]),
            ((480, 640), [2, 2]),
            ((672, 672), [2, 2]),
            ((1080, 1920), [3, 5]),
            ((1344, 1344), [4, 4]),
            ((300, 1200), [1, 4]),
            ((5000, 1), [15, 1]),
            ((2000, 2000), [4, 4]),
            ((1536, 2048), [3, 4]),
            ((100, 3000), [1, 9]),
        ] {
            assert_eq!(canvas(16, 336, sides), canvas_of, "{sides:?}");
        }
    }
}
