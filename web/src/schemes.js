// Other schemes for the same model: laid over the charts, and side by side.
import { data } from './data.js';
import { overlayColors } from './depth.js';
import { h } from './dom.js';
import { best, number } from './format.js';

export function schemeSection(overlay) {
  if (data.alternatives.length === 0) return null;
  const chosen = new Set(data.alternatives.map((_, k) => k));
  const row = (name, s, k) => {
    const end = (q) => { const list = q.m || q.p || []; return list[list.length - 1]; };
    const state = s.findings.some((f) => f.severity === 'error') ? 'error' : s.findings.some((f) => f.severity === 'warning') ? 'warning' : 'good';
    return h('tr', null,
      h('th', { scope: 'row' }, k === null ? [h('i', { class: 'key accent' }), name, h('span', { class: 'sub' }, ' this report')]
        : h('label', null, h('input', { type: 'checkbox', checked: true, onchange: (event) => { if (event.target.checked) chosen.add(k); else chosen.delete(k); overlay([...chosen].sort()); } }),
          h('i', { class: `key dash ${overlayColors[k % overlayColors.length]}` }), name)),
      h('td', { 'data-label': 'Verdict' }, h('span', { class: `dot ${state}` }), s.verdict),
      h('td', { class: 'n', 'data-label': 'Loss' }, number(best(s.loss))), h('td', { class: 'n', 'data-label': 'Gradient norm' }, number(best(s.gradient_norm))),
      h('td', { class: 'n', 'data-label': 'Signal, end' }, number(Math.sqrt(end(s.depths[0].signal)), 3)), h('td', { class: 'n', 'data-label': 'Cosine, end' }, number(end(s.depths[0].cosine), 4)));
  };
  queueMicrotask(() => queueMicrotask(() => overlay([...chosen])));
  const heads = ['Scheme', 'Verdict', 'Loss', 'Gradient norm', 'Signal, end', 'Cosine, end'];
  return h('section', { id: 'schemes', 'aria-labelledby': 'schemes-title' }, h('h2', { id: 'schemes-title' }, 'Other schemes'),
    h('p', { class: 'lead' }, 'The same model, drawn otherwise, by theory. Ticked schemes are laid over the charts.'),
    h('div', { class: 'scroll' }, h('table', { class: 'schemes' }, h('thead', null, h('tr', null, heads.map((t, i) => h('th', { scope: 'col', class: i > 1 ? 'n' : '' }, t)))),
      h('tbody', null, row(data.scheme, data, null), data.alternatives.map((s, k) => row(s.scheme, s, k))))));
}
