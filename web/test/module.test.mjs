// The module of web/explorer.html is this program: its numbers beside those of the command line, without a browser.
//   node test/module.test.mjs [PROGRAM [MODULE.wasm]]
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { start } from '../explorer/calls.js';
import { unpackLzma } from '../explorer/lzma.js';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const program = resolve(process.argv[2] || join(root, 'build/release/stepzero'));
const packed = () => unpackLzma(Buffer.from(/id="module">([^<]*)</.exec(readFileSync(join(root, 'web/explorer.html'), 'utf8'))[1], 'base64'));
const call = await start(await WebAssembly.compile(process.argv[3] ? readFileSync(process.argv[3]) : packed()));

// The largest differences of all values, {predicted, spread}, and where. A value's scale is its own size: of a cosine 1, of a mean the
// root of the mean square; what both have below a millionth of the
// whole gradient is 0 (a key's bias). Squares count half. A spread is held against its value.
function compared(a, b) {
  const worst = { predicted: { off: 0, path: '' }, spread: { off: 0, path: '' } };
  const least = 1e-6 * a.gradient_norm.predicted;
  (function walk(x, y, path, rms) {
    if (path.startsWith('/findings')) return;
    if (x === null || typeof x !== 'object') {
      assert.deepEqual(x, y, path);
      return;
    }
    assert.deepEqual(Object.keys(x), Object.keys(y ?? {}), path);
    if (!('predicted' in x)) {
      const root = Math.sqrt(x.second_moment?.predicted ?? 0);
      for (const key of Object.keys(x)) walk(x[key], y[key], `${path}/${x[key]?.name ?? key}`, root);
      return;
    }
    const square = /second_moment|variance$/.test(path);
    if (!square && /norm$/.test(path) && Math.max(Math.abs(x.predicted), Math.abs(y.predicted)) < least) return;
    const scale = path.endsWith('cosine') ? 1 : path.endsWith('/mean') ? rms : Math.max(Math.abs(x.predicted), 1e-300) * (square ? 2 : 1);
    for (const key of Object.keys(x)) {
      const off = Math.abs(x[key] - y[key]) / scale;
      if (!(off <= worst[key].off)) worst[key] = { off, path };
    }
  })(a, b, '', 0);
  return worst;
}

// Heads that are sampled are averages of floats, which two SIMD levels round apart; so are all spreads, of fewer heads.
const floats = 1e-7;
const spreads = 1e-6;
const cases = [
  ...[['gpt2'], ['bert-base'], ['opt-125m'], ['vit-base', 'layers=3'], ['gpt2', 'width=64', 'heads=4', 'vocab=512', 'activation=relu']].map((model) => [model, 1e-12]),
  ...[['lenet'], ['llama-3-8b'], ['t5-small'], ['mixtral-8x7b'], ['gpt2', 'layers=3', 'norm_placement=post', 'scheme:deepnet'], ['gpt2', 'layers=4', 'scheme:xavier-normal'], ['gemma-2b'], ['mistral-7b']].map((model) => [model, floats]),
  [['resnet-8'], 1e-6],  // batch norm's eigenvalues: another decomposition than LAPACK's
];

let failed = 0;
for (const [[model, ...rest], bound] of cases) {
  const scheme = rest.find((r) => r.startsWith('scheme:'))?.slice(7) ?? 'hf';
  const set = rest.filter((r) => !r.startsWith('scheme:'));
  const image = /^(vit|resnet|lenet)/.test(model);
  const began = performance.now();
  const texts = call('sz_predict', { model, set, scheme, effort: 0.002, ...(image ? {} : { seq_len: 16 }) });
  const milliseconds = performance.now() - began;
  const theirs = execFileSync(program, ['predict', model, ...set.flatMap((s) => ['--set', s]), '--scheme', scheme, '--effort', '0.002', ...(image ? [] : ['--seq-len', '16']), '--json', '--quiet', '--no-remedies'],
    { maxBuffer: 1 << 28, env: { ...process.env, OMP_NUM_THREADS: '1', GOMP_SPINCOUNT: '100' } });
  assert.ok(!texts.error, texts.error);
  const { predicted, spread } = compared(JSON.parse(texts.json), JSON.parse(theirs));
  const fine = predicted.off <= bound && spread.off <= spreads;
  if (!fine) ++failed;
  console.log(`${fine ? 'ok  ' : 'FAIL'} ${[model, ...rest].join(' ').padEnd(52)} predicted ${predicted.off.toExponential(1)} of ${bound}, spread ${spread.off.toExponential(1)}  ${milliseconds.toFixed(0)} ms ${fine ? '' : `${predicted.path} ${spread.path}`}`);
}
// what goes wrong is told as the command line tells it
const refused = call('sz_predict', { model: 'gpt2', set: ['heads=7'] });
assert.match(refused.error, /heads = 7 does not divide width = 768/);
assert.match(call('sz_predict', { model: 'gtp2' }).error, /did you mean gpt2/);
assert.match(call('sz_predict', { model: '{"model_type": 3}' }).error, /model_type/);
assert.equal(JSON.parse(call('sz_predict', { model: '{"model_type": "gpt2", "n_layer": 2}', seq_len: 8 }).json).model.layers, 2);
assert.match(call('sz_describe', { model: 'gpt2' }).text, /arch\(/);
if (failed > 0) {
  console.error('web/explorer.html holds another program than the command line: ./dev explorer builds it anew');
  process.exit(1);
}
