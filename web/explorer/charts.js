// The charts over the depth: now, the setting before as a ghost, and what is pinned.
import { chart } from '../src/chart.js';
import { h } from '../src/dom.js';
import { number } from '../src/format.js';
import { depths } from './signal.js';

export const pinColors = ['over-1', 'over-2', 'over-3', 'over-4'];

const kinds = [
  { key: 'size', title: 'Signal', subtitle: 'Size (rms) of the residual stream entering each layer', log: true, op: 'residual',
    guides: [{ name: 'float16 overflows', value: 65504 / 6 }] },
  { key: 'gradient', title: 'Gradient', subtitle: 'Norm of the loss\u2019s gradient arriving at each layer', log: true, op: 'residual' },
  { key: 'cosine', title: 'Token similarity', subtitle: 'Mean cosine between different tokens', log: false, op: 'attention', guides: [{ name: 'rank collapse', value: 0.95, always: true }] },
  { key: 'entropy', title: 'Attention', subtitle: 'Entropy of the attention weights, in nats', log: false, op: 'attention' },
];

const some = (quantity) => quantity && quantity.p.some((x) => x !== null);

function summary(kind, quantity) {
  const list = quantity.p.filter((x) => x !== null);
  return `${kind.title}: ${number(list[0])} at the first layer, ${number(list.at(-1))} at the last. Arrow keys walk over the layers.`;
}

// Other models may have more layers: the axis is as long as the longest.
function described(kind, now, ghost, pins, k) {
  const mine = now[k] ?? now[0];
  const others = [...pins, ...(ghost ? [ghost] : [])].map((o) => o.depths[k]).filter(Boolean);
  const n = Math.max(mine.labels.length, ...others.map((d) => d.labels.length));
  const longest = [mine, ...others].find((d) => d.labels.length === n);
  const fit = (list) => list.concat(Array(n - list.length).fill(null));
  const line = (depth, rest) => (depth && some(depth[kind.key]) ? [{ values: fit(depth[kind.key].p), ...rest }] : []);
  const lines = [
    ...line(mine, { name: 'now', color: 'accent', band: fit(mine[kind.key].s) }),
    ...(ghost ? line(ghost.depths[k], { name: 'before', color: 'faint', dash: 'dashed', thin: true }) : []),
    ...pins.flatMap((pin, i) => line(pin.depths[k], { name: pin.title, color: pinColors[i], thin: true })),
  ];
  const values = mine[kind.key].p.filter((x) => x !== null);
  return {
    title: kind.title, subtitle: kind.subtitle, labels: longest.labels, log: kind.log, lines, guides: kind.guides, height: 200,
    range: kind.key === 'cosine' ? [Math.min(0, ...lines.flatMap((l) => l.values.filter((x) => x !== null))) - 0.02, 1.02] : undefined,
    summary: values.length > 0 ? summary(kind, mine[kind.key]) : `${kind.title}: nothing to show`,
  };
}

export function chartsSection(explain) {
  const holder = h('div', { class: 'charts', id: 'charts' });
  const stackChoice = h('select', { id: 'stack', 'aria-label': 'Which stack', hidden: true, onchange: () => draw() });
  const made = new Map();
  let shown = null;

  function draw() {
    if (!shown) return;
    const { now, ghost, pins } = shown;
    const k = Math.min(Number(stackChoice.value || 0), now.length - 1);
    for (const kind of kinds) {
      const there = some(now[k][kind.key]);
      const description = there ? described(kind, now, ghost, pins, k) : null;
      if (there && !made.has(kind.key)) {
        const c = chart(description);
        const why = h('button', { type: 'button', class: 'why', onclick: () => explain(kind.op), 'aria-label': `Why: ${kind.title}` }, 'why');
        made.set(kind.key, { update: c.update, cell: h('div', { class: 'cell', 'data-chart': kind.key }, c.element, why) });
        holder.append(made.get(kind.key).cell);
      } else if (there) made.get(kind.key).update(description);
      if (made.has(kind.key)) made.get(kind.key).cell.hidden = !there;
    }
  }

  return {
    element: h('section', { id: 'depth', 'aria-label': 'Through the depth' }, stackChoice, holder),
    // ghost: {depths} or null; pins: [{title, depths}]
    show(signal, ghost, pins) {
      const now = depths(signal);
      shown = now.length > 0 ? { now, ghost, pins } : null;
      if (stackChoice.options.length !== now.length) {
        stackChoice.replaceChildren(...now.map((d, i) => h('option', { value: i }, d.prefix.replace(/\.$/, '') || 'model')));
        stackChoice.hidden = now.length < 2;
      }
      draw();
    },
  };
}
