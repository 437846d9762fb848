// What the page knows of the engine: the newest snapshot, and what it has gathered from all of them. Bounded.

const MOST_STEPS = 1500, MOST_LIVES = 200, MOST_CHUNKS = 600;

/** A part of a step, as events spell it: an array. */
const partOf = ([sequence, first, rows, drafts, tokens, decodes]) => ({sequence, first, rows, drafts, tokens, decodes: decodes === 1});

export class EngineState {
  chosen = '';     // the model to show and to ask, by its name; empty: the first that is loaded
  model = null;
  now = null;      // the newest snapshot
  steps = [];      // oldest first; parts are objects
  lives = new Map();  // by the sequence's id, oldest first

  choose(name) {
    this.chosen = name;
    this.model = this.now = null;
    this.#restart();
  }

  take(snapshot) {
    if (snapshot.model) {
      if (this.now && snapshot.time < this.now.time) this.#restart();  // another process
      this.model = snapshot.model;
    }
    this.now = snapshot;
    const listed = new Map(snapshot.sequences.map((sequence) => [sequence.id, sequence]));
    for (const [id, sequence] of listed) {
      const life = this.#life(id);
      Object.assign(life, sequence);
    }
    const last = this.steps.at(-1)?.n ?? 0;
    for (const step of snapshot.steps) {
      if (step.n <= last) continue;
      step.parts = step.parts.map(partOf);
      this.steps.push(step);
      for (const part of step.parts) this.#work(part, step, listed.has(part.sequence));
    }
    if (this.steps.length > MOST_STEPS) this.steps.splice(0, this.steps.length - MOST_STEPS);
    // A request that the snapshot has no room for has not ended.
    const all = snapshot.counters.running + snapshot.counters.waiting === snapshot.sequences.length;
    for (const life of this.lives.values()) {
      if (all && life.ended === null && !listed.has(life.id)) life.ended = life.lastWork ?? snapshot.time;
    }
    this.#forget();
  }

  /** Rates over the steps of the last `window` seconds. */
  rates(window = 3) {
    const rates = {generated: 0, prompt: 0, read: 0, macs: 0, busy: 0, step: 0};
    if (!this.now) return rates;
    const from = this.now.time - window;
    let busy = 0, reading = 0, bytes = 0, macs = 0, count = 0;
    for (let i = this.steps.length - 1; i >= 0 && this.steps[i].at >= from; --i) {
      const step = this.steps[i];
      ++count;
      busy += step.s;
      macs += step.macs;
      if (step.bytes > 0) {
        reading += step.s;
        bytes += step.bytes;
      }
      rates.prompt += step.prompt;
      for (const part of step.parts) rates.generated += part.tokens;
    }
    rates.generated /= window;
    rates.prompt /= window;
    rates.read = reading > 0 ? bytes / reading : 0;
    rates.macs = busy > 0 ? macs / busy : 0;
    rates.busy = Math.min(1, busy / window);
    rates.step = count > 0 ? busy / count : 0;
    return rates;
  }

  #restart() {
    this.steps = [];
    this.lives.clear();
  }

  #life(id) {
    if (!this.lives.has(id)) {
      this.lives.set(id, {id, request: null, choice: 0, phase: 'ended', prompt: null, cached: 0, generated: 0, drafted: 0, accepted: 0,
                          submitted: null, started: -1, first_token: -1, chunks: [], dropped: 0, ended: null, lastWork: null});
    }
    return this.lives.get(id);
  }

  #work(part, step, listed) {
    const life = this.#life(part.sequence);
    life.chunks.push({...part, n: step.n, at: step.at, s: step.s});
    if (life.chunks.length > MOST_CHUNKS) {
      life.chunks.shift();
      ++life.dropped;
    }
    life.lastWork = step.at + step.s;
    if (listed) return;  // the snapshot has counted it
    life.generated += part.tokens;
    if (part.drafts > 0) {
      life.drafted += part.drafts;
      life.accepted += Math.max(0, part.tokens - 1);
    }
    if (part.tokens > 0 && life.first_token < 0) life.first_token = life.lastWork;
    if (life.started < 0) life.started = step.at;
    life.submitted ??= step.at;
  }

  #forget() {
    for (const [id, life] of this.lives) {
      if (this.lives.size <= MOST_LIVES) return;
      if (life.ended !== null) this.lives.delete(id);
    }
  }
}
