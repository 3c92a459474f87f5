// The controls: each is a list of values on a slider and a field for any other; what is not set is the model's own.
import { h } from '../src/dom.js';
import { amount, number } from '../src/format.js';
import { choices, numbers, repaired, tokenCounts } from './fields.js';
import { modelTexts } from './texts.js';
import { optimizers, rates } from './update.js';

const nearest = (list, x) => list.reduce((best, v, i) => (Math.abs(Math.log(v / x)) < Math.abs(Math.log(list[best] / x)) ? i : best), 0);

// One number: {values, value, fallback} are given anew by show().
function numberControl(name, key, change, { real = false } = {}) {
  const id = `field-${key}`;
  const field = h('input', { id, type: 'text', inputmode: real ? 'decimal' : 'numeric', autocomplete: 'off', spellcheck: 'false', class: 'number' });
  const range = h('input', { type: 'range', min: 0, step: 1, 'aria-label': name, id: `range-${key}` });
  const reset = h('button', { type: 'button', class: 'reset', 'aria-label': `${name}: the model\u2019s own`, title: 'the model\u2019s own', onclick: () => change(null, true) }, '\u21ba');
  let values = [];
  range.addEventListener('input', () => change(values[Number(range.value)], false));
  range.addEventListener('change', () => change(values[Number(range.value)], true));
  field.addEventListener('change', () => change(Number(field.value), true, field.value));
  return {
    element: h('div', { class: 'control', 'data-key': key }, h('label', { for: id }, name), reset, field, range),
    show({ list, value, own }) {
      values = list;
      range.max = Math.max(0, list.length - 1);
      const at = nearest(list, value);
      range.value = at;
      range.setAttribute('aria-valuetext', number(value));
      if (document.activeElement !== field) field.value = String(value);
      reset.hidden = own;
    },
  };
}

function selectControl(name, key, options, change) {
  const id = `field-${key}`;
  const select = h('select', { id, onchange: () => change(select.value) }, options.map(([value, text]) => h('option', { value }, text)));
  return { element: h('div', { class: 'control', 'data-key': key }, h('label', { for: id }, name), select), select };
}

// change(next state, final): final is false while a slider is dragged.
export function controlsSection({ schemes, describe, steps }, change) {
  let state = null;
  let base = null;
  const update = (part, final = true) => change({ ...state, ...part }, final);
  const set = (key, value, own, final) => {
    const next = { ...state.set };
    if (value === null || String(value) === String(own)) delete next[key];
    else next[key] = String(value);
    // heads that no longer divide the width are mended, unless they were asked for
    const asked = key === 'heads' && next.heads !== undefined;
    update({ set: asked ? next : repaired(next, base) }, final);
  };

  const model = selectControl('Model', 'model', [], (value) => update({ model: value, text: '', set: {}, more: '' }));
  const own = h('option', { value: '', hidden: true }, 'own text');
  model.select.append(own);
  const scheme = selectControl('Scheme', 'scheme', schemes.map((s) => [s.name, s.name]), (value) => update({ scheme: value }));
  const about = h('p', { class: 'meta about' });
  const fields = numbers.map((f) => ({ ...f, control: numberControl(f.name, f.key, (value, final, typed) => set(f.key, typed !== undefined && !Number.isFinite(value) ? typed : value, f.of(base), final), f) }));
  const words = choices.map((f) => ({ ...f, control: selectControl(f.name, f.key, [], (value) => set(f.key, value, f.of(base), true)) }));
  const tokens = numberControl('Tokens', 'seq_len', (value, final) => update({ tokens: value === null ? 64 : Math.max(2, Math.min(512, Math.round(value) || 64)) }, final));
  const optimizer = selectControl('First update by', 'optimizer', [['', 'none'], ...Object.keys(optimizers).map((name) => [name, name])], (value) => update({ optimizer: value, rate: null }));
  const rate = numberControl('Rate', 'rate', (value, final) => update({ rate: value > 0 && value !== optimizers[state.optimizer] ? value : null }, final), { real: true });
  optimizer.element.hidden = !steps;
  const more = h('input', { id: 'field-more', type: 'text', placeholder: 'tied=false ffn=2048', autocomplete: 'off', spellcheck: 'false', onchange: () => update({ more: more.value.trim() }) });
  const texts = modelTexts((text) => update({ text, set: {}, more: '' }), () => describe(state));

  return {
    element: h('form', { class: 'controls', id: 'controls', 'aria-label': 'Settings', onsubmit: (event) => event.preventDefault() },
      model.element, texts.element, scheme.element, about, fields.map((f) => f.control.element), tokens.element, words.map((f) => f.control.element),
      h('div', { class: 'control', 'data-key': 'more' }, h('label', { for: 'field-more' }, 'More settings'), more), optimizer.element, rate.element),
    focus: () => model.select.focus(),
    dropped: texts.take,
    // The presets, when they are known: the module counts the parameters of all of them.
    offer(models) {
      const families = new Map();
      for (const m of models) {
        if (!families.has(m.family)) families.set(m.family, []);
        families.get(m.family).push(m);
      }
      model.select.replaceChildren(own, ...[...families].map(([family, list]) => h('optgroup', { label: family },
        list.map((m) => h('option', { value: m.name }, `${m.name}  (${amount(m.parameters)})`)))));
      this.show(state);
    },
    show(next, facts) {
      state = next;
      if (facts) base = facts;
      model.select.value = state.text ? '' : state.model;
      if (state.text === '' && model.select.value !== state.model) {  // a preset that this page does not know
        model.select.append(h('option', { value: state.model }, state.model));
        model.select.value = state.model;
      }
      scheme.select.value = state.scheme;
      about.textContent = schemes.find((s) => s.name === state.scheme)?.summary ?? '';
      texts.show(state.text);
      if (document.activeElement !== more) more.value = state.more;
      tokens.show({ list: [...new Set([...tokenCounts, state.tokens])].sort((a, b) => a - b), value: state.tokens, own: state.tokens === 64 });
      optimizer.select.value = state.optimizer;
      rate.element.hidden = !state.optimizer;
      if (state.optimizer) rate.show({ list: [...new Set([...rates, state.rate ?? optimizers[state.optimizer]])].sort((a, b) => a - b), value: state.rate ?? optimizers[state.optimizer], own: state.rate === null });
      if (!base) return;
      for (const f of fields) {
        const own = f.of(base);
        f.control.element.hidden = !(own > 0);
        if (own > 0) f.control.show({ list: f.values(base, state.set), value: Number(state.set[f.key] ?? own), own: state.set[f.key] === undefined });
      }
      for (const f of words) {
        const own = f.of(base);
        f.control.element.hidden = !own;
        const value = state.set[f.key] ?? own;
        const options = [...new Set([own, ...f.options])];
        f.control.select.replaceChildren(...options.map((o) => h('option', { value: o }, o === own ? `${o} (its own)` : o)));
        f.control.select.value = value;
      }
    },
  };
}
