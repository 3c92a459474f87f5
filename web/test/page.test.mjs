// The page in a browser, from the disk, without a network: what it shows, what it does, what it refuses.
//   node test/page.test.mjs [PROGRAM [FOLDER]]: pages and screenshots are left in FOLDER
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch, open } from '../browser.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const program = resolve(process.argv[2] || join(root, 'build/release/stepzero'));
const folder = resolve(process.argv[3] || join(root, 'build/page'));
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const small = ['--set', 'width=64', '--set', 'heads=4', '--set', 'vocab=512', '--seq-len', '24'];
function report(name, ...args) {
  const file = join(folder, `${name}.html`);
  execFileSync(program, ['report', ...args, '-o', file], { stdio: 'pipe' });
  return file;
}

const tests = [];
const test = (name, run) => tests.push([name, run]);
const pixels = (page, selector) => page.$eval(selector, (canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let hash = 0;
  let drawn = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 0) ++drawn;
    hash = (hash * 31 + data[i] + 3 * data[i + 1] + 7 * data[i + 2] + 11 * data[i + 3]) | 0;
  }
  return { hash, drawn };
});
const canvas = (n) => `#depth .chart:nth-child(${n}) canvas`;
const shot = (page, name, options = {}) => page.screenshot({ path: join(folder, `${name}.png`), ...options });

const healthy = report('healthy', 'gpt2', ...small, '--measure', '--seeds', '3', '--compare-schemes', 'xavier-normal,he');
const sick = report('sick', 'gpt2', ...small, '--set', 'norm_placement=post', '--set', 'layers=48', '--scheme', 'xavier-normal');

test('every chart is drawn, and other numbers give other pixels', async (browser) => {
  const a = await open(browser, healthy);
  const b = await open(browser, sick);
  for (let n = 1; n <= 4; ++n) {
    const [first, second] = [await pixels(a.page, canvas(n)), await pixels(b.page, canvas(n))];
    assert.ok(first.drawn > 2000 && second.drawn > 2000, `chart ${n} is empty`);
    assert.notEqual(first.hash, second.hash, `chart ${n} is the same for other numbers`);
  }
  await shot(a.page, 'desktop-light', { fullPage: true });
  await shot(b.page, 'desktop-light-sick', { fullPage: true });
  return [a, b];
});

test('the verdict and the findings come first', async (browser) => {
  const a = await open(browser, sick);
  assert.match(await a.page.textContent('#verdict'), /error/);
  assert.match(await a.page.textContent('.findings'), /rank-collapse/);
  const order = await a.page.$$eval('main > section', (list) => list.map((s) => s.id));
  assert.equal(order[0], 'findings');
  const page = await open(browser, healthy);
  assert.match(await page.page.textContent('#verdict'), /Nothing stands out|Fine/);
  return [a, page];
});

test('the policy is in force: no script from inside, no request', async (browser) => {
  const a = await open(browser, healthy);
  const result = await a.page.evaluate(async () => {
    const seen = [];
    document.addEventListener('securitypolicyviolation', (event) => seen.push(event.effectiveDirective));
    const script = document.createElement('script');
    script.textContent = 'window.intruded = true';
    document.body.append(script);
    const image = document.createElement('img');
    image.src = 'http://127.0.0.1:9/x.png';
    document.body.append(image);
    document.body.insertAdjacentHTML('beforeend', '<b onclick="window.intruded = true" id="handler">x</b>');
    document.getElementById('handler').click();
    let fetched = true;
    try { await fetch('http://127.0.0.1:9/'); } catch { fetched = false; }
    await new Promise((done) => setTimeout(done, 50));
    return { seen, intruded: Boolean(window.intruded), fetched };
  });
  assert.equal(result.intruded, false);
  assert.equal(result.fetched, false);
  for (const directive of ['script-src-elem', 'img-src', 'connect-src']) assert.ok(result.seen.includes(directive), `${directive}: ${result.seen}`);
  a.problems.length = 0;  // what was refused is told on the console
  return [a];
});

test('tables sort, filter and change', async (browser) => {
  const a = await open(browser, healthy);
  const { page } = a;
  const column = () => page.$$eval('.everything tbody tr', (rows) => rows.map((r) => r.children[5].textContent));
  const before = await column();
  await page.click('.everything [data-key="gradient"]');
  assert.equal(await page.getAttribute('.everything th[aria-sort="descending"]', 'aria-sort'), 'descending');
  const number = (text) => Number(text.split(' ')[0].replace('\u2212', '-').replace(/\u00d710([\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+)/, (_, e) =>
    `e${[...e].map((c) => '\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079'.indexOf(c)).map((d) => (d < 0 ? '-' : d)).join('')}`));
  const sorted = (await column()).map(number);
  assert.notDeepEqual(before.map(number), sorted);
  sorted.forEach((x, i) => assert.ok(Number.isFinite(x) && (i === 0 || sorted[i - 1] >= x), `row ${i}: ${sorted[i - 1]}, ${x}`));
  await page.fill('#table input', 'attn.q');
  assert.ok((await page.$$eval('.everything tbody th', (list) => list.map((x) => x.textContent))).every((name) => name.includes('attn.q')));
  await page.click('#table .choice button:nth-child(2)');
  await page.fill('#table input', 'wte');
  assert.equal(await page.textContent('.everything tbody th'), 'transformer.wte.weight');
  return [a];
});

test('light and dark', async (browser) => {
  const a = await open(browser, healthy);
  const { page } = a;
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const [light, drawn] = [await ground(), await pixels(page, canvas(1))];
  await page.click('#theme');
  assert.notEqual(await ground(), light);
  assert.notEqual((await pixels(page, canvas(1))).hash, drawn.hash, 'the canvas keeps the old colours');
  await page.click('#theme');
  assert.equal(await ground(), light);
  const b = await open(browser, healthy, { dark: true });
  assert.notEqual(await b.page.evaluate(() => getComputedStyle(document.body).backgroundColor), light);
  await shot(b.page, 'desktop-dark', { fullPage: true });
  return [a, b];
});

test('a tooltip follows the pointer, and the keyboard', async (browser) => {
  const a = await open(browser, healthy);
  const { page } = a;
  await page.locator('#depth .chart:nth-child(1)').scrollIntoViewIfNeeded();
  const box = await page.locator('#depth .chart:nth-child(1) .u-over').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  const tip = page.locator('#depth .chart:nth-child(1) .tooltip');
  assert.ok(await tip.isVisible());
  assert.match(await tip.textContent(), /layer 6.*predicted.*\u00b1.*measured/s);
  await page.mouse.move(0, 0);
  assert.ok(!(await tip.isVisible()));
  await page.focus('#depth .chart:nth-child(2) .plot');
  await page.keyboard.press('ArrowRight');
  assert.match(await page.textContent('#announce'), /^layer 0: .*\d/);
  await page.keyboard.press('End');
  assert.match(await page.textContent('#announce'), /^end: /);
  return [a];
});

// What a remedy says is pasted as it is; its lines break between flags.
test('remedies are commands to copy', async (browser) => {
  const a = await open(browser, sick, { width: 390, height: 844 });
  const { page } = a;
  const command = await page.textContent('.remedies code');
  assert.match(command, /^stepzero report gpt2 .*--set vocab=512/);
  assert.ok(execFileSync(program, [...command.split(' ').slice(1), '-o', join(folder, 'pasted.html')], { stdio: 'pipe' }));
  const broken = await page.$$eval('.remedies .flag', (list) => list.filter((w) => w.getBoundingClientRect().height > 2 * parseFloat(getComputedStyle(w).fontSize)).map((w) => w.textContent));
  assert.deepEqual(broken, []);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.click('.remedies .copy >> nth=0');
  await page.waitForFunction(() => document.getElementById('announce').textContent === 'Copied');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), command);
  return [a];
});

test('one size everywhere: the card and the chart are rms, the table E[x^2]', async (browser) => {
  const a = await open(browser, healthy);
  const first = await a.page.evaluate(() => { const d = JSON.parse(document.getElementById('data').textContent).depths[0].signal; return (d.m || d.p)[0]; });
  const card = await a.page.$$eval('.tile', (list) => list.map((x) => x.textContent).find((x) => x.startsWith('Signal')));
  assert.ok(Math.abs(parseFloat(card.replace('Signal, first to last', '')) / Math.sqrt(first) - 1) < 0.05, `${card} ${first}`);
  assert.match(card, /rms/);
  assert.match(await a.page.textContent('#depth .chart:nth-child(1)'), /Size \(rms\)/);
  return [a];
});

test('all kinds of matrices are drawn by role', async (browser) => {
  const a = await open(browser, healthy);
  const names = await a.page.$$eval('#parameters .legend button', (list) => list.map((b) => b.textContent));
  for (const name of ['query, key, value', 'attention output', 'feed-forward, in (up)', 'feed-forward, out (down)']) assert.ok(names.includes(name), `${name} of ${names}`);
  return [a];
});

test('schemes can be compared on a phone', async (browser) => {
  const a = await open(browser, healthy, { width: 390, height: 844, touch: true });
  const rows = await a.page.$$eval('.schemes tbody tr', (list) => list.map((row) => [[...row.querySelectorAll('td')].map((cell) => getComputedStyle(cell, '::before').content).join(), row.getBoundingClientRect().right, row.scrollWidth - row.clientWidth]));
  assert.equal(rows.length, 3);
  for (const [text, right, hidden] of rows) {
    assert.match(text, /Verdict[^]*Loss[^]*Gradient norm/);
    assert.ok(right <= 390 && hidden <= 0, text);
  }
  return [a];
});

test('a legend entry that is off looks like one that can be switched on', async (browser) => {
  const a = await open(browser, healthy);
  const off = await a.page.$eval('.legend button[aria-pressed="false"]', (b) => { const s = getComputedStyle(b); return [s.cursor, s.textDecorationLine]; });
  assert.deepEqual(off, ['pointer', 'underline']);
  return [a];
});

test('other schemes are laid over and taken away', async (browser) => {
  const a = await open(browser, healthy);
  const { page } = a;
  const legend = () => page.$$eval('#depth .chart:nth-child(1) .legend button', (list) => list.map((b) => b.textContent));
  assert.ok((await legend()).includes('he'));
  const both = await pixels(page, canvas(1));
  await page.uncheck('.schemes tbody tr:nth-child(3) input');
  assert.ok(!(await legend()).includes('he') && (await legend()).includes('xavier-normal'));
  assert.notEqual((await pixels(page, canvas(1))).hash, both.hash);
  await page.click('#depth .chart:nth-child(1) .legend button:nth-child(1)');
  assert.equal(await page.getAttribute('#depth .chart:nth-child(1) .legend button:nth-child(1)', 'aria-pressed'), 'false');
  return [a];
});

test('a block shows its numbers, layer by layer', async (browser) => {
  const a = await open(browser, sick);
  const { page } = a;
  const colours = () => page.$$eval('.block-picture .stripe', (list) => list.map((x) => x.getAttribute('fill')).join());
  await page.click('[data-node="blocks.0.ffn.act"]');
  assert.equal(await page.textContent('.panel h3'), 'blocks.0.ffn.act');
  const first = await colours();
  await page.fill('.block-controls input', '40');
  assert.equal(await page.textContent('.panel h3'), 'blocks.40.ffn.act');
  assert.notEqual(await colours(), first, 'wires keep the colours of another layer');
  await page.click('#block .choice button:nth-child(2)');
  await page.focus('[data-node="blocks.40.attn.q"]');
  await page.keyboard.press('Enter');
  assert.equal(await page.textContent('.panel h3'), 'blocks.40.attn.q');
  await page.click('.findings a >> nth=0');
  assert.match(await page.textContent('.panel h3'), /stream\.48/);
  await page.click('.panel .link');
  assert.equal(await page.inputValue('#table input'), 'stream.48');
  return [a];
});

// Every node of a block is in its picture, whatever the block is made of.
test('experts, latent attention, two stacks and stages', async (browser) => {
  const tiny = ['--set', 'layers=2', '--set', 'vocab=512', '--seq-len', '8', '--no-remedies'];
  const opened = [];
  const see = async (name, ...args) => {
    opened.push(await open(browser, report(name, ...args)));
    return opened[opened.length - 1].page;
  };
  const boxes = (page) => page.$$eval('.block-picture .box', (list) => list.map((box) => box.dataset.node));
  for (const [model, layer] of [['mixtral-8x7b', 1], ['deepseek-v3', 3]]) {
    const page = await see(model, model, ...tiny.with(1, `layers=${layer + 1}`));
    await page.fill('.block-controls input', String(layer));
    const all = await page.evaluate((prefix) => JSON.parse(document.getElementById('data').textContent).nodes.name.filter((name) => name.startsWith(prefix)), `blocks.${layer}.`);
    const shown = new Set(await boxes(page));
    assert.deepEqual(all.filter((name) => !shown.has(name)), [], `${model}: nodes that the picture leaves out`);
  }
  const t5 = await see('t5', 't5-small', ...tiny, '--set', 'decoder_layers=3');
  await t5.selectOption('#block select', 'decoder.');
  assert.match(await t5.textContent('header'), /2 encoder layers[^]*3 decoder layers/);
  assert.ok((await boxes(t5)).includes('decoder.blocks.0.cross.mix'));
  assert.equal(await t5.getAttribute('.block-controls input', 'max'), '2');
  const names = await t5.$$eval('.largest .name', (list) => list.map((name) => name.textContent));
  assert.ok(names.every((name) => /\.\d+\.|^[^.]+\.weight$/.test(name) && !name.includes('\u2026')), `names lost their layer: ${names}`);
  const lenet = await see('lenet', 'lenet', '--no-remedies');
  const text = await lenet.evaluate(() => document.querySelector('main').innerText);
  assert.doesNotMatch(text, /token|heads|residual|attention|\bblock\b|Layer \d|\bbranch|the stream\b/i);
  assert.match(text, /Inside a stage[^]*max pool/);
  return opened;
});

test('a phone sees all of it', async (browser) => {
  const a = await open(browser, sick, { width: 390, height: 844, scale: 2, touch: true });
  const wide = await a.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${wide} pixels too wide`);
  await shot(a.page, 'phone', { fullPage: true });
  return [a];
});

test('paper', async (browser) => {
  const a = await open(browser, healthy, { dark: true });
  await a.page.emulateMedia({ media: 'print', colorScheme: 'light' });
  assert.equal(await a.page.isVisible('#theme'), false);
  await a.page.pdf({ path: join(folder, 'paper.pdf'), format: 'A4' });
  assert.ok(statSync(join(folder, 'paper.pdf')).size > 20000);
  return [a];
});

test('everything can be named: headings, landmarks, labels', async (browser) => {
  const a = await open(browser, healthy);
  const problems = await a.page.evaluate(() => {
    const list = [];
    if (document.querySelectorAll('h1').length !== 1) list.push('one h1');
    for (const one of ['main', 'header', 'footer']) if (!document.querySelector(one)) list.push(`no ${one}`);
    for (const b of document.querySelectorAll('button, a, input, select')) {
      const name = b.getAttribute('aria-label') || b.textContent.trim() || (b.labels && b.labels[0]?.textContent.trim());
      if (!name) list.push(`no name: ${b.outerHTML.slice(0, 80)}`);
    }
    for (const p of document.querySelectorAll('.plot')) if (!p.getAttribute('aria-label')) list.push('a chart without words');
    if (!document.documentElement.lang) list.push('no language');
    return list;
  });
  assert.deepEqual(problems, []);
  return [a];
});

test('a name is a name', async (browser) => {
  const names = ['<img src=x onerror=window.intruded=1>', '</script><script>window.intruded=1</script>', '"><svg onload=window.intruded=1>', 'a\u202eb'];
  const config = { model_type: 'gpt2', n_layer: 2, n_embd: 32, n_head: 2, vocab_size: 64, n_positions: 32 };
  const opened = [];
  let elements = null;
  for (const name of ['plain', ...names]) {
    const at = join(folder, 'models', encodeURIComponent(name).slice(0, 8), name.replace(/\//g, '\u2215'));
    mkdirSync(at, { recursive: true });
    writeFileSync(join(at, 'config.json'), JSON.stringify(config));
    const a = await open(browser, report(`named-${opened.length}`, at, '--seq-len', '24'));
    assert.equal(await a.page.evaluate(() => window.intruded), undefined);
    assert.equal(await a.page.textContent('h1'), name.replace(/\//g, '\u2215'));
    const count = await a.page.evaluate(() => document.querySelectorAll('*').length);
    elements ??= count;
    assert.equal(count, elements, `${name} changed the tree`);
    opened.push(a);
  }
  return opened;
});

test('deep models', async (browser) => {
  const opened = [];
  for (const [model, limit] of [['llama-3-70b', 1.5e6], ['llama-3-405b', 3e6]]) {
    const file = report(model, model, '--seq-len', '64');
    assert.ok(statSync(file).size < limit, `${statSync(file).size} bytes`);
    const start = performance.now();
    const a = await open(browser, file);
    console.log(`      ${model}: ${(statSync(file).size / 1000).toFixed(0)} kB, drawn after ${(performance.now() - start).toFixed(0)} ms`);
    await a.page.click('.everything [data-key="second_moment"]');
    await a.page.fill('.block-controls input', '79');
    assert.match(await a.page.textContent('.panel h3'), /79/);
    opened.push(a);
  }
  return opened;
});

test('the page of a training', async (browser) => {
  const file = join(folder, 'train.html');
  execFileSync(program, ['train', 'gpt2', ...small.slice(0, 4), '--set', 'layers=3', '--seq-len', '16', '--steps', '30', '--seeds', '2', '--compare-schemes', 'xavier-normal', '--html', file], { stdio: 'pipe' });
  const a = await open(browser, file);
  assert.match(await a.page.textContent('#verdict'), /4 runs: 4 fine/);
  for (const place of ['#loss .chart:nth-child(1)', '#loss .chart:nth-child(2)', '#depth .chart:nth-child(1)', '#depth .chart:nth-child(4)']) {
    assert.ok((await pixels(a.page, `${place} canvas`)).drawn > 2000, `${place} is empty`);
  }
  assert.equal((await a.page.$$('#runs tbody tr')).length, 4);
  const said = () => a.page.getAttribute('#depth .chart:nth-child(1) .plot', 'aria-label');
  const before = await said();
  await a.page.click('#depth .choice button:nth-child(2)');
  await a.page.waitForTimeout(50);
  assert.notEqual(await said(), before, 'another scheme, the same lines');
  await shot(a.page, 'train', { fullPage: true });
  const phone = await open(browser, file, { width: 390, height: 800, dark: true, touch: true });
  assert.ok(await phone.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'wider than the screen');
  await shot(phone.page, 'train-phone', { fullPage: true });
  return [a, phone];
});

const browser = await launch();
let failed = 0;
for (const [name, run] of tests) {
  const began = performance.now();
  try {
    const opened = await run(browser);
    for (const { context, problems } of opened) {
      assert.deepEqual(problems, [], 'the console is not silent');
      await context.close();
    }
    console.log(`ok    ${name}  (${((performance.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    ++failed;
    console.log(`FAILED ${name}\n      ${String(error.stack || error).split('\n').slice(0, 12).join('\n      ')}`);
  }
}
await browser.close();
console.log(`${tests.length - failed} passed, ${failed} failed; screenshots in ${folder.replace(`${root}/`, '')}`);
process.exit(failed ? 1 : 0);
