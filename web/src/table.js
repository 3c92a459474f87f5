// Everything, sortable and searchable: nodes, parameters, attention.
import { at, data } from './data.js';
import { announce, choice, h } from './dom.js';
import { best, number, uncertainty } from './format.js';

const page = 100;

const tables = {
  nodes: {
    title: 'Nodes', names: data.nodes.name,
    columns: [['node', 'name'], ['kind', 'kind'], ['E[x\u00b2]', 'second_moment'], ['mean', 'mean'], ['cosine', 'cosine'], ['gradient norm', 'gradient'], ['gradient cosine', 'gradient_cosine']],
  },
  parameters: {
    title: 'Parameters', names: data.parameters.name,
    columns: [['parameter', 'name'], ['role', 'role'], ['shape', 'shape'], ['std', 'std'], ['gradient norm', 'gradient']],
  },
  attention: {
    title: 'Attention', names: data.attention.name,
    columns: [['layer', 'name'], ['score variance', 'score_variance'], ['entropy', 'entropy'], ['sum of squares', 'sum_squares']],
  },
};

const isText = (column) => Array.isArray(column);
const textOf = (x) => (Array.isArray(x) ? x.join(' \u00d7 ') : String(x).replace(/_/g, ' '));
const weight = (x) => (Array.isArray(x) ? x.reduce((a, b) => a * b, 1) : x);

export function tableSection() {
  let which = 'nodes';
  let sort = { column: null, down: false };
  let query = '';
  let shown = page;
  const body = h('tbody', null);
  const head = h('thead', null);
  const count = h('p', { class: 'meta', role: 'status' });
  const more = h('button', { type: 'button', class: 'link', onclick: () => { shown = Infinity; draw(); } }, 'Show all');
  const search = h('input', { type: 'search', placeholder: 'Search names', 'aria-label': 'Search names', oninput: (event) => { query = event.target.value; shown = page; draw(); } });

  const source = () => data[which];
  function order() {
    const { names } = tables[which];
    const wanted = query.toLowerCase();
    const rows = names.map((_, i) => i).filter((i) => names[i].toLowerCase().includes(wanted));
    if (sort.column === null) return rows;
    const column = source()[sort.column];
    const key = isText(column) ? (i) => weight(column[i]) : (i) => best(at(column, i));
    rows.sort((a, b) => {
      const x = key(a);
      const y = key(b);
      if (x === undefined || y === undefined) return (x === undefined ? 1 : 0) - (y === undefined ? 1 : 0);
      const step = typeof x === 'number' ? x - y : String(x).localeCompare(String(y), 'en', { numeric: true });
      return sort.down ? -step : step;
    });
    return rows;
  }
  function cells(i) {
    return tables[which].columns.map(([, key]) => {
      const column = source()[key];
      if (isText(column)) return key === 'name' ? h('th', { scope: 'row' }, column[i]) : h('td', { class: key === 'shape' ? 'n' : '' }, textOf(column[i]));
      const v = at(column, i);
      const around = uncertainty(v);
      const both = v.p !== undefined && v.m !== undefined;
      return h('td', { class: 'n', title: both ? `predicted ${number(v.p)}, measured ${number(v.m)}` : null }, number(best(v)), around ? h('span', { class: 'around' }, ` \u00b1 ${number(around, 2)}`) : '');
    });
  }
  function drawHead() {
    head.replaceChildren(h('tr', null, tables[which].columns.map(([title, key]) => {
      const active = sort.column === key;
      return h('th', { scope: 'col', class: isText(source()[key]) && key !== 'shape' ? '' : 'n', 'aria-sort': active ? (sort.down ? 'descending' : 'ascending') : 'none' },
        h('button', { type: 'button', 'data-key': key, onclick: () => {
          sort = { column: key, down: active ? !sort.down : !isText(source()[key]) };
          draw();
          head.querySelector(`[data-key="${key}"]`).focus();
          announce(`sorted by ${title}, ${sort.down ? 'largest' : 'smallest'} first`);
        } }, title, h('span', { class: 'arrow', 'aria-hidden': 'true' }, active ? (sort.down ? ' \u2193' : ' \u2191') : '')));
    })));
  }
  function draw() {
    drawHead();
    const rows = order();
    body.replaceChildren(...rows.slice(0, shown).map((i) => h('tr', null, cells(i))));
    count.textContent = `${Math.min(shown, rows.length)} of ${rows.length}`;
    more.hidden = rows.length <= shown;
  }
  window.addEventListener('beforeprint', () => { shown = page; draw(); });
  draw();
  return {
    element: h('section', { id: 'table', 'aria-labelledby': 'table-title', tabindex: '-1' },
      h('div', { class: 'head' }, h('h2', { id: 'table-title' }, 'Every number'),
        choice('Which table', Object.entries(tables).filter(([, t]) => t.names.length > 0).map(([key, t]) => [key, t.title]), which, (value) => { which = value; sort = { column: null, down: false }; shown = page; draw(); })),
      h('div', { class: 'table-controls' }, search, count),
      h('div', { class: 'scroll' }, h('table', { class: 'everything' }, head, body)), more),
    find(name) {
      query = name;
      search.value = name;
      draw();
      document.getElementById('table').scrollIntoView({ block: 'start' });
    },
  };
}
