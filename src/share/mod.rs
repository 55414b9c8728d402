//! Share links: scenarios as a query string, readable, versioned and lenient. The page has it behind `#`, which no
//! browser sends to the host; links of its first versions had it behind `?`, and are read all the same.
//!
//! `v=1&method=lora&b=4&2.b=8` holds two scenarios. The first states what differs from [`Scenario::default`]; every
//! further one, behind `2.`, `3.` or `4.`, what differs from the first; a rank that is not stated is 128 where an optimizer projects
//! gradients and the base's does not. The keys are those of [`keys`] and frozen: a
//! link that was ever given out opens the same scenarios for ever. `tests/fixtures/links` holds links of every version.
//! One without a version was typed by hand: what it leaves out is as its task is usually run (`task=dpo` is trl's).

pub mod page;
mod query;

use crate::issue::{Field, Issue};
use crate::scenario::keys::{Key, keys};
use crate::scenario::{Scenario, Task};
use crate::text::short;
use crate::units::grouped;

/// The version that [`encode`] writes.
const VERSION: &str = "1";
/// The most scenarios that are compared.
pub const MOST_SCENARIOS: usize = 4;
/// Longer links are refused: no browser or chat carries them whole.
const LONGEST: usize = 1 << 15;

/// What a link holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// One to [`MOST_SCENARIOS`].
    pub scenarios: Vec<Scenario>,
    /// What in the link could not be followed, and what was taken instead.
    pub notices: Vec<Issue>,
}

/// Writes the scenarios as a query string without `#`. At most [`MOST_SCENARIOS`] are written.
///
/// ```
/// use headroom::{scenario::Scenario, share};
/// let link = share::encode(&[Scenario { batch: 4, ..Scenario::default() }]);
/// assert_eq!(link, "v=1&b=4");
/// assert_eq!(share::decode(&link).scenarios[0].batch, 4);
/// ```
pub fn encode(scenarios: &[Scenario]) -> String {
    let mut pairs = vec![("v".to_owned(), VERSION.to_owned())];
    let default = Scenario::default();
    let first = scenarios.first().unwrap_or(&default);
    pairs.extend(differences("", &default, first));
    for (index, scenario) in scenarios.iter().enumerate().take(MOST_SCENARIOS).skip(1) {
        let group = (index + 1).to_string();
        let own = differences(&format!("{group}."), first, scenario);
        if own.is_empty() {
            pairs.push((group, "same".to_owned()));
        }
        pairs.extend(own);
    }
    query::write(&pairs)
}

/// What the scenario says otherwise than the base.
fn differences(prefix: &str, base: &Scenario, scenario: &Scenario) -> Vec<(String, String)> {
    let mut left_out = base.clone();
    left_out.lora.rank = scenario.rank_left_out(base);
    let values = keys().map(|key| (key, key.write(scenario)));
    values
        .filter(|(key, value)| *value != key.write(&left_out))
        .map(|(key, value)| (format!("{prefix}{}", key.link), value))
        .collect()
}

/// Reads a link, its query string, or what is left of it. Anything is answered with at least one scenario: keys that
/// are unknown are ignored; a bad value leaves the default, or becomes the choice whose name is nearly that, and a notice
/// says so.
///
/// ```
/// let shared = headroom::share::decode("https://example.org/#v=1&b=4&o=adamv");
/// assert_eq!((shared.scenarios[0].batch, shared.scenarios[0].optimizer.slug()), (4, "adamw"));
/// assert!(shared.notices[0].to_string().starts_with("o=adamv in the link cannot be used: Optimizer is AdamW"));
/// ```
pub fn decode(link: &str) -> Shared {
    let mut notices = Vec::new();
    let default = Scenario::default();
    let pairs = if link.len() > LONGEST {
        let message = format!("the link has {} characters; it was not read", grouped(link.len() as u64));
        notices.push(
            Issue::warning(Field::Link, message)
                .with_fix(format!("a link has at most {}", grouped(LONGEST as u64))),
        );
        Vec::new()
    } else {
        query::read(link)
    };
    if let Some((_, version)) = pairs.iter().find(|(name, value)| name == "v" && value != VERSION) {
        notices.push(Issue::warning(
            Field::Link,
            format!(
                "the link is of version {:?}, this page reads version {VERSION}: what it knows was taken",
                short(version)
            ),
        ));
    }
    let mut first = read_group(&pairs, "", &default, &mut notices);
    let is_typed = pairs.iter().all(|(name, _)| name != "v");
    if is_typed && first.task != Task::Sft {
        let said = |key: &Key| pairs.iter().any(|(name, _)| name == key.link || name == key.name);
        // typed links had no vLLM on the card before one was usual there, and mean what they meant
        first = first.filled(|key| said(key) || key.field == Field::VllmPercent);
    }
    let mut scenarios = vec![first.clone()];
    for group in 2..=MOST_SCENARIOS {
        let (name_alone, prefix) = (group.to_string(), format!("{group}."));
        if pairs.iter().any(|(name, _)| *name == name_alone || name.starts_with(&prefix)) {
            scenarios.push(read_group(&pairs, &prefix, &first, &mut notices));
        }
    }
    Shared { scenarios, notices }
}

/// Whether a link says something about the key of that name in its first scenario.
pub fn names(link: &str, name: &str) -> bool {
    let key = keys().find(|key| key.name == name);
    key.is_some_and(|key| query::read(link).iter().any(|(name, _)| name == key.link || name == key.name))
}

/// What a link says under a name that is no key of a scenario: which part of the page it opens.
pub fn said(link: &str, name: &str) -> Option<String> {
    query::read(link).into_iter().rev().find(|(said, _)| said == name).map(|(_, value)| value)
}

/// What campaigns and other sites put behind an address.
const OF_OTHERS: [&str; 4] = ["fbclid", "gclid", "msclkid", "source"];
/// So many names that say nothing are told one by one.
const MOST_UNKNOWN: usize = 8;

/// The names of a link that say nothing here, each with its value: misspelt, or of a newer version; or all that stands behind its `#`,
/// where there is no name in it. What campaigns and other sites add (`utm_source`) is not among them.
///
/// ```
/// let link = "v=1&b=4&2.loss=cut&table-cells=length&utm_source=chat&foo=1";
/// let told: Vec<String> = headroom::share::unknown(link).iter().map(ToString::to_string).collect();
/// assert_eq!(told, ["foo=1 in the link is not known and left out"]);
/// let told = headroom::share::unknown("https://example.org/#%%%garbage");
/// assert_eq!(told[0].to_string(), "\"%%%garbage\" in the link could not be read (use a link such as #v=1&b=4)");
/// ```
pub fn unknown(link: &str) -> Vec<Issue> {
    if link.len() > LONGEST {
        return Vec::new();
    }
    if let Some(text) = query::says_nothing(link) {
        let message = format!("{:?} in the link could not be read", short(text));
        return vec![Issue::warning(Field::Link, message).with_fix("use a link such as #v=1&b=4")];
    }
    let groups: Vec<String> = (2..=MOST_SCENARIOS).map(|group| group.to_string()).collect();
    let is_known = |name: &str| {
        let of_group = groups
            .iter()
            .find_map(|group| name.strip_prefix(group.as_str()).and_then(|rest| rest.strip_prefix('.')));
        name == "v"
            || page::NAMES.contains(&name)
            || groups.iter().any(|group| group == name)
            || Key::find(of_group.unwrap_or(name)).is_some()
            || name.starts_with("utm_")
            || OF_OTHERS.contains(&name)
    };
    let unknown: Vec<_> = query::read(link).into_iter().filter(|(name, _)| !is_known(name)).collect();
    let told = unknown.iter().take(MOST_UNKNOWN);
    let told = told.map(|(name, value)| {
        format!("{}={} in the link is not known and left out", short(name), short(value))
    });
    let others = unknown.len().saturating_sub(MOST_UNKNOWN) as u64;
    let others = (others > 0).then(|| format!("{} more names in the link are not known", grouped(others)));
    told.chain(others).map(|message| Issue::warning(Field::Link, message)).collect()
}

/// What a page adds to a link beside its scenarios: a name and its value, escaped.
#[cfg(feature = "ui")]
pub(crate) fn pair(name: &str, value: &str) -> String {
    query::write(&[(name.to_owned(), value.to_owned())])
}

fn read_group(
    pairs: &[(String, String)],
    prefix: &str,
    base: &Scenario,
    notices: &mut Vec<Issue>,
) -> Scenario {
    let mut scenario = base.clone();
    let mut says_rank = false;
    // In the order of the table, whatever the order in the link; of a key that is given twice the last counts.
    for key in keys() {
        let named =
            |name: &str| name.strip_prefix(prefix).is_some_and(|name| name == key.link || name == key.name);
        let Some((name, value)) = pairs.iter().rev().find(|(name, _)| named(name)) else { continue };
        says_rank |= key.field == Field::LoraRank;
        if let Err(issue) = key.read(&mut scenario, value) {
            let used = short(&key.words(&scenario));
            // what is wrong with a model of one's own its config says, not what a key may be
            let why = match key.field {
                Field::Model | Field::Teacher if value.contains('(') => format!("{}; ", issue.message),
                _ => String::new(),
            };
            notices.push(Issue {
                message: format!(
                    "{name}={} in the link cannot be used: {why}{} is {used}",
                    short(value),
                    key.label
                ),
                ..Issue::warning(key.field, "").with_fix(format!("use {}", key.valid()))
            });
        }
    }
    if !says_rank {
        scenario.lora.rank = scenario.rank_left_out(base);
    }
    scenario
}
