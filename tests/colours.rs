//! The colours of `style/tokens.css`: 3:1 against the page in both themes, apart from each other for every kind of sight,
//! and with text on them that can be read.

use std::collections::BTreeMap;

/// Linear sRGB.
type Rgb = [f64; 3];
type Matrix = [[f64; 3]; 3];

/// The seven hues.
const HUES: [&str; 7] =
    ["weights", "adapters", "gradients", "optimizer", "activations", "logits", "temporaries"];
/// The tints, each with its hue.
const TINTS: [(&str, &str); 5] = [
    ("quant-state", "weights"),
    ("weight-copies", "weights"),
    ("kv-cache", "activations"),
    ("other", "temporaries"),
    ("context", "temporaries"),
];
/// CIEDE2000 between two hues, between a hue and a tint of another, and between the tints of one.
const APART: [f64; 3] = [15., 11., 9.];

/// Sight in full, without long, middle and short wavelengths (Machado, Oliveira and Fernandes 2009, severity 1.0).
const SIGHT: [(&str, Matrix); 4] = [
    ("full", [[1., 0., 0.], [0., 1., 0.], [0., 0., 1.]]),
    (
        "protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

fn times(matrix: &Matrix, v: Rgb) -> Rgb {
    matrix.map(|row| row[0] * v[0] + row[1] * v[1] + row[2] * v[2])
}

/// Björn Ottosson's OKLab, from the cylinder of CSS.
fn oklch(lightness: f64, chroma: f64, hue: f64) -> Rgb {
    let (a, b) = (chroma * hue.to_radians().cos(), chroma * hue.to_radians().sin());
    let lms = [
        lightness + 0.3963377774 * a + 0.2158037573 * b,
        lightness - 0.1055613458 * a - 0.0638541728 * b,
        lightness - 0.0894841775 * a - 1.2914855480 * b,
    ];
    let to_rgb = [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ];
    times(&to_rgb, lms.map(|part| part.powi(3)))
}

/// WCAG's contrast.
fn contrast(one: Rgb, other: Rgb) -> f64 {
    let luminance = |rgb: Rgb| {
        let [r, g, b] = rgb.map(|part| part.clamp(0., 1.));
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn lab(rgb: Rgb) -> [f64; 3] {
    let to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ];
    let [x, y, z] = times(&to_xyz, rgb.map(|part| part.clamp(0., 1.)));
    let [x, y, z] = [x / 0.95047, y, z / 1.08883].map(|t| {
        let (epsilon, kappa) = (216. / 24389., 24389. / 27.);
        if t > epsilon { t.cbrt() } else { (kappa * t + 16.) / 116. }
    });
    [116. * y - 16., 500. * (x - y), 200. * (y - z)]
}

/// CIEDE2000, as Sharma, Wu and Dalal wrote it out.
fn difference(one: Rgb, other: Rgb) -> f64 {
    let ([l1, a1, b1], [l2, a2, b2]) = (lab(one), lab(other));
    let seventh = |c: f64| (c.powi(7) / (c.powi(7) + 25_f64.powi(7))).sqrt();
    let mean = (a1.hypot(b1) + a2.hypot(b2)) / 2.;
    let g = 1. + 0.5 * (1. - seventh(mean));
    let (c1, c2) = ((g * a1).hypot(b1), (g * a2).hypot(b2));
    let hue = |a: f64, b: f64| b.atan2(a).to_degrees().rem_euclid(360.);
    let (h1, h2) = (hue(g * a1, b1), hue(g * a2, b2));
    let mut turn = h2 - h1;
    if turn.abs() > 180. {
        turn -= 360. * turn.signum();
    }
    let (dl, dc, dh) = (l2 - l1, c2 - c1, 2. * (c1 * c2).sqrt() * (turn / 2.).to_radians().sin());
    let (l, c, h) = ((l1 + l2) / 2., (c1 + c2) / 2., (h1 + turn / 2.).rem_euclid(360.));
    let cos = |degrees: f64| degrees.to_radians().cos();
    let t =
        1. - 0.17 * cos(h - 30.) + 0.24 * cos(2. * h) + 0.32 * cos(3. * h + 6.) - 0.20 * cos(4. * h - 63.);
    let rotation = -(60. * (-((h - 275.) / 25.).powi(2)).exp()).to_radians().sin() * 2. * seventh(c);
    let sl = 1. + 0.015 * (l - 50.).powi(2) / (20. + (l - 50.).powi(2)).sqrt();
    let (sc, sh) = (1. + 0.045 * c, 1. + 0.015 * c * t);
    ((dl / sl).powi(2) + (dc / sc).powi(2) + (dh / sh).powi(2) + rotation * (dc / sc) * (dh / sh)).sqrt()
}

/// The colours of a theme by their names: 0 is light, 1 is dark.
fn theme(which: usize) -> BTreeMap<String, Rgb> {
    let css = include_str!("../style/tokens.css");
    let mut colours = BTreeMap::new();
    for line in css.lines() {
        let Some((name, value)) = line.trim().strip_prefix("--").and_then(|line| line.split_once(": "))
        else {
            continue;
        };
        let written: Vec<&str> = value.split("oklch(").skip(1).collect();
        let Some(text) = written.get(which).or(written.first()).and_then(|text| text.split(')').next())
        else {
            continue;
        };
        let numbers: Vec<f64> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
        if let [lightness, chroma, hue] = numbers[..] {
            colours.insert(name.to_owned(), oklch(lightness, chroma, hue));
        }
    }
    colours.insert("on-deep".to_owned(), [1.; 3]);
    colours
}

fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    HUES.into_iter().map(|hue| (hue, hue)).chain(TINTS)
}

#[test]
fn the_measures_are_those_of_the_standards() {
    // from the test data of Sharma, Wu and Dalal, through sRGB: red, and black against white
    assert!((contrast([0.; 3], [1.; 3]) - 21.).abs() < 1e-9);
    assert!((difference([0.; 3], [1.; 3]) - 100.).abs() < 0.01);
    assert!(difference([0.2, 0.4, 0.6], [0.2, 0.4, 0.6]) < 1e-9);
    let [l, a, b] = lab([1., 0., 0.]);
    assert!((l - 53.24).abs() < 0.01 && (a - 80.09).abs() < 0.02 && (b - 67.2).abs() < 0.02, "{l} {a} {b}");
}

#[test]
fn every_colour_is_seen_on_the_page() {
    for which in [0, 1] {
        let theme = theme(which);
        for (name, _) in all() {
            for ground in ["paper", "surface"] {
                let seen = contrast(theme[name], theme[ground]);
                assert!(seen >= 3., "{name} on {ground} in theme {which}: {seen:.2}");
            }
            assert!(theme[name].iter().all(|part| (-0.001..=1.001).contains(part)), "{name} is no sRGB");
        }
    }
}

#[test]
fn colours_are_told_apart_by_every_kind_of_sight() {
    for which in [0, 1] {
        let theme = theme(which);
        let named: Vec<_> = all().collect();
        for (index, (one, hue)) in named.iter().enumerate() {
            for (other, other_hue) in &named[..index] {
                let tints = usize::from(one != hue) + usize::from(other != other_hue);
                let wanted = if hue == other_hue { APART[2] } else { APART[tints] };
                for (sight, matrix) in &SIGHT {
                    let far = difference(times(matrix, theme[*one]), times(matrix, theme[*other]));
                    assert!(far >= wanted, "{one} and {other}, theme {which}, {sight}: {far:.1} of {wanted}");
                }
            }
        }
    }
}

#[test]
fn text_on_the_colours_can_be_read() {
    let css = include_str!("../style/tokens.css");
    for (name, _) in all() {
        let rule = css.lines().find(|line| line.contains(&format!("--part: var(--{name});")));
        let rule = rule.unwrap_or_else(|| panic!("no part is {name}"));
        let written: Vec<&str> =
            rule.split("var(--on-").skip(1).filter_map(|text| text.split(')').next()).collect();
        for which in [0, 1] {
            let theme = theme(which);
            let on = written.get(which).or(written.first()).unwrap_or_else(|| panic!("no text on {name}"));
            let seen = contrast(theme[&format!("on-{on}")], theme[name]);
            assert!(seen >= 4.5, "on-{on} on {name} in theme {which}: {seen:.2}");
        }
    }
}
