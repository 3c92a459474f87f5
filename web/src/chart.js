// A chart over the depth: uPlot with a spread band, error bars, guide lines, a tooltip and the keyboard.
import uPlot from 'uplot';
import { announce, h } from './dom.js';
import { number, tick } from './format.js';
import { color, onTheme } from './theme.js';

const finite = (list) => list.filter((x) => x !== null && x !== undefined && Number.isFinite(x));

// Ends of the axis: what the data need and a little air; guides only where they are near.
function extent(chart) {
  const all = chart.lines.filter((line) => !line.hidden).flatMap((line) => [
    ...finite(line.values),
    ...(line.errors ? line.values.map((v, i) => (v === null ? null : v - (line.errors[i] || 0))).filter((x) => x > 0) : []),
    ...(line.errors ? line.values.map((v, i) => (v === null ? null : v + (line.errors[i] || 0))) : []),
  ]);
  const values = finite(chart.log ? all.filter((x) => x > 0) : all);
  if (values.length === 0) return chart.log ? [0.1, 10] : [0, 1];
  let low = Math.min(...values);
  let high = Math.max(...values);
  for (const guide of chart.guides || []) {
    if (guide.always || (guide.value <= high * 10 && guide.value >= low / 10)) {
      low = Math.min(low, guide.value);
      high = Math.max(high, guide.value);
    }
  }
  if (!chart.log) return chart.range || [Math.min(0, low), high + (high - low || 1) * 0.08];
  const least = Math.sqrt(Math.max(1, 4 / (high / low)));  // half a decade at least
  return [(low / least) * 0.8, high * least * 1.25];
}

// 1, 2, 5 where a decade is much, else decades, at most eight.
function logSplits(low, high) {
  const decades = Math.log10(high / low);
  const steps = decades < 1.6 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / 8));
  const splits = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e) {
    if (e % every !== 0) continue;
    for (const step of steps) {
      const value = Number(`${step}e${e}`);
      if (value >= low && value <= high) splits.push(value);
    }
  }
  return splits;
}

const dashes = { dashed: [5, 4], dotted: [2, 3] };

function seriesOf(chart) {
  const list = [{}];
  for (const line of chart.lines) {
    const stroke = color(line.color);
    list.push({
      label: line.name,
      show: !line.hidden,
      stroke,
      width: line.points ? 0 : line.thin ? 1.25 : 2,
      dash: dashes[line.dash],
      spanGaps: false,
      points: { show: Boolean(line.points), size: line.points ? 6 : 0, fill: color('surface'), stroke, width: 1.75 },
      paths: line.points ? () => null : undefined,
    });
  }
  return list;
}

function drawBand(u, line) {
  const { ctx } = u;
  ctx.save();
  ctx.globalAlpha = 0.16;
  ctx.fillStyle = color(line.color);
  ctx.beginPath();
  const low = u.scales.y.min;
  const points = line.values.map((v, i) => [i, v]).filter(([, v]) => v !== null);
  const y = (v) => u.valToPos(Math.max(v, low), 'y', true);
  points.forEach(([i, v], k) => ctx[k === 0 ? 'moveTo' : 'lineTo'](u.valToPos(i, 'x', true), y(v + (line.band[i] || 0))));
  points.reverse().forEach(([i, v]) => ctx.lineTo(u.valToPos(i, 'x', true), y(v - (line.band[i] || 0))));
  ctx.closePath();
  ctx.fill();
  ctx.restore();
}

function drawErrors(u, line) {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = color(line.color);
  ctx.lineWidth = 1.25 * devicePixelRatio;
  line.values.forEach((v, i) => {
    if (v === null || !line.errors[i]) return;
    const x = u.valToPos(i, 'x', true);
    ctx.beginPath();
    ctx.moveTo(x, u.valToPos(Math.max(v - line.errors[i], u.scales.y.min), 'y', true));
    ctx.lineTo(x, u.valToPos(v + line.errors[i], 'y', true));
    ctx.stroke();
  });
  ctx.restore();
}

function drawGuides(u, chart) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px ${color('sans')}`;
  ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.lineWidth = devicePixelRatio;
  ctx.strokeStyle = color('faint');
  ctx.fillStyle = color('muted');
  ctx.textAlign = 'right';
  ctx.textBaseline = 'bottom';
  for (const guide of chart.guides || []) {
    if (guide.value < u.scales.y.min || guide.value > u.scales.y.max) continue;
    const y = u.valToPos(guide.value, 'y', true);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.fillText(guide.name, bbox.left + bbox.width - 4 * devicePixelRatio, y - 2 * devicePixelRatio);
  }
  ctx.restore();
}

function tooltip(chart, box) {
  return (u) => {
    const i = u.cursor.idx;
    if (i === null || i === undefined) {
      box.hidden = true;
      return;
    }
    box.replaceChildren(h('b', null, chart.labels[i]));
    chart.lines.forEach((line, k) => {
      if (line.values[i] === null || line.values[i] === undefined || !u.series[k + 1].show) return;
      const around = line.errors ? line.errors[i] / 2 : line.band ? line.band[i] : null;
      box.append(h('div', null, h('i', { class: `key ${line.color}` }), h('span', null, line.name),
        h('span', { class: 'value' }, number(line.values[i]) + (around ? ` \u00b1 ${number(around, 2)}` : ''))));
    });
    box.hidden = false;
    const x = u.valToPos(i, 'x') + u.over.offsetLeft;
    const right = x > u.width / 2;
    box.style.left = right ? 'auto' : `${x + 12}px`;
    box.style.right = right ? `${u.width - x + 12}px` : 'auto';
    box.style.top = `${u.over.offsetTop + 8}px`;
  };
}

function optionsOf(chart, width, box) {
  const axis = { stroke: color('muted'), font: `12px ${color('sans')}`, grid: { stroke: color('grid'), width: 1 }, ticks: { show: false } };
  const count = chart.labels.length - 1;
  return {
    width,
    height: chart.height || 230,
    padding: [12, Math.max(14, 3.5 * (chart.labels[count]?.length ?? 0)), 0, 0],  // half of the last label
    legend: { show: false },
    cursor: { x: true, y: false, drag: { x: false, y: false, setScale: false }, points: { size: 7, fill: color('surface') } },
    scales: { x: { time: false, range: [-0.02 * count, count * 1.02] }, y: { distr: chart.log ? 3 : 1, range: () => extent(chart) } },
    axes: [
      { ...axis, grid: { show: false }, size: 30, values: (u, ticks) => ticks.map((t) => (Number.isInteger(t) ? chart.labels[t]?.replace(/^(layer|update) /, '') ?? '' : '')) },
      { ...axis, size: 56, splits: chart.log ? () => logSplits(...extent(chart)) : undefined, values: (u, ticks) => ticks.map((t) => (chart.log ? tick(t) : number(t, 3))) },
    ],
    series: seriesOf(chart),
    hooks: {
      drawAxes: [(u) => chart.lines.forEach((line, k) => line.band && u.series[k + 1].show && drawBand(u, line))],
      draw: [(u) => drawGuides(u, chart), (u) => chart.lines.forEach((line, k) => line.errors && u.series[k + 1].show && drawErrors(u, line))],
      setCursor: [tooltip(chart, box)],
    },
  };
}

// The arrow keys walk over the layers; each point is read out.
function keyboard(chart, plot) {
  let i = -1;
  return (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const u = plot();
    i = Math.max(0, Math.min(chart.labels.length - 1, i + step));
    u.setCursor({ left: u.valToPos(i, 'x'), top: 10 });
    const said = chart.lines.filter((line, k) => line.values[i] !== null && line.values[i] !== undefined && u.series[k + 1].show);
    announce(`${chart.labels[i]}: ${said.map((line) => `${line.name} ${number(line.values[i])}`).join(', ')}`);
  };
}

function legend(chart, plot) {
  return h('div', { class: 'legend' }, chart.lines.map((line, k) => h('button', {
    type: 'button',
    'aria-pressed': line.hidden ? 'false' : 'true',
    onclick: (event) => {
      line.hidden = !line.hidden;
      event.currentTarget.setAttribute('aria-pressed', line.hidden ? 'false' : 'true');
      plot().setSeries(k + 1, { show: !line.hidden });
    },
  }, h('i', { class: `key ${line.color}${line.points ? ' point' : ''}${line.dash ? ' dash' : ''}` }), line.name)));
}

// chart: {title, note, labels, log, lines: [{name, color, values, band?, errors?, points?, dash?, hidden?}], guides?, range?}
export function chart(description) {
  const box = h('div', { class: 'tooltip', hidden: true });
  const holder = h('div', { class: 'plot', tabindex: '0', role: 'img', 'aria-label': description.summary });
  let current = description;
  let plot = null;
  const figure = h('figure', { class: 'chart' });
  const draw = () => {
    const width = holder.clientWidth || 400;
    if (plot) plot.destroy();
    holder.replaceChildren();
    plot = new uPlot(optionsOf(current, width, box), [current.labels.map((_, i) => i), ...current.lines.map((line) => line.values)], holder);
    holder.append(box);
  };
  const show = () => {
    holder.setAttribute('aria-label', current.summary);
    figure.replaceChildren(
      h('figcaption', null, h('h3', null, current.title), h('p', null, current.subtitle)),
      legend(current, () => plot), holder, current.note ? h('p', { class: 'note' }, current.note) : '');
    draw();
  };
  holder.addEventListener('keydown', (event) => keyboardHandler(event));
  let keyboardHandler = keyboard(current, () => plot);
  onTheme(draw);
  let seen = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth === seen || holder.clientWidth === 0) return;
    seen = holder.clientWidth;
    if (plot) plot.setSize({ width: seen, height: current.height || 230 });
    else draw();
  }).observe(holder);
  queueMicrotask(show);
  return {
    element: figure,
    update(next) {
      current = next;
      keyboardHandler = keyboard(current, () => plot);
      show();
    },
  };
}
