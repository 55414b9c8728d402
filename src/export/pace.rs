//! How long a run takes, in words and as JSON.

use serde_json::{Value, json};

use crate::plan::{Offer, Pace, Span};
use crate::scenario::Scenario;
use crate::units::{Bytes, grouped};

/// What is said of a run's speed: a name and words for each line. Where no price is known it is asked for as `ask` says: `--gpu-hour-cents N`.
pub fn pace_lines(scenario: &Scenario, pace: &Pace, ask: &str) -> Vec<(&'static str, String)> {
    let speed = pace.tokens_per_second();
    let tokens = scenario.data.trained();
    let [per_second, step, all] = if scenario.cluster.is_many() {
        ["Tokens per second on all GPUs", "Optimizer step", "The whole data set"]
    } else if scenario.task.trains() {
        ["Tokens per second", "Optimizer step", "The whole data set"]
    } else {
        ["New tokens per second", "One call of generate", "As many new tokens"]
    };
    let mut lines = vec![
        (per_second, between(speed, |figure| grouped(rounded(figure)))),
        (step, duration(pace.step)),
        (all, format!("{}: {}", tokens_of(scenario), duration(pace.hours(tokens).times(3600.0)))),
    ];
    let further = pace.per_token.map(|span| ("A further token of each sequence", duration(span)));
    let first = pace.prompts.map(|span| ("Until the first new token", duration(span)));
    lines.splice(2..2, first.into_iter().chain(further));
    let of_whom = match (pace.price, pace.machine) {
        (Some(price), _) => Some(format!("at ${price:.2} for a GPU and hour")),
        (None, machine) => {
            machine.zip(pace.rented()).map(|(machine, rented)| format!("{rented}, {}", machine.dated))
        }
    };
    let price = match (pace.dollars(tokens), of_whom) {
        (Some(amount), Some(whose)) => format!("{}; {whose}", dollars(amount)),
        (None, _) | (_, None) => {
            format!("no rental price on record for this card: {ask}")
        }
    };
    lines.push(("Price", price));
    lines.push(("Time goes to", shares(pace)));
    lines.extend(sent(pace).map(|words| ("Between GPUs", words)));
    if let Some(without) = pace.without {
        lines.push(("Without", without.to_owned()));
    }
    lines.push(("Rests on", pace.rests_on()));
    lines
}

/// `2,600 tokens/s`, and between which figures that lies.
pub fn tokens_per_second(speed: Span) -> [String; 2] {
    let Span { least, typical, most } = speed;
    let [typical, least, most] = [typical, least, most].map(|figure| grouped(rounded(figure)));
    [format!("{typical} tokens/s"), format!("{least} to {most}")]
}

/// `10,000,000 tokens`, with its epochs where there are several.
fn tokens_of(scenario: &Scenario) -> String {
    let data = scenario.data;
    let times = if data.epochs == 1 { String::new() } else { format!(" × {} epochs", grouped(data.epochs)) };
    format!("{} tokens{times}", grouped(data.tokens))
}

/// `$3.20 (2.10 to 4.60)`, `$2,700 (2,000 to 5,700)`: to two digits and without cents where they are no more than noise.
pub fn dollars(amount: Span) -> String {
    let words = match amount.typical >= 100.0 {
        true => between(amount, |figure| grouped(rounded(figure))),
        false => between(amount, |figure| format!("{figure:.2}")),
    };
    format!("${words}")
}

/// Where the data set costs least: `The data set, 10,000,000 tokens, costs least on one L4 (gcp g2-standard-4): $3.20 (2.10 to 4.60), 4.5 h (3.0 to 6.5).`
pub fn cheapest_run(scenario: &Scenario, card: &str, offer: &Offer) -> String {
    let cards =
        if offer.cards == 1 { format!("one {card}") } else { format!("{} × {card}", grouped(offer.cards)) };
    let machine = offer.name();
    let costs = match (offer.dollars(), offer.hours) {
        (Some(amount), Some(hours)) => format!(": {}, {}", dollars(amount), duration(hours.times(3_600.0))),
        (None, _) | (_, None) => String::new(),
    };
    let short = offer.ram_in_words().map(|words| format!(" That machine has too little: {words}."));
    format!(
        "The data set, {}, costs least on {cards} ({machine}){costs}.{}",
        tokens_of(scenario),
        short.unwrap_or_default()
    )
}

/// `matrix products 70 %, attention 10 %, memory 20 %`.
fn shares(pace: &Pace) -> String {
    let spent = pace.spent;
    let whole = pace.step.typical.max(f64::MIN_POSITIVE);
    let parts = [
        ("matrix products", spent.products),
        ("attention", spent.attention),
        ("moving memory", spent.memory),
        ("waiting for Python", spent.waiting),
        ("waiting for other GPUs", spent.exchange),
        ("waiting for the CPU's memory", spent.travel),
        ("an empty pipeline", spent.idle),
    ];
    let said = parts.iter().filter(|(_, seconds)| seconds / whole >= 0.005);
    said.map(|(name, seconds)| format!("{name} {:.0} %", seconds / whole * 100.0))
        .collect::<Vec<_>>()
        .join(", ")
}

/// What each of several GPUs sends in a step, for how long, and over what: `26.2 GiB from each in 61 ms, while it computes, within one machine`.
fn sent(pace: &Pace) -> Option<String> {
    let (bytes, exchange) = pace.sent;
    if bytes == Bytes::ZERO {
        return None;
    }
    let seconds = exchange.beside + exchange.apart;
    let write = |seconds: f64| {
        if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
    };
    let took = write(seconds);
    let while_it = match pace.spent.exchange {
        0.0 => "while it computes".to_owned(),
        _ if exchange.beside == 0.0 => "while it waits".to_owned(),
        waited => format!("for {} of which it waits", write(waited)),
    };
    let machines = pace.gpus.div_ceil(pace.of_a_machine.max(1));
    let over = match machines {
        1 => "within one machine".to_owned(),
        _ => format!(
            "among {} machines of {}, by a network adapter for each GPU",
            grouped(machines),
            grouped(pace.of_a_machine)
        ),
    };
    Some(format!("{bytes} from each in {took} at the rates of the wires, {while_it}, {over}"))
}

/// `2,700 (2,200 to 3,400)`.
fn between(span: Span, write: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", write(span.typical), write(span.least), write(span.most))
}

/// A duration in the unit that suits the typical one.
pub fn duration(seconds: Span) -> String {
    let (unit, name) = match seconds.typical {
        under if under < 1.0 => (1e-3, "ms"),
        under if under < 120.0 => (1.0, "s"),
        under if under < 7_200.0 => (60.0, "min"),
        under if under < 172_800.0 => (3_600.0, "h"),
        _ => (86_400.0, "days"),
    };
    let write = |figure: f64| {
        let figure = figure / unit;
        let places = usize::from(figure < 10.0);
        format!("{figure:.places$}")
    };
    format!("{} {name} ({} to {})", write(seconds.typical), write(seconds.least), write(seconds.most))
}

/// To two digits: more are not known.
fn rounded(figure: f64) -> u64 {
    let scale = 10f64.powf((figure.max(1.0).log10().floor() - 1.0).max(0.0));
    ((figure / scale).round() * scale) as u64
}

/// The same as JSON: seconds, tokens per second, hours and dollars.
pub fn pace_json(scenario: &Scenario, pace: &Pace) -> Value {
    let tokens = scenario.data.trained();
    json!({
        "tokens_per_second": pace.tokens_per_second(),
        "step_seconds": pace.step,
        "step_tokens": pace.tokens,
        "first_token_seconds": pace.prompts,
        "further_token_seconds": pace.per_token,
        "spent_seconds": pace.spent,
        "sent_by_each_gpu": pace.sent.0,
        "sending_seconds": { "beside_computing": pace.sent.1.beside, "apart": pace.sent.1.apart },
        "gpus_of_a_machine": pace.of_a_machine,
        "without": pace.without,
        "tokens": tokens,
        "hours": pace.hours(tokens),
        "dollars": pace.dollars(tokens),
        "machine": pace.machine,
        "dollars_per_gpu_hour": pace.price,
        "rests_on": pace.rests_on(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_as_rough_as_they_are() {
        assert_eq!([2_734.0, 98.4, 7.2, 123_456.0].map(rounded), [2_700, 98, 7, 120_000]);
        let span = |typical: f64| Span { least: typical * 0.8, typical, most: typical * 1.25 };
        assert_eq!(duration(span(0.5)), "500 ms (400 to 625)");
        assert_eq!(duration(span(3_600.0 * 4.0)), "4.0 h (3.2 to 5.0)");
        assert_eq!(duration(span(0.0)), "0.0 ms (0.0 to 0.0)");
        let sums = [3.2, 54.0, 270.6, 2_706.88].map(|typical| dollars(span(typical)));
        assert_eq!(
            sums,
            [
                "$3.20 (2.56 to 4.00)",
                "$54.00 (43.20 to 67.50)",
                "$270 (220 to 340)",
                "$2,700 (2,200 to 3,400)"
            ]
        );
    }

    #[test]
    fn what_gpus_send_each_other_is_said() {
        let told = |link: &str| {
            let scenario = &crate::share::decode(&format!("method=full&p=amp-bf16&gpu=h100-sxm-80gb&{link}"))
                .scenarios[0];
            let memory = crate::estimate::estimate(scenario).memory.expect("it has an answer");
            sent(&crate::plan::pace(scenario, &memory).unwrap_or_else(|issue| panic!("{issue}")))
        };
        let within = told("gpus=8&shard=fsdp2").expect("they send");
        assert!(within.ends_with("while it computes, within one machine"), "{within}");
        let among = told("gpus=8&node=4&shard=fsdp2").expect("they send");
        assert!(among.ends_with("among 2 machines of 4, by a network adapter for each GPU"), "{among}");
        assert_eq!(told("gpus=1"), None);
        // twelve whole machines and a half
        let uneven = told("gpus=100&shard=fsdp2").expect("they send");
        assert!(uneven.contains("among 13 machines of 8"), "{uneven}");
        let slow = told("gpus=8&node=1&shard=fsdp2&s=256").expect("they send");
        assert!(slow.contains(" of which it waits"), "{slow}");
    }

    #[test]
    fn a_price_that_is_not_known_says_how_it_is_given() {
        let scenario = &crate::share::decode("gpu=rtx-3090").scenarios[0];
        let memory = crate::estimate::estimate(scenario).memory.expect("it has an answer");
        let pace = crate::plan::pace(scenario, &memory).unwrap_or_else(|issue| panic!("{issue}"));
        let lines = pace_lines(scenario, &pace, "enter your own above");
        let price = lines.iter().find(|(label, _)| *label == "Price").map(|(_, said)| said.as_str());
        assert_eq!(price, Some("no rental price on record for this card: enter your own above"));
    }
}
