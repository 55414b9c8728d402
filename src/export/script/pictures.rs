//! Files with pictures: what makes numbers of them, the data that has some, and a tower that stays as it is.

use super::python::string;
use super::run::Run;
use crate::issue::{Field, Issue};
use crate::model::vision::{Picture, Resizing, Vision, VisionCode};
use crate::scenario::{Mask, Method, Scenario, Task, VisionTower};

/// The inputs that such a file says.
pub(super) const SAID: &[&str] = &["images", "image-height", "image-width", "vision-tower"];

/// Data of the Hub that it can be tried on.
pub(super) const DATA: &str = "HuggingFaceH4/llava-instruct-mix-vsft";
/// The columns that are asked for.
pub(super) const COLUMNS: &str = "with columns \"messages\" and \"images\"";
/// The same of trl's trainer for a task.
pub(in crate::export) fn data(task: Task) -> [&'static str; 2] {
    match task {
        Task::Dpo => [PAIRS, "with columns \"prompt\", \"chosen\", \"rejected\" and \"images\""],
        _ => [DATA, COLUMNS],
    }
}
/// Data of the Hub in which one of two answers to a text with a picture is preferred.
const PAIRS: &str = "HuggingFaceH4/rlaif-v_formatted";
/// What the processors of pictures are written with.
pub(super) const PACKAGES: [&str; 2] = ["torchvision", "pillow"];

/// What stands in the way of a file of trl's trainers with pictures.
///
/// # Errors
/// An [`Issue`] where no data of the Hub is known that has what the task asks for beside its pictures.
pub(in crate::export) fn refuse_task(scenario: &Scenario) -> Result<(), Issue> {
    let asked = match scenario.task {
        Task::Kto => "answers that are labelled by themselves",
        Task::Grpo | Task::Rloo => "prompts as messages",
        _ => return Ok(()),
    };
    if !scenario.looks() {
        return Ok(());
    }
    let message = format!(
        "no file of this task is written with pictures: no data is known that has {asked} beside them"
    );
    Err(Issue::error(Field::Pictures, message).with_fix("set pictures to 0, or write DPO's"))
}

impl Run<'_> {
    /// Whether it is given pictures.
    pub fn looks(&self) -> bool {
        self.scenario.looks()
    }

    fn vision(&self) -> Option<&Vision> {
        self.architecture.vision().map(|(_, vision)| vision)
    }

    /// The code of a tower that stays as it is; none where it is trained, or there is none.
    fn frozen(&self) -> Option<VisionCode> {
        let code = self.vision()?.code;
        (self.scenario.pictures.tower == VisionTower::Frozen).then_some(code)
    }

    /// peft's `exclude_modules`; none where adapters may be in the tower.
    pub fn excluded(&self) -> Option<String> {
        self.frozen().map(|code| string(&code.pattern()))
    }

    /// Lines that leave the tower as it is where all weights are trained.
    pub fn freezes(&self) -> String {
        let Some(code) = self.frozen().filter(|_| self.scenario.method == Method::Full) else {
            return String::new();
        };
        // Llama 4's model has no model inside
        let model = if code == VisionCode::Llama4 { "model" } else { "model.model" };
        let own = (code == VisionCode::LlavaNext).then_some("image_newline");
        let parts = code.modules().iter().copied().chain(own);
        parts.map(|part| format!("{model}.{part}.requires_grad_(False)\n")).collect()
    }

    /// What stands in the way of a file with pictures.
    ///
    /// # Errors
    /// An [`Issue`] where the file has no line for a setting of theirs.
    pub fn refuse_pictures(&self) -> Result<(), Issue> {
        let stays = self.scenario.pictures.tower == VisionTower::Frozen;
        if stays && self.vision().is_none() && !self.architecture.towers.is_empty() {
            let message = format!(
                "which modules of {} are its tower is not known, so that no line leaves them as they are",
                self.architecture.model_type
            );
            return Err(Issue::error(Field::VisionTower, message).with_fix("train the tower"));
        }
        if self.looks() && self.scenario.pictures.frames > 1 {
            let message = "files are written of pictures, not of videos";
            return Err(Issue::error(Field::Frames, message).with_fix("set video frames to 1"));
        }
        if self.looks() && self.scenario.pictures.count > 1 && self.scenario.task == Task::Dpo {
            let message =
                "a script of DPO is written of one picture in a text: of several pairs none is made";
            return Err(Issue::error(Field::Pictures, message).with_fix("set pictures to 1"));
        }
        refuse_task(self.scenario)
    }

    /// The processor, which makes no more tokens of a picture than it does of one of the scenario's size, where its family's has a word for that.
    pub fn processor(&self) -> String {
        let most = self.vision().and_then(|vision| most(vision, self.scenario.pictures.each()));
        let most = most.map(|(name, value)| format!("processor.image_processor.{name} = {value}\n"));
        format!("processor = AutoProcessor.from_pretrained(MODEL)\n{}", most.unwrap_or_default())
    }

    /// The line that says how many pictures a text has, and of what size the estimate's are.
    pub fn pictures(&self) -> String {
        let pictures = self.scenario.pictures;
        let sized = match self.vision().map(|vision| &vision.resizing) {
            None | Some(Resizing::Square(_)) => String::new(),
            Some(_) => format!("; the estimate is of {} × {} pixels each", pictures.height, pictures.width),
        };
        format!("IMAGES = {}  # in each text{sized}\n", pictures.count)
    }

    /// A function that makes texts with so many pictures of rows that have one each; none where each has one.
    pub fn joins(&self) -> &'static str {
        if self.scenario.pictures.count > 1 { JOINED } else { "" }
    }

    /// A split of the data, in texts of so many pictures.
    pub fn talks(&self, split: &str) -> String {
        let split = format!("load_dataset(DATA, split={})", string(split));
        if self.scenario.pictures.count > 1 { format!("joined({split})") } else { split }
    }

    /// Batches of a loop of one's own, each process of which has texts of its own where several share the work.
    pub fn looked_at(&self, shared: bool) -> String {
        let own = if shared { ".shard(WORLD, RANK)" } else { "" };
        let mask = match self.scenario.mask {
            Mask::Ones => "torch.ones_like(mask)",
            Mask::None | Mask::Padded | Mask::PaddingFree | Mask::Packed => "",
        };
        let mask = if mask.is_empty() { String::new() } else { format!(", \"attention_mask\": {mask}") };
        format!(
            "\n\ndef talk(rows):\n    \"\"\"One conversation of several rows, their pictures in the places that the data has for them.\"\"\"\n    \
             pictures = iter([picture for row in rows for picture in row[\"images\"]])\n    \
             part = lambda part: {{\"type\": \"image\", \"image\": next(pictures)}} if part[\"type\"] == \"image\" else part\n    \
             return [\n        {{\"role\": message[\"role\"], \"content\": [part(own) for own in message[\"content\"]]}}\n        \
             for row in rows\n        for message in row[\"messages\"]\n    ]\n\
             \n\ndef numbers(talks):\n    \"\"\"What the model is given of conversations: LENGTH tokens each, padded on the right.\"\"\"\n    \
             filled = {{\"padding\": \"max_length\", \"max_length\": LENGTH, \"padding_side\": \"right\", \"add_special_tokens\": False}}\n    \
             return processor.apply_chat_template(\n        talks, tokenize=True, return_dict=True, return_tensors=\"pt\", processor_kwargs=filled\n    )\n\
             \n\ndef talks():\n    \"\"\"Conversations with IMAGES pictures each; those that come to more than LENGTH tokens are left out.\"\"\"\n    \
             while True:\n        rows = load_dataset(DATA, split=\"train\"){own}\n        \
             for first in range(0, len(rows) - IMAGES + 1, IMAGES):\n            \
             found = talk([rows[first + at] for at in range(IMAGES)])\n            \
             if numbers([found])[\"input_ids\"].shape[1] == LENGTH:\n                yield found\n\
             \n\ndef batches():\n    \"\"\"Padding comes last, where no token sees it, and has no label: it takes no mask.\"\"\"\n    \
             source = talks()\n    while True:\n        batch = dict(numbers([next(source) for _ in range(BATCH)]))\n        \
             mask = batch.pop(\"attention_mask\")\n        \
             yield {{**batch, \"labels\": batch[\"input_ids\"].masked_fill(mask == 0, -100){mask}}}\n"
        )
    }
}

/// Texts of so many pictures.
const JOINED: &str = "

def joined(rows):
    \"\"\"Conversations with IMAGES pictures each, of as many rows with one.\"\"\"
    whole = lambda rows: {name: [sum(rows[name], [])] for name in (\"messages\", \"images\")}
    return rows.map(whole, batched=True, batch_size=IMAGES, drop_last_batch=True, remove_columns=rows.column_names)

";

/// What a processor is told so that pictures are no larger than that one; none where they are all of a size, or no word says it.
fn most(vision: &Vision, picture: Picture) -> Option<(&'static str, String)> {
    let grid = vision.grid(picture);
    let sides = [grid.rows, grid.columns].map(|side| side.saturating_mul(vision.patch));
    match &vision.resizing {
        Resizing::Between(least, own) => {
            let pixels = sides[0].saturating_mul(sides[1]);
            // of a picture that is shrunk the same limit gives the same size
            let of_most = |most: u64| {
                let resizing = Resizing::Between(*least, most);
                Vision { resizing, ..vision.clone() }.grid(picture)
            };
            let longest = if of_most(pixels) == grid { pixels } else { *own };
            Some(("size", format!("{{\"shortest_edge\": {least}, \"longest_edge\": {longest}}}")))
        }
        Resizing::Longest(own) => {
            let longest = picture.height.max(picture.width).min(*own);
            Some(("size", format!("{{\"longest_edge\": {longest}}}")))
        }
        Resizing::Tiles { .. } | Resizing::Canvas { .. } => {
            let tiles = vision.tiles(picture);
            // the whole is one more where they are several
            let cut = if tiles > 1 { tiles - 1 } else { 1 };
            Some(("max_patches", cut.to_string()))
        }
        // every picture is of one size, is laid on one of a few, or has as many patches
        Resizing::Square(_) | Resizing::Points { .. } | Resizing::Most(_) => None,
    }
}
