// Elements by calls. Text is only ever set as text, so that no name can become a tag.
const svgNamespace = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.setAttribute('class', value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(svgNamespace, tag), attributes, children);

export function announce(text) {
  document.getElementById('announce').textContent = text;
}

// A row of buttons of which one is pressed.
export function choice(label, names, chosen, pick) {
  const buttons = names.map(([value, text]) =>
    h('button', { type: 'button', 'aria-pressed': value === chosen ? 'true' : 'false', onclick: () => set(value) }, text));
  function set(value) {
    names.forEach(([other], i) => buttons[i].setAttribute('aria-pressed', other === value ? 'true' : 'false'));
    pick(value);
  }
  return h('div', { class: 'choice', role: 'group', 'aria-label': label }, buttons);
}
