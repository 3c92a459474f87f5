// A model of one's own: a config.json or an architecture file, pasted, opened or dropped. Nothing leaves the page.
import { announce, h } from '../src/dom.js';

const most = 1 << 20;

export function modelTexts(take, describe) {
  const area = h('textarea', { id: 'text', rows: 9, spellcheck: 'false', 'aria-label': 'config.json or architecture file', placeholder: '{"model_type": "llama", ...}\n\nor an architecture file' });
  const file = h('input', { type: 'file', id: 'file', class: 'hidden', accept: '.json,.py,.txt', tabindex: '-1', 'aria-label': 'A file', onchange: () => file.files[0] && open(file.files[0]) });
  const details = h('details', { class: 'texts', id: 'texts' }, h('summary', null, 'Own model: paste, open or drop'),
    area, h('div', { class: 'row' },
      h('button', { type: 'button', class: 'quiet', id: 'use', onclick: () => take(area.value) }, 'Use this text'),
      h('button', { type: 'button', class: 'quiet', onclick: () => file.click() }, 'Open a file'),
      h('button', { type: 'button', class: 'quiet', id: 'describe', onclick: async () => {
        const text = await describe();
        if (text) area.value = text;
      } }, 'Write out this model')), file);

  async function open(item) {
    if (item.size > most) {
      announce('That file is too large to be a configuration');
      return;
    }
    area.value = await item.text();
    details.open = true;
    take(area.value);
  }

  return {
    element: details,
    take: open,
    show(text) {
      if (text && document.activeElement !== area) {
        area.value = text;
        details.open = true;
      }
    },
  };
}
