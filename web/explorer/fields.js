// The fields of a model that have a control: where its values lie, and how they are shown.
const upTo = (list, base) => [...new Set([...list, base].filter((x) => Number.isFinite(x) && x > 0))].sort((a, b) => a - b);
const widths = [64, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192];
const depths = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 128];
const stds = Array.from({ length: 31 }, (_, i) => Number((10 ** (-3.5 + i * 0.1)).toPrecision(2)));

// Heads that divide the width, and that the heads of keys and values divide.
export function headCounts(width, keyHeads, heads) {
  const shared = keyHeads && keyHeads !== heads ? keyHeads : 1;
  const list = [];
  for (let n = shared; n <= Math.min(128, width / 8); n += shared) if (width % n === 0) list.push(n);
  return list;
}

// base: the model as it is without any setting, {layers, width, heads, kv_heads, init_std, ...}; now: with them.
export const numbers = [
  { key: 'layers', name: 'Layers', values: (base) => upTo(depths, base.layers), of: (base) => base.layers },
  { key: 'width', name: 'Width', values: (base) => upTo(widths.filter((w) => headCounts(w, base.kv_heads, base.heads).length > 0), base.width), of: (base) => base.width },
  { key: 'heads', name: 'Heads', values: (base, set) => upTo(headCounts(Number(set.width ?? base.width), base.kv_heads, base.heads), Number(set.heads ?? base.heads)), of: (base) => base.heads },
  { key: 'init_std', name: 'Weight std', values: (base) => upTo(stds, base.init_std), of: (base) => base.init_std, real: true },
];

export const choices = [
  { key: 'norm_placement', name: 'Norms', options: ['pre', 'post', 'sandwich', 'branch'], of: (base) => base.norm_placement },
  { key: 'norm', name: 'Kind of norm', options: ['layernorm', 'rmsnorm', 'none'], of: (base) => base.norm },
  { key: 'activation', name: 'Activation', options: ['gelu', 'gelu_tanh', 'silu', 'relu', 'relu_squared', 'tanh'], of: (base) => base.activation },
];

export const tokenCounts = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

// A width that the heads do not divide brings the nearest count that does.
export function repaired(set, base) {
  const width = Number(set.width ?? base.width);
  const heads = Number(set.heads ?? base.heads);
  const fits = headCounts(width, base.kv_heads, base.heads);
  if (!base.heads || fits.length === 0 || fits.includes(heads)) return set;
  const near = fits.reduce((best, n) => (Math.abs(Math.log(n / heads)) < Math.abs(Math.log(best / heads)) ? n : best));
  const out = { ...set, heads: String(near) };
  if (near === base.heads) delete out.heads;
  return out;
}
