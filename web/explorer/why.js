// Why a number is what it is: the head of its op, which is what the code says, and how far the rule can be trusted.
import { h } from '../src/dom.js';

export function whyDialog() {
  let ops = new Map();
  const title = h('h2', { id: 'why-title' });
  const grade = h('p', { class: 'grade-text' });
  const head = h('pre', { class: 'head-text', tabindex: '0' });
  const dialog = h('dialog', { id: 'why', 'aria-labelledby': 'why-title' },
    h('form', { method: 'dialog' }, h('button', { class: 'quiet close', 'aria-label': 'Close' }, '\u00d7')), title, grade, head);
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  return {
    element: dialog,
    learn(list) { ops = new Map(list.map((op) => [op.kind, op])); },
    open(kind, given) {
      const op = ops.get(kind);
      if (!op) return;
      title.textContent = kind.replace(/_/g, ' ');
      const name = given || op.grade;
      grade.replaceChildren(h('span', { class: `grade ${name}` }, name.replace(/_/g, ' ')), ` ${[...ops.values()].find((o) => o.grade === name)?.meaning ?? op.meaning}`);
      head.textContent = op.head.trimEnd();
      dialog.showModal();
    },
  };
}
