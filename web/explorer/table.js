// Every number, node by node, with its grade and why.
import { h } from '../src/dom.js';
import { number } from '../src/format.js';

const columns = {
  nodes: ['node', 'mean square', '\u00b1', 'token cosine', 'gradient norm', '\u00b1', 'grade'],
  parameters: ['parameter', 'shape', 'std', 'gradient norm', '\u00b1', ''],
};
const most = 400;

function nodeRow(n, explain) {
  const cosine = n.forward.token_cosine?.predicted;
  return h('tr', null, h('th', { scope: 'row' }, n.name), [number(n.forward.second_moment?.predicted), number(n.forward.second_moment?.spread, 2), cosine === undefined ? '' : number(cosine, 3),
    number(n.backward.norm?.predicted), number(n.backward.norm?.spread, 2)].map((x) => h('td', { class: 'n' }, x)),
  h('td', null, h('button', { type: 'button', class: `grade ${n.grade}`, onclick: () => explain(n.kind, n.grade), 'aria-label': `${n.name}: ${n.grade}. Why?` }, n.grade.replace(/_/g, ' '))));
}

function parameterRow(p, explain) {
  return h('tr', null, h('th', { scope: 'row' }, p.name), [p.shape.join(' \u00d7 '), number(p.std?.predicted, 3), number(p.gradient_norm?.predicted), number(p.gradient_norm?.spread, 2)].map((x) => h('td', { class: 'n' }, x)), h('td'));
}

export function tableSection(explain) {
  let view = 'nodes';
  let signal = null;
  const filter = h('input', { type: 'search', id: 'filter', placeholder: 'Filter by name', 'aria-label': 'Filter by name', oninput: () => draw() });
  const count = h('span', { class: 'meta' });
  const head = h('thead');
  const body = h('tbody');
  const buttons = Object.keys(columns).map((name) => h('button', { type: 'button', 'aria-pressed': String(name === view), 'data-view': name, onclick: () => {
    view = name;
    buttons.forEach((b) => b.setAttribute('aria-pressed', String(b.dataset.view === name)));
    draw();
  } }, name === 'nodes' ? 'Nodes' : 'Parameters'));
  const details = h('details', { id: 'numbers', ontoggle: () => draw() }, h('summary', null, 'Every number'),
    h('div', { class: 'table-controls' }, h('div', { class: 'choice', role: 'group', 'aria-label': 'What the rows are' }, buttons), filter, count),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Every number' }, h('table', null, head, body)));

  function draw() {
    if (!signal || !details.open) return;
    const wanted = filter.value.trim().toLowerCase();
    const list = (view === 'nodes' ? signal.nodes : signal.parameters).filter((x) => x.name.toLowerCase().includes(wanted));
    head.replaceChildren(h('tr', null, columns[view].map((name, i) => h('th', { scope: 'col', class: i > 0 && name !== 'grade' ? 'n' : '' }, name))));
    body.replaceChildren(...list.slice(0, most).map((x) => (view === 'nodes' ? nodeRow : parameterRow)(x, explain)));
    count.textContent = list.length > most ? `${most} of ${list.length}: filter to see the others` : `${list.length}`;
  }

  return { element: h('section', { id: 'table' }, details), show(next) { signal = next; draw(); } };
}
