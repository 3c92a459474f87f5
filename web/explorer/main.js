// The explorer: a setting, the module's answers to it, and everything that shows them.
import { announce, h } from '../src/dom.js';
import { startTheme, switchTheme } from '../src/theme.js';
import { chartsSection } from './charts.js';
import { controlsSection } from './controls.js';
import { Explorer, load } from './engine.js';
import { mostPins, pinsRow } from './pins.js';
import { shareSection } from './share.js';
import { depths } from './signal.js';
import { fromFragment, request, start, title, toFragment } from './state.js';
import { sweepSection } from './sweep.js';
import { tableSection } from './table.js';
import { updateSection } from './update.js';
import { verdictSection, verdictOf } from './verdict.js';
import { whyDialog } from './why.js';

startTheme();
const page = document.getElementById('page');
page.replaceChildren(h('p', { class: 'loading' }, 'Unpacking the program\u2026'));

const { spawn, has } = await load();
const explorer = new Explorer(spawn);
const side = { thread: spawn() };  // lists, descriptions, base models
const sweeper = { thread: null };
const parsed = (answer) => JSON.parse(answer.texts.json);

let state = await fromFragment(location.hash);
let base = null;  // of the model without settings
let baseOf = '';
let shown = null;  // {asked, signal, stage, last}: the last answer
let ghost = null;  // the last one before this setting
let quickTokens = 16;
let built = false;  // whether there is anything to show answers in
let told = null;  // an answer that came before
let frame = 0;
const pinned = new Map();  // signals of the pins, by their settings
ask();

const { schemes } = parsed(await side.thread.call('sz_schemes'));
const { ops, findings } = parsed(await side.thread.call('sz_explain'));
const meanings = new Map(findings.map((f) => [f.id, f]));

// One call at a time of the thread beside the explorer's.
let queue = Promise.resolve();
const aside = (name, asked) => (queue = queue.then(() => side.thread.call(name, asked)));

function keyOf(s) {
  return JSON.stringify([s.model, s.text, s.scheme, s.set, s.more, s.tokens]);
}

const why = whyDialog();
why.learn(ops);
const explain = (kind, grade) => why.open(kind, grade);
const verdict = verdictSection(explain);
const charts = chartsSection(explain);
const table = tableSection(explain);
const share = shareSection();
const update = updateSection(spawn);
const pins = pinsRow({ pin: addPin, unpin: (i) => change({ ...state, pins: state.pins.filter((_, k) => k !== i) }, true), go: (s) => change({ ...s, pins: state.pins, sweep: state.sweep }, true) });
const controls = controlsSection({ schemes, describe, steps: has('sz_step') }, change);
const sweep = sweepSection({
  schemes,
  run: (s, tokens) => {
    sweeper.thread ??= spawn();
    return sweeper.thread.call('sz_predict', { ...request(s, tokens), effort: 0.002 });
  },
  stop: () => {
    sweeper.thread?.end();
    sweeper.thread = null;
  },
  current: () => ({ state, base }),
  go: (s) => change({ ...s, pins: state.pins, sweep: state.sweep }, true),
  changed: (map) => {
    state = { ...state, sweep: map };
    remember();
  },
});

async function describe(s) {
  const { texts } = await aside('sz_describe', { model: request(s).model, set: request(s).set, scheme: s.scheme });
  if (texts.error) announce(texts.error);
  return texts.text || texts.json;
}

let remembering = 0;
async function remember() {
  const turn = ++remembering;
  const fragment = await toFragment(state);
  if (turn !== remembering) return;
  history.replaceState(null, '', `#${fragment}`);
  share.show(state);
}

// A first answer at few tokens and little sampling, then at all tokens, then with the sampling of the command line.
function stagesOf(s) {
  const few = Math.min(quickTokens, s.tokens);
  const stage = (tokens, effort) => ({ name: 'sz_predict', tokens, effort, request: { ...request(s, tokens), ...(effort < 1 ? { effort } : {}) } });
  return [stage(few, 0.002), ...(few < s.tokens ? [stage(s.tokens, 0.002)] : []), stage(s.tokens, 0.03), stage(s.tokens, 1)];
}

function stageText({ tokens, effort }, s) {
  if (effort === 1) return 'final \u00b7 as the program says';
  if (tokens < s.tokens) return `refining \u00b7 ${tokens} of ${s.tokens} tokens, little sampling`;
  return effort < 0.01 ? 'refining \u00b7 little sampling' : 'refining \u00b7 more sampling';
}

function curves(signal) {
  return { depths: depths(signal) };
}

function draw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => {
    const { signal, asked, stage, last } = shown;
    const kept = state.pins.map((p) => pinned.get(keyOf(p)) && { title: title(p), ...pinned.get(keyOf(p)) }).filter(Boolean);
    verdict.show(signal, meanings, stageText(stage, asked), last);
    charts.show(signal, ghost && ghost.key !== keyOf(asked) ? ghost.curves : null, kept);
    table.show(signal);
    document.documentElement.dataset.state = last ? 'done' : 'refining';
    document.documentElement.dataset.answer = `${keyOf(asked)}${state.pins.length}`;
    document.documentElement.dataset.ready = 'true';
  });
}

function ask() {
  const asked = state;
  const stages = stagesOf(asked);
  if (shown && keyOf(shown.asked) !== keyOf(asked)) verdict.waiting('refining \u2026');
  document.documentElement.dataset.state = 'refining';
  const see = (answer, k) => {
    if (!built) {
      told = () => see(answer, k);
      return;
    }
    if (answer.texts.error) {
      verdict.fail(answer.texts.error, answer.texts.hint);
      document.documentElement.dataset.state = 'failed';
      document.documentElement.dataset.ready = 'true';
      return;
    }
    const stage = stages[k];
    // where all tokens are quick, the first answer has them all
    if (stage.effort < 0.01) quickTokens = answer.milliseconds < 45 ? Math.max(quickTokens, Math.min(asked.tokens, 2 * stage.tokens)) : answer.milliseconds > 120 ? 16 : quickTokens;
    shown = { asked, signal: parsed(answer), stage, last: k + 1 === stages.length, milliseconds: answer.milliseconds };
    document.documentElement.dataset.milliseconds = answer.milliseconds.toFixed(1);
    draw();
    if (shown.last) announce(`${verdictOf(shown.signal.findings).text}. Loss ${shown.signal.loss.predicted.toFixed(3)}.`);
  };
  explorer.ask(stages, see);
}

// What the sliders are relative to: the model as it is.
async function learnBase() {
  const bare = { ...start, model: state.model, text: state.text };
  const key = JSON.stringify([bare.model, bare.text]);
  if (key === baseOf) return;
  baseOf = key;
  const answer = await aside('sz_predict', { ...request(bare, 4), effort: 0.001, order: 'limit' });
  if (key !== baseOf) return;
  base = answer.texts.error ? {} : parsed(answer).model;
  controls.show(state, base);
}

let settled = null;  // the setting before the slider moved
function change(next, final = true) {
  const same = keyOf(next) === keyOf(state);
  if (!same && settled === null && shown) settled = { key: keyOf(shown.asked), curves: curves(shown.signal) };
  if (!same && next.model !== state.model) quickTokens = 16;
  state = next;
  if (!same) ghost = settled ?? ghost;
  if (final) settled = null;
  controls.show(state);
  pins.show(state.pins);
  update.show(state);
  learnBase();
  if (!same) ask();
  else if (shown) draw();
  remember();
}

async function addPin() {
  if (state.pins.length >= mostPins || !shown) return;
  const pin = { ...state, pins: [], sweep: null };
  if (state.pins.some((p) => keyOf(p) === keyOf(pin))) return;
  pinned.set(keyOf(pin), curves(shown.signal));
  change({ ...state, pins: [...state.pins, pin] });
  announce(`Pinned ${title(pin)}`);
}

// Pins that came with the address are asked for once.
async function loadPins() {
  for (const pin of state.pins) {
    if (pinned.has(keyOf(pin))) continue;
    const answer = await aside('sz_predict', { ...request(pin, pin.tokens), effort: 0.002 });
    if (answer.texts.error) continue;
    pinned.set(keyOf(pin), curves(parsed(answer)));
    if (shown) draw();
  }
}

const help = h('dialog', { id: 'help', 'aria-labelledby': 'help-title' }, h('form', { method: 'dialog' }, h('button', { class: 'quiet close', 'aria-label': 'Close' }, '\u00d7')),
  h('h2', { id: 'help-title' }, 'Keys'), h('dl', { class: 'keys' }, [['/', 'to the settings'], ['p', 'pin these curves'], ['u', 'unpin the last'], ['m', 'map it'], ['0', 'the model as it is'], ['c', 'copy'], ['t', 'light or dark'], ['arrows', 'walk over a chart or a map']]
    .flatMap(([key, what]) => [h('dt', null, h('kbd', null, key)), h('dd', null, what)])),
  h('p', { class: 'meta' }, 'Everything on this page is computed here, by the program itself. Nothing is sent or loaded.'));
const keys = {
  '?': () => help.showModal(), '/': () => controls.focus(), p: addPin, m: () => sweep.run(), t: () => announce(`${switchTheme()} colours`), c: () => document.getElementById('copy').click(),
  u: () => change({ ...state, pins: state.pins.slice(0, -1) }), 0: () => change({ ...state, set: {}, more: '' }),
};
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== 'range' || document.querySelector('dialog[open]')) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
document.addEventListener('dragover', (event) => event.preventDefault());
document.addEventListener('drop', (event) => {
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  if (file) controls.dropped(file);
});
window.addEventListener('hashchange', async () => {
  const next = await fromFragment(location.hash);
  change(next);
  sweep.choose(next.sweep);
  loadPins();
});

page.replaceChildren(
  h('header', { class: 'bar' }, h('span', { class: 'brand' }, 'stepzero', h('span', { class: 'meta' }, ' explorer')),
    h('div', { class: 'row' }, h('button', { type: 'button', class: 'quiet', onclick: () => help.showModal() }, 'Keys'), h('button', { type: 'button', id: 'theme', class: 'quiet', onclick: () => announce(`${switchTheme()} colours`) }, 'Light / dark'))),
  h('div', { class: 'layout' },
    h('aside', null, controls.element),
    h('main', null, verdict.element, pins.element, charts.element, verdict.findings, update.element, sweep.element, table.element, share.element)),
  why.element, help);
built = true;
sweep.choose(state.sweep);
controls.show(state);
pins.show(state.pins);
told?.();
if (has('sz_step')) update.show(state);
remember();
await learnBase();
loadPins();
const counter = spawn();
controls.offer(parsed(await counter.call('sz_models')).models);
document.documentElement.dataset.models = 'true';
counter.end();
