// A signal of the module (stepzero.signal/1, as predict --json has it) read along the depth.
const of = (value) => ({ p: value?.predicted ?? null, s: value?.spread ?? null });
const column = (values) => ({ p: values.map((v) => v.p), s: values.map((v) => v.s) });
const positive = (quantity) => ({ ...quantity, p: quantity.p.map((x) => (x > 0 ? x : null)) });
const root = (quantity) => ({ p: quantity.p.map((x) => (x === null ? null : Math.sqrt(x))), s: quantity.s.map((s, i) => (s === null || !(quantity.p[i] > 0) ? null : s / (2 * Math.sqrt(quantity.p[i])))) });

// [{prefix, labels, size, gradient, cosine, entropy, scores}], one for each residual stream.
export function depths(signal) {
  const stacks = new Map();
  for (const node of signal.nodes) {
    const match = /^(.*?)stream\.(\d+)$/.exec(node.name);
    if (!match) continue;
    if (!stacks.has(match[1])) stacks.set(match[1], []);
    stacks.get(match[1])[Number(match[2])] = node;
  }
  const attention = new Map(signal.attention.map((a) => [a.name, a]));
  return [...stacks].map(([prefix, nodes]) => {
    const heads = nodes.slice(0, -1).map((_, l) => attention.get(`${prefix}blocks.${l}.attn`));
    return {
      prefix,
      labels: nodes.map((_, l) => (l + 1 < nodes.length || l === 0 ? `layer ${l}` : 'end')),
      size: positive(root(column(nodes.map((n) => of(n.forward.second_moment))))),
      gradient: positive(column(nodes.map((n) => of(n.backward.norm)))),
      cosine: column(nodes.map((n) => of(n.forward.token_cosine))),
      entropy: column(heads.map((a) => of(a?.entropy))),
      scores: column(heads.map((a) => of(a?.score_variance))),
    };
  });
}

const last = (list) => list.filter((x) => x !== null && x !== undefined).at(-1) ?? null;

// What a sweep may show: {name, log, read(signal)}.
export const quantities = {
  loss: { name: 'Loss', log: false, read: (s) => s.loss.predicted },
  gradient: { name: 'Gradient norm', log: true, read: (s) => s.gradient_norm.predicted },
  growth: { name: 'Signal, last over first', log: true, read: (s) => { const { size } = depths(s)[0]; return last(size.p) / size.p[0]; } },
  cosine: { name: 'Token cosine at the end', log: false, read: (s) => last(depths(s)[0].cosine.p) },
  entropy: { name: 'Attention entropy, last layer', log: false, read: (s) => last(depths(s)[0].entropy.p) },
  findings: { name: 'Findings (2 an error, 1 a warning)', log: false, read: (s) => s.findings.reduce((sum, f) => sum + ({ error: 2, warning: 1 }[f.severity] ?? 0), 0) },
};
