// Up to four settings that stay on the charts.
import { h } from '../src/dom.js';
import { pinColors } from './charts.js';
import { title } from './state.js';

export const mostPins = pinColors.length;

export function pinsRow({ pin, unpin, go }) {
  const list = h('ul', { class: 'pins', 'aria-label': 'Pinned settings' });
  const button = h('button', { type: 'button', class: 'quiet', id: 'pin', onclick: pin, title: 'Keep these curves on the charts (p)' }, 'Pin these curves');
  return {
    element: h('div', { class: 'pin-row' }, button, list),
    show(pins) {
      button.disabled = pins.length >= mostPins;
      list.replaceChildren(...pins.map((state, i) => h('li', null, h('i', { class: `key ${pinColors[i]}` }),
        h('button', { type: 'button', class: 'link', onclick: () => go(state), title: 'Go back to it' }, title(state)),
        h('button', { type: 'button', class: 'reset', 'aria-label': `Unpin ${title(state)}`, onclick: () => unpin(i) }, '\u00d7'))));
    },
  };
}
