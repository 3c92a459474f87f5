// The page, from top to bottom.
import { data, isImages } from './data.js';
import { announce, h } from './dom.js';
import { amount } from './format.js';
import { startTheme, switchTheme } from './theme.js';
import { findingsSection } from './findings.js';
import { depthSection } from './depth.js';
import { blockSection } from './diagram.js';
import { parameterSection } from './parameters.js';
import { schemeSection } from './schemes.js';
import { tableSection } from './table.js';

// An encoder and a decoder are two stacks.
function depthFacts() {
  const { depths, model } = data;
  if (depths.length < 2) return [`${model.layers} ${isImages ? 'stages' : 'layers'}`];
  return depths.map((d) => `${d.added.length} ${d.prefix.replace(/\.$/, '')} layers`);
}

function header() {
  const { model, input } = data;
  const facts = [
    `${amount(model.parameters)} parameters`, ...(model.trainable === undefined ? [] : [`${amount(model.trainable)} of them train`]), ...depthFacts(), `width ${model.width}`,
    isImages ? '' : model.kv_heads && model.kv_heads !== model.heads ? `${model.heads} heads on ${model.kv_heads}` : `${model.heads} heads`,
    isImages ? (model.norm === 'none' ? 'no norms' : model.norm) : model.norm === 'none' ? 'no norms' : `${model.norm_placement}-norm`, `${model.gated ? 'gated ' : ''}${model.activation.replace(/_/g, ' ')}`, isImages ? '' : model.tied ? 'tied head' : 'own head'].filter(Boolean);
  const theory = data.carried_on_from ? `predicted by theory, carried on from ${data.carried_on_from} tokens` : 'predicted by theory';
  const how = data.seeds === 0 ? theory : `measured over ${data.seeds} draw${data.seeds > 1 ? 's' : ''}${data.weightless ? ' without weights' : ''}`;
  return h('header', { class: 'top' },
    h('div', { class: 'bar' }, h('span', { class: 'brand' }, 'stepzero'),
      h('button', { type: 'button', id: 'theme', class: 'quiet', onclick: () => announce(`${switchTheme()} colours`) }, 'Light / dark')),
    h('h1', null, model.name),
    h('p', { class: 'facts' }, facts.map((fact) => h('span', null, fact))),
    h('p', { class: 'facts second' }, [`scheme ${data.scheme}`, `${input.tokens} ${isImages || model.family === 'vit' ? 'pixels' : 'tokens'}, ${input.batch} \u00d7 ${input.seq_len}`, how].map((fact) => h('span', null, fact))),
    model.changes.length > 0 ? h('p', { class: 'changes' }, `The scheme sets ${model.changes.join(', ')}`) : null);
}

function footer() {
  const command = h('code', { id: 'command' }, data.command);
  return h('footer', null, h('h2', null, 'Made by'), h('pre', null, command),
    h('p', { class: 'meta' }, `stepzero ${data.version}`, data.seeds > 0 ? ` \u00b7 seed ${data.seed}` : '', ' \u00b7 the same command makes the same page'));
}

startTheme();
document.title = `${data.model.name} \u2013 stepzero`;
const table = tableSection();
const block = blockSection(table.find);
const depth = depthSection();
document.getElementById('page').replaceChildren(header(),
  h('main', null, findingsSection(block.follow), depth.element, schemeSection(depth.overlay) || '', block.element, parameterSection(), table.element), footer());
document.documentElement.dataset.ready = 'true';
