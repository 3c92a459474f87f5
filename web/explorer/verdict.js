// The verdict first: what is wrong, the few numbers that matter, and how sure the page is of them by now.
import { h } from '../src/dom.js';
import { amount, number } from '../src/format.js';
import { depths } from './signal.js';

const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
const of = (findings, severity) => findings.filter((f) => f.severity === severity);

export function verdictOf(findings) {
  const parts = ['error', 'warning', 'note'].map((s) => [of(findings, s).length, s]).filter(([n]) => n > 0).map(([n, s]) => plural(n, s));
  const tone = of(findings, 'error').length > 0 ? 'error' : of(findings, 'warning').length > 0 ? 'warning' : 'good';
  const text = parts.length === 0 ? 'Nothing stands out' : tone === 'good' ? `Fine, with ${parts.join(', ')}` : parts.join(', ');
  return { tone, text };
}

const around = (value) => (value.spread ? `\u00b1 ${number(value.spread, 2)}` : '\u00a0');

function tile(name, value, note, op, explain) {
  return h('div', { class: 'tile' }, h('dt', null, name), h('dd', null, h('button', { type: 'button', class: 'value', onclick: () => explain(op), 'aria-label': `${name}: ${value}. Why?` }, value)),
    h('dd', { class: 'sub' }, note));
}

function tiles(signal, explain) {
  const depth = depths(signal)[0];
  const size = depth?.size.p ?? [];
  const cosine = depth?.cosine.p.at(-1);
  return [
    tile('Loss at step 0', number(signal.loss.predicted), `${around(signal.loss)} \u00b7 uniform ${number(Math.log(signal.model.vocab))}`, 'cross_entropy', explain),
    tile('Gradient norm', number(signal.gradient_norm.predicted), around(signal.gradient_norm), 'linear', explain),
    tile('Signal', `${number(size[0], 2)} \u2192 ${number(size.at(-1), 2)}`, 'rms, first to last', 'residual', explain),
    tile('Token cosine, end', number(cosine, 3), cosine === null || cosine === undefined ? '' : cosine > 0.95 ? 'tokens have collapsed' : cosine > 0.8 ? 'tokens have aligned' : 'tokens stay apart', 'attention', explain),
  ];
}

function finding(f, meanings) {
  const meaning = meanings.get(f.id)?.meaning ?? f.id;
  return h('li', { class: `finding ${f.severity}` },
    h('div', { class: 'finding-head' }, h('span', { class: 'badge' }, f.severity), h('h3', null, meaning[0].toUpperCase() + meaning.slice(1))),
    h('p', { class: 'evidence' }, `${f.evidence[0].toUpperCase()}${f.evidence.slice(1)}.`),
    f.remedy ? h('p', { class: 'remedy' }, h('b', null, 'Do '), f.remedy) : null,
    h('p', { class: 'meta' }, `${f.id} \u00b7 ${f.where}`, meanings.has(f.id) ? ` \u00b7 found from ${meanings.get(f.id).limit} on` : ''));
}

export function verdictSection(explain) {
  const title = h('h1', { id: 'model' });
  const facts = h('p', { class: 'facts second' });
  const headline = h('h2', { id: 'verdict' });
  const state = h('p', { id: 'state', class: 'state' });
  const numbers = h('dl', { class: 'tiles' });
  const card = h('div', { class: 'verdict' }, h('div', { class: 'verdict-text' }, headline, state), numbers);
  const serious = h('ol', { class: 'findings', id: 'findings' });
  const notes = h('ol', { class: 'findings' });
  const more = h('details', { class: 'notes', hidden: true }, h('summary', null), notes);
  const trouble = h('div', { id: 'trouble', class: 'trouble', role: 'alert', hidden: true });
  let told = '';

  return {
    element: h('section', { id: 'answer', 'aria-labelledby': 'verdict' }, h('div', { class: 'title' }, title, facts), trouble, card),
    findings: h('section', { id: 'what', 'aria-label': 'Findings' }, serious, more),
    waiting(text) {
      state.textContent = text;
      state.dataset.state = 'refining';
    },
    show(signal, meanings, text, done) {
      const { model, findings } = signal;
      const { tone, text: words } = verdictOf(findings);
      title.textContent = model.name;
      facts.replaceChildren(...[`${amount(model.parameters)} parameters`, `${model.layers} layers`, `width ${model.width}`, `${model.heads} heads`, `scheme ${signal.scheme}`]
        .map((fact) => h('span', null, fact)));
      card.className = `verdict ${tone}`;
      card.hidden = false;
      headline.textContent = words;
      state.textContent = text;
      state.dataset.state = done ? 'done' : 'refining';
      numbers.replaceChildren(...tiles(signal, explain));
      trouble.hidden = true;
      const key = JSON.stringify(findings);
      if (key === told) return;
      told = key;
      serious.replaceChildren(...findings.filter((f) => f.severity !== 'note').map((f) => finding(f, meanings)));
      const list = of(findings, 'note');
      notes.replaceChildren(...list.map((f) => finding(f, meanings)));
      more.hidden = list.length === 0;
      more.querySelector('summary').textContent = `${plural(list.length, 'note')}: habits worth knowing`;
    },
    fail(error, hint) {
      trouble.hidden = false;
      trouble.replaceChildren(h('b', null, error), hint ? h('span', null, hint) : '');
      state.textContent = 'the last setting that worked is shown';
      state.dataset.state = 'stale';
    },
  };
}
