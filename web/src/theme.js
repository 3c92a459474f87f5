// Light, dark, or what the system says; colours for what is drawn on a canvas come from the style sheet.
const listeners = [];
const system = window.matchMedia('(prefers-color-scheme: dark)');

const isDark = () => (document.documentElement.dataset.theme || (system.matches ? 'dark' : 'light')) === 'dark';

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function onTheme(listener) {
  listeners.push(listener);
}

const changed = () => listeners.forEach((listener) => listener());

function remember(theme) {
  try {
    localStorage.setItem('stepzero-theme', theme);
  } catch {
    // a page from a disk may have no storage
  }
}

export function startTheme() {
  let kept = null;
  try {
    kept = localStorage.getItem('stepzero-theme');
  } catch {
    kept = null;
  }
  if (kept === 'dark' || kept === 'light') document.documentElement.dataset.theme = kept;
  system.addEventListener('change', changed);
  // paper is white, whatever the screen is
  let before;
  window.addEventListener('beforeprint', () => {
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = 'light';
    changed();
  });
  window.addEventListener('afterprint', () => {
    if (before) document.documentElement.dataset.theme = before;
    else delete document.documentElement.dataset.theme;
    changed();
  });
}

export function switchTheme() {
  const next = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  remember(next);
  changed();
  return next;
}
