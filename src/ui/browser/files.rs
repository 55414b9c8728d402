//! What the visitor takes along: files and pictures.

use std::collections::HashMap;

use leptos::prelude::{document, window};
use wasm_bindgen::prelude::*;

/// The density of a picture in pixels.
const DENSITY: f64 = 2.;

/// What of a drawing the style sheet says, and a picture must say itself.
const STYLES: [&str; 10] = [
    "fill",
    "stroke",
    "stroke-width",
    "stroke-dasharray",
    "stroke-linejoin",
    "opacity",
    "paint-order",
    "font-family",
    "font-size",
    "font-weight",
];

/// Hands a text over as a file.
pub fn save(name: &str, kind: &str, text: &str) {
    if let Some(blob) = blob(kind, text) {
        save_blob(name, &blob);
    }
}

/// Hands bytes over as a file.
pub fn save_bytes(name: &str, bytes: &[u8]) {
    let parts = js_sys::Array::of1(&js_sys::Uint8Array::from(bytes));
    if let Ok(blob) = web_sys::Blob::new_with_u8_array_sequence(&parts) {
        save_blob(name, &blob);
    }
}

fn blob(kind: &str, text: &str) -> Option<web_sys::Blob> {
    let options = web_sys::BlobPropertyBag::new();
    options.set_type(kind);
    web_sys::Blob::new_with_str_sequence_and_options(&js_sys::Array::of1(&text.into()), &options).ok()
}

fn save_blob(name: &str, blob: &web_sys::Blob) {
    let Ok(address) = web_sys::Url::create_object_url_with_blob(blob) else { return };
    let link =
        document().create_element("a").ok().and_then(|link| link.dyn_into::<web_sys::HtmlElement>().ok());
    if let Some(link) = link {
        drop(link.set_attribute("href", &address));
        drop(link.set_attribute("download", name));
        link.click();
    }
    drop(web_sys::Url::revoke_object_url(&address));
}

/// Prints the page.
pub fn print() {
    // A browser that cannot print does nothing.
    drop(window().print());
}

/// A drawing that stands by itself: what the style sheet says of it is written into it.
pub fn styled(svg: &str) -> Option<String> {
    let body = document().body()?;
    let stage = document().create_element("div").ok()?;
    stage.set_class_name("drawing unseen");
    stage.set_inner_html(svg);
    body.append_child(&stage).ok()?;
    let written = write_styles(&stage);
    stage.remove();
    written
}

/// Colours as every program reads them: painted once and looked at.
struct Palette {
    brush: web_sys::CanvasRenderingContext2d,
    known: HashMap<String, String>,
}

impl Palette {
    fn new() -> Option<Palette> {
        let canvas =
            document().create_element("canvas").ok()?.dyn_into::<web_sys::HtmlCanvasElement>().ok()?;
        // Otherwise browsers warn that reading is slow.
        let options = js_sys::Object::new();
        js_sys::Reflect::set(&options, &"willReadFrequently".into(), &true.into()).ok()?;
        let brush = canvas.get_context_with_context_options("2d", &options).ok()??.dyn_into().ok()?;
        Some(Palette { brush, known: HashMap::new() })
    }

    fn plain(&mut self, colour: &str) -> Option<String> {
        if let Some(known) = self.known.get(colour) {
            return Some(known.clone());
        }
        let brush = &self.brush;
        brush.clear_rect(0., 0., 1., 1.);
        brush.set_fill_style_str(colour);
        brush.fill_rect(0., 0., 1., 1.);
        let read: js_sys::Function =
            js_sys::Reflect::get(brush, &"getImageData".into()).ok()?.dyn_into().ok()?;
        let corner = js_sys::Array::of4(&0.into(), &0.into(), &1.into(), &1.into());
        let image = read.apply(brush, &corner).ok()?;
        let pixel: js_sys::Uint8ClampedArray =
            js_sys::Reflect::get(&image, &"data".into()).ok()?.dyn_into().ok()?;
        let [red, green, blue] = [0, 1, 2].map(|index| pixel.get_index(index));
        let plain = format!("#{red:02x}{green:02x}{blue:02x}");
        self.known.insert(colour.to_owned(), plain.clone());
        Some(plain)
    }
}

fn write_styles(stage: &web_sys::Element) -> Option<String> {
    let root = stage.first_element_child()?;
    let all = stage.query_selector_all("svg, svg *").ok()?;
    let mut mixed = Palette::new()?;
    for index in 0..all.length() {
        let Some(element) = all.get(index).and_then(|node| node.dyn_into::<web_sys::Element>().ok()) else {
            continue;
        };
        let Ok(Some(computed)) = window().get_computed_style(&element) else { continue };
        for name in STYLES {
            let value = computed.get_property_value(name).unwrap_or_default();
            let plain = if value.starts_with("okl") { mixed.plain(&value) } else { None };
            if !value.is_empty() {
                drop(element.set_attribute(name, &plain.unwrap_or(value)));
            }
        }
        drop(element.remove_attribute("class"));
    }
    drop(root.set_attribute("xmlns", "http://www.w3.org/2000/svg"));
    web_sys::XmlSerializer::new().ok()?.serialize_to_string(&root).ok()
}

/// Hands a drawing over as a picture in pixels; says whether that worked.
pub fn save_picture(
    name: &str,
    svg: &str,
    (width, height): (u32, u32),
    done: impl Fn(bool) + Clone + 'static,
) {
    let name = name.to_owned();
    let told = done.clone();
    let draw = move || -> Option<()> {
        let address = web_sys::Url::create_object_url_with_blob(&blob("image/svg+xml", svg)?).ok()?;
        let image = web_sys::HtmlImageElement::new().ok()?;
        let shown = image.clone();
        let loaded = address.clone();
        let load = Closure::once_into_js(move || {
            let saved = paint(&shown, (width, height), name, told.clone());
            drop(web_sys::Url::revoke_object_url(&loaded));
            if saved.is_none() {
                told(false);
            }
        });
        image.set_onload(Some(load.unchecked_ref()));
        image.set_src(&address);
        Some(())
    };
    if draw().is_none() {
        done(false);
    }
}

fn paint(
    image: &web_sys::HtmlImageElement,
    (width, height): (u32, u32),
    name: String,
    done: impl Fn(bool) + 'static,
) -> Option<()> {
    let canvas = document().create_element("canvas").ok()?.dyn_into::<web_sys::HtmlCanvasElement>().ok()?;
    canvas.set_width((f64::from(width) * DENSITY) as u32);
    canvas.set_height((f64::from(height) * DENSITY) as u32);
    let context = canvas.get_context("2d").ok()??.dyn_into::<web_sys::CanvasRenderingContext2d>().ok()?;
    context.scale(DENSITY, DENSITY).ok()?;
    context.draw_image_with_html_image_element(image, 0., 0.).ok()?;
    let take = Closure::once_into_js(move |blob: Option<web_sys::Blob>| {
        if let Some(blob) = &blob {
            save_blob(&name, blob);
        }
        done(blob.is_some());
    });
    canvas.to_blob(take.unchecked_ref()).ok()
}
