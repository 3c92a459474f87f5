// One block as a diagram: the residual stream runs down on the left, branches leave it and come back. Wires and boxes are
// coloured by how large the signal is, and every box leads to its numbers.
import { at, data, isImages, nodeAt, place as placeName } from './data.js';
import { choice, h, svg } from './dom.js';
import { best, number } from './format.js';
import { color, onTheme } from './theme.js';

const branches = [
  ['attn', [['norm'], ['q', 'k', 'v'], ['q_clip', 'k_clip', 'v_clip'], ['q_norm', 'k_norm'], ['q_rot', 'k_rot'], ['mix'], ['sub_norm'], ['out'], ['post_norm'], ['gain']]],
  ['cross', [['norm'], ['q', 'k', 'v'], ['mix'], ['out'], ['post_norm']]],
  ['ffn', [['norm'], ['router', 'shared.gate', 'shared.up'], ['experts', 'shared.act'], ['shared.product'], ['shared.out'], ['gate', 'up'], ['in'], ['act'], ['product'], ['sub_norm'], ['out'], ['post_norm'], ['gain']]],
];
// queries, keys and values from narrow vectors that all heads share
const latent = [['norm'], ['q_latent', 'k_shared', 'kv_latent'], ['q_latent_norm', 'kv_latent_norm'], ['q', 'k_own', 'v'], ['q_rot', 'k_rot'], ['k'], ['mix'], ['sub_norm'], ['out'], ['post_norm'], ['gain']];
const lanes = { q_latent: 0, k_shared: 1, kv_latent: 2, q_latent_norm: 0, kv_latent_norm: 2, k_own: 1, router: 0, experts: 0, 'shared.gate': 1, 'shared.act': 1, 'shared.up': 2, 'shared.product': 1, 'shared.out': 1, q: 0, k: 1, v: 2, q_clip: 0, k_clip: 1, v_clip: 2, q_norm: 0, k_norm: 1, q_rot: 0, k_rot: 1, gate: 0, up: 2, act: 0 };
// lanes that a box reads besides its own
const reads = { k_own: [2], 'shared.product': [1, 2] };
const titles = { q_latent: 'q latent', k_shared: 'shared key', kv_latent: 'k, v latent', q_latent_norm: 'norm', kv_latent_norm: 'norm', k_own: 'own key', 'shared.gate': 'gate', 'shared.up': 'up', 'shared.act': 'activation', 'shared.product': 'gate \u00d7 up', 'shared.out': 'shared',
 norm: 'norm', q: 'query', k: 'key', v: 'value', mix: 'attention', out: 'output', q_rot: 'rotate', k_rot: 'rotate', q_norm: 'norm', k_norm: 'norm',
  gate: 'gate', up: 'up', in: 'in', act: 'activation', product: 'gate \u00d7 up', post_norm: 'norm', gain: 'gain', sub_norm: 'norm', q_clip: 'clip', k_clip: 'clip', v_clip: 'clip' };

const geometry = { stream: 34, left: 84, lane: 92, box: 84, height: 30, row: 46, width: 364 };

const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

// Small, about 1, large: three colours of the theme, two decades to each side.
function shade(size) {
  if (!(size > 0)) return color('wire-mid');
  const t = Math.max(-1, Math.min(1, Math.log10(size) / 2));
  const rgb = mix(parse(color('wire-mid')), parse(color(t < 0 ? 'wire-low' : 'wire-high')), Math.abs(t));
  return `rgb(${rgb.join(',')})`;
}

// Sizes of the gradient are told relative to the largest of the block: alone they depend on the batch.
function sizer(direction, names) {
  const quantity = direction === 'forward' ? data.nodes.second_moment : data.nodes.gradient_square;
  const raw = (name) => {
    const i = nodeAt(name);
    const value = i === undefined ? undefined : best(at(quantity, i));
    return value === undefined ? null : Math.sqrt(value);
  };
  const typical = direction === 'forward' ? 1 : Math.exp(names.map(raw).filter((x) => x > 0).reduce((sum, x, _, all) => sum + Math.log(x) / all.length, 0));
  return (name) => {
    const x = raw(name);
    return x === null ? null : { value: x, relative: x / typical };
  };
}

// Rows of boxes of one branch, those that the model has.
function rowsOf(block, [branch, rows]) {
  const own = branch === 'attn' && nodeAt(`${block}.attn.kv_latent`) !== undefined ? latent : rows;
  return own.map((row) => row.map((part) => ({ part, name: `${block}.${branch}.${part}`, title: data.nodes.kind[nodeAt(`${block}.${branch}.${part}`)] === 'experts' ? 'experts' : undefined })).filter((n) => nodeAt(n.name) !== undefined)).filter((row) => row.length > 0);
}

const centre = geometry.left + geometry.lane * 1.5;
const xOf = (part, row) => (lanes[part] === undefined || row.length === 1 && (part === 'router' || part === 'experts') ? centre : geometry.left + geometry.lane * (lanes[part] + 0.5));

function place(rows, top) {
  const gated = rows.some((row) => row.some((n) => n.part === 'gate'));
  return rows.map((row, r) => row.map((n) => ({
    ...n, x: n.part === 'act' && !gated ? centre : xOf(n.part, row), y: top + r * geometry.row, lane: n.part === 'act' && !gated ? undefined : lanes[n.part],
  })));
}

// A box feeds the next row that has its lane or the middle.
function wiresOf(rows) {
  const wires = [];
  rows.forEach((row, r) => row.forEach((from) => {
    for (let next = r + 1; next < rows.length; ++next) {
      const targets = rows[next].filter((to) => from.lane === undefined || to.lane === undefined || (reads[to.part] || [to.lane]).includes(from.lane));
      if (targets.length === 0) continue;
      targets.forEach((to) => wires.push([from, to]));
      if (from.part !== 'kv_latent_norm' || targets.some((to) => to.part === 'v')) break;
    }
  }));
  return wires;
}

function boxOf(node, size, selected, select) {
  const known = size(node.name);
  return svg('g', {
    class: `box${node.name === selected ? ' selected' : ''}`, tabindex: '0', role: 'button', 'data-node': node.name,
    'aria-label': `${node.title || titles[node.part] || node.part}, ${node.name}: size ${number(known?.value, 3)}`,
    onclick: () => select(node.name),
    onkeydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); select(node.name); } },
  },
  svg('rect', { x: node.x - geometry.box / 2, y: node.y, width: geometry.box, height: geometry.height, rx: 6 }),
  svg('rect', { class: 'stripe', x: node.x - geometry.box / 2, y: node.y, width: 5, height: geometry.height, rx: 2.5, fill: shade(known?.relative) }),
  svg('text', { x: node.x - geometry.box / 2 + 11, y: node.y + 13, class: 'box-title' }, node.title || titles[node.part] || node.part),
  svg('text', { x: node.x - geometry.box / 2 + 11, y: node.y + 25, class: 'box-value' }, number(known?.value, 3)));
}

const wire = (path, relative) => svg('path', { class: 'wire', d: path, stroke: shade(relative), 'stroke-width': relative ? Math.max(1.5, Math.min(5, 2.5 + Math.log10(relative) * 0.75)) : 1.5 });

function picture(prefix, layer, direction, selected, select) {
  const block = `${prefix}blocks.${layer}`;
  const streamIn = `${prefix}stream.${layer}`;
  const streamOut = `${prefix}stream.${layer + 1}`;
  const present = branches.map((b) => [b[0], rowsOf(block, b)]).filter(([, rows]) => rows.length > 0);
  const names = present.flatMap(([, rows]) => rows.flat().map((n) => n.name)).concat(streamIn, streamOut, data.nodes.name.filter((n) => n.startsWith(`${block}.`)));
  const size = sizer(direction, names);
  const layerOfWires = svg('g', { class: 'wires' });
  const layerOfBoxes = svg('g', null);
  const spine = { x: geometry.stream + 22, y: 8 };
  const titleOf = (name) => (isImages && nodeAt(name) !== undefined ? data.nodes.kind[nodeAt(name)].replace(/_/g, ' ') : name.replace(prefix, ''));
  const first = { name: streamIn, title: titleOf(streamIn), x: spine.x + 2, y: spine.y, part: 'stream' };
  layerOfBoxes.append(boxOf(first, size, selected, select));
  let top = spine.y + geometry.height + 26;
  let from = streamIn;
  let lineFrom = spine.y + geometry.height;
  present.forEach(([branch, rows], k) => {
    const placed = place(rows, top);
    const starts = placed[0];
    const turn = top - 14;
    starts.forEach((n) => layerOfWires.append(wire(`M${geometry.stream},${turn} H${n.x} V${n.y}`, size(from)?.relative)));
    for (const [a, b] of wiresOf(placed)) {
      const middle = b.y - 8;
      layerOfWires.append(wire(a.x === b.x ? `M${a.x},${a.y + geometry.height} V${b.y}` : `M${a.x},${a.y + geometry.height} V${middle} H${b.x} V${b.y}`, size(a.name)?.relative));
    }
    placed.flat().forEach((n) => layerOfBoxes.append(boxOf(n, size, selected, select)));
    const end = placed[placed.length - 1][0];
    const join = end.y + geometry.height + 18;
    layerOfWires.append(wire(`M${end.x},${end.y + geometry.height} V${join} H${geometry.stream + 9}`, size(end.name)?.relative));
    layerOfWires.append(wire(`M${geometry.stream},${lineFrom} V${join - 9}`, size(from)?.relative));
    const middle = `${block}.mid`;
    layerOfBoxes.append(svg('g', { class: 'sum', 'aria-hidden': 'true' }, svg('circle', { cx: geometry.stream, cy: join, r: 9 }),
      svg('path', { d: `M${geometry.stream - 4},${join} h8 M${geometry.stream},${join - 4} v8` })));
    layerOfBoxes.append(svg('text', { x: geometry.stream + 22, y: join - 6, class: 'branch-name' }, { attn: 'attention', ffn: 'feed-forward', cross: 'cross-attention' }[branch]));
    lineFrom = join + 9;
    top = join + 38;
    if (k + 1 === present.length || nodeAt(middle) === undefined) return;
    // what the next branch reads: the sum, or its norm where norms come after
    from = middle;
    layerOfBoxes.append(boxOf({ name: middle, title: nodeAt(`${block}.attn.sum`) === undefined ? 'mid' : 'norm', x: spine.x + 2, y: join + 24, part: 'mid' }, size, selected, select));
    layerOfWires.append(wire(`M${geometry.stream},${lineFrom} V${join + 24}`, size(nodeAt(`${block}.attn.sum`) === undefined ? middle : `${block}.attn.sum`)?.relative));
    lineFrom = join + 24 + geometry.height;
    top = lineFrom + 26;
  });
  // stages of a convolutional network: one op after the other
  const chain = present.length === 0 ? data.nodes.name.filter((name) => name.startsWith(`${block}.`)) : [];
  for (const name of chain) {
    layerOfBoxes.append(boxOf({ name, title: name.slice(block.length + 1), x: spine.x + 2, y: lineFrom + 16, part: 'chain' }, size, selected, select));
    layerOfWires.append(wire(`M${geometry.stream},${lineFrom} V${lineFrom + 16}`, size(from)?.relative));
    from = name;
    lineFrom += 16 + geometry.height;
    top = lineFrom + 30;
  }
  const bottom = top - 14;
  layerOfWires.append(wire(`M${geometry.stream},${lineFrom} V${bottom}`, size(streamOut)?.relative));
  layerOfBoxes.append(boxOf({ name: streamOut, title: titleOf(streamOut), x: spine.x + 2, y: bottom, part: 'stream' }, size, selected, select));
  const height = bottom + geometry.height + 8;
  return svg('svg', { viewBox: `0 0 ${geometry.width} ${height}`, class: 'block-picture', role: 'group', 'aria-label': `Block ${layer}: boxes with the size of their signal` }, layerOfWires, layerOfBoxes);
}

function numbersOf(name) {
  const i = nodeAt(name);
  if (i === undefined) return h('p', null, 'no numbers');
  const rows = [
    ['size (rms)', (v) => best(v) === undefined ? null : Math.sqrt(best(v)), data.nodes.second_moment],
    ['E[x\u00b2]', null, data.nodes.second_moment], ['mean', null, data.nodes.mean], [isImages ? 'cosine' : 'token cosine', null, data.nodes.cosine],
    ['gradient norm', null, data.nodes.gradient], [isImages ? 'gradient, cosine' : 'gradient, token cosine', null, data.nodes.gradient_cosine]];
  const both = rows.some(([, , q]) => at(q, i).p !== undefined && at(q, i).m !== undefined);
  const cell = (f, v, part, around) => {
    const x = v[part];
    if (x === undefined) return h('td', null, '\u2013');
    if (f) return h('td', null, number(Math.sqrt(x)));
    return h('td', null, number(x), v[around] ? h('span', { class: 'around' }, ` \u00b1 ${number(v[around], 2)}`) : '');
  };
  return h('table', { class: 'numbers' },
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, ''), both ? [h('th', { scope: 'col' }, 'predicted'), h('th', { scope: 'col' }, 'measured')] : h('th', { scope: 'col' }, data.seeds > 0 ? 'measured' : 'predicted'))),
    h('tbody', null, rows.map(([label, f, q]) => {
      const v = at(q, i);
      return h('tr', null, h('th', { scope: 'row' }, label), both ? [cell(f, v, 'p', 's'), cell(f, v, 'm', 'e')] : cell(f, v, v.m === undefined ? 'p' : 'm', v.m === undefined ? 's' : 'e'));
    })));
}

// The same node in every layer, as bars to click.
function acrossLayers(name, layer, prefix, layers, direction, go) {
  const generic = (l) => name.replace(`blocks.${layer}.`, `blocks.${l}.`).replace(new RegExp(`stream\\.${layer}$`), `stream.${l}`).replace(new RegExp(`stream\\.${layer + 1}$`), `stream.${l + 1}`);
  const size = sizer(direction, [name]);
  const values = Array.from({ length: layers }, (_, l) => size(generic(l))?.value ?? null);
  const positive = values.filter((x) => x > 0);
  if (positive.length < 2) return null;
  const low = Math.log(Math.min(...positive));
  const high = Math.max(Math.log(Math.max(...positive)), low + Math.log(2));
  const width = 4;
  return h('div', { class: 'across' }, h('p', null, `The same node in all ${layers} ${placeName}s, ${number(Math.min(...positive), 3)} to ${number(Math.max(...positive), 3)}`),
    svg('svg', { viewBox: `0 0 ${layers * width} 40`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, values.map((x, l) => {
      const tall = x > 0 ? 4 + 36 * (Math.log(x) - low) / (high - low) : 1;
      return svg('rect', { x: l * width + 0.4, y: 40 - tall, width: width - 0.8, height: tall, class: l === layer ? 'here' : '', onclick: () => go(l) });
    })));
}

export function blockSection(showInTable) {
  let layers = data.depths[0].added.length;
  let prefix = data.depths[0].prefix;
  let layer = 0;
  let direction = 'forward';
  let selected = `${prefix}stream.0`;
  const holder = h('div', { class: 'block-holder' });
  const panel = h('div', { class: 'panel', 'aria-live': 'polite' });
  const slider = h('input', { type: 'range', min: 0, max: Math.max(0, layers - 1), value: 0, 'aria-label': isImages ? 'Stage' : 'Layer', oninput: (event) => go(Number(event.target.value)) });
  const shown = h('output', null, '0');
  function draw() {
    holder.replaceChildren(picture(prefix, layer, direction, selected, select));
    const kind = nodeAt(selected) === undefined ? '' : data.nodes.kind[nodeAt(selected)];
    panel.replaceChildren(h('h3', null, h('code', null, selected)),
      h('p', { class: 'meta' }, kind.replace(/_/g, ' '), data.seeds === 0 && nodeAt(selected) !== undefined ? ` \u00b7 rule: ${data.nodes.grade[nodeAt(selected)].replace(/_/g, ' ')}` : ''),
      numbersOf(selected), acrossLayers(selected, layer, prefix, layers, direction, go) || '',
      h('button', { type: 'button', class: 'link', onclick: () => showInTable(selected) }, 'Find it in the table'));
    slider.value = String(layer);
    shown.textContent = String(layer);
    slider.setAttribute('aria-valuetext', `${placeName} ${layer}`);
  }
  const stacks = data.depths.length < 2 ? '' : h('select', { 'aria-label': 'Stack', onchange: (event) => enter(event.target.value) },
    data.depths.map((d) => h('option', { value: d.prefix }, d.prefix.replace(/\.$/, ''))));
  function enter(next) {
    prefix = next;
    layers = data.depths.find((d) => d.prefix === prefix).added.length;
    layer = Math.min(layer, layers - 1);
    slider.max = String(Math.max(0, layers - 1));
    selected = `${prefix}stream.${layer}`;
    if (stacks) stacks.value = prefix;
    draw();
  }
  function select(name) {
    selected = name;
    draw();
    holder.querySelector('.selected')?.focus();
  }
  function go(next) {
    selected = selected.replace(`blocks.${layer}.`, `blocks.${next}.`).replace(/stream\.(\d+)$/, (_, l) => `stream.${Number(l) - layer + next}`);
    layer = next;
    draw();
  }
  onTheme(draw);
  queueMicrotask(draw);
  const legend = h('p', { class: 'wire-legend' }, h('i', { class: 'ramp' }), h('span', null, 'small'), h('span', null, '\u2248 1'), h('span', null, 'large'));
  return {
    element: h('section', { id: 'block', 'aria-labelledby': 'block-title', tabindex: '-1' },
      h('div', { class: 'head' }, h('h2', { id: 'block-title' }, isImages ? 'Inside a stage' : 'Inside a block'), stacks,
        choice('Direction', [['forward', 'Signal'], ['backward', 'Gradient']], direction, (value) => { direction = value; draw(); })),
      h('p', { class: 'lead' }, 'Boxes show the size (rms) of what leaves them. Choose one for its numbers.'),
      h('div', { class: 'block-controls' }, h('label', null, isImages ? 'Stage ' : 'Layer ', shown), slider, legend),
      h('div', { class: 'block' }, holder, panel)),
    follow(name, next) {
      const stack = data.depths.find((d) => d.prefix && name.startsWith(d.prefix));
      enter(stack ? stack.prefix : data.depths[0].prefix);
      layer = Math.min(next, layers - 1);
      selected = nodeAt(name) === undefined ? `${prefix}stream.${layer}` : name;
      draw();
      document.getElementById('block').scrollIntoView({ block: 'start' });
      holder.querySelector('.selected')?.focus({ preventScroll: true });
    },
  };
}
