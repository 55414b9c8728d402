import { expect } from "@playwright/test";

/** The page as a person meets it: every part by its accessible role and name. */
export class HeadroomPage {
  constructor(page) {
    this.page = page;
    this.verdict = page.getByRole("status", { name: "Verdict" });
    this.chart = page.getByRole("figure", { name: "Memory at the peak" });
  }

  /** Opens the page with a query string (or none) and waits for the answer. */
  async open(query = "") {
    await this.page.goto(query || ".");
    await expect(this.verdict).toBeVisible();
  }
}
