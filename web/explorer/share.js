// The setting as a link, as a command line and as Python.
import { announce, h } from '../src/dom.js';
import { commandLine, python } from './state.js';

const forms = { command: ['Command line', commandLine], python: ['Python', python], link: ['Link', () => location.href] };

export function shareSection() {
  let state = null;
  let form = 'command';
  const code = h('code', { id: 'shared' });
  const done = h('button', { type: 'button', class: 'quiet', id: 'copy', onclick: async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      done.textContent = 'Copied';
      announce('Copied');
    } catch {
      getSelection().selectAllChildren(code);
      done.textContent = 'Selected';
    }
    setTimeout(() => { done.textContent = 'Copy'; }, 1500);
  } }, 'Copy');
  const buttons = Object.entries(forms).map(([name, [text]]) => h('button', { type: 'button', 'data-form': name, 'aria-pressed': String(name === form), onclick: () => {
    form = name;
    buttons.forEach((b) => b.setAttribute('aria-pressed', String(b.dataset.form === name)));
    draw();
  } }, text));
  const draw = () => { if (state) code.textContent = forms[form][1](state); };
  return {
    element: h('section', { id: 'share', 'aria-labelledby': 'share-title' }, h('h2', { id: 'share-title' }, 'Take it along'),
      h('div', { class: 'row' }, h('div', { class: 'choice', role: 'group', 'aria-label': 'As what' }, buttons), done), h('pre', { tabindex: '0' }, code)),
    show(next) { state = next; draw(); },
  };
}
