// The first update of the weights: how far each layer's stream and each head's scores move, by theory, at a rate under a slider.
import { chart } from '../src/chart.js';
import { h } from '../src/dom.js';
import { number } from '../src/format.js';
import { request } from './state.js';

export const optimizers = { adamw: 1e-3, sgd: 0.1, lion: 1e-4, muon: 0.02 };  // and their usual rates
export const rates = Array.from({ length: 29 }, (_, i) => Number((10 ** (-6 + i / 4)).toPrecision(2)));
const few = 16;  // tokens: a step costs many predictions

export const updateRequest = (state) => ({ ...request(state, Math.min(few, state.tokens)), optimizer: state.optimizer, rate: state.rate ?? optimizers[state.optimizer], effort: 0.05, search: false });

// [{name, p}] of streams and scores over the layers.
function columns(step) {
  const streams = step.streams.filter((s) => /(^|\.)stream\.\d+$/.test(s.name));
  return {
    labels: streams.map((_, l) => (l + 1 < streams.length ? `layer ${l}` : 'end')),
    relative: streams.map((s) => s.relative.predicted ?? null),
    scores: step.attention.map((a) => a.score_change.predicted ?? null),
  };
}

const described = (title, subtitle, labels, values, before) => ({
  title, subtitle, labels, log: true, height: 200,
  lines: [{ name: 'now', color: 'accent', values: values.map((v) => (v > 0 ? v : null)) },
    ...(before && before.length === values.length ? [{ name: 'before', color: 'faint', dash: 'dashed', thin: true, values: before.map((v) => (v > 0 ? v : null)) }] : [])],
  summary: `${title}: ${number(values[0])} at the first layer, ${number(values.at(-1))} at the last. Arrow keys walk over the layers.`,
});

export function updateSection(spawn) {
  const note = h('p', { class: 'lead', id: 'update-note', role: 'status' });
  const holder = h('div', { class: 'charts' });
  const section = h('section', { id: 'update', 'aria-labelledby': 'update-title', hidden: true }, h('h2', { id: 'update-title' }, 'First update'), note, holder);
  let thread = null;
  let key = '';
  let last = null;
  let charts = null;

  function draw(step, asked) {
    const now = columns(step);
    const list = [described('Streams', 'Change of each layer\u2019s stream, as a share of its size', now.labels, now.relative, last?.relative),
      described('Scores', 'Change (rms) of the attention scores', now.labels.slice(0, now.scores.length), now.scores, last?.scores)];
    if (!charts) {
      charts = list.map((d) => chart(d));
      holder.replaceChildren(...charts.map((c) => h('div', { class: 'cell' }, c.element)));
    } else charts.forEach((c, i) => c.update(list[i]));
    last = now;
    const { before, after } = step.loss;
    note.textContent = `One update by ${asked.optimizer} at ${number(asked.rate)}: loss ${number(before.predicted)} \u2192 ${number(after.predicted)}. Predicted at ${asked.seq_len} tokens with little sampling.`;
  }

  return {
    element: section,
    async show(state) {
      section.hidden = !state.optimizer;
      const asked = state.optimizer ? updateRequest(state) : null;
      const next = JSON.stringify(asked);
      if (next === key) return;
      key = next;
      if (thread?.busy) {
        thread.end();
        thread = null;
      }
      if (!asked) return;
      thread ??= spawn();
      note.textContent = 'refining \u2026';
      const { texts } = await thread.call('sz_step', asked);
      if (key !== next) return;
      if (texts.error) note.textContent = `${texts.error}. ${texts.hint}`;
      else draw(JSON.parse(texts.json), asked);
      section.dataset.answer = next;
    },
  };
}
