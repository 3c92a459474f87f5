// The page of a training: the loss with its spread over seeds, the signal and the gradient over the depth at the watched steps.
import { chart } from './chart.js';
import { announce, choice, h } from './dom.js';
import { amount, number } from './format.js';
import { startTheme, switchTheme } from './theme.js';

const data = JSON.parse(document.getElementById('data').textContent);
const colors = ['accent', 'over-1', 'over-2', 'over-3', 'over-4', 'over-5'];
const several = data.schemes.length > 1;
const colorOf = (k) => colors[k % colors.length];

function header() {
  const { model, data: on } = data;
  const facts = [`${amount(model.parameters)} parameters`, `${model.layers} layers`, `width ${model.width}`, `vocabulary ${model.vocab}`];
  const batch = `${on.accumulate > 1 ? `${on.accumulate} \u00d7 ` : ''}${on.batch} \u00d7 ${on.seq_len} tokens an update`;
  return h('header', { class: 'top' },
    h('div', { class: 'bar' }, h('span', { class: 'brand' }, 'stepzero'),
      h('button', { type: 'button', id: 'theme', class: 'quiet', onclick: () => announce(`${switchTheme()} colours`) }, 'Light / dark')),
    h('h1', null, model.name), h('p', { class: 'facts' }, facts.map((fact) => h('span', null, fact))),
    h('p', { class: 'facts second' }, [data.how, batch, on.source].map((fact) => h('span', null, fact))));
}

const mean = (list) => (list.length === 0 ? null : list.reduce((a, b) => a + b, 0) / list.length);
const known = (list) => list.filter((x) => x !== null && x !== undefined);

function verdict() {
  const runs = data.schemes.flatMap((s) => s.runs);
  const count = (outcome) => runs.filter((r) => r.outcome === outcome).length;
  const [diverged, stalled] = [count('diverged'), count('stalled')];
  const state = diverged > 0 ? 'error' : stalled > 0 ? 'warning' : 'good';
  const words = [diverged ? `${diverged} diverged` : '', stalled ? `${stalled} stalled` : '', `${count('fine')} fine`].filter(Boolean).join(', ');
  const own = data.schemes[0].runs;
  const tile = (name, value, sub) => h('div', { class: 'tile' }, h('dt', null, name), h('dd', null, value), h('dd', { class: 'sub' }, sub));
  const held = mean(known(own.map((r) => r.held_out)));
  return h('section', { id: 'verdict-section', class: 'verdict-section' }, h('div', { id: 'verdict', class: `verdict ${state}` },
    h('div', { class: 'verdict-text' }, h('h2', null, runs.length === 1 ? `The run: ${own[0].outcome}` : `${runs.length} runs: ${words}`),
      h('p', null, own[0].where ? `A number of ${own[0].where} is not finite.` : `A guess that knows nothing has a loss of ${number(data.uniform_loss)}.`)),
    h('dl', { class: 'tiles' }, tile('Loss, first', number(mean(known(own.map((r) => r.first)))), `scheme ${data.schemes[0].scheme}`),
      tile('Loss, last tenth', number(mean(known(own.map((r) => r.last)))), own.length > 1 ? `mean of ${own.length} seeds` : 'one seed'),
      tile('Held out', number(held), held === null ? 'nothing was held out' : 'at the end'),
      tile('Tokens a second', amount(Math.round(mean(own.map((r) => r.tokens_per_second)) || 0)), 'of one run'))));
}

// All curves on one axis: the steps of all schemes.
const steps = [...new Set(data.schemes.flatMap((s) => [...s.steps, ...s.held_out.map(([step]) => step)]))].sort((a, b) => a - b);
const place = new Map(steps.map((step, i) => [step, i]));
const spread = (from, values) => {
  const out = steps.map(() => null);
  from.forEach((step, k) => { out[place.get(step)] = values[k]; });
  // between two drawn steps of one scheme there may be a held-out one: the line goes on through it
  for (let i = 1; i + 1 < out.length; ++i) if (out[i] === null && out[i - 1] !== null && out[i + 1] !== null) out[i] = (out[i - 1] + out[i + 1]) / 2;
  return out;
};
const labels = steps.map((step) => `update ${step}`);

function curve(title, subtitle, key, log, note) {
  const lines = data.schemes.map((s, k) => ({ name: several ? s.scheme : title.toLowerCase(), color: colorOf(k), values: spread(s.steps, s[key]),
    band: key === 'loss' && s.runs.length > 1 ? spread(s.steps, s.spread) : undefined }));
  if (key === 'loss') {
    data.schemes.forEach((s, k) => s.held_out.length > 0 && lines.push({ name: several ? `${s.scheme}, held out` : 'held out', color: several ? colorOf(k) : 'ink', points: true,
      values: (() => { const out = steps.map(() => null); s.held_out.forEach(([step, loss]) => { out[place.get(step)] = loss; }); return out; })() }));
  }
  const all = known(lines.flatMap((line) => line.values));
  return chart({ title, subtitle, labels, log, lines, note, range: log ? undefined : [Math.min(...all) - 0.05 * (Math.max(...all) - Math.min(...all)), Math.max(...all) * 1.02],
    guides: key === 'loss' ? [{ name: 'knows nothing', value: data.uniform_loss }] : [],
    summary: `${title}: ${lines.map((line) => `${line.name} from ${number(known(line.values)[0])} to ${number(known(line.values).at(-1))}`).join('; ')}. Arrow keys walk over the updates.` }).element;
}

// Of one scheme: a line for every watched step, the later the stronger.
function depthSection() {
  if (data.schemes.every((s) => s.depth.length === 0)) return null;
  let chosen = data.schemes.findIndex((s) => s.depth.length > 0);
  const shades = ['faint', 'over-5', 'over-3', 'over-2', 'over-1', 'accent'];
  const made = [
    ['Signal', 'Size (rms) of the residual stream entering each layer', 'signal', true],
    ['Gradient', 'Norm of the loss\u2019s gradient arriving at each layer', 'gradient', true],
    ['Token similarity', 'Mean cosine between different tokens', 'cosine', false],
    ['Attention', 'Entropy of the attention weights, in nats', 'entropy', false],
  ];
  const describe = ([title, subtitle, key, log]) => {
    const { depth } = data.schemes[chosen];
    const lines = depth.map((w, i) => ({ name: `update ${w.step}`, values: w[key].map((x) => (log && !(x > 0) ? null : x)),
      color: shades[Math.max(0, shades.length - depth.length + i)] || 'accent', thin: i + 1 < depth.length }));
    const count = lines[0].values.length;
    return { title, subtitle, log, lines, labels: Array.from({ length: count }, (_, l) => (key !== 'entropy' && l === count - 1 ? 'end' : `layer ${l}`)),
      summary: `${title} over the depth: ${lines.map((line) => `${line.name} ${number(line.values[0])} to ${number(line.values.at(-1))}`).join('; ')}` };
  };
  const charts = made.filter(([, , key]) => data.schemes[chosen].depth[0][key].length > 0);
  const elements = charts.map((c) => chart(describe(c)));
  const pick = several ? choice('Which scheme', data.schemes.map((s, k) => [k, s.scheme]).filter(([k]) => data.schemes[k].depth.length > 0), chosen, (k) => {
    chosen = k;
    elements.forEach((e, i) => e.update(describe(charts[i])));
  }) : null;
  return h('section', { id: 'depth', 'aria-labelledby': 'depth-title' }, h('div', { class: 'head' }, h('h2', { id: 'depth-title' }, 'Through the depth, as it trains'), pick),
    h('p', { class: 'lead' }, 'One line a watched update, on the batch of that update.'), h('div', { class: 'charts' }, elements.map((e) => e.element)));
}

function table() {
  const heads = ['Scheme', 'Seed', 'Outcome', 'Updates', 'Loss, first', 'Loss, last tenth', 'Held out', 'Tokens/s'];
  const rows = data.schemes.flatMap((s, k) => s.runs.map((r) => h('tr', null, h('th', { scope: 'row' }, h('i', { class: `key ${colorOf(k)}` }), s.scheme),
    h('td', { class: 'n', 'data-label': 'Seed' }, r.seed),
    h('td', { 'data-label': 'Outcome' }, h('span', { class: `dot ${r.outcome === 'fine' ? 'good' : r.outcome === 'stalled' ? 'warning' : 'error'}` }), r.where ? `${r.outcome} at ${r.where}` : r.outcome),
    ...[r.updates, r.first, r.last, r.held_out, r.tokens_per_second].map((x, i) => h('td', { class: 'n', 'data-label': heads[3 + i] }, i === 0 ? x : number(x))))));
  return h('section', { id: 'runs', 'aria-labelledby': 'runs-title' }, h('h2', { id: 'runs-title' }, 'Runs'),
    h('div', { class: 'scroll' }, h('table', { class: 'schemes' }, h('thead', null, h('tr', null, heads.map((t, i) => h('th', { scope: 'col', class: i === 1 || i > 2 ? 'n' : '' }, t)))), h('tbody', null, rows))));
}

startTheme();
document.title = `${data.model.name}, trained \u2013 stepzero`;
const note = data.schemes.some((s) => s.runs.length > 1) ? 'The line is the mean over seeds, its band one standard deviation; points are the held-out text.' : 'Points are the held-out text.';
document.getElementById('page').replaceChildren(header(), h('main', null, verdict(),
  h('section', { id: 'loss', 'aria-labelledby': 'loss-title' }, h('h2', { id: 'loss-title' }, 'As it trains'), h('p', { class: 'lead' }, note),
    h('div', { class: 'charts' }, curve('Loss', 'Cross-entropy before each update, in nats', 'loss', false), curve('Gradient', 'Norm of the whole gradient, before it is clipped', 'gradient', true))),
  depthSection() || '', table()),
h('footer', null, h('h2', null, 'Made by'), h('pre', null, h('code', { id: 'command' }, data.command)), h('p', { class: 'meta' }, `stepzero ${data.version}`)));
document.documentElement.dataset.ready = 'true';
