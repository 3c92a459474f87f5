// One instance of the module, in a thread of its own: {module} once, then {id, name, request} -> {id, texts, milliseconds}.
import { start } from './calls.js';

let started = null;
self.onmessage = async ({ data }) => {
  if (data.module) {
    started = start(data.module);
    return;
  }
  let texts = null;
  let began = 0;
  try {
    const call = await started;
    began = performance.now();
    texts = call(data.name, data.request);
  } catch (error) {
    texts = { error: String(error), hint: 'this should not have happened', fatal: true };
  }
  self.postMessage({ id: data.id, texts, milliseconds: performance.now() - began });
};
