// The life of one request: queue, prompt chunks, tokens, drafts.
import {el, legend, setText, svg} from './dom.js';
import * as format from './format.js';

const WIDTH = 900, LANES = {queue: 26, prompt: 62, answer: 98}, LANE = 22, LEFT = 70;
const MOST_ROWS = 200;

const nameOf = (life) => life.request === null ? `sequence ${life.id}` : `request ${life.request}${life.choice > 0 ? ` (choice ${life.choice + 1})` : ''}`;

export function lifeView(root, state, wanted) {
  const select = el('select', {id: 'life-choice'});
  const chart = svg('svg', {viewBox: `0 0 ${WIDTH} 150`, role: 'img', 'aria-labelledby': 'life-summary', class: 'wide'});
  const summary = el('p', {id: 'life-summary', 'aria-live': 'polite'}), numbers = el('dl', {class: 'tiles'}), body = el('tbody');
  root.append(el('section', {class: 'panel'}, el('h2', {}, 'The life of a request'),
    el('p', {}, el('label', {for: 'life-choice'}, 'Request '), select),
    summary, legend([['waiting', 'waits'], ['prefill', 'a chunk of its prompt'], ['decode', 'a step that gives a token'], ['shared', 'a step in which drafts were right']]),
    el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Time line'}, chart)),
    numbers,
    el('details', {class: 'panel'}, el('summary', {}, 'Its steps'), el('div', {class: 'scroll'}, el('table', {},
      el('thead', {}, el('tr', {}, ['Step', 'At', 'Took', 'Did', 'From token', 'Rows', 'Tokens'].map((t) => el('th', {scope: 'col'}, t)))), body))));
  let chosen = wanted === undefined ? null : Number(wanted);
  select.addEventListener('change', () => {
    chosen = Number(select.value);
    history.replaceState(null, '', `#life/${chosen}`);
    update();
  });

  function listLives() {
    const lives = [...state.lives.values()].reverse().slice(0, 100);
    if (chosen !== null && !lives.some((life) => life.id === chosen) && state.lives.has(chosen)) lives.push(state.lives.get(chosen));
    const texts = lives.map((life) => [String(life.id), `${nameOf(life)}: ${life.ended === null ? life.phase : 'ended'}`]);
    if (JSON.stringify(texts) === select.dataset.drawn) return;
    // A list that is open on the screen would close.
    if (document.activeElement === select && select.options.length > 0 && texts.length === select.options.length) return;
    select.dataset.drawn = JSON.stringify(texts);
    select.replaceChildren(...texts.map(([value, text]) => el('option', {value, selected: Number(value) === chosen}, text)));
  }

  function drawChart(life) {
    const begin = life.submitted ?? life.chunks[0]?.at ?? 0, end = Math.max(begin + 1e-3, life.ended ?? state.now.time);
    const x = (time) => LEFT + ((time - begin) / (end - begin)) * (WIDTH - LEFT - 10);
    const box = (lane, from, to, kind, title) => svg('rect', {x: x(from).toFixed(1), y: LANES[lane], height: LANE, width: Math.max(1, x(to) - x(from) - 0.5).toFixed(1), class: `fill-${kind}`},
      svg('title', {}, title));
    const parts = [];
    const started = life.started >= 0 ? life.started : end;
    parts.push(box('queue', begin, started, 'waiting', `waited ${format.seconds(started - begin)}`));
    for (const chunk of life.chunks) {
      const to = chunk.at + chunk.s;
      if (!chunk.decodes) parts.push(box('prompt', chunk.at, to, 'prefill', `step ${chunk.n}: ${chunk.rows} rows from token ${chunk.first}`));
      if (chunk.tokens > 0) {
        parts.push(box('answer', chunk.decodes ? chunk.at : to - chunk.s / 20, to, chunk.tokens > 1 ? 'shared' : 'decode', `step ${chunk.n}: ${format.plural(chunk.tokens, 'token')}`));
      }
    }
    const ticks = [];
    for (let i = 0; i <= 4; ++i) {
      const time = begin + ((end - begin) * i) / 4;
      ticks.push(svg('line', {x1: x(time), x2: x(time), y1: 20, y2: 126, class: 'axis'}),
                 svg('text', {x: x(time), y: 142, 'text-anchor': i === 4 ? 'end' : 'middle'}, format.seconds(time - begin)));
    }
    const names = Object.entries(LANES).map(([lane, y]) => svg('text', {x: 4, y: y + 15}, lane));
    chart.replaceChildren(...ticks, ...names, ...parts);
  }

  const tile = (name, value) => el('div', {}, el('dt', {}, name), el('dd', {}, value));

  function update() {
    if (!state.now) return;
    if (chosen === null || !state.lives.has(chosen)) {
      const newest = [...state.lives.values()].at(-1);
      if (wanted === undefined || chosen === null) chosen = newest?.id ?? null;
    }
    listLives();
    const life = state.lives.get(chosen);
    if (!life) {
      setText(summary, chosen === null ? 'No request has come since this page was opened. Send one in the chat.' : 'This page has not seen that request, or has forgotten it.');
      chart.replaceChildren();
      numbers.replaceChildren();
      body.replaceChildren();
      return;
    }
    const first = life.first_token >= 0 ? life.first_token : null, end = life.ended ?? state.now.time;
    const decoding = first !== null ? end - first : 0;
    setText(summary, `${nameOf(life)[0].toUpperCase()}${nameOf(life).slice(1)}: ${life.ended === null ? life.phase : 'ended'}, ${format.count(life.generated)} tokens`
      + `${life.dropped > 0 ? `; its first ${life.dropped} steps are no longer kept here` : ''}.`);
    drawChart(life);
    numbers.replaceChildren(
      tile('Prompt', life.prompt === null ? '–' : `${format.count(life.prompt)} tok`),
      tile('From cache', `${format.count(life.cached)} tok`),
      tile('Queued', life.submitted === null ? '–' : format.seconds((life.started >= 0 ? life.started : end) - life.submitted)),
      tile('First token', first === null || life.submitted === null ? '–' : format.seconds(first - life.submitted)),
      tile('Generated', `${format.count(life.generated)} tok`),
      tile('Per token', life.generated > 1 ? format.seconds(decoding / (life.generated - 1)) : '–'),
      tile('Drafts right', life.drafted > 0 ? `${format.count(life.accepted)} of ${format.count(life.drafted)}` : '–'));
    body.replaceChildren(...life.chunks.slice(-MOST_ROWS).map((c) => el('tr', {}, [format.count(c.n), format.seconds(c.at - (life.submitted ?? c.at)), format.seconds(c.s),
      c.decodes ? (c.drafts > 0 ? `decodes with ${c.drafts} drafts` : 'decodes') : 'prompt', c.first, c.rows + c.drafts, c.tokens].map((t) => el('td', {}, String(t))))));
  }
  return {update};
}
