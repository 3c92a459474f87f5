// The documentation's pages (docs/site/build.py) in a browser without a network: node web/test/site.test.mjs SITE [PICTURES]
import { launch } from '../browser.mjs';
import { readdirSync } from 'node:fs';
import { resolve } from 'node:path';
import assert from 'node:assert/strict';

const site = resolve(process.argv[2]);
const pictures = process.argv[3];
const browser = await launch();
let count = 0;

async function visit(file, { width = 1280, dark = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: dark ? 'dark' : 'light', offline: true });
  const page = await context.newPage();
  const problems = [];
  page.on('console', (message) => { if (message.type() === 'error') problems.push(message.text()); });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => { if (!/^(file|data|blob):/.test(request.url())) problems.push(`asked for ${request.url()}`); });
  await page.goto(`file://${site}/${file}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 1) problems.push(`${wide} pixels wider than the window`);
  return { page, context, problems };
}

async function check(file, options, inside = async () => {}) {
  const { page, context, problems } = await visit(file, options);
  await inside(page);
  assert.deepEqual(problems, [], `${file} ${JSON.stringify(options ?? {})}`);
  if (pictures) await page.screenshot({ path: `${pictures}/${file.replaceAll('/', '-')}-${options?.width ?? 1280}${options?.dark ? '-dark' : ''}.png` });
  await context.close();
  count += 1;
}

// the explorer on the front page computes
await check('index.html', {}, async (page) => {
  const explorer = await (await page.waitForSelector('iframe')).contentFrame();
  await explorer.waitForFunction(() => document.querySelectorAll('canvas').length > 0 && /gpt2/i.test(document.body.innerText), null, { timeout: 30000 });
  await page.waitForTimeout(1500);
});
await check('index.html', { width: 390 });
await check('gallery.html', {}, async (page) => assert.equal(await page.locator('.gallery li').count(), 20));
await check('gallery.html', { width: 390, dark: true });
for (const file of ['contents.html', 'docs/models.html', 'docs/accuracy.html', 'docs/derivations/attention.html', 'ARCHITECTURE.html']) {
  await check(file);
  await check(file, { width: 390 });
}
for (const file of readdirSync(`${site}/gallery`)) await check(`gallery/${file}`, {}, async (page) => { await page.waitForSelector('html[data-ready]'); });
await browser.close();
console.log(`site: ${count} pages looked at`);
