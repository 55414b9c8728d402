// What everybody's page must hold to: what axe finds on it, and what is wider than the window.
import { AxeBuilder } from "@axe-core/playwright";

const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** What axe objects to, and where; on the whole page, or within what a selector finds. */
export async function violations(page, within) {
  const axe = new AxeBuilder({ page }).withTags(WCAG);
  const { violations } = await (within ? axe.include(within) : axe).analyze();
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.target).join(" ")}`);
}

/** By how many pixels the page is wider than the window. */
export const overflow = (page) =>
  page.evaluate(() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth);
