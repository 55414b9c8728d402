// What everybody's page must hold to: what axe finds on it, and what is wider than the window or beyond it.
import { AxeBuilder } from "@axe-core/playwright";

const WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** Each objection, and what it is to. */
const told = ({ violations }) =>
  violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.target).join(" ")}`);

/** What axe objects to, and where; on the whole page, or within what a selector finds. */
export async function violations(page, within) {
  const axe = new AxeBuilder({ page }).withTags(WCAG);
  return told(await (within ? axe.include(within) : axe).analyze());
}

/** What cannot be told apart from what it stands on: all that a theme makes a difference to. */
export async function contrast(page) {
  return told(await new AxeBuilder({ page }).withRules(["color-contrast", "link-in-text-block"]).analyze());
}

/** By how many pixels the page is wider than the window. */
export const overflow = (page) =>
  page.evaluate(() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth);

/** Whether an element lies within the window, now: `toBeInViewport` waits for a frame, without an end of its own. */
export const within = (locator) =>
  locator.evaluate((element) => {
    const { top, left, bottom, right } = element.getBoundingClientRect();
    return top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth;
  });
