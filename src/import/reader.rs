//! What is made of settings, one by one: none is lost.

use serde_json::Value;

pub(super) use super::said::Said;
use super::syntax::setting::Setting;
use super::understood::{Assumed, Left, Taken};
use crate::estimate::estimate;
use crate::model::catalogue;
use crate::scenario::keys::Key;
use crate::scenario::{Compile, LossKernel, Modules, Scenario, Stack, Task, VisionTower};
use crate::text::short;

/// Settings on their way into a scenario.
pub(super) struct Reader {
    /// The scenario, as far as it has been read.
    pub scenario: Scenario,
    settings: Vec<(Setting, bool)>,
    pub taken: Vec<Taken>,
    pub assumed: Vec<Assumed>,
    pub idle: Vec<String>,
    pub left: Vec<Left>,
}

impl Reader {
    pub fn new(scenario: Scenario, settings: Vec<Setting>) -> Reader {
        Reader {
            scenario,
            settings: settings.into_iter().map(|setting| (setting, false)).collect(),
            taken: Vec::new(),
            assumed: Vec::new(),
            idle: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Adds what another file is known to say, where none of these names is given here.
    pub fn add(&mut self, file: &str, names: &[&str], value: Value) {
        if let (true, Some(name)) = (self.given(names).is_empty(), names.first()) {
            let setting = Setting { of: file.to_owned(), name: (*name).to_owned(), value };
            self.settings.push((setting, false));
        }
    }

    /// Takes the setting of one of these names out, the last one that is given; nothing where all are empty. Those before it are
    /// left, unless they say the same.
    pub fn take(&mut self, names: &[&str]) -> Option<Said> {
        let mut all = self.take_each(names);
        let last = all.pop()?;
        for other in all {
            if other.value == last.value {
                self.idle.push(other.said);
            } else {
                let why = format!("{}, which is given behind it, says otherwise", last.said);
                self.leave(&other.said, &why);
            }
        }
        Some(last)
    }

    /// Takes the settings of that name out that are null or None, as they were said.
    pub fn take_nothing(&mut self, name: &str) -> Option<String> {
        let is_null = |(setting, seen): &&mut (Setting, bool)| {
            !*seen && setting.value == Value::Null && is_called(setting, name)
        };
        let (setting, seen) = self.settings.iter_mut().find(is_null)?;
        *seen = true;
        Some(setting.said())
    }

    /// Takes all settings of these names out that are not empty.
    pub fn take_each(&mut self, names: &[&str]) -> Vec<Said> {
        let mut found = Vec::new();
        for (setting, seen) in &mut self.settings {
            if !names.iter().any(|name| is_called(setting, name)) {
                continue;
            }
            if !*seen && setting.value != Value::Null {
                found.push(Said { value: setting.value.clone(), said: setting.said() });
            }
            *seen = true;
        }
        found
    }

    /// The names of these that are given, whether or not they have been taken.
    pub fn given<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let is_given = |name: &&&str| {
            self.settings.iter().any(|(setting, _)| is_called(setting, name) && setting.value != Value::Null)
        };
        names.iter().filter(is_given).copied().collect()
    }

    /// Opens a table that lies in the settings and is a file of its own elsewhere: its settings stand beside the others, which count
    /// where both say something.
    pub fn open(&mut self, table: &str) {
        let inside =
            |setting: &Setting| setting.name.strip_prefix(table)?.strip_prefix('.').map(str::to_owned);
        let own: Vec<String> = self.settings.iter().map(|(setting, _)| setting.name.clone()).collect();
        for (setting, seen) in &mut self.settings {
            let Some(name) = inside(setting) else { continue };
            if !own.contains(&name) {
                setting.name = name;
            } else if !*seen {
                *seen = true;
                self.idle.push(setting.said());
            }
        }
    }

    /// Whether the name of any setting begins so, whether or not it has been taken.
    pub fn gives_any(&self, start: &str) -> bool {
        self.settings.iter().any(|(setting, _)| setting.name.starts_with(start))
    }

    /// The names of settings that nobody has taken, of those that are meant.
    pub fn names(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let open = self.settings.iter().filter(|(setting, seen)| !seen && is_meant(&setting.name));
        open.map(|(setting, _)| setting.name.clone()).collect()
    }

    /// What settings of these names say that nobody has taken, without taking them.
    pub fn named(&self, names: &[&str]) -> Vec<Said> {
        let open = self.settings.iter().filter(|(setting, seen)| {
            !seen && setting.value != Value::Null && names.iter().any(|name| is_called(setting, name))
        });
        open.map(|(setting, _)| Said { value: setting.value.clone(), said: setting.said() }).collect()
    }

    /// Whether the switch of one of these names is on; none where it is not given. What is neither on nor off is left.
    pub fn switch(&mut self, names: &[&str]) -> Option<(bool, String)> {
        let said = self.take(names)?;
        let on = said.switch();
        if on.is_none() {
            self.misread(&said.said, "this is neither on nor off");
        }
        on.map(|on| (on, said.said))
    }

    /// Sets a key to what a setting says.
    pub fn set(&mut self, name: &str, value: &str, said: &str) {
        match self.put(name, value) {
            Some(Ok(key)) => {
                self.taken.retain(|taken| taken.key != key.name);
                self.assumed.retain(|assumed| assumed.key != key.name);
                self.taken.push(Taken {
                    key: key.name,
                    label: key.label_for(&self.scenario),
                    value: key.words(&self.scenario),
                    said: said.to_owned(),
                });
            }
            Some(Err(why)) => self.keep(name, said, &why),
            None => {}
        }
    }

    /// Sets the task to what a setting says, which brings its defaults along: what was at its default before.
    pub fn brings(&mut self, task: Task, said: &str) {
        self.scenario.change(|scenario| scenario.task = task);
        self.set("task", task.slug(), said);
    }

    /// Leaves what a setting says of a key; the key stays as it was, which is said.
    pub fn keep(&mut self, name: &str, said: &str, why: &str) {
        let key = Key::find(name);
        self.left.push(Left { is_misread: true, key: key.map(|key| key.name), ..Left::new(said, why) });
        if let Some(key) = key {
            let value = key.write(&self.scenario);
            self.assume(name, &value, &format!("as it was: {} is not followed", short(said)));
        }
    }

    /// Whether a setting has said what a key is.
    pub fn has_taken(&self, key: &str) -> bool {
        self.taken.iter().any(|taken| taken.key == key)
    }

    /// Sets a key to what the project does where nothing is said.
    pub fn assume(&mut self, name: &str, value: &str, why: &str) {
        if self.has_taken(name) {
            return;
        }
        if let Some(Ok(key)) = self.put(name, value) {
            self.assumed.retain(|assumed| assumed.key != key.name);
            self.assumed.push(Assumed {
                key: key.name,
                label: key.label_for(&self.scenario),
                value: key.words(&self.scenario),
                why: why.to_owned(),
            });
        }
    }

    /// Sets a key to what one of these settings says, or to what the project does where none is given.
    pub fn or_assume(&mut self, key: &str, names: &[&str], default: &str, why: &str) {
        match self.take(names) {
            Some(said) => self.set(key, &said.text(), &said.said),
            None => self.assume(key, default, why),
        }
    }

    /// Sets a key that is on or off to what one of these switches says, or to off where none is given.
    pub fn switches_or_off(&mut self, key: &str, names: &[&str], why: &str) {
        if !self.switches(key, names) {
            self.assume(key, "off", why);
        }
    }

    /// Sets what a project always does: nobody has to be told.
    pub fn quietly(&mut self, key: &str, value: &str) {
        // a value that is written here is one that the key reads
        let _ = self.put(key, value);
    }

    /// Sets a key that is on or off to what one of these switches says; whether one does.
    pub fn switches(&mut self, key: &str, names: &[&str]) -> bool {
        let given = self.switch(names);
        if let Some((on, said)) = &given {
            self.set(key, if *on { "on" } else { "off" }, said);
        }
        given.is_some()
    }

    fn put(&mut self, name: &str, value: &str) -> Option<Result<&'static Key, String>> {
        let key = Key::find(name);
        debug_assert!(key.is_some(), "there is no key {name:?}");
        let key = key?;
        let mut changed = self.scenario.clone();
        // a nearly right choice would be a guess
        Some(key.read(&mut changed, value).map(|()| key).map_err(|issue| issue.to_string()).inspect(|_| {
            // Liger's modules fuse it with the head where nothing else is said: there it is the standard one
            if (changed.stack, changed.savings.loss) == (Stack::Liger, LossKernel::Liger) {
                changed.savings.loss = LossKernel::Standard;
            }
            // layers that Unsloth compiles by itself
            let leaves_unsloth = self.scenario.stack == Stack::Unsloth && changed.stack != Stack::Unsloth;
            if leaves_unsloth && !self.taken.iter().any(|taken| taken.key == "compile") {
                changed.compile = Compile::Off;
            }
            self.scenario = changed;
        }))
    }

    /// Why a run with that value of a key is not followed, where the key itself stands in the way; nothing is changed.
    pub fn objection(&self, name: &str, value: &str) -> Option<String> {
        let key = Key::find(name)?;
        let mut changed = self.scenario.clone();
        key.read(&mut changed, value).ok()?;
        let answer = estimate(&changed);
        answer.errors().find(|issue| issue.field == key.field).map(|issue| issue.message.clone())
    }

    /// Puts everything back as it was but for the keys that settings have said: the text is put over another, whose defaults are not its own.
    pub fn keep_what_is_taken(&mut self, before: &Scenario, assumed: Vec<Assumed>) {
        let read = std::mem::replace(&mut self.scenario, before.clone());
        for taken in &self.taken {
            if let Some(key) = Key::find(taken.key) {
                key.copy(&mut self.scenario, &read);
            }
        }
        self.assumed = assumed;
        let taken = &self.taken;
        self.assumed.retain(|assumed| taken.iter().all(|taken| taken.key != assumed.key));
    }

    /// Leaves what a setting says of a key, which has another value for it.
    pub fn replace(&mut self, name: &str, value: &str, said: &str, why: &str) {
        let key = Key::find(name).map(|key| key.name);
        self.left.push(Left { is_misread: true, key, ..Left::new(said, why) });
        self.assume(name, value, &format!("{} is not read", short(said)));
    }

    /// Notes that something is not followed.
    pub fn leave(&mut self, said: &str, why: &str) {
        self.left.push(Left::new(said, why));
    }

    /// Notes that a known setting's value cannot be used.
    pub fn misread(&mut self, said: &str, why: &str) {
        self.left.push(Left { is_misread: true, ..Left::new(said, why) });
    }

    /// Notes each of these ways to divide a model or its tokens among GPUs, which leaves every GPU with another part than is answered: a
    /// known setting whose value cannot be used. A size of one, and what is switched off, divides nothing. Among how many, where one does.
    pub fn divides(&mut self, names: &[&str], why: &str) -> Option<u64> {
        let mut among = None;
        for said in self.take_each(names) {
            let is_one = said.number().is_some_and(|size| size <= 1.0);
            if is_one || said.switch() == Some(false) {
                self.idle.push(said.said)
            } else {
                among = among.max(Some(said.number().map_or(2, |size| size as u64)));
                self.misread(&said.said, why)
            }
        }
        among
    }

    /// Leaves each of these settings that is given and on (or is something else than a switch).
    pub fn refuse(&mut self, names: &[&str], why: &str) {
        for said in self.take_each(names) {
            let is_empty = match &said.value {
                Value::Array(values) => values.is_empty(),
                Value::Object(members) => members.is_empty(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            };
            let off = is_empty || said.switch() == Some(false) || said.text() == "none";
            if off { self.idle.push(said.said) } else { self.leave(&said.said, why) }
        }
    }

    /// The layers that get adapters, by name or as all of them.
    pub fn targets(&mut self, said: &Said) {
        let words: Vec<String> =
            said.words().into_iter().flat_map(|word| alternatives(&word).unwrap_or(vec![word])).collect();
        if let Some(frozen) = in_text_alone(said, &self.scenario) {
            self.set("vision-tower", frozen.slug(), &said.said);
        }
        let is_all = matches!(&words[..], [word] if ["all-linear", "all_linear", "all", "linear"].contains(&word.as_str()));
        if is_all {
            return self.set("lora-targets", "all-linear", &said.said);
        }
        let mut known = Modules::NONE;
        let mut unknown = Vec::new();
        for word in words.iter().filter(|word| !word.is_empty()) {
            match known.with(word) {
                Some(more) => known = more,
                None => unknown.push(word.clone()),
            }
        }
        if !unknown.is_empty() {
            let why = format!("no layer is known by {}", short(&unknown.join(", ")));
            self.keep("lora-targets", &said.said, &why);
        }
        if known.is_empty() {
            return;
        }
        let group = self.scenario.architecture().ok().and_then(|model| known.group(&model));
        match group {
            Some(group) => self.set("lora-targets", group.slug(), &said.said),
            None => self.set("lora-targets", &known.to_string(), &said.said),
        }
    }

    /// The model of that name, where it is one that could be on the Hub: an expression of a program is none, nor is a folder.
    pub fn model(&mut self, said: &Said) {
        let name = said.text();
        // a model of the user's own is brought once, and its name stands in the file that is dropped after it
        if self.scenario.model.name() == name {
            if let Some(key) = Key::find("model") {
                let value = key.words(&self.scenario);
                self.taken.push(Taken {
                    key: key.name,
                    label: key.label_for(&self.scenario),
                    value,
                    said: said.said.clone(),
                });
            }
            return;
        }
        self.model_for("model", said);
    }

    /// The teacher of that name.
    pub fn teacher(&mut self, said: &Said) {
        if self.scenario.model.name() == said.text() {
            return self.set("teacher", "same", &said.said);
        }
        self.model_for("teacher", said);
    }

    /// A model by its name, for a key that is one.
    fn model_for(&mut self, key: &str, said: &Said) {
        let name = said.text();
        // what stands alone is known, or it is a folder or the name of a variable
        if !could_be_a_model(&name) || (!name.contains('/') && catalogue::find(&name).is_none()) {
            return self.keep(key, &said.said, "this is no name of a model: bring its config.json");
        }
        let name = without_format(&name);
        match (catalogue::find(name), catalogue::find(name.rsplit('/').next().unwrap_or(name))) {
            // a copy under another organisation's name
            (None, Some(entry)) => {
                let copied = catalogue::published(name, entry);
                self.set(key, &copied, &format!("{}, taken for a copy of this one", said.said));
            }
            (Some(_), _) => self.set(key, name, &said.said),
            (None, None) => {
                let unknown = "no model of the catalogue: fetch it from the Hub, or bring its config.json";
                self.set(key, name, &format!("{}, {unknown}", said.said));
            }
        }
    }

    /// Notes settings that memory does not depend on.
    pub fn pass(&mut self, is_idle: impl Fn(&str) -> bool) {
        for (setting, seen) in &mut self.settings {
            if !*seen && (setting.value == Value::Null || is_idle(&setting.name)) {
                *seen = true;
                if setting.value != Value::Null {
                    self.idle.push(setting.said());
                }
            }
        }
    }

    /// Leaves what nobody has taken.
    pub fn finish(&mut self) {
        let open = self.settings.iter_mut().filter(|(setting, seen)| !seen && setting.value != Value::Null);
        let open = open.map(|(setting, seen)| {
            *seen = true;
            setting.said()
        });
        let left: Vec<_> = open.collect();
        left.iter().for_each(|said| self.leave(said, "this setting is not known here"));
    }
}

/// How the names of repositories end that hold a model's weights in 4 bits, those that axolotl's examples load among them.
const IN_FOUR_BITS: [&str; 3] = ["-unsloth-bnb-4bit", "-bnb-4bit", "-bnb-nf4-bf16"];

/// The name of the model whose weights a repository holds in 4 bits, or the name itself.
fn without_format(name: &str) -> &str {
    let cut = |end: &&str| {
        let (model, format) = name.split_at_checked(name.len().checked_sub(end.len())?)?;
        format.eq_ignore_ascii_case(end).then_some(model)
    };
    IN_FOUR_BITS.iter().find_map(cut).unwrap_or(name)
}

/// Whether a name could be a model's on the Hub: an expression of a program is none, nor is a folder.
pub(crate) fn could_be_a_model(name: &str) -> bool {
    let is_word = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    name.split('/').count() <= 2 && name.split('/').all(is_word)
}

/// Whether a setting has that name, which may begin with the class that it is of: `LoraConfig.r`.
fn is_called(setting: &Setting, name: &str) -> bool {
    setting.name == name
        || (!setting.of.is_empty()
            && name.strip_prefix(setting.of.as_str()).and_then(|rest| rest.strip_prefix('.'))
                == Some(setting.name.as_str()))
}

/// Whether a name is one of a list, in which `*` at the end stands for any end.
pub(super) fn among(list: &[&str], name: &str) -> bool {
    list.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    })
}

/// What becomes of the tower where expressions over paths name layers of the text's model alone: it gets no adapters.
fn in_text_alone(said: &Said, scenario: &Scenario) -> Option<VisionTower> {
    let is_of_text = |word: &String| {
        alternatives(word).is_some()
            && word.split('.').any(|part| ["language_model", "text_model"].contains(&part))
    };
    let has_tower = scenario.architecture().is_ok_and(|model| !model.towers.is_empty());
    let words = said.words();
    (has_tower && !words.is_empty() && words.iter().all(is_of_text)).then_some(VisionTower::Frozen)
}

/// The names of layers that the end of an expression over paths stands for: `model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj`.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    /// So many layers an expression names, and so many letters a layer's name has, at most.
    const MOST: usize = 64;
    let (path, last) = pattern.rsplit_once('.')?;
    let (before, rest) = last.split_once('(')?;
    let (names, after) = rest.trim_end_matches('$').split_once(')')?;
    let is_name =
        |name: &str| name.len() <= MOST && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_one = |name: &str| !name.is_empty() && is_name(name);
    let known =
        path.contains("layers") && is_name(before) && is_name(after) && names.split('|').count() <= MOST;
    (known && names.split('|').all(is_one))
        .then(|| names.split('|').map(|name| format!("{before}{name}{after}")).collect())
}
