// The calls behind C (stepzero/capi/c.h) of one instance of the module.
import { system } from './wasi.js';

export async function start(module) {
  let told = '';
  const { imports, bind } = system((text) => { told += text; });
  // only what the module asks for, so that an engine need not look into a proxy
  const wanted = {};
  for (const { module: from, name } of WebAssembly.Module.imports(module)) (wanted[from] ??= {})[name] = imports[from]?.[name] ?? (() => { throw new Error(`${name} is missing`); });
  const { exports } = await WebAssembly.instantiate(module, wanted);
  bind(exports.memory);
  exports._initialize?.();

  const write = (text) => {
    const bytes = new TextEncoder().encode(`${text}\0`);
    const at = exports.malloc(bytes.length);
    new Uint8Array(exports.memory.buffer).set(bytes, at);
    return at;
  };
  const read = (at) => {
    const bytes = new Uint8Array(exports.memory.buffer, at);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  };
  const names = Object.fromEntries(['json', 'text', 'error', 'hint', 'warnings'].map((name) => [name, write(name)]));

  // The texts of a result; {error, hint} of one that failed.
  return function call(name, request) {
    const at = request === undefined ? 0 : write(JSON.stringify(request));
    let result = 0;
    try {
      result = at === 0 ? exports[name]() : exports[name](at, 0);
    } catch (error) {
      return { error: told.trim() || String(error), hint: 'this should not have happened', fatal: true };
    }
    if (at !== 0) exports.free(at);
    const fine = exports.sz_status(result) === 0;
    const texts = Object.fromEntries((fine ? ['json', 'text', 'warnings'] : ['error', 'hint', 'warnings']).map((key) => [key, read(exports.sz_text(result, names[key]))]));
    exports.sz_free(result);
    return texts;
  };
}
