// Workers that run the module. What is no longer wanted is ended at once, by ending its worker: another one stands by.
import { unpackLzma } from './lzma.js';

const source = WORKER;  // worker.js, bundled

const packed = () => Uint8Array.from(atob(document.getElementById('module').textContent.trim()), (c) => c.charCodeAt(0));

export async function load() {
  const module = await WebAssembly.compile(unpackLzma(packed()));
  const url = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  const names = WebAssembly.Module.exports(module).map((e) => e.name);
  return { spawn: () => new Thread(module, url), has: (name) => names.includes(name) };
}

// A worker with at most one call at a time.
class Thread {
  constructor(module, url) {
    this.worker = new Worker(url);
    this.next = 0;
    this.waiting = null;
    this.worker.onmessage = ({ data }) => {
      const { resolve } = this.waiting;
      this.waiting = null;
      resolve(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.waiting?.resolve({ texts: { error: event.message, hint: 'this should not have happened', fatal: true }, milliseconds: 0 });
      this.waiting = null;
    };
    this.worker.postMessage({ module });
  }

  get busy() { return this.waiting !== null; }

  call(name, request) {
    return new Promise((resolve) => {
      this.waiting = { resolve, since: performance.now() };
      this.worker.postMessage({ id: this.next++, name, request });
    });
  }

  end() {
    this.worker.terminate();
    this.waiting = null;
  }
}

// Runs lists of requests, one after the other; a new list takes the place of the one before.
export class Explorer {
  constructor(spawn) {
    this.spawn = spawn;
    this.thread = spawn();
    this.spare = null;  // made when the first answer is there
    this.turn = 0;
    this.pending = null;
    this.quick = false;  // the call that runs is a first answer, soon done
  }

  // see({texts, milliseconds}, stage) for each stage; one that fails ends the list.
  ask(stages, see) {
    ++this.turn;
    this.pending = { turn: this.turn, stages, see };
    if (!this.thread.busy) return this.run();
    const patience = this.quick ? 150 : 0;
    const late = performance.now() - this.thread.waiting.since;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.replace(), Math.max(0, patience - late));
    return undefined;
  }

  replace() {
    if (!this.pending || !this.thread.busy) return;
    this.next();
    this.run();
  }

  next() {
    this.thread.end();
    this.thread = this.spare ?? this.spawn();
    this.spare = this.spawn();
  }

  async run() {
    const { turn, stages, see } = this.pending;
    this.pending = null;
    const { thread } = this;
    for (let k = 0; k < stages.length; ++k) {
      this.quick = k === 0;
      const answer = await thread.call(stages[k].name, stages[k].request);
      if (thread !== this.thread) return;
      if (answer.texts.fatal) this.next();
      this.spare ??= this.spawn();
      if (turn === this.turn || k === 0) see(answer, k, turn === this.turn);
      if (this.pending) {
        this.run();
        return;
      }
      if (answer.texts.error) return;
    }
  }
}
