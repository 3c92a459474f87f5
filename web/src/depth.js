// The four charts over the depth, with other schemes laid over them.
import { chart } from './chart.js';
import { bestOf, data, isImages, place, mapQuantity, measured, multiple, root } from './data.js';
import { h } from './dom.js';
import { factor, number } from './format.js';

export const overlayColors = ['over-1', 'over-2', 'over-3', 'over-4', 'over-5'];

const tails = 6;  // among a million Gaussian numbers the largest is five deviations off
const limits = { fp16: 65504 / tails, fp8: 448 / tails, fp8Small: 2 ** -9, fp16Small: 2 ** -24, e5m2Small: 2 ** -16 };

// Predicted as a line with its band, measured as points with error bars; one of them where there is only one.
function linesOf(quantity, name) {
  const lines = [];
  if (quantity.p) lines.push({ name: measured ? 'predicted' : name, color: 'accent', values: quantity.p, band: quantity.s });
  if (quantity.m) {
    const points = quantity.m.length <= 60;
    lines.push({ name: quantity.p ? 'measured' : name, color: quantity.p ? 'ink' : 'accent', values: quantity.m, points,
      thin: !points, errors: quantity.e ? quantity.e.map((e) => (e === null ? null : 2 * e)) : undefined });
  }
  return lines;
}

const overlays = (chosen, pick, stack) => chosen.map((k) => {
  const other = data.alternatives[k].depths[stack];
  const quantity = other && pick(other);
  return quantity && (quantity.m || quantity.p)
    ? { name: data.alternatives[k].scheme, color: overlayColors[k % overlayColors.length], values: quantity.p || quantity.m, thin: true, dash: 'dashed' } : null;
}).filter(Boolean);

function summary(title, quantity) {
  const list = (quantity.m || quantity.p || []).filter((x) => x !== null);
  return `${title}: ${number(list[0])} at the first layer, ${number(list[list.length - 1])} at the last, between ${number(Math.min(...list))} and ${number(Math.max(...list))}. Arrow keys walk over the layers.`;
}

const positive = (quantity) => {
  const out = {};
  for (const part of Object.keys(quantity)) out[part] = quantity[part].map((x) => ((part === 'p' || part === 'm') && !(x > 0) ? null : x));
  return out;
};

const without = (quantity, n) => mapQuantity({ p: quantity.p?.slice(0, n), m: quantity.m?.slice(0, n), s: quantity.s?.slice(0, n), e: quantity.e?.slice(0, n) }, (x) => x, () => 1);

function signalChart(stack, labels, chosen) {
  const depth = data.depths[stack];
  const size = positive(root(depth.signal));
  const lines = linesOf(size, isImages ? 'signal' : 'residual stream');
  const branch = (quantity, name, color) => {
    const values = root(quantity).p || root(quantity).m;
    if (multiple(quantity) && values.some((x) => x > 0)) lines.push({ name, color, values: values.map((x) => (x > 0 ? x : null)), thin: true, hidden: true });
  };
  branch(depth.attention_branch, 'attention adds', 'over-2');
  branch(depth.ffn_branch, 'feed-forward adds', 'over-3');
  if (!isImages) lines.push({ name: 'bf16 step', color: 'faint', values: (size.m || size.p).map((x) => (x === null ? null : x / 512)), dash: 'dotted', thin: true, hidden: true });
  lines.push(...overlays(chosen, (d) => positive(root(d.signal)), stack));
  const largest = Math.max(...(size.m || size.p).filter((x) => x !== null));
  const room = (limit) => (largest < limit ? `${factor(limit / largest)}\u00d7 below` : `${factor(largest / limit)}\u00d7 above`);
  return {
    title: 'Signal', subtitle: isImages ? 'Size (rms) of what enters each stage' : 'Size (rms) of the residual stream entering each layer', labels, log: true, lines,
    guides: [{ name: 'float16 overflows', value: limits.fp16 }, { name: 'fp8 E4M3 overflows', value: limits.fp8 }, { name: 'fp8 E4M3 flushes to 0', value: limits.fp8Small }],
    note: `The largest is ${room(limits.fp16)} what float16 holds and ${room(limits.fp8)} what fp8 E4M3 holds, with six deviations for the tails.${isImages ? '' : ' Below its step (1/512 of the stream) bfloat16 rounds what a branch adds away.'}`,
    summary: summary('Size of the signal over the depth', size),
  };
}

function gradientChart(stack, labels, chosen) {
  const gradient = positive(data.depths[stack].gradient);
  const numbers = Math.sqrt(data.input.batch * data.input.seq_len * data.model.width);
  return {
    title: 'Gradient', subtitle: `Norm of the loss\u2019s gradient arriving at each ${place}`, labels, log: true,
    lines: [...linesOf(gradient, 'gradient norm'), ...overlays(chosen, (d) => positive(d.gradient), stack)],
    guides: [{ name: 'float16 flushes to 0', value: limits.fp16Small * numbers }, { name: 'fp8 E5M2 flushes to 0', value: limits.e5m2Small * numbers }],
    note: 'It travels from right to left. Guides say where a single number of it, for this batch, is too small to be stored unscaled.',
    summary: summary('Norm of the gradient over the depth', gradient),
  };
}

function cosineChart(stack, labels, chosen) {
  const { cosine } = data.depths[stack];
  const last = bestOf(cosine, labels.length - 1);
  return {
    title: 'Token similarity', subtitle: 'Mean cosine between different tokens of a sequence', labels, log: false, range: [Math.min(0, ...(cosine.p || cosine.m).filter((x) => x !== null)) - 0.02, 1.02],
    lines: [...linesOf(cosine, 'cosine'), ...overlays(chosen, (d) => d.cosine, stack)],
    guides: [{ name: 'rank collapse', value: 0.95, always: true }],
    note: last === undefined ? null : `At the end 1 \u2212 cosine is ${number(100 * (1 - last), 2)} %: what is left to tell one token from another.`,
    summary: summary('Cosine between tokens over the depth', cosine),
  };
}

function entropyChart(stack, labels, chosen) {
  const depth = data.depths[stack];
  const n = labels.length - 1;
  const entropy = without(depth.entropy, n);
  const high = Math.max(...depth.uniform);
  return {
    title: 'Attention', subtitle: 'Entropy of the attention weights, in nats', labels: labels.slice(0, n), log: false, range: [0, high * 1.08],
    lines: [...linesOf(entropy, 'entropy'), { name: 'uniform', color: 'faint', values: depth.uniform, dash: 'dashed', thin: true },
      ...overlays(chosen, (d) => without(d.entropy, n), stack)],
    note: `Scores have a variance of ${number(bestOf(depth.scores, 0), 3)} in the first layer and ${number(bestOf(depth.scores, n - 1), 3)} in the last; 1 is what the scale is there for.`,
    summary: summary('Entropy of attention over the depth', entropy),
  };
}

const makers = [signalChart, gradientChart, cosineChart, entropyChart];

// {element, overlay(chosen)}: `chosen` are indices of data.alternatives.
export function depthSection() {
  let stack = 0;
  let chosen = [];
  const labels = () => data.depths[stack].added.map((_, l) => `${isImages ? 'stage' : 'layer'} ${l}`).concat('end');
  const has = (k) => Object.keys(data.depths[k].entropy).length > 0 && data.depths[k].added.length > 0;
  const used = makers.filter((make) => (make !== entropyChart || has(0)) && !(isImages && make === cosineChart));
  const charts = used.map((make) => chart(make(stack, labels(), chosen)));
  const redraw = () => charts.forEach((c, i) => c.update(used[i](stack, labels(), chosen)));
  const stacks = data.depths.length > 1 ? h('select', {
    'aria-label': 'Which stack', onchange: (event) => { stack = Number(event.target.value); redraw(); },
  }, data.depths.map((d, i) => h('option', { value: i }, d.prefix.replace(/\.$/, '') || 'model'))) : null;
  const key = measured
    ? 'The line is the theory, its band how far a single draw may be off; points are measured, with bars of two standard errors.'
    : 'The line is the theory, its band how far a single draw of the weights may be off. --measure adds measured points.';
  return {
    element: h('section', { id: 'depth', 'aria-labelledby': 'depth-title' },
      h('div', { class: 'head' }, h('h2', { id: 'depth-title' }, 'Through the depth'), stacks), h('p', { class: 'lead' }, key),
      h('div', { class: 'charts' }, charts.map((c) => c.element))),
    overlay(next) {
      chosen = next;
      redraw();
    },
  };
}
