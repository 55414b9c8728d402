//! Where a scenario comes from: a link, a file, standard input, and flags over all of them.

mod flags;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::import;
use super::text::{read, read_all};
use crate::estimate::estimate;
use crate::hardware::sold_with;
use crate::import::{LONGEST, Understood};
use crate::model::read::LONGEST_CONFIG;
use crate::scenario::keys::{Key, keys};
use crate::scenario::{CustomModel, Field, GpuChoice, Method, ModelChoice, Scenario, Task};
use crate::share;
use crate::text::short;
use crate::units::Bytes;

/// The arguments that say a scenario: one flag per key of [`keys`].
#[derive(Clone)]
pub(super) struct Input {
    /// `-`, a link or its query string, or a file.
    source: Option<OsString>,
    /// A `config.json`.
    config: Option<PathBuf>,
    /// Configurations of other projects.
    from: Vec<PathBuf>,
    /// What the flags say.
    flags: Vec<(&'static Key, String)>,
}

/// What was asked for.
#[derive(Default)]
pub(super) struct Asked {
    /// At least one.
    pub scenarios: Vec<Scenario>,
    /// What in a link could not be followed.
    pub notices: Vec<String>,
    /// What could not be read of settings that are known: something else stands there.
    pub misread: Vec<Misread>,
    /// The keys that were given: by flags, by a config, or where the first scenario comes from.
    pub given: Vec<&'static Key>,
    /// The link that they come from, which says all of a scenario: what it leaves out is as every link has it.
    pub link: Option<String>,
    /// The other project whose configuration it is, where the source is none of Headroom's own forms.
    pub of_project: Option<&'static str>,
}

/// What was asked for and could not be read.
pub(super) struct Misread {
    /// What a link or a configuration says, and why it cannot be used.
    pub told: String,
    /// The key that it is a value of, where that is one.
    key: Option<&'static str>,
}

impl Asked {
    /// The first scenario: what a command that answers one is asked about.
    pub fn first(&self) -> Scenario {
        self.scenarios.first().cloned().unwrap_or_default()
    }

    /// Whether a model was named.
    pub fn names_model(&self) -> bool {
        self.gives("model")
    }

    /// Whether the key of that name was given.
    pub fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|key| key.name == name)
    }

    /// Notes that these keys are given, whatever could not be read of them before.
    fn give(&mut self, keys: impl IntoIterator<Item = &'static Key>) {
        for key in keys {
            self.misread.retain(|misread| misread.key != Some(key.name));
            self.given.push(key);
        }
    }

    /// Notes what a configuration of another project gives, and what could not be read of it.
    fn read(&mut self, name: &str, understood: &Understood) {
        self.give(understood.taken.iter().filter_map(|taken| Key::find(taken.key)));
        let misread = understood.left.iter().filter(|left| left.is_misread);
        self.misread.extend(misread.map(|left| Misread { told: import::told(name, left), key: left.key }));
    }

    /// What the link says of a table on the page, as that is read; what cannot be used is told.
    pub fn of_page<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let said = self.link.as_deref().and_then(|link| share::said(link, name))?;
        let found = read(&said);
        if found.is_none() {
            self.notices.push(format!("{name}={} in the link is not understood and left out", short(&said)));
        }
        found
    }

    /// The scenario with what was left open as it usually is ([`Scenario::filled`]); a link leaves nothing open.
    pub fn filled(&self, scenario: &Scenario) -> Scenario {
        if self.link.is_some() { scenario.clone() } else { scenario.filled(|key| self.gives(key.name)) }
    }
}

impl Input {
    /// Whether a flag says the key of that name.
    pub fn flags(&self, name: &str) -> bool {
        self.flags.iter().any(|(key, _)| key.name == name)
    }

    /// Whether the scenario is read from standard input.
    pub fn is_standard_input(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source == "-")
    }

    /// The file that is the source, where it is one.
    pub fn file(&self) -> Option<&Path> {
        // what is no file is read once
        let path = Path::new(self.source.as_ref()?);
        path.is_file().then_some(path)
    }

    /// The same without its source: the default, and what the flags say.
    pub fn without_source(&self) -> Input {
        Input { source: None, ..self.clone() }
    }

    /// The scenarios: those of the source, or the default, with what the flags say put over each.
    pub fn read(&self) -> Result<Asked, String> {
        self.read_for(false)
    }

    /// The same for a table that asks every scenario as what it would be if it generated.
    pub fn read_to_generate(&self) -> Result<Asked, String> {
        self.read_for(true)
    }

    fn read_for(&self, generates: bool) -> Result<Asked, String> {
        let mut asked = self.sources()?;
        let (task, adapter) = (self.flag(Field::Task), self.flag(Field::Adapter));
        for scenario in &mut asked.scenarios {
            // what was at its default follows another task of a link, as it does on the page, and another adapter
            for (key, value) in task.filter(|_| asked.link.is_some()).into_iter().chain(adapter) {
                // what is wrong with the value is said below
                scenario.change(|scenario| key.read(scenario, value).unwrap_or_default());
            }
            self.put_over(scenario)?;
        }
        let own = self.flags.iter().map(|(key, _)| *key);
        asked.give(own.chain(Key::find("model").filter(|_| self.config.is_some())));
        if let Some(project) = asked.of_project.filter(|_| !asked.names_model()) {
            let source = self.source.as_deref().unwrap_or_default();
            return Err(format!(
                "{}: this names no model that is known here ({project}; say --model, or --config with its config.json)",
                Path::new(source).display()
            ));
        }
        self.fill(&mut asked);
        asked.notices.extend(self.idle(&asked.scenarios, generates));
        Ok(asked)
    }

    /// What the flag of that field says.
    fn flag(&self, field: Field) -> Option<&(&'static Key, String)> {
        self.flags.iter().find(|(key, _)| key.field == field)
    }

    /// The scenarios of the source, or the default, with what other projects' configurations say over each.
    fn sources(&self) -> Result<Asked, String> {
        let mut asked = match &self.source {
            None => Asked { scenarios: vec![Scenario::default()], ..Asked::default() },
            Some(source) => from_source(source, &self.on_machine(Scenario::default()))?,
        };
        if self.from.is_empty() {
            return Ok(asked);
        }
        let mut read = Vec::new();
        for scenario in &mut asked.scenarios {
            let (of_files, all) = import::files(&self.from, self.on_machine(scenario.clone()))?;
            *scenario = of_files;
            read.extend(all);
        }
        asked.notices.extend(import::notices(&read));
        for (name, understood) in &read {
            asked.read(name, understood);
        }
        Ok(asked)
    }

    /// Fills in what is left open. Flags alone leave open what none of them says: a card, a model, a library and a task have a precision, a
    /// length and more of their own. A link and a file say all of a scenario, but for a task that is put over a file.
    fn fill(&self, asked: &mut Asked) {
        let flags_alone = self.source.is_none() && self.from.is_empty();
        let has_task = self.flag(Field::Task).is_some();
        let open = |scenario: &Scenario| flags_alone || has_task && scenario.task != Task::Sft;
        let filled =
            |scenario: &Scenario| if open(scenario) { asked.filled(scenario) } else { scenario.clone() };
        asked.scenarios = asked.scenarios.iter().map(filled).collect();
        // what each GPU keeps hangs on the method, and the element types on that, where only the number of GPUs is said: a file of another
        // project that names no engine is launched without one
        let is_launched = asked.of_project.is_some() || !self.from.is_empty();
        if is_launched || self.flag(Field::Gpus).is_none() {
            return;
        }
        let open = ["shard", "precision"].into_iter().filter(|name| !asked.gives(name));
        let open: Vec<&Key> = open.filter_map(Key::find).collect();
        for scenario in asked.scenarios.iter_mut().filter(|scenario| scenario.cluster.is_many()) {
            for key in &open {
                key.copy(scenario, &scenario.defaults());
            }
        }
    }

    /// The flags that make no difference to any of the runs, or would by another method alone, each in a sentence. To a run that has no
    /// answer nothing can make one.
    fn idle(&self, scenarios: &[Scenario], generates: bool) -> Vec<String> {
        let has_answer = |scenario: &&Scenario| estimate(scenario).memory.is_some();
        let answered: Vec<&Scenario> = scenarios.iter().filter(has_answer).collect();
        let is_idle =
            |key: &Key| !answered.is_empty() && !answered.iter().any(|one| may_matter(key, one, generates));
        let told = |key: &Key| match answered.first() {
            Some(_) if is_idle(key) => Some(format!("--{} makes no difference to this run", key.name)),
            Some(first) if answered.iter().all(|one| !key.matters(one)) => of_other_method(key, first),
            Some(_) | None => None,
        };
        self.flags.iter().filter_map(|(key, _)| told(key)).collect()
    }

    /// The scenario on the cards that flags say, and as many: what a configuration asks of them is answered by it. A flag that cannot be
    /// read is told later.
    fn on_machine(&self, mut scenario: Scenario) -> Scenario {
        let of_machine = |key: &Key| [Field::Gpu, Field::Gpus].contains(&key.field);
        for (key, value) in self.flags.iter().filter(|(key, _)| of_machine(key)) {
            match card_by_size(key, value) {
                Some(memory) => scenario.gpu = GpuChoice::Custom(memory),
                None => key.read(&mut scenario, value).unwrap_or_default(),
            }
        }
        scenario
    }

    fn put_over(&self, scenario: &mut Scenario) -> Result<(), String> {
        for (key, value) in &self.flags {
            match card_by_size(key, value) {
                Some(memory) => scenario.gpu = GpuChoice::Custom(memory),
                None => key.read(scenario, value).map_err(|issue| format!("--{issue}"))?,
            }
        }
        if let Some(path) = &self.config {
            let read = || {
                let text = read(path, LONGEST_CONFIG)?;
                CustomModel::read(&name_of(path), &text).map_err(|issue| issue.to_string())
            };
            let model = read().map_err(|problem| format!("{}: {problem}", path.display()))?;
            scenario.model = ModelChoice::Custom(model.into());
        }
        Ok(())
    }
}

/// The memory of a card that a flag names by the amount it is sold with, as the page's box does; a link's and a file's amounts
/// are exact.
fn card_by_size(key: &Key, value: &str) -> Option<Bytes> {
    let is_amount = key.field == Field::Gpu && value.trim().starts_with(|c: char| c.is_ascii_digit());
    sold_with(value).ok().filter(|memory| is_amount && *memory > Bytes::ZERO)
}

/// Whether an input makes a difference to a scenario, or may in a table that tries other methods or several GPUs, or has what trains
/// generate.
fn may_matter(key: &Key, scenario: &Scenario, generates: bool) -> bool {
    let mut tried = Method::ALL.iter().map(|method| Scenario { method: *method, ..scenario.clone() });
    tried.any(|own| matters_as_it_is(key, &own, generates))
}

/// The same with the method that the scenario has.
fn matters_as_it_is(key: &Key, own: &Scenario, generates: bool) -> bool {
    let task = if generates { Task::Generate } else { own.task };
    let asked = Scenario { task, ..own.clone() };
    let mut several = own.clone();
    several.cluster.set_gpus(own.cluster.gpus.max(2));
    [own, &asked, &several].into_iter().any(|scenario| key.matters(scenario))
}

/// That an input makes no difference to a scenario for its method, and by which it does.
fn of_other_method(key: &Key, scenario: &Scenario) -> Option<String> {
    let methods = scenario.task.methods().iter();
    let others = methods.filter(|method| key.matters(&Scenario { method: **method, ..scenario.clone() }));
    let others: Vec<String> = others.map(|method| format!("--method {}", method.slug())).collect();
    let label = scenario.task.method_label(scenario.method);
    let name = key.name;
    (!others.is_empty()).then(|| {
        format!(
            "--{name} makes no difference to this run, whose method is {label}; it does with {}",
            others.join(" or ")
        )
    })
}

/// A scenario of the file or text that has these members.
fn one(scenario: Scenario, members: &Map<String, Value>) -> Asked {
    Asked { scenarios: vec![scenario], given: Key::given(members).collect(), ..Asked::default() }
}

/// `-`, a file, or a link; a configuration of another project is read over the base.
fn from_source(source: &OsString, base: &Scenario) -> Result<Asked, String> {
    let path = Path::new(source);
    if source == "-" {
        let name = "standard input";
        let format = Format { syntax: Syntax::Json, is_named: false };
        let read = || from_text(name, &read_all(std::io::stdin(), LONGEST)?, &format, base);
        return read().map_err(|problem| format!("{name}: {problem}"));
    }
    // pipes such as `<(…)` and /dev/stdin are read as files are
    if path.exists() && !path.is_dir() {
        let name = path.display().to_string();
        let read = || {
            let text = read(path, LONGEST)?;
            from_text(&name, &text, &Format::of(path, &text), base)
        };
        return read().map_err(|problem| format!("{name}: {problem}"));
    }
    match source.to_str() {
        Some(link) if link.contains('=') || link.contains("://") || link.starts_with(['?', '#']) => {
            if !link.contains('=') {
                return Err(format!(
                    "{:?} says no scenario (give a share link or its query string such as 'm=gpt2&b=4')",
                    short(link)
                ));
            }
            let shared = share::decode(link);
            let unknown = share::unknown(link);
            let notices: Vec<_> = shared.notices.iter().chain(&unknown).map(ToString::to_string).collect();
            Ok(Asked {
                scenarios: shared.scenarios,
                misread: notices.iter().map(|told| Misread { told: told.clone(), key: None }).collect(),
                notices,
                given: keys().filter(|key| share::names(link, key.name)).collect(),
                link: Some(link.to_owned()),
                ..Asked::default()
            })
        }
        Some(_) | None => Err(format!(
            "{source:?} is neither a file nor a link (give a share link or its query string such as 'm=gpt2&b=4', a TOML or JSON file or a configuration of another project, or - for standard input)"
        )),
    }
}

/// How a scenario is written.
struct Format {
    syntax: Syntax,
    /// Whether the file's name says so.
    is_named: bool,
}

enum Syntax {
    Json,
    Toml,
}

impl Format {
    /// By the file's extension, or where it has another or none by how it begins: no TOML begins with a brace.
    fn of(path: &Path, text: &str) -> Format {
        let is = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
        let begins = || text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
        let syntax = if is("json") || begins() { Syntax::Json } else { Syntax::Toml };
        Format { syntax, is_named: is("json") || is("toml") }
    }

    /// The table that a text is.
    fn members(&self, text: &str) -> Result<Map<String, Value>, ()> {
        match self.syntax {
            Syntax::Json => serde_json::from_str(text).map_err(drop),
            Syntax::Toml => toml::from_str(text).map_err(drop),
        }
    }
}

/// A scenario in one of Headroom's own forms, or a configuration of another project, read over the base.
fn from_text(name: &str, text: &str, format: &Format, base: &Scenario) -> Result<Asked, String> {
    let text = text.trim_start_matches('\u{feff}');
    let why = match own(text, format) {
        Ok(asked) => return Ok(asked),
        Err(why) => why,
    };
    let members = format.members(text);
    // most of what it says is Headroom's: a scenario with a mistake
    let is_own = |members: &Map<String, Value>| {
        2 * members.keys().filter(|name| Key::find(name).is_some()).count() > members.len()
    };
    if members.as_ref().is_ok_and(is_own) {
        return Err(why);
    }
    match crate::import::read(text, base) {
        Ok(understood) => Ok(imported(name, understood)),
        Err(_) if members.is_ok() || format.is_named => Err(why),
        Err(not_read) => Err(not_read.to_string()),
    }
}

fn imported(name: &str, understood: Understood) -> Asked {
    let all = [(name.to_owned(), understood)];
    let notices = import::notices(&all).collect();
    let [(name, understood)] = all;
    let mut asked = Asked {
        scenarios: vec![understood.scenario.clone()],
        notices,
        of_project: (understood.format != crate::import::Format::Headroom).then(|| understood.format.label()),
        ..Asked::default()
    };
    asked.read(&name, &understood);
    asked
}

/// A scenario as TOML or JSON.
fn own(text: &str, format: &Format) -> Result<Asked, String> {
    let (scenario, members) = match format.syntax {
        Syntax::Json => {
            let read = || Ok((serde_json::from_str(text)?, serde_json::from_str(text)?));
            read().map_err(|error: serde_json::Error| error.to_string())?
        }
        Syntax::Toml => {
            let read = || Ok((toml::from_str(text)?, toml::from_str(text)?));
            read().map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?
        }
    };
    Ok(one(scenario, &members))
}

/// What to call the model of a config: the file's stem, or the folder's name where that says nothing.
fn name_of(path: &Path) -> String {
    let text = |name: Option<&std::ffi::OsStr>| name.map(|name| name.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    let folder = text(path.parent().and_then(Path::file_name));
    if stem == "config" { folder.unwrap_or(stem) } else { stem }
}
