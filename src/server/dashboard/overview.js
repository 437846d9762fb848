// The overview: rates against limits, the steps as they come, the requests by phase.
import {el, legend, setText} from './dom.js';
import {stepChart} from './step_chart.js';
import * as format from './format.js';

const MOST_ROWS = 60;
const PHASES = {waiting: 'waiting', preempted: 'preempted', loading: 'loading pages', prefill: 'prefill', decode: 'decode'};

function tile(name) {
  const value = el('span'), note = el('small');
  return {value, note, node: el('div', {}, el('dt', {}, name), el('dd', {}, value, note))};
}

export function overviewView(root, state) {
  const tiles = {
    running: tile('Running'),
    waiting: tile('Waiting'),
    generated: tile('Generated'),
    prompt: tile('Prompts computed'),
    read: tile('Read while decoding'),
    macs: tile('Multiplied'),
    pages: tile('Cache in use'),
    hits: tile('Prefix cache hits'),
  };
  const meterOf = (t, label) => {
    const meter = el('meter', {min: 0, max: 1, 'aria-label': label});
    t.node.lastChild.append(meter);
    return meter;
  };
  const readMeter = meterOf(tiles.read, 'part of the memory’s read rate'), multiplyMeter = meterOf(tiles.macs, 'part of the processor’s multiply rate');
  const chart = stepChart();
  const phases = el('p', {class: 'quiet'});
  const body = el('tbody');
  root.append(
    el('dl', {class: 'tiles'}, Object.values(tiles).map((t) => t.node)),
    el('section', {class: 'panel'}, el('h2', {}, 'Steps'),
       legend([['decode', 'rows that decode'], ['prefill', 'rows of prompts'], ['waiting', 'milliseconds; the line is the target']]), chart.node),
    el('section', {class: 'panel'}, el('h2', {}, 'Requests'), phases,
       el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Requests'}, el('table', {},
          el('thead', {}, el('tr', {}, ['Request', 'Phase', 'Prompt', 'From cache', 'Answer', 'Pages', 'Queued', 'First token', 'Drafts right'].map((t) => el('th', {scope: 'col'}, t)))),
          body))));

  const set = (t, value, note = '') => {
    setText(t.value, value);
    setText(t.note, note);
  };

  function limited(t, meter, value, limit, text, unknown) {
    set(t, text(value), limit > 0 ? `${format.percent(value / limit)} of ${text(limit)}` : unknown);
    meter.value = limit > 0 ? Math.min(1, value / limit) : 0;
    meter.hidden = !(limit > 0);
  }

  function row(s) {
    const prefill = s.phase !== 'decode';
    const done = prefill ? s.computed : s.generated, most = prefill ? s.prompt : s.most;
    const name = s.choice > 0 ? `${s.request} (choice ${s.choice + 1})` : `${s.request}`;
    return el('tr', {},
      el('td', {}, el('a', {href: `#life/${s.id}`}, name)),
      el('td', {}, PHASES[s.phase]),
      el('td', {}, `${format.count(s.prompt)}`),
      el('td', {}, format.count(s.cached)),
      el('td', {}, el('progress', {class: s.phase, value: Math.min(done, most), max: Math.max(1, most), 'aria-label': `${prefill ? 'prompt' : 'answer'} of request ${name}`}),
         ` ${format.count(s.generated)} of ${format.count(s.most)}`),
      el('td', {}, format.count(s.units)),
      el('td', {}, format.seconds((s.started >= 0 ? s.started : state.now.time) - s.submitted)),
      el('td', {}, s.first_token >= 0 ? format.seconds(s.first_token - s.submitted) : '–'),
      el('td', {}, s.drafted > 0 ? `${format.count(s.accepted)} of ${format.count(s.drafted)}` : '–'));
  }

  function update() {
    const {now, model} = state;
    if (!now) return;
    const rates = state.rates(), counters = now.counters, {read_bytes: readLimit, multiply_adds: multiplyLimit} = now.limits;
    set(tiles.running, format.count(counters.running), `of at most ${format.count(model.max_running)}; busy ${format.percent(rates.busy)} of the time`);
    set(tiles.waiting, format.count(counters.waiting), `${format.count(counters.finished)} answers so far`);
    set(tiles.generated, `${rates.generated.toFixed(0)} tok/s`, `${format.count(counters.generated_tokens)} tokens so far`);
    set(tiles.prompt, `${rates.prompt.toFixed(0)} tok/s`, `${format.count(counters.prompt_tokens)} tokens so far`);
    limited(tiles.read, readMeter, rates.read, readLimit, format.rate, 'limit unknown');
    limited(tiles.macs, multiplyMeter, rates.macs, multiplyLimit, format.products, 'limit: measured once nothing runs');
    set(tiles.pages, format.percent(now.pool.units > 0 ? counters.pages_used / now.pool.units : 0), `and ${format.percent(now.pool.units > 0 ? counters.pages_cached / now.pool.units : 0)} kept for later`);
    set(tiles.hits, counters.prefix_query_tokens > 0 ? format.percent(counters.prefix_hit_tokens / counters.prefix_query_tokens) : '–', 'of prompt tokens so far');
    chart.update(state);
    const counts = Object.entries(PHASES).map(([phase, text]) => [now.sequences.filter((s) => s.phase === phase).length, text])
      .filter(([number]) => number > 0).map(([number, text]) => `${number} ${text}`);
    const hidden = counters.running + counters.waiting - Math.min(MOST_ROWS, now.sequences.length);
    setText(phases, (counts.join(', ') || 'No request runs or waits.') + (hidden > 0 ? `; ${hidden} more are not in the table` : ''));
    // The table keeps the keyboard's place: the focused link's row is replaced by the same request's.
    const focused = document.activeElement?.closest?.('tbody') === body ? document.activeElement.getAttribute('href') : null;
    body.replaceChildren(...now.sequences.slice(0, MOST_ROWS).map(row));
    if (focused) [...body.querySelectorAll('a')].find((a) => a.getAttribute('href') === focused)?.focus();
  }
  return {update};
}
