// A map over one or two controls: each cell is the model's first answer there; a click goes to it.
import { announce, h } from '../src/dom.js';
import { number } from '../src/format.js';
import { color, onTheme } from '../src/theme.js';
import { numbers, repaired, tokenCounts } from './fields.js';
import { quantities } from './signal.js';

const most = 12;

// At most twelve of a list, the first, the last and `keep` among them.
function thinned(list, keep) {
  if (list.length <= most) return list;
  const some = new Set(Array.from({ length: most }, (_, i) => list[Math.round((i * (list.length - 1)) / (most - 1))]));
  const nearest = [...some].reduce((best, v) => (Math.abs(v - keep) < Math.abs(best - keep) ? v : best));
  some.delete(nearest);
  some.add(keep);
  return [...some].sort((a, b) => a - b);
}

const axes = [...numbers.map((f) => [f.key, f.name]), ['seq_len', 'Tokens'], ['scheme', 'Scheme']];

function placed(state, base, key, value) {
  if (key === 'none') return state;
  if (key === 'seq_len') return { ...state, tokens: value };
  if (key === 'scheme') return { ...state, scheme: value };
  return { ...state, set: repaired({ ...state.set, [key]: String(value) }, base) };
}

// A colour between two of the style sheet's, by CSS itself.
const between = (t) => (t < 0.5 ? `color-mix(in oklab, ${color('wire-mid')} ${Math.round(200 * t)}%, ${color('wire-low')})` : `color-mix(in oklab, ${color('wire-high')} ${Math.round(200 * t - 100)}%, ${color('wire-mid')})`);

// run(state, tokens) -> {texts}; go(state): make it the setting.
export function sweepSection({ schemes, run, stop, current, go, changed }) {
  const select = (id, name, options) => h('select', { id, 'aria-label': name }, options.map(([value, text]) => h('option', { value }, text)));
  const x = select('sweep-x', 'Along', axes);
  const y = select('sweep-y', 'And along', [['none', 'nothing else'], ...axes]);
  const what = select('sweep-what', 'What is shown', Object.entries(quantities).map(([key, q]) => [key, q.name]));
  x.value = 'layers';
  y.value = 'init_std';
  what.value = 'gradient';
  const start = h('button', { type: 'button', class: 'primary', id: 'sweep-run', onclick: () => (running ? end() : sweep()) }, 'Map it');
  const note = h('p', { class: 'meta', id: 'sweep-note' });
  const grid = h('div', { class: 'heat', role: 'grid', 'aria-label': 'Map' });
  const legend = h('div', { class: 'heat-legend', hidden: true }, h('span'), h('i'), h('span'));
  let running = 0;
  let turn = 0;
  let cells = [];
  let map = null;

  const valuesOf = (key, { state, base }) => {
    if (key === 'none') return [null];
    if (key === 'scheme') return thinned([...schemes.map((s) => s.name)], state.scheme).slice(0, most);
    if (key === 'seq_len') return tokenCounts;
    const field = numbers.find((f) => f.key === key);
    return thinned(field.values(base, state.set), Number(state.set[key] ?? field.of(base)));
  };

  function paint() {
    if (!map) return;
    const q = quantities[map.what];
    const level = (v) => (q.log ? Math.log(v) : v);
    const known = cells.map((c) => c.value).filter((v) => Number.isFinite(v) && (!q.log || v > 0));
    const low = Math.min(...known.map(level));
    const high = Math.max(...known.map(level));
    for (const cell of cells) {
      if (cell.value === undefined) continue;
      const fine = Number.isFinite(cell.value) && (!q.log || cell.value > 0);
      cell.element.style.background = fine ? between(high > low ? (level(cell.value) - low) / (high - low) : 0.5) : '';
      cell.element.classList.toggle('none', !fine);
      const where = [[map.x, cell.at[0]], [map.y, cell.at[1]]].filter(([key]) => key !== 'none').map(([key, v]) => `${axes.find(([k]) => k === key)[1]} ${v}`).join(', ');
      cell.element.title = `${where}: ${fine ? number(cell.value) : cell.error || 'no number'}`;
      cell.element.setAttribute('aria-label', cell.element.title);
    }
    legend.hidden = known.length === 0;
    if (known.length > 0) {
      legend.firstChild.textContent = number(Math.min(...known), 3);
      legend.lastChild.textContent = number(Math.max(...known), 3);
    }
  }
  onTheme(paint);

  // Arrow keys walk over the cells; one of them is in the order of tabs.
  function walk(event, i, width) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width }[event.key];
    const next = cells[i + step];
    if (!next) return;
    event.preventDefault();
    cells.forEach((c) => { c.element.tabIndex = -1; });
    next.element.tabIndex = 0;
    next.element.focus();
  }

  function lay({ state, base }) {
    const xs = valuesOf(map.x, { state, base });
    const ys = valuesOf(map.y, { state, base }).slice().reverse();
    grid.style.gridTemplateColumns = `auto repeat(${xs.length}, minmax(0, 1fr))`;
    cells = ys.flatMap((vy, r) => xs.map((vx, c) => {
      const i = r * xs.length + c;
      const at = placed(placed(state, base, map.x, vx), base, map.y, vy);
      const element = h('button', { type: 'button', class: 'cell-value', role: 'gridcell', tabindex: i === 0 ? '0' : '-1', onclick: () => go(at), onkeydown: (event) => walk(event, i, xs.length) });
      return { at: [vx, vy], state: at, element };
    }));
    const rows = ys.map((vy, r) => h('div', { role: 'row', class: 'heat-row' }, h('span', { class: 'tick y', role: 'rowheader' }, vy === null ? '' : String(vy)), cells.slice(r * xs.length, (r + 1) * xs.length).map((c) => c.element)));
    const foot = h('div', { role: 'row', class: 'heat-row' }, h('span', { class: 'tick' }), xs.map((v) => h('span', { class: `tick x${map.x === 'scheme' ? ' long' : ''}`, role: 'columnheader' }, String(v))));
    grid.replaceChildren(...rows, foot);
  }

  function end() {
    ++turn;
    running = 0;
    stop();
    start.textContent = 'Map it';
  }

  async function sweep() {
    end();
    const mine = ++turn;
    map = { x: x.value, y: y.value === x.value ? 'none' : y.value, what: what.value };
    changed(map);
    const now = current();
    lay(now);
    running = 1;
    start.textContent = 'Stop';
    const few = Math.min(16, now.state.tokens);
    const began = performance.now();
    let done = 0;
    // from the middle outwards is no better than row by row, and is harder to follow
    for (const cell of cells) {
      const tokens = map.x === 'seq_len' || map.y === 'seq_len' ? cell.state.tokens : few;
      const { texts } = await run(cell.state, tokens);
      if (mine !== turn) return;
      if (texts.error) Object.assign(cell, { value: NaN, error: texts.error });
      else cell.value = quantities[map.what].read(JSON.parse(texts.json)) ?? NaN;
      ++done;
      note.textContent = `${done} of ${cells.length} cells`;
      paint();
    }
    running = 0;
    start.textContent = 'Map it';
    note.textContent = `${cells.length} cells in ${((performance.now() - began) / 1000).toFixed(1)} s, at ${map.x === 'seq_len' || map.y === 'seq_len' ? 'their' : few} tokens and little sampling. A click goes there.`;
    announce('The map is done');
  }

  const section = h('section', { id: 'sweep', 'aria-labelledby': 'sweep-title' }, h('h2', { id: 'sweep-title' }, 'Map'),
    h('p', { class: 'lead' }, 'How one number of this model changes along one or two of the settings.'),
    h('div', { class: 'row' }, what, h('span', { class: 'meta' }, 'along'), x, h('span', { class: 'meta' }, 'and'), y, start), grid, legend, note);
  return {
    element: section,
    choose(given) {
      if (!given) return;
      for (const [element, value] of [[x, given.x], [y, given.y], [what, given.what]]) {
        if ([...element.options].some((o) => o.value === value)) element.value = value;
      }
    },
    run: sweep,
  };
}
