// The pictures of README and docs, made by the program: the page, and a terminal with the colours a terminal shows.
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch, open } from './browser.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const program = join(root, 'build/release/stepzero');
const work = join(root, 'build/pictures');
const images = join(root, 'docs/images');
mkdirSync(work, { recursive: true });
mkdirSync(images, { recursive: true });

const page = ['report', 'gpt2', '--measure', '--seeds', '4', '--compare-schemes', 'xavier-normal,deepnet'];
const session = ['predict', 'gpt2', '--set', 'layers=48', '--set', 'norm_placement=post', '--scheme', 'xavier-normal'];

// `script` gives the program a terminal, so that it paints.
function painted(args) {
  const command = [program, ...args].map((word) => `'${word}'`).join(' ');
  return execFileSync('script', ['-qec', `stty cols 84; ${command}`, '/dev/null'],
    { env: { ...process.env, LC_ALL: 'C.UTF-8', TERM: 'xterm-256color', NO_COLOR: '' }, encoding: 'utf8' }).replace(/\r/g, '');
}

const classes = { 1: 'bold', 2: 'dim', 31: 'bad', 32: 'good', 33: 'warn', 36: 'accent' };
const escape = (text) => text.replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`);

function toHtml(text) {
  let out = '';
  for (const piece of text.split(/(?=\u001b\[\d+m)/)) {
    const match = /^\u001b\[(\d+)m/.exec(piece);
    const words = escape(match ? piece.slice(match[0].length) : piece);
    out += match && classes[match[1]] ? `<span class="${classes[match[1]]}">${words}</span>` : words;
  }
  return out;
}

const frame = (command, text) => `<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 20px; background: #eef1f4; }
pre { margin: 0; padding: 20px 24px; border-radius: 10px; background: #12181f; color: #d6dee6; font: 14px/1.42 "DejaVu Sans Mono", monospace; width: max-content; }
.bold { font-weight: 700; color: #fff; } .dim { color: #7f8f9d; } .bad { color: #f08580; } .good { color: #5cc08c; } .warn { color: #e5ab4c; } .accent { color: #4fa3e0; }
</style><pre><span class="dim">$</span> ${escape(command)}\n${toHtml(text)}</pre>`;

const browser = await launch();
const file = join(work, 'gpt2.html');
execFileSync(program, [...page, '-o', file], { stdio: 'pipe' });
const light = await open(browser, file, { width: 1180, height: 1180, scale: 1.5 });
await light.page.screenshot({ path: join(images, 'page.png'), clip: { x: 0, y: 0, width: 1180, height: 1290 }, fullPage: true });
const phone = await open(browser, file, { width: 390, height: 844, scale: 1.5, dark: true });
await phone.page.screenshot({ path: join(images, 'page-phone-dark.png') });
const terminal = join(work, 'terminal.html');
writeFileSync(terminal, frame(['stepzero', ...session].join(' '), painted(session)));
const view = await browser.newPage({ deviceScaleFactor: 1.5 });
await view.goto(`file://${terminal}`);
const box = await view.locator('pre').boundingBox();
await view.screenshot({ path: join(images, 'terminal.png'), fullPage: true, clip: { x: 0, y: 0, width: box.width + 40, height: box.height + 40 } });
await browser.close();
