import { expect } from "@playwright/test";

/** The page as a person meets it: every part by its accessible role and name. */
export class HeadroomPage {
  constructor(page) {
    this.page = page;
    this.verdict = page.getByRole("status", { name: "Verdict" });
    this.chart = page.getByRole("figure", { name: "Memory at the peak" });
    this.parts = page.getByRole("table", { name: "The parts of the memory at the peak" });
    this.fits = page.getByRole("table", { name: "What fits, by model and method" });
    this.notice = page.getByRole("heading", { name: "Part of this link could not be read" });
  }

  /** Opens the page with what a link says (or nothing) and waits for the answer. */
  async open(query = "") {
    await this.page.goto(query || ".");
    // the first answer stands there before the code that takes inputs does
    await expect(this.page.locator("html")).toHaveAttribute("data-state", "ready");
    await expect(this.verdict).toContainText(/\d/);
  }

  /** Shows a view under the answer by its tab. */
  async view(name) {
    const tab = this.page.getByRole("tab", { name, exact: true });
    await tab.click();
    await expect(tab).toHaveAttribute("aria-selected", "true");
  }

  /** Has a question of the plan answered, by what leads to it. */
  async ask(words) {
    await this.page.getByRole("navigation", { name: "Questions" }).getByRole("button", { name: words, exact: true }).click();
  }

  /** A choice: a select, or a box with a searchable list. */
  choice(name) {
    return this.page.getByRole("combobox", { name, exact: true });
  }

  /** Opens the settings that are folded away. */
  async unfold() {
    const settings = this.page.locator("details.all-settings");
    if ((await settings.getAttribute("open")) === null) await settings.locator("summary").click();
    await expect(settings.locator("fieldset").first()).toBeVisible();
  }

  /** The slider of a number. */
  slider(name) {
    return this.page.getByRole("slider", { name, exact: true });
  }

  /** The box of a number. */
  box(name) {
    return this.page.getByRole("spinbutton", { name, exact: true });
  }

  /** Searches in the list of a choice and takes the first thing found. */
  async search(name, words) {
    await this.choice(name).click();
    await this.choice(name).fill(words);
    // the options of selects have that role too, and are never visible
    await this.page.getByRole("listbox").getByRole("option").first().click();
  }

  button(name) {
    return this.page.getByRole("button", { name, exact: true });
  }

  /** What the address says, once it had the time to be written. */
  link() {
    return new URLSearchParams(new URL(this.page.url()).hash.slice(1));
  }

  async expectLink(key, value) {
    await expect.poll(() => this.link().get(key), { message: `${key} in the link` }).toBe(value);
  }

  /** Everything that is said of the scenario once it rests, for comparing two moments. */
  async answer() {
    await expect(this.verdict).toHaveAttribute("aria-busy", "false");
    return {
      verdict: await this.verdict.innerText(),
      chart: await this.chart.innerHTML(),
      parts: await this.parts.innerText(),
    };
  }
}

/** The amount that a text begins with, in bytes: `8.93 GiB …`. */
export function bytes(text) {
  const [, number, unit] = text.replaceAll(",", "").match(/([\d.]+)\s*([KMGT]i?B|B)/);
  const power = "BKMGT".indexOf(unit[0]);
  return Number(number) * (unit.includes("i") ? 1024 : 1000) ** power;
}
