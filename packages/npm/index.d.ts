import type { Scenario } from "./scenario.js";

export type { Scenario } from "./scenario.js";

/** Bytes by part: `weights`, `activations`, `optimizer` … */
export type Parts = Record<string, number>;

/** The highest point of a phase. */
export interface Peak {
  bytes: number;
  parts: Parts;
}

/** What is wrong, doubtful or assumed. */
export interface Issue {
  severity: "note" | "warning" | "error";
  field: string;
  message: string;
  fix: string | null;
}

/** What a scenario needs; all amounts in bytes. Figures are left out where there is no answer: `issues` say why. */
export interface Answer {
  schema: "headroom-estimate/1";
  /** Every key, those left out at their default. */
  scenario: Scenario;
  /** The keys that are not at their default. */
  changed: string[];
  /** What the page opens behind `#`. */
  link: string;
  issues: Issue[];
  gpu?: { slug: string; name: string; memory: number };
  /** Where there are several GPUs: how many of them need this much each; of a pipeline those of the stage that needs most. */
  on_each_of_gpus?: number;
  /** Where there are several GPUs: NCCL's communicators on each, and what these were seen to take, outside of all other amounts. */
  nccl?: { communicators: { of: string; gpus: number }[]; least: number; most: number; source: string };
  fits?: boolean;
  verdict?: string;
  /** What remains of the card; negative: what is missing. */
  left?: number;
  /** How much of the card that is. */
  level?: "light" | "moderate" | "high" | "beyond";
  /** The peak of allocated memory, and the CUDA context. */
  needed?: number;
  context?: number;
  /** What PyTorch's allocator holds. */
  reserved?: number;
  /** What the driver shows. */
  nvidia_smi?: number;
  /** The same with NCCL's buffers, where there are several GPUs. */
  nvidia_smi_with_nccl?: { least: number; most: number };
  /** The run ends for want of memory: `reserved` and `nvidia_smi` are what it had come to by then. */
  up_to_failure?: boolean;
  peak?: Peak & { phase: string };
  phases?: { first: Record<string, Peak>; steady: Record<string, Peak> };
  resting?: Parts;
  /** The model's; where GPUs divide its modules, also those that each of these has. */
  parameters?: { total: number; trainable: number; on_each_gpu?: number };
  /** Of the CPU's memory: what each process reads before it has shards, what it has from then on, and all of a machine together. */
  host?: {
    read_by_each: number;
    /** The first process alone may read it (`cpu_ram_efficient_loading`). */
    may_be_read_once: boolean;
    offloaded_of_each: number;
    of_first: number;
    of_each: number;
    gpus_per_machine: number;
    read_by_machine: number;
    of_machine: number;
    /** The machine with most RAM that is known with as many of the card, or the next larger number. */
    roomiest_known_machine: { name: string; gpus: number; ram: number; has_enough: boolean } | null;
  };
  /** How far what is allocated may be off, in percent, by measured runs: how many of them, and how many on real GPUs. */
  measured_error?: {
    percent: number;
    more_percent: number;
    reserved_percent: number | null;
    rests_on: string;
    runs: number;
    on_real_gpus: number;
  };
}

/** One setting that becomes another. */
export interface Change {
  label: string;
  from: string;
  to: string;
}

/** A change of the scenario, or several, and what comes of it. */
export interface Lever {
  changes: Change[];
  cost: string;
  saved: number;
  needed: number;
  verdict: string;
  link: string;
}

/** What to change so that a scenario fits. */
export interface Levers {
  schema: "headroom-levers/1";
  needed: number;
  verdict: string;
  /** Changes that each save memory, the cheapest first. */
  single: Lever[];
  /** The cheapest several, where no single one is enough or all that are cost more. */
  together: Lever | null;
  /** What the room is good for, where it fits. */
  uses: { changes: Change[]; gain: string; needed: number; verdict: string; link: string }[];
  /** Where it does not fit: the larger card that costs least to rent, in US dollars an hour of the machine. */
  larger_card: { changes: Change[]; needed: number; verdict: string; per_hour: number; machine: string; link: string } | null;
  fewest_gpus: { gpus: number; needed: number; verdict: string; link: string } | { issue: Issue } | null;
}

/**
 * What a scenario needs. A scenario is its keys, of which those left out take their default, or a share link of the page.
 * @throws Where a key or a value is unknown; the message says what would be right.
 */
export function estimate(scenario?: Scenario | string): Answer;

/**
 * What to change so that a scenario fits.
 * @throws Where the scenario cannot be read or has no answer.
 */
export function levers(scenario?: Scenario | string): Levers;

/** What was understood of a configuration of another project. */
export interface Understood {
  /** Whose it is: `axolotl`, `LLaMA-Factory` … */
  format: string;
  scenario: Scenario;
  link: string;
  /** What it says. */
  applied: { key: keyof Scenario; value: string; said: string }[];
  /** What its project does where it says nothing. */
  assumed: { key: keyof Scenario; value: string; why: string }[];
  without_effect: string[];
  /** What was not followed; `misread`: a known setting whose value cannot be used, so that the scenario has another than the text says. */
  not_understood: { said: string; why: string; misread: boolean }[];
}

/**
 * What is understood of the text of a configuration: YAML, JSON or TOML of TRL, axolotl, LLaMA-Factory, torchtune, torchtitan, Megatron-LM, accelerate or
 * DeepSpeed, a Python script, a notebook or a command line. It is read over a scenario, whose card and whatever else it says
 * nothing of stay.
 * @throws Where it is no configuration that is known.
 */
export function read(configuration: string, over?: Scenario | string): Understood;

/** What a share link holds, and what of it could not be followed. */
export function openLink(link: string): { scenarios: Scenario[]; notices: string[] };
