// The numbers of the page, read once, and the little that is computed from them.
export const data = JSON.parse(document.getElementById('data').textContent);

export const measured = data.seeds > 0;
export const isImages = data.model.family === 'cnn';  // pixels and stages, no tokens, heads or attention
export const place = isImages ? 'stage' : 'layer';  // what the depth is counted in
export const multiple = (column) => column && Object.keys(column).length > 0;

// Column i of a quantity {p: [...], s: [...], m: [...], e: [...]} as one value.
export function at(quantity, i) {
  const value = {};
  for (const part of ['p', 's', 'm', 'e']) {
    if (quantity[part] && quantity[part][i] !== null && quantity[part][i] !== undefined) value[part] = quantity[part][i];
  }
  return value;
}

export const bestOf = (quantity, i) => {
  const value = at(quantity, i);
  return value.m !== undefined ? value.m : value.p;
};

// A function on every number of a quantity; spreads and errors go along by its slope.
export function mapQuantity(quantity, f, slope) {
  const out = {};
  for (const [part, of] of [['p', null], ['m', null], ['s', 'p'], ['e', 'm']]) {
    if (!quantity[part]) continue;
    out[part] = quantity[part].map((x, i) => (x === null ? null : of ? x * Math.abs(slope(quantity[of][i])) : f(x)));
  }
  return out;
}

export const root = (quantity) => mapQuantity(quantity, Math.sqrt, (x) => (x > 0 ? 0.5 / Math.sqrt(x) : 0));

const nodeIndex = new Map(data.nodes.name.map((name, i) => [name, i]));
export const nodeAt = (name) => nodeIndex.get(name);

// Where a finding leads: the layer it names, if it names one.
export function layerOf(where) {
  const match = /(?:^|\.)(?:stream|blocks|layers|layer|h)\.(\d+)(?:\.|$)/.exec(where);
  return match ? Number(match[1]) : null;
}
