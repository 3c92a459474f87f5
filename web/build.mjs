// Bundles src/ into page.html (report) and train.html, and explorer/ into explorer.html: no reference to anything outside, each page's own script and style named by
// their hashes in the content security policy, and a slot for the numbers. `--check` says whether they are what src/ gives.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const options = { bundle: true, minify: true, write: false, target: 'es2021', charset: 'ascii', legalComments: 'none', absWorkingDir: here };

async function bundle(entry, extra = {}) {
  const result = await build({ ...options, ...extra, entryPoints: [entry] });
  return result.outputFiles[0].text.trim();
}

// The explorer (web/explorer), whose module is the program itself: out of a build (`--module FILE`), else out of the page that is there.
async function explorer() {
  const worker = await bundle('explorer/worker.js', { format: 'iife', target: 'es2022' });
  const script = await bundle('explorer/main.js', { format: 'esm', target: 'es2022', define: { WORKER: JSON.stringify(worker) } });
  const css = await bundle('explorer/style.css');
  if (/<\/(script|style)|<!--/i.test(script + css)) throw new Error('the bundle would end its own element');
  const at = process.argv.indexOf('--module');
  const module = at > 0 ? execFileSync('xz', ['--format=alone', '-9e', '-c', process.argv[at + 1]], { maxBuffer: 1 << 28 }).toString('base64')
    : /id="module">([^<]*)</.exec(readFileSync(join(here, 'explorer.html'), 'utf8'))[1];
  const policy = `default-src 'none'; script-src ${hash(script)} 'wasm-unsafe-eval'; worker-src blob:; style-src ${hash(css)}; img-src data:; base-uri 'none'; form-action 'none'`;
  const parts = { policy, style: css, script, module };
  return readFileSync(join(here, 'explorer/explorer.html'), 'utf8').replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
}

const hash = (text) => `'sha256-${createHash('sha256').update(text, 'utf8').digest('base64')}'`;

const style = await bundle('src/style.css');

// One page: its script, the common style, and what of the document is its own.
async function page(entry, title, skip) {
  const script = await bundle(entry, { format: 'iife' });
  if (/<\/(script|style)|<!--/i.test(script + style)) throw new Error('the bundle would end its own element');
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
  const parts = { policy, style, script, title, skip };
  return readFileSync(join(here, 'src/page.html'), 'utf8').replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]);
}

const pages = {
  'page.html': await page('src/main.js', 'stepzero report', '<a class="skip" href="#findings">To the findings</a>'),
  'explorer.html': await explorer(),
  'train.html': await page('src/train.js', 'stepzero train', '<a class="skip" href="#loss">To the loss</a>'),
};
for (const [name, text] of Object.entries(pages)) {
  const target = join(here, name);
  if (!process.argv.includes('--check')) {
    writeFileSync(target, text);
    console.log(`${name}  ${(text.length / 1000).toFixed(0)} kB`);
  } else if (readFileSync(target, 'utf8') !== text) {
    console.error(`web/${name} is not what web/src gives: run ./dev page`);
    process.exit(1);
  }
}
