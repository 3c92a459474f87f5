// What is asked: a plain object, and its forms: the fragment of the address, a request of the module, a command line, Python.
export const start = { model: 'gpt2', text: '', scheme: 'hf', set: {}, more: '', tokens: 64, optimizer: '', rate: null, pins: [], sweep: null };

// Of "key=value key=value", what people write into the field for further settings.
const extra = (state) => state.more.split(/[\s;]+/).filter(Boolean);
export const settings = (state) => [...Object.entries(state.set).map(([key, value]) => `${key}=${value}`), ...extra(state)];

export const modelOf = (state) => (state.text ? state.text : state.model);
export const request = (state, tokens = state.tokens) => ({ model: state.text && !/\n/.test(state.text) && !state.text.startsWith('{') ? `${state.text}\n` : modelOf(state), scheme: state.scheme, set: settings(state), seq_len: tokens });

const bytesOf = async (stream) => new Uint8Array(await new Response(stream).arrayBuffer());
const through = (bytes, stream) => bytesOf(new Blob([bytes]).stream().pipeThrough(stream));

async function pack(text) {
  const bytes = await through(new TextEncoder().encode(text), new CompressionStream('deflate-raw'));
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
  return new TextDecoder().decode(await through(bytes, new DecompressionStream('deflate-raw')));
}

// Words that people can read and write; only a text of one's own is packed.
export async function toFragment(state) {
  const query = new URLSearchParams();
  if (state.text) query.set('text', await pack(state.text));
  else query.set('model', state.model);
  if (state.scheme !== start.scheme) query.set('scheme', state.scheme);
  for (const [key, value] of Object.entries(state.set)) query.append('set', `${key}=${value}`);
  if (state.more) query.set('more', state.more);
  if (state.tokens !== start.tokens) query.set('seq_len', state.tokens);
  if (state.optimizer) query.set('optimizer', state.optimizer);
  if (state.optimizer && state.rate) query.set('rate', state.rate);
  if (state.sweep) query.set('sweep', [state.sweep.x, state.sweep.y, state.sweep.what].join(','));
  for (const pin of state.pins) query.append('pin', await toFragment({ ...pin, pins: [], sweep: null }));
  return query.toString();
}

export async function fromFragment(fragment) {
  const query = new URLSearchParams(fragment.replace(/^#/, ''));
  const state = structuredClone(start);
  if (query.has('text')) state.text = await unpack(query.get('text'));
  if (query.has('model')) state.model = query.get('model');
  if (query.has('scheme')) state.scheme = query.get('scheme');
  for (const item of query.getAll('set')) {
    const at = item.indexOf('=');
    if (at > 0) state.set[item.slice(0, at)] = item.slice(at + 1);
  }
  state.more = query.get('more') ?? '';
  const tokens = Number(query.get('seq_len'));
  if (Number.isInteger(tokens) && tokens > 0) state.tokens = Math.min(tokens, 512);
  state.optimizer = query.get('optimizer') ?? '';
  const rate = Number(query.get('rate'));
  if (state.optimizer && rate > 0) state.rate = rate;
  const [x, y, what] = (query.get('sweep') ?? '').split(',');
  if (what) state.sweep = { x, y, what };
  for (const pin of query.getAll('pin').slice(0, 4)) state.pins.push(await fromFragment(pin));
  return state;
}

const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);
const fileName = (state) => (/^\s*\{/.test(state.text) ? 'config.json' : 'model.py');

export function commandLine(state) {
  const model = [word(state.text ? fileName(state) : state.model), ...settings(state).map((s) => `--set ${word(s)}`),
    state.scheme === start.scheme ? '' : `--scheme ${word(state.scheme)}`, `--seq-len ${state.tokens}`].filter(Boolean).join(' ');
  const step = `stepzero step ${model} --optimizer ${word(state.optimizer)}${state.rate ? ` --rate ${state.rate}` : ''}`;
  return `stepzero predict ${model}${state.optimizer ? `\n${step}` : ''}`;
}

export function python(state) {
  const text = JSON.stringify;
  const set = settings(state).map((s) => [s.slice(0, s.indexOf('=')), s.slice(s.indexOf('=') + 1)]);
  const value = (x) => (/^-?\d+(\.\d+)?(e-?\d+)?$/.test(x) ? x : text(x));
  const options = [text(state.text ? fileName(state) : state.model), ...(set.length > 0 ? [`set={${set.map(([k, v]) => `${text(k)}: ${value(v)}`).join(', ')}}`] : []),
    ...(state.scheme === start.scheme ? [] : [`scheme=${text(state.scheme)}`])];
  return `import stepzero\n\nmodel = stepzero.load(${options.join(', ')})\nmodel.predict(seq_len=${state.tokens})${state.optimizer ? `\nmodel.step(optimizer=${text(state.optimizer)}${state.rate ? `, rate=${state.rate}` : ''}, seq_len=${state.tokens})` : ''}`;
}

// A few words for a legend: the model, and what differs from it.
export function title(state) {
  const name = state.text ? 'own model' : state.model;
  return [name, ...(state.scheme === start.scheme ? [] : [state.scheme]), ...settings(state)].join(' \u00b7 ');
}
