// Drives Chromium for the tests: one JSON command a line on stdin, one JSON answer a line on stdout.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [clients, executablePath, ...args] = process.argv.slice(2);
const { chromium } = createRequire(`${clients}/package.json`)("playwright-core");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", ...args] });
browser.on("disconnected", () => process.exit(1)); // whoever waits for an answer is told
const pages = new Map();
const source = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
const harness = `(async (tapSource) => {${source("harness.js")}})(${JSON.stringify(source("tap.js"))})`;

const operations = {
  async open({ page: name, url, init }) {
    const context = await browser.newContext();
    const page = await context.newPage();
    const log = [];
    page.on("console", (message) => log.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => log.push(`pageerror: ${error.message}`));
    await page.addInitScript(init);
    await page.goto(url);
    pages.set(name, { page, log });
  },
  async harness({ page }) {
    await pages.get(page).page.evaluate(harness);
  },
  evaluate: ({ page, script }) => pages.get(page).page.evaluate(script),
  click: ({ page, selector }) => pages.get(page).page.click(selector),
  fill: ({ page, selector, text }) => pages.get(page).page.fill(selector, text),
  text: ({ page, selector }) => pages.get(page).page.textContent(selector),
  log: async ({ page }) => pages.get(page).log,
  offline: ({ page, value }) => pages.get(page).page.context().setOffline(value),
  async close({ page }) {
    await pages.get(page).page.context().close();
    pages.delete(page);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, ...rest } = JSON.parse(line);
  operations[op](rest).then(
    (value) => console.log(JSON.stringify({ id, value })),
    (error) => console.log(JSON.stringify({ id, error: String(error) })),
  );
}
await browser.close();
