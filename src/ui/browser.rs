//! The only module that touches the window, its history, clipboard and storage. Everything here can fail (blocked
//! storage, a page in a frame) and says so instead of panicking.

mod files;
mod keys;
mod steady;

use std::cell::RefCell;
use std::rc::Rc;

use gloo::events::{EventListener, EventListenerOptions};
use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::import;
use crate::issue::{Field, Issue};
use crate::model::ModelError;
use crate::model::read::check_length;

pub use files::{print, save, save_bytes, save_picture, styled};
pub use keys::{Stroke, edit, on_paste, on_stroke, refuse_long};
pub use steady::{keep_steady, measure_what_sticks};

/// What the address says behind its path, which [`crate::share::decode`] reads: a fragment, which is never sent to the
/// host, or the query that links had before.
pub fn link() -> String {
    let location = window().location();
    let said = |part: Result<String, JsValue>| part.unwrap_or_default();
    said(location.search()) + &said(location.hash())
}

/// Whether the address has a query.
pub fn has_query() -> bool {
    window().location().search().is_ok_and(|query| !query.is_empty())
}

/// What becomes of the present entry of the history when the address changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// It is overwritten.
    Replace,
    /// It is kept; back leads to it.
    Push,
}

/// Writes the scenarios into the address, behind `#`, and tells whether that was done: browsers limit how often (Safari 100 times in 30
/// seconds), and throw an exception where it is too often, which ends here.
pub fn write_link(link: &str, history: History) -> bool {
    let target = format!("{}#{link}", path());
    // where there is no history there is nothing to be tried again
    let Ok(entries) = window().history() else { return true };
    let written = match history {
        History::Replace => entries.replace_state_with_url(&JsValue::NULL, "", Some(&target)),
        History::Push => entries.push_state_with_url(&JsValue::NULL, "", Some(&target)),
    };
    written.is_ok()
}

fn path() -> String {
    window().location().pathname().unwrap_or_default()
}

/// The address of the page as it stands.
pub fn address() -> String {
    window().location().href().unwrap_or_default()
}

/// Opens an address in a tab of its own.
pub fn open(address: &str) {
    // A browser that forbids it does nothing.
    drop(window().open_with_url_and_target(address, "_blank"));
}

/// Runs when the visitor goes back or forward.
pub fn on_travel(mut run: impl FnMut() + 'static) {
    EventListener::new(&window(), "popstate", move |_| run()).forget();
}

/// Runs when the page may be about to go away.
pub fn on_hide(mut run: impl FnMut() + 'static) {
    let document = document();
    EventListener::new(&document.clone(), "visibilitychange", move |_| {
        if document.hidden() {
            run();
        }
    })
    .forget();
}

/// Puts a text on the clipboard and says whether that worked.
pub fn copy(text: &str, mut done: impl FnMut(bool) + 'static) {
    // `navigator.clipboard` is undefined on pages that were not served securely; the binding does not say so.
    let clipboard = js_sys::Reflect::get(&window().navigator(), &"clipboard".into()).ok();
    let Some(clipboard) = clipboard.filter(|value| !value.is_undefined()) else { return done(false) };
    let promise = clipboard.unchecked_into::<web_sys::Clipboard>().write_text(text);
    // The promise answers with undefined, or with why it failed.
    let answered = Closure::<dyn FnMut(JsValue)>::new(move |answer: JsValue| done(answer.is_undefined()));
    drop(promise.then2(&answered, &answered));
    // One small closure for each click on a button is left to the page.
    answered.forget();
}

/// What was stored under a key.
pub fn stored(key: &str) -> Option<String> {
    window().local_storage().ok()??.get_item(key).ok()?
}

/// Stores a text, or forgets it. A browser that blocks storage forgets it at once.
pub fn store(key: &str, value: Option<&str>) {
    let Ok(Some(storage)) = window().local_storage() else { return };
    let stored = match value {
        Some(value) => storage.set_item(key, value),
        None => storage.remove_item(key),
    };
    drop(stored);
}

/// Sets or removes an attribute of the page's root element.
pub fn mark_root(name: &str, value: Option<&str>) {
    let Some(root) = document().document_element() else { return };
    let marked = match value {
        Some(value) => root.set_attribute(name, value),
        None => root.remove_attribute(name),
    };
    drop(marked);
}

/// Sets a property of an element's style.
pub fn set_style(element: &web_sys::HtmlElement, name: &str, value: &str) {
    // A name that is no property is ignored.
    drop(element.style().set_property(name, value));
}

/// Whether the system asks for dark colours.
pub fn system_is_dark() -> bool {
    window().match_media("(prefers-color-scheme: dark)").ok().flatten().is_some_and(|query| query.matches())
}

/// Shows the crash panel of `index.html` when the app panics: after that it answers nothing any more. A worker has no page
/// to show it on; the app learns of its end and starts another.
pub fn catch_crashes() {
    std::panic::set_hook(Box::new(|info| {
        console_error_panic_hook::hook(info);
        if is_page() {
            mark_root("data-state", Some("crashed"));
        }
    }));
}

/// Takes away what stood on the page before the app did, and hands over where the app belongs, which answers from now on.
pub fn stage() -> Option<web_sys::HtmlElement> {
    let stage = document().get_element_by_id("app")?;
    stage.set_inner_html("");
    // As `load.js` left it: an attribute that is not there is as good.
    let _ = stage.remove_attribute("inert");
    stage.dyn_into().ok()
}

/// Brings the element of that id into view within its own list.
pub fn reveal(id: &str) {
    if let Some(element) = document().get_element_by_id(id) {
        let options = web_sys::ScrollIntoViewOptions::new();
        options.set_block(web_sys::ScrollLogicalPosition::Nearest);
        element.scroll_into_view_with_scroll_into_view_options(&options);
    }
}

/// The classes of what a click hit.
pub fn classes_at(event: &web_sys::Event) -> Option<String> {
    event.target()?.dyn_into::<web_sys::Element>().ok()?.get_attribute("class")
}

/// Milliseconds of a clock.
pub fn now() -> f64 {
    js_sys::Date::now()
}

/// Names the page.
pub fn name_page(name: &str) {
    document().set_title(name);
}

/// Scrolls to the top of the page, as when something new was opened there.
pub fn scroll_to_top() {
    window().scroll_to_with_x_and_y(0., 0.);
}

/// Scrolls to a heading where what it heads begins in the lower part of what is seen of the page or below it, or has been scrolled past. On
/// a narrow page, where the form stands above the answer, the lower part is more.
pub fn bring_up(heading: &str, headed: &str) {
    let seen =
        |size: Result<wasm_bindgen::JsValue, _>| size.ok().and_then(|size| size.as_f64()).unwrap_or_default();
    let (width, height) = (seen(window().inner_width()), seen(window().inner_height()));
    let lower = if width <= NARROW { 0.4 } else { 0.8 };
    let by_id = |id: &str| document().get_element_by_id(id);
    let (Some(heading), Some(headed)) = (by_id(heading), by_id(headed)) else { return };
    let is_past = heading.get_bounding_client_rect().top() < 0.;
    if is_past || headed.get_bounding_client_rect().top() > height * lower {
        heading.scroll_into_view();
    }
}

/// Up to this width, in pixels, the form stands above the answer (style/layout.css).
const NARROW: f64 = 900.;

/// Whether an element is there, is shown, and begins above the middle of what is seen of the page.
pub fn begins_above_the_middle(id: &str) -> bool {
    let middle = window().inner_height().ok().and_then(|height| height.as_f64()).unwrap_or_default() / 2.0;
    document().get_element_by_id(id).is_some_and(|element| {
        let place = element.get_bounding_client_rect();
        place.height() > 0.0 && place.top() < middle
    })
}

/// Tells when the page has become longer or shorter, until the component is gone.
pub fn watch_page(mut tell: impl FnMut() + 'static) {
    if let Some(body) = document().body() {
        watch_width(&body, move |_| tell());
    }
}

/// Tells the width of an element in CSS pixels, before it is painted for the first time and whenever its size changes, until the
/// component is gone.
pub fn watch_width(element: &web_sys::Element, mut tell: impl FnMut(f64) + 'static) {
    let seen = Closure::<dyn FnMut(js_sys::Array)>::new(move |entries: js_sys::Array| {
        if let Ok(entry) = entries.get(0).dyn_into::<web_sys::ResizeObserverEntry>() {
            tell(entry.content_rect().width());
        }
    });
    if let Ok(observer) = web_sys::ResizeObserver::new(seen.as_ref().unchecked_ref()) {
        observer.observe(element);
        let kept = StoredValue::new_local((observer, seen));
        on_cleanup(move || kept.with_value(|(observer, _)| observer.disconnect()));
    }
}

/// What was pressed is told of the pointer until it is released, wherever it goes.
pub fn follow_pointer(event: &web_sys::PointerEvent) {
    if let Some(pressed) = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok()) {
        // a pointer that has gone already is not followed
        drop(pressed.set_pointer_capture(event.pointer_id()));
    }
}

/// Gives an element the focus.
pub fn focus(id: &str) {
    let element = document().get_element_by_id(id);
    if let Some(element) = element.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok()) {
        drop(element.focus());
    }
}

/// Gives the focus to another of the buttons within an element: to the one of the number that `to` makes of that of the last one up to
/// where the focus is, and of how many there are.
pub fn focus_within(id: &str, to: fn(usize, usize) -> usize) {
    let Ok(found) = document().query_selector_all(&format!("#{id} button")) else { return };
    let buttons: Vec<web_sys::HtmlElement> =
        (0..found.length()).filter_map(|index| found.get(index)?.dyn_into().ok()).collect();
    let Some(at) = document().active_element().filter(|_| !buttons.is_empty()) else { return };
    let is_passed = |button: &&web_sys::HtmlElement| {
        let place = at.compare_document_position(button);
        place == 0 || place & web_sys::Node::DOCUMENT_POSITION_PRECEDING != 0
    };
    let passed = buttons.iter().filter(is_passed).count();
    let now = passed.checked_sub(1).unwrap_or(buttons.len() - 1);
    if let Some(button) = buttons.get(to(now, buttons.len())) {
        drop(button.focus());
    }
}

/// Whether an element has the focus.
pub fn is_focused(id: &str) -> bool {
    document().active_element().is_some_and(|element| element.id() == id)
}

/// Goes to a heading, so that it is at the top and what comes after it is next for the keyboard.
pub fn go_to(id: &str) {
    let element = document().get_element_by_id(id);
    if let Some(element) = element.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok()) {
        element.set_tab_index(-1);
        element.scroll_into_view();
        drop(element.focus());
    }
}

/// What the browser opens over the page, by its id.
fn popover(id: &str) -> Option<web_sys::HtmlElement> {
    document().get_element_by_id(id)?.dyn_into().ok()
}

/// Shows what the browser opens over the page, beside the button in the element that an event came to.
pub fn show_at(id: &str, event: &web_sys::Event) {
    let at = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let button = at.and_then(|at| at.query_selector("button").ok().flatten());
    let beside = web_sys::ShowPopoverOptions::new();
    if let Some(button) = button.and_then(|button| button.dyn_into().ok()) {
        beside.set_source(&button);
    }
    if let Some(popover) = popover(id) {
        // it is shown already where this fails
        drop(popover.show_popover_with_options(&beside));
    }
}

/// Shows what the browser opens over the page.
pub fn show(id: &str) {
    if let Some(popover) = popover(id) {
        // it is shown already where this fails
        drop(popover.show_popover());
    }
}

/// Hides it.
pub fn hide(id: &str) {
    if let Some(popover) = popover(id) {
        // it is hidden already where this fails
        drop(popover.hide_popover());
    }
}

/// The address of the Hub: what a tag `<meta name="headroom-hub">` says, relative to the page.
pub fn hub() -> String {
    let tag = document().query_selector("meta[name=headroom-hub]").ok().flatten();
    let base = tag.and_then(|tag| tag.get_attribute("content"));
    base.map_or_else(|| "https://huggingface.co".to_owned(), |base| base.trim_end_matches('/').to_owned())
}

/// Why a text did not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The browser says that it has no network.
    Offline,
    /// The server was not reached, or did not allow pages to ask.
    Unreached,
    /// It did not answer in time.
    Late,
    /// It answered with something else.
    Status {
        /// HTTP's code.
        status: u16,
        /// The Hub's own code, or nothing.
        code: String,
    },
    /// The text is longer than any config.
    TooLong(ModelError),
}

/// How long a server may take, in milliseconds.
const PATIENCE: u32 = 20_000;

/// Asks a server for a text; without cookies, and without telling it the page's address.
pub async fn fetch(url: &str) -> Result<String, NoText> {
    let signal = web_sys::AbortSignal::timeout_with_u32(PATIENCE);
    let options = web_sys::RequestInit::new();
    options.set_credentials(web_sys::RequestCredentials::Omit);
    options.set_referrer_policy(web_sys::ReferrerPolicy::NoReferrer);
    options.set_signal(Some(&signal));
    let failed = |_| match (signal.aborted(), window().navigator().on_line()) {
        (true, _) => NoText::Late,
        (_, false) => NoText::Offline,
        _ => NoText::Unreached,
    };
    let answer = JsFuture::from(window().fetch_with_str_and_init(url, &options)).await.map_err(failed)?;
    let answer: web_sys::Response = answer.unchecked_into();
    let header = |name| answer.headers().get(name).ok().flatten().unwrap_or_default();
    if !answer.ok() {
        return Err(NoText::Status { status: answer.status(), code: header("x-error-code") });
    }
    check_length(header("content-length").parse().unwrap_or(0)).map_err(NoText::TooLong)?;
    let Some(body) = answer.body() else { return Ok(String::new()) };
    let reader: web_sys::ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    let mut bytes = Vec::new();
    loop {
        let part = JsFuture::from(reader.read()).await.map_err(failed)?;
        // only the end has no value
        let value = js_sys::Reflect::get(&part, &"value".into()).map_err(failed)?;
        let Ok(part) = value.dyn_into::<js_sys::Uint8Array>() else { break };
        // what is compressed, or sent in pieces, does not say before how long it is
        if let Err(error) = check_length((bytes.len() as u64).saturating_add(part.length().into())) {
            drop(reader.cancel());
            return Err(NoText::TooLong(error));
        }
        bytes.extend(part.to_vec());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text of a file that the visitor handed over; a file that is longer than any configuration is not read.
pub async fn read(file: &web_sys::File) -> Result<String, Issue> {
    import::check_length(file.size() as u64)
        .map_err(|error| Issue::error(Field::Model, error.to_string()))?;
    // A file that was moved away meanwhile reads as an empty one.
    let text = JsFuture::from(file.text()).await.ok();
    Ok(text.and_then(|text| text.as_string()).unwrap_or_default())
}

/// The bytes of a file. Copies are the same bytes.
#[derive(Clone)]
pub struct File(js_sys::Uint8Array);

impl File {
    /// The bytes of a file that the visitor handed over.
    pub async fn of(file: &web_sys::File) -> Option<File> {
        let buffer = JsFuture::from(file.array_buffer()).await.ok()?;
        Some(File(js_sys::Uint8Array::new(&buffer)))
    }
}

/// Takes files that are dropped anywhere on the page, and shows that they would be taken. Of several, the first one that
/// is called `config.json` counts, else the first.
pub fn on_drop(mut take: impl FnMut(web_sys::File) + 'static) {
    let carried = |event: &web_sys::Event| {
        let carried = event.dyn_ref::<web_sys::DragEvent>()?.data_transfer()?;
        carried.types().includes(&"Files".into(), 0).then_some(carried)
    };
    let options = EventListenerOptions::enable_prevent_default();
    let later = Later::default();
    EventListener::new_with_options(&window(), "dragover", options, move |event| {
        if carried(event).is_some() {
            event.prevent_default();
            mark_root("data-drop", Some(""));
            // A drag that ends elsewhere says nothing; while it is over the page this event comes again and again.
            later.run(300, || mark_root("data-drop", None));
        }
    })
    .forget();
    EventListener::new_with_options(&window(), "drop", options, move |event| {
        let Some(files) = carried(event).and_then(|carried| carried.files()) else { return };
        event.prevent_default();
        mark_root("data-drop", None);
        let files = || (0..files.length()).filter_map(|index| files.get(index));
        if let Some(file) = files().find(|file| file.name() == "config.json").or_else(|| files().next()) {
            take(file);
        }
    })
    .forget();
}

/// What is heard of a worker.
pub enum Heard {
    /// It is there and can be asked.
    Ready,
    /// It answers.
    Said(Vec<u8>),
    /// It could not be loaded, or stopped.
    Failed,
}

/// The page's module, run a second time beside the page. Dropped, it ends in the middle of whatever it does.
pub struct Colleague {
    worker: web_sys::Worker,
    _heard: Closure<dyn FnMut(web_sys::MessageEvent)>,
    _failed: Closure<dyn FnMut(web_sys::Event)>,
}

impl Colleague {
    /// Starts one; `None` where the browser refuses. What it says is told later.
    pub fn call(tell: impl Fn(Heard) + 'static) -> Option<Colleague> {
        let script = document().query_selector("script[data-js]").ok()??;
        let options = web_sys::WorkerOptions::new();
        options.set_type(web_sys::WorkerType::Module);
        let worker = web_sys::Worker::new_with_options("worker.js", &options).ok()?;
        let tell = Rc::new(tell);
        let told = tell.clone();
        let heard = Closure::<dyn FnMut(_)>::new(move |event: web_sys::MessageEvent| {
            let said = event.data().dyn_into::<js_sys::Uint8Array>();
            told(said.map_or(Heard::Ready, |bytes| Heard::Said(bytes.to_vec())));
        });
        let failed = Closure::<dyn FnMut(_)>::new(move |event: web_sys::Event| {
            event.prevent_default();
            tell(Heard::Failed);
        });
        worker.set_onmessage(Some(heard.as_ref().unchecked_ref()));
        worker.set_onerror(Some(failed.as_ref().unchecked_ref()));
        // The module that was compiled for the page serves the worker, too.
        let parts = js_sys::Array::of2(&script.get_attribute("data-js")?.into(), &wasm_bindgen::module());
        worker.post_message(&parts).ok()?;
        Some(Colleague { worker, _heard: heard, _failed: failed })
    }

    /// Hands it a question, and a file beside it.
    pub fn tell(&self, question: &[u8], file: Option<&File>) {
        let message = js_sys::Array::of1(&js_sys::Uint8Array::from(question));
        if let Some(File(bytes)) = file {
            message.push(bytes);
        }
        // Both can always be handed over.
        drop(self.worker.post_message(&message));
    }
}

impl Drop for Colleague {
    fn drop(&mut self) {
        self.worker.set_onmessage(None);
        self.worker.set_onerror(None);
        self.worker.terminate();
    }
}

/// Answers the page for ever, where this is its worker.
pub fn serve(answer: impl Fn(&[u8], &[u8]) -> Vec<u8> + 'static) {
    let Ok(worker) = js_sys::global().dyn_into::<web_sys::DedicatedWorkerGlobalScope>() else { return };
    let page = worker.clone();
    let heard = Closure::<dyn FnMut(_)>::new(move |event: web_sys::MessageEvent| {
        let told = js_sys::Array::from(&event.data());
        let bytes =
            |at| told.get(at).dyn_into::<js_sys::Uint8Array>().map(|it| it.to_vec()).unwrap_or_default();
        let answered = js_sys::Uint8Array::from(&answer(&bytes(0), &bytes(1))[..]);
        drop(page.post_message(&answered));
    });
    worker.set_onmessage(Some(heard.as_ref().unchecked_ref()));
    heard.forget();
    drop(worker.post_message(&JsValue::NULL));
}

/// How many threads the machine runs at once, as the browser says.
pub fn processors() -> usize {
    window().navigator().hardware_concurrency() as usize
}

/// Whether this is the page, and not a worker of it.
pub fn is_page() -> bool {
    web_sys::window().is_some()
}

/// A timer that starts anew at each call: only the last of a quick series is run.
#[derive(Clone, Default)]
pub struct Later(Rc<RefCell<Option<Timeout>>>);

impl Later {
    /// Runs after so many milliseconds, unless called again before.
    pub fn run(&self, milliseconds: u32, act: impl FnOnce() + 'static) {
        let timer = Timeout::new(milliseconds, act);
        // The old timer is cancelled as it is dropped.
        drop(self.0.borrow_mut().replace(timer));
    }

    /// Runs nothing after all.
    pub fn cancel(&self) {
        drop(self.0.borrow_mut().take());
    }
}
