// Gradient norms of the parameters: a line for each role over the layers, and the largest by name.
import { chart } from './chart.js';
import { bestOf, data, isImages, place } from './data.js';
import { h } from './dom.js';
import { best, number } from './format.js';

const colors = ['accent', 'over-1', 'over-2', 'over-3', 'over-4', 'over-5', 'ink', 'faint'];
// as graph/role_names.cpp calls them; what is not here lies outside the layers, or is a vector
const order = ['query, key, value', 'query', 'key', 'value', 'attention output', 'feed-forward, gate', 'feed-forward, in (up)', 'feed-forward, out (down)', 'router', 'adapter, A', 'adapter, B', 'other'];

function byRole() {
  const { role, layer, gradient } = data.parameters;
  const layers = Math.max(...layer) + 1;
  const squares = new Map();
  role.forEach((name, i) => {
    const norm = bestOf(gradient, i);
    if (layer[i] < 0 || !order.includes(name) || norm == null) return; // frozen ones have none
    if (!squares.has(name)) squares.set(name, new Array(layers).fill(0));
    squares.get(name)[layer[i]] += norm ** 2;
  });
  const lines = order.filter((name) => squares.has(name)).map((name, k) => ({
    name: isImages ? name.replace(/^feed-forward, .*/, 'matrices of a stage') : name, color: colors[k % colors.length], thin: true, values: squares.get(name).map((x) => (x > 0 ? Math.sqrt(x) : null)) }));
  return { layers, lines };
}

function largest(count) {
  const { name, gradient, shape } = data.parameters;
  const total = best(data.gradient_norm) ** 2;
  const rows = name.map((text, i) => ({ text, shape: shape[i], norm: bestOf(gradient, i) || 0 })).sort((a, b) => b.norm - a.norm).slice(0, count);
  return h('div', { class: 'largest' }, h('h3', null, 'Largest'), h('p', { class: 'sub' }, 'Share of the squared gradient norm'),
    h('ol', null, rows.map((row) => {
      const share = row.norm ** 2 / total;
      const fill = h('span', { class: 'fill' });
      fill.style.width = `${Math.max(0.5, 100 * share)}%`;
      return h('li', null, h('span', { class: 'name' }, row.text.split(/(?<=\.)/).flatMap((part) => [part, h('wbr')])), h('span', { class: 'bar' }, fill),
        h('span', { class: 'value' }, number(row.norm, 3)), h('span', { class: 'share' }, `${number(100 * share, 2)} %`));
    })));
}

export function parameterSection() {
  const { layers, lines } = byRole();
  const labels = Array.from({ length: layers }, (_, l) => `${place} ${l}`);
  const plotted = layers > 1 && lines.length > 0 ? chart({
    title: 'By role', subtitle: 'Gradient norm of each kind of matrix', labels, log: true, lines, height: 260,
    summary: `Gradient norm over the ${place}s of ${lines.map((l) => l.name).join(', ')}. Arrow keys walk over the ${place}s.`,
  }).element : null;
  return h('section', { id: 'parameters', 'aria-labelledby': 'parameters-title' }, h('h2', { id: 'parameters-title' }, 'Gradients of the parameters'),
    h('div', { class: 'pair' }, plotted, largest(10)));
}
