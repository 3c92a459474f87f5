// Debian's chromium under playwright-core, without any network.
import { chromium } from 'playwright-core';
import { existsSync } from 'node:fs';

export async function launch() {
  const path = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  if (!path) throw new Error('no chromium: ./dev installs it');
  return chromium.launch({ executablePath: path, args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none'] });
}

// A page that may open files and nothing else; what goes wrong in it is collected.
export async function open(browser, file, { width = 1280, height = 900, dark = false, scale = 1, touch = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, deviceScaleFactor: scale, colorScheme: dark ? 'dark' : 'light', hasTouch: touch, offline: true });
  const page = await context.newPage();
  const problems = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) problems.push(message.text()); });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('request', (request) => { if (!/^(file|data|blob):/.test(request.url())) problems.push(`asked for ${request.url()}`); });
  await page.goto(`file://${file}`);
  await page.waitForSelector('html[data-ready]');
  await page.waitForFunction(() => document.querySelectorAll('.plot canvas').length === document.querySelectorAll('.plot').length);
  return { page, context, problems };
}
