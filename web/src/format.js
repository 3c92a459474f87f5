// Numbers as people read them.
const superscripts = { '-': '\u207b', 0: '\u2070', 1: '\u00b9', 2: '\u00b2', 3: '\u00b3', 4: '\u2074', 5: '\u2075', 6: '\u2076', 7: '\u2077', 8: '\u2078', 9: '\u2079' };

export const superscript = (n) => String(n).split('').map((c) => superscripts[c] ?? c).join('');

const minus = (text) => text.replace('-', '\u2212');

export function number(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return '\u2013';
  if (!Number.isFinite(x)) return x > 0 ? '\u221e' : '\u2212\u221e';
  if (x === 0) return '0';
  const size = Math.abs(x);
  if (size >= 1e-3 && size < 1e5) return minus(String(Number(x.toPrecision(digits))));
  const exponent = Math.floor(Math.log10(size) + 1e-12);
  return `${minus((x / 10 ** exponent).toFixed(2))}\u00d710${superscript(exponent)}`;
}

// 124439808 -> 124 M
export function amount(n) {
  for (const [size, unit] of [[1e12, ' T'], [1e9, ' B'], [1e6, ' M'], [1e3, ' k']]) {
    if (n >= size) return Number((n / size).toPrecision(3)) + unit;
  }
  return String(n);
}

// A tick of a logarithmic axis.
export function tick(x) {
  if (x === 0) return '0';
  const exponent = Math.round(Math.log10(Math.abs(x)));
  if (Math.abs(x / 10 ** exponent - 1) < 1e-6) return Math.abs(exponent) <= 2 ? minus(String(Number(x.toPrecision(3)))) : `10${superscript(exponent)}`;
  return Math.abs(x) >= 1e-2 && Math.abs(x) < 1e3 ? minus(String(Number(x.toPrecision(2)))) : '';
}

export function factor(x) {
  if (x >= 1e7) return `10${superscript(Math.round(Math.log10(x)))}`;
  return x >= 1000 ? Number(x.toPrecision(2)).toLocaleString('en') : number(x, 2);
}

// A value {p, s, m, e}: the number to show, and what stands behind the plus-minus.
export const best = (v) => (v.m !== undefined ? v.m : v.p);
export const uncertainty = (v) => (v.m !== undefined ? v.e : v.s);
