// Bundles src/ into one file, page.html: no reference to anything outside, its own script and style named by their hashes in
// the content security policy, and a slot for the numbers. `--check` says whether page.html is what src/ gives.
import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const options = { bundle: true, minify: true, write: false, target: 'es2021', charset: 'ascii', legalComments: 'none', absWorkingDir: here };

async function bundle(entry, extra = {}) {
  const result = await build({ ...options, ...extra, entryPoints: [entry] });
  return result.outputFiles[0].text.trim();
}

const hash = (text) => `'sha256-${createHash('sha256').update(text, 'utf8').digest('base64')}'`;

const script = await bundle('src/main.js', { format: 'iife' });
const style = await bundle('src/style.css');
if (/<\/(script|style)|<!--/i.test(script + style)) throw new Error('the bundle would end its own element');

const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
const page = readFileSync(join(here, 'src/page.html'), 'utf8')
  .replace('{{policy}}', () => policy)
  .replace('{{style}}', () => style)
  .replace('{{script}}', () => script);

const target = join(here, 'page.html');
if (process.argv.includes('--check')) {
  if (readFileSync(target, 'utf8') !== page) {
    console.error('web/page.html is not what web/src gives: run ./dev page');
    process.exit(1);
  }
} else {
  writeFileSync(target, page);
  console.log(`page.html  ${(page.length / 1000).toFixed(0)} kB`);
}
