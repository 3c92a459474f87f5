// The verdict first, then each finding: what, where, why, what to do.
import { data, isImages, layerOf, place } from './data.js';
import { announce, h } from './dom.js';
import { best, number, uncertainty } from './format.js';

const words = { error: 'Error', warning: 'Warning', note: 'Note' };

function worst() {
  for (const severity of ['error', 'warning']) {
    if (data.findings.some((f) => f.severity === severity)) return severity;
  }
  return 'good';
}

const sentences = {
  error: 'Something here is likely to break training: begin with the first finding.',
  warning: 'It will run, but something deserves a change before you spend compute.',
  good: 'Nothing stands out at step zero. What training does later is not judged here.',
};

function tile(label, value, note) {
  return h('div', { class: 'tile' }, h('dt', null, label), h('dd', null, value), h('dd', { class: 'sub' }, note));
}

const plusMinus = (v) => {
  const around = uncertainty(v);
  return around ? `\u00b1 ${number(around, 2)}` : '';
};

function tiles() {
  const { loss, gradient_norm: gradient, growth, depths } = data;
  const cosine = depths[0]?.cosine;
  const list = (cosine && (cosine.m || cosine.p)) || [];
  const end = list[list.length - 1];
  const signal = (depths[0]?.signal.m || depths[0]?.signal.p || []).map(Math.sqrt);
  return h('dl', { class: 'tiles' },
    tile('Loss at step 0', number(best(loss)), `${plusMinus(loss)} \u00b7 uniform guess ${number(data.uniform_loss)}`.replace(/^ \u00b7 /, '')),
    tile('Gradient norm', number(best(gradient)), plusMinus(gradient)),
    tile('Signal, first to last', `${number(signal[0], 2)} \u2192 ${number(signal[signal.length - 1], 2)}`, best(growth.forward) === undefined ? '' : `rms, e^${number(best(growth.forward) / 2, 2)} a ${place}`),
    isImages ? null : tile('Token cosine, end', number(end, 4), end === undefined ? '' : end > 0.95 ? 'tokens have collapsed' : end > 0.8 ? 'tokens have aligned' : 'tokens stay apart'));
}

function copied(text) {
  return h('button', { type: 'button', class: 'quiet copy', onclick: () => navigator.clipboard?.writeText(text).then(() => announce('Copied')) }, 'Copy');
}

// Lines break before --flags, not within them.
const unbroken = (command) => command.split(/ (?=--)/).flatMap((flag, i) => [i > 0 ? ' ' : null, h('span', { class: 'flag' }, flag)]);

// Commands that were predicted, with the number before and after; else what is to be said.
function remedies(finding) {
  if (!finding.remedies) return h('p', { class: 'remedy' }, h('b', null, 'Do '), finding.remedy || 'nothing known');
  return h('ul', { class: 'remedies' }, finding.remedies.map((r) => h('li', null,
    h('code', null, unbroken(r.command)), copied(r.command),
    h('span', { class: 'sub' }, r.after === null ? '' : `${r.quantity} ${number(r.before)} \u2192 ${number(r.after)}`, r.brings.length > 0 ? ` (then ${r.brings.join(', ')})` : ''))));
}

function item(finding, follow) {
  const layer = layerOf(finding.where);
  const where = layer === null || finding.where === 'model'
    ? h('code', null, finding.where)
    : h('a', { href: '#block', onclick: (event) => { event.preventDefault(); follow(finding.where, layer); } }, h('code', null, finding.where));
  return h('li', { class: `finding ${finding.severity}` },
    h('div', { class: 'finding-head' }, h('span', { class: 'badge' }, words[finding.severity] || finding.severity),
      h('h3', null, finding.meaning ? finding.meaning[0].toUpperCase() + finding.meaning.slice(1) : finding.id)),
    h('p', { class: 'evidence' }, finding.evidence[0].toUpperCase() + finding.evidence.slice(1), '.'),
    remedies(finding),
    h('p', { class: 'meta' }, finding.id, ' \u00b7 ', where));
}

export function findingsSection(follow) {
  const state = worst();
  const headline = state === 'good' && data.findings.length > 0 ? `Fine, with ${data.verdict}` : data.verdict[0].toUpperCase() + data.verdict.slice(1);
  const serious = data.findings.filter((f) => f.severity !== 'note');
  const notes = data.findings.filter((f) => f.severity === 'note');
  return h('section', { id: 'findings', class: 'verdict-section', 'aria-labelledby': 'verdict', tabindex: '-1' },
    h('div', { class: `verdict ${state}` },
      h('div', { class: 'verdict-text' }, h('h2', { id: 'verdict' }, headline), h('p', null, sentences[state])), tiles()),
    serious.length > 0 ? h('ol', { class: 'findings' }, serious.map((f) => item(f, follow))) : null,
    notes.length > 0 ? h('details', { class: 'notes', open: serious.length === 0 }, h('summary', null, `${notes.length} note${notes.length > 1 ? 's' : ''}: known habits worth knowing`),
      h('ol', { class: 'findings' }, notes.map((f) => item(f, follow)))) : null);
}
