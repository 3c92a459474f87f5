// The explorer in a browser, from the disk, without a network: every control, what the page shows, keeps and refuses.
//   node test/explorer.test.mjs [PROGRAM [FOLDER]]: screenshots are left in FOLDER
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch, open } from '../browser.mjs';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const program = resolve(process.argv[2] || join(root, 'build/release/stepzero'));
const folder = resolve(process.argv[3] || join(root, 'build/explorer'));
const file = join(root, 'web/explorer.html');
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const tests = [];
const test = (name, run) => tests.push([name, run]);
const shot = (page, name, options = {}) => page.screenshot({ path: join(folder, `${name}.png`), ...options });
const small = 'model=gpt2&set=width%3D64&set=heads%3D4&set=layers%3D4&set=vocab%3D512&seq_len=16';
const at = (fragment, options) => (browser) => open(browser, `${file}#${fragment}`, options);

// After an action: the answer to the new setting is on the page.
async function after(page, action) {
  const before = await page.evaluate(() => document.documentElement.dataset.answer);
  await action();
  await page.waitForFunction((old) => document.documentElement.dataset.answer !== old, before, { timeout: 20000 });
}
const final = (page) => page.waitForFunction(() => document.documentElement.dataset.state === 'done', null, { timeout: 60000 });
const tile = async (page, n) => (await page.textContent(`.tile:nth-child(${n}) .value`));
const fragment = async (page) => page.evaluate(() => location.hash);
const facts = (page) => page.textContent('.title .facts');

test('it is small enough, and opens with a verdict, four charts and no request', async (browser) => {
  assert.ok(statSync(file).size <= 900_000, `${statSync(file).size} bytes`);
  const a = await at('')(browser);
  assert.equal(await a.page.textContent('#model'), 'gpt2');
  assert.match(await a.page.textContent('#verdict'), /Nothing stands out|Fine|warning|error/);
  assert.equal(await a.page.locator('.cell:not([hidden]) canvas').count(), 4);
  return [a];
});

test('the policy is in force', async (browser) => {
  const a = await at(small)(browser);
  const seen = await a.page.evaluate(async () => {
    const script = document.createElement('script');
    script.textContent = 'window.intruded = true';
    document.body.append(script);
    let fetched = true;
    try { await fetch('http://127.0.0.1:9/'); } catch { fetched = false; }
    return { intruded: Boolean(window.intruded), fetched };
  });
  assert.deepEqual(seen, { intruded: false, fetched: false });
  a.problems.length = 0;  // what was refused is told on the console
  return [a];
});

test('the final answer is what the copied command line prints', async (browser) => {
  const a = await at(small)(browser);
  await final(a.page);
  const command = await a.page.textContent('#shared');
  assert.equal(command, 'stepzero predict gpt2 --set width=64 --set heads=4 --set layers=4 --set vocab=512 --seq-len 16');
  const signal = JSON.parse(execFileSync(program, [...command.split(' ').slice(1), '--json', '--quiet', '--no-remedies'], { maxBuffer: 1 << 28 }));
  assert.equal(await tile(a.page, 1), String(Number(signal.loss.predicted.toPrecision(4))));
  assert.equal(await tile(a.page, 2), String(Number(signal.gradient_norm.predicted.toPrecision(4))));
  await a.page.click('[data-form="python"]');
  assert.match(await a.page.textContent('#shared'), /stepzero\.load\("gpt2", set=\{"width": 64, "heads": 4, "layers": 4, "vocab": 512\}\)\nmodel\.predict\(seq_len=16\)/);
  await a.page.click('[data-form="link"]');
  assert.match(await a.page.textContent('#shared'), /^file:.*#model=gpt2&set=width%3D64/);
  return [a];
});

test('every slider and field moves the model', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  for (const [key, text] of [['layers', '6'], ['width', '128'], ['heads', '8'], ['init_std', '0.05']]) {
    const loss = [await tile(page, 1), await tile(page, 2), await facts(page)].join();
    await after(page, async () => { await page.fill(`#field-${key}`, text); await page.press(`#field-${key}`, 'Enter'); });
    assert.notEqual([await tile(page, 1), await tile(page, 2), await facts(page)].join(), loss, key);
    assert.match(await fragment(page), new RegExp(`set=${key}%3D${text}`));
    await after(page, async () => { await page.focus(`#range-${key}`); await page.press(`#range-${key}`, key === 'heads' ? 'ArrowLeft' : 'ArrowRight'); });
    assert.doesNotMatch(await fragment(page), new RegExp(`set=${key}%3D${text}(&|$)`));
    await after(page, () => page.click(`[data-key="${key}"] .reset`));
    assert.doesNotMatch(await fragment(page), new RegExp(`set=${key}%3D`));
  }
  await after(page, async () => { await page.fill('#field-seq_len', '24'); await page.press('#field-seq_len', 'Enter'); });
  assert.match(await fragment(page), /seq_len=24/);
  return [a];
});

test('every choice moves the model', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  for (const [key, value] of [['norm_placement', 'post'], ['norm', 'rmsnorm'], ['activation', 'relu']]) {
    await after(page, () => page.selectOption(`#field-${key}`, value));
    assert.match(await fragment(page), new RegExp(`set=${key}%3D${value}`));
  }
  await after(page, () => page.selectOption('#field-scheme', 'xavier-normal'));
  assert.match(await fragment(page), /scheme=xavier-normal/);
  assert.match(await facts(page), /xavier-normal/);
  await after(page, async () => { await page.fill('#field-more', 'tied=false'); await page.press('#field-more', 'Enter'); });
  assert.match(await fragment(page), /more=tied%3Dfalse/);
  await page.waitForSelector('html[data-models]', { timeout: 90000 });
  await after(page, () => page.selectOption('#field-model', 'opt-125m'));
  assert.equal(await page.textContent('#model'), 'opt-125m');
  assert.match(await fragment(page), /model=opt-125m/);
  return [a];
});

test('a width brings heads that divide it; what cannot be is told, and the last answer stays', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  await after(page, async () => { await page.fill('#field-heads', '16'); await page.press('#field-heads', 'Enter'); }).catch(() => {});
  await page.fill('#field-heads', '7');
  await page.press('#field-heads', 'Enter');
  await page.waitForSelector('#trouble:not([hidden])');
  assert.match(await page.textContent('#trouble'), /heads = 7 does not divide width = 64/);
  assert.match(await tile(page, 1), /\d/);
  await after(page, () => page.click('[data-key="heads"] .reset')).catch(() => {});
  await page.waitForSelector('#trouble', { state: 'hidden' });
  return [a];
});

test('the last setting is a ghost; four settings can be pinned', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  const lines = () => page.$$eval('[data-chart="size"] .legend button', (list) => list.map((b) => b.textContent));
  assert.deepEqual(await lines(), ['now']);
  for (let k = 1; k <= 4; ++k) {
    await page.click('#pin');
    await after(page, async () => { await page.fill('#field-layers', String(4 + k)); await page.press('#field-layers', 'Enter'); });
  }
  assert.equal((await lines()).length, 6);
  assert.ok((await lines()).includes('before'));
  assert.equal(await page.isDisabled('#pin'), true);
  assert.equal((await fragment(page)).match(/pin=/g).length, 4);
  await page.click('.pins li:first-child .reset');
  assert.equal((await lines()).length, 5);
  await after(page, () => page.click('.pins li:first-child .link'));
  assert.equal(await page.inputValue('#field-layers'), '5');
  return [a];
});

test('the address holds the whole state, exactly', async (browser) => {
  const config = JSON.stringify({ model_type: 'gpt2', n_layer: 3, n_embd: 96, n_head: 6, note: '\u00fc &=#%' });
  const a = await at(`${small}&scheme=he&more=tied%3Dfalse&sweep=width,none,loss`)(browser);
  await a.page.click('#pin');
  await a.page.click('#texts summary');
  await a.page.fill('#text', config);
  await after(a.page, () => a.page.click('#use'));
  await a.page.waitForFunction(() => /text=/.test(location.hash) && /pin=/.test(location.hash));
  const first = await fragment(a.page);
  assert.ok(first.length < 2000, first);
  const b = await at(first.slice(1))(browser);
  await b.page.waitForFunction((wanted) => location.hash === wanted, first);
  assert.equal(await b.page.inputValue('#text'), config);
  assert.equal(await tile(b.page, 1) !== '', true);
  assert.equal(await b.page.inputValue('#sweep-x'), 'width');
  assert.equal(await b.page.locator('.pins li').count(), 1);
  return [a, b];
});

test('an architecture file is written out, edited and used; a file can be dropped', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  await page.click('#texts summary');
  await page.click('#describe');
  await page.waitForFunction(() => document.getElementById('text').value.includes('arch('));
  await after(page, () => page.click('#use'));
  assert.match(await fragment(page), /text=/);
  await after(page, () => page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(['{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2}'], 'config.json'));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }));
  assert.match(await facts(page), /2 layers/);
  assert.match(await page.textContent('#shared'), /predict config\.json/);
  return [a];
});

test('a map: cells are numbers, the keyboard walks, a click goes there', async (browser) => {
  const a = await at(`${small}&sweep=layers,init_std,gradient`)(browser);
  const { page } = a;
  await page.click('#sweep-run');
  await page.waitForFunction(() => / cells in /.test(document.getElementById('sweep-note').textContent), null, { timeout: 60000 });
  const cells = page.locator('.cell-value');
  const count = await cells.count();
  assert.ok(count >= 60, `${count} cells`);
  const colours = new Set(await cells.evaluateAll((list) => list.map((c) => c.style.background)));
  assert.ok(colours.size > 10, `${colours.size} colours`);
  await cells.first().focus();
  await page.keyboard.press('ArrowRight');
  const label = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  assert.match(label, /^Layers \d+, Weight std [\d.]+: [\d.]+/);
  const layers = /^Layers (\d+)/.exec(label)[1];
  await after(page, () => page.keyboard.press('Enter'));
  assert.match(await fragment(page), new RegExp(`set=layers%3D${layers}(&|$)`));
  await shot(page, 'map', { fullPage: true });
  return [a];
});

test('every number has its grade and why', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  await page.click('#numbers summary');
  const rows = await page.locator('#numbers tbody tr').count();
  assert.equal(await page.locator('#numbers tbody .grade').count(), rows);
  await page.fill('#filter', 'attn.mix');
  assert.equal(await page.locator('#numbers tbody tr').count(), 4);
  await page.click('#numbers tbody .grade');
  assert.match(await page.textContent('#why'), /Push[\s\S]*Derived in docs\/derivations\/attention\.md/);
  await page.keyboard.press('Escape');
  await page.click('[data-view="parameters"]');
  await page.fill('#filter', 'wte');
  assert.match(await page.textContent('#numbers tbody'), /512 \u00d7 64/);
  await page.click('.tile:nth-child(1) .value');
  assert.match(await page.textContent('#why-title'), /cross entropy/);
  await page.click('#why .close');
  await page.click('[data-chart="entropy"] .why');
  assert.match(await page.textContent('#why-title'), /attention/);
  return [a];
});

test('the keyboard does what buttons do', async (browser) => {
  const a = await at(small)(browser);
  const { page } = a;
  await page.keyboard.press('p');
  assert.equal(await page.locator('.pins li').count(), 1);
  await page.keyboard.press('u');
  assert.equal(await page.locator('.pins li').count(), 0);
  await after(page, () => page.keyboard.press('0'));
  assert.equal(await fragment(page), '#model=gpt2&seq_len=16');
  await page.keyboard.press('?');
  assert.ok(await page.isVisible('#help'));
  await page.keyboard.press('Escape');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'field-model');
  const unnamed = await page.$$eval('button, input, select, textarea', (list) => list.filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim() || document.querySelector(`label[for="${e.id}"]`))).map((e) => e.outerHTML));
  assert.deepEqual(unnamed, []);
  return [a];
});

test('dark, light and a telephone', async (browser) => {
  const sick = 'model=gpt2&set=layers%3D24&set=norm_placement%3Dpost&scheme=xavier-normal&seq_len=32';
  const a = await at('', { dark: true })(browser);
  const ground = () => a.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await shot(a.page, 'dark', { fullPage: true });
  await a.page.keyboard.press('t');
  assert.notEqual(await ground(), dark);
  const b = await at(sick, { width: 390, height: 844, scale: 2, touch: true })(browser);
  assert.equal(await b.page.evaluate(() => document.documentElement.scrollWidth), 390);
  const tops = await b.page.evaluate(() => ['answer', 'depth', 'controls'].map((id) => document.getElementById(id).getBoundingClientRect().top));
  assert.ok(tops[0] < tops[1] && tops[1] < tops[2], `verdict, charts, settings: ${tops}`);
  await shot(b.page, 'telephone', { fullPage: true });
  const c = await at(sick)(browser);
  await shot(c.page, 'desktop-sick', { fullPage: true });
  const d = await at('model=gpt2&set=layers%3D24')(browser);
  await d.page.click('#pin');
  await after(d.page, () => d.page.selectOption('#field-norm_placement', 'post'));
  await shot(d.page, 'desktop', { fullPage: true });
  return [a, b, c, d];
});

const browser = await launch();
let failed = 0;

// Two at a time: each waits for its page most of the while.
async function some(list) {
  for (let next = list.shift(); next; next = list.shift()) {
    const [name, run] = next;
    const began = performance.now();
    try {
      for (const { context, problems } of await run(browser)) {
        assert.deepEqual(problems, []);
        await context.close();
      }
      console.log(`ok      ${name}  (${((performance.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      ++failed;
      console.error(`FAILED  ${name}\n${error.stack}`);
    }
  }
}
const list = [...tests];
await Promise.all([some(list), some(list)]);
await browser.close();
console.log(`${tests.length - failed} passed, ${failed} failed; screenshots in ${folder.replace(`${root}/`, '')}`);
process.exit(failed > 0 ? 1 : 0);
