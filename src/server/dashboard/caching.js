// Why a KV cache: the keys and values that generating a text computes, with and without it.
import {el, legend, setText} from './dom.js';
import * as format from './format.js';
import {headers} from './stream.js';

const TOKENS = 8;
const EXAMPLE = 'The sea was calm that morning, and';

/** Computations of K and V after so many steps: without a cache each step computes all positions, with one only the new one. */
export const computations = (steps, cached) => (cached ? steps : (steps * (steps + 1)) / 2);

export function cacheView(root, state) {
  const text = el('input', {id: 'cache-text', value: EXAMPLE, maxlength: 200});
  const slider = el('input', {id: 'cache-step', type: 'range', min: 0, max: TOKENS, value: 0});
  const play = el('button', {type: 'button', class: 'main'}, 'Play'), details = el('p', {class: 'details', 'aria-live': 'polite'}, 'Press Play, or move the slider. Choose a square to see what is computed there.');
  const total = el('p', {role: 'status'}), cost = el('p', {class: 'quiet'});
  const grids = el('div', {class: 'grids'});
  root.append(el('section', {class: 'panel'}, el('h2', {}, 'Why a cache'),
    el('p', {}, 'Each step gives one token, and its attention reads the keys and values (K, V) of all tokens before it. Without a cache they are computed again in every step.'),
    el('p', {}, el('label', {for: 'cache-text'}, 'Text '), text),
    el('p', {}, el('label', {for: 'cache-step'}, 'Step '), slider, ' ', play), total,
    legend([['prefill', 'KV: computed'], ['again', '↻: computed again'], ['cached', '✓: read from the cache']]), grids, details, cost));
  let tokens = EXAMPLE.split(/(?= )/).slice(0, TOKENS), step = 0, timer = null, chosen = null;

  function cellText(cached, row, column) {
    const token = tokens[column] ?? `token ${column + 1}`, m = state.model;
    const size = m ? ` In this model: ${m.layers} layers × ${m.kv_heads} KV heads × ${m.head_dim} numbers, for K and for V, ${format.bytes(m.kv_bytes_per_token)} in the cache.` : '';
    const where = `Step ${row + 1}, token ${column + 1} “${token}”`;
    if (column === row) return `${where}: it is new, so its K and V are computed.${size}`;
    return cached ? `${where}: its K and V are read from the cache, page ${Math.floor(column / (m?.page_tokens ?? 16))}, place ${column % (m?.page_tokens ?? 16)}.${size}`
                  : `${where}: its K and V are computed again, with the same result as in step ${column + 1}.${size}`;
  }

  function grid(cached, title) {
    const buttons = [];
    const rows = Array.from({length: TOKENS}, (_, row) => el('tr', {}, el('th', {scope: 'row'}, `step ${row + 1}`),
      Array.from({length: TOKENS}, (_, column) => {
        if (column > row) return el('td');
        const button = el('button', {type: 'button', tabindex: row + column === 0 ? 0 : -1, 'aria-pressed': 'false', 'data-row': row, 'data-column': column});
        buttons.push(button);
        return el('td', {}, button);
      })));
    const heads = Array.from({length: TOKENS}, () => el('th', {scope: 'col'}));
    const table = el('table', {class: 'grid'}, el('caption', {}, title), el('thead', {}, el('tr', {}, el('th'), heads)), el('tbody', {}, rows));
    const at = (row, column) => buttons.find((b) => Number(b.dataset.row) === row && Number(b.dataset.column) === column);
    const choose = (button) => {
      chosen?.setAttribute('aria-pressed', 'false');
      chosen = button;
      chosen.setAttribute('aria-pressed', 'true');
      setText(details, cellText(cached, Number(button.dataset.row), Number(button.dataset.column)));
    };
    table.addEventListener('click', (event) => {
      const button = event.target.closest('button');
      if (button) choose(button);
    });
    table.addEventListener('keydown', (event) => {
      const by = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key], from = event.target.closest('button');
      if (!by || !from) return;
      event.preventDefault();
      const to = at(Number(from.dataset.row) + by[0], Number(from.dataset.column) + by[1]);
      if (!to) return;
      from.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
      choose(to);
    });
    const draw = () => {
      heads.forEach((head, i) => {
        setText(head, tokens[i] ?? '');
        head.title = tokens[i] ?? '';
      });
      for (const button of buttons) {
        const row = Number(button.dataset.row), column = Number(button.dataset.column);
        const kind = row >= step ? '' : column === row ? 'computed' : cached ? 'read' : 'again';
        button.className = kind;
        setText(button, {computed: 'KV', again: '↻', read: '✓'}[kind] ?? '');
        button.setAttribute('aria-label', `step ${row + 1}, token ${column + 1}: ${{computed: 'computed', again: 'computed again', read: 'read from the cache'}[kind] ?? 'to come'}`);
      }
    };
    return {table, draw};
  }
  const both = [grid(false, 'Without a cache'), grid(true, 'With a cache')];
  grids.append(...both.map((g) => g.table));

  function draw() {
    for (const g of both) g.draw();
    slider.value = String(step);
    setText(total, `After ${format.plural(step, 'token')}: ${computations(step, false)} computations of K and V without a cache, ${computations(step, true)} with it.`);
  }
  function pause() {
    clearInterval(timer);
    timer = null;
    setText(play, 'Play');
  }
  play.addEventListener('click', () => {
    if (timer) return pause();
    if (step >= TOKENS) step = 0;
    setText(play, 'Pause');
    timer = setInterval(() => {
      ++step;
      draw();
      if (step >= TOKENS) pause();
    }, 700);
  });
  slider.addEventListener('input', () => {
    pause();
    step = Number(slider.value);
    draw();
  });
  text.addEventListener('change', () => tokenize());

  // The served model's own tokens.
  async function tokenize() {
    try {
      const response = await fetch('/tokenize', {method: 'POST', headers: {'Content-Type': 'application/json', ...headers()},
        body: JSON.stringify({...(state.chosen && {model: state.chosen}), prompt: text.value || EXAMPLE, add_special_tokens: false, return_token_strs: true})});
      const answer = await response.json();
      if (response.ok && answer.token_strs?.length > 0) tokens = answer.token_strs.slice(0, TOKENS).map((t) => t.replace(/[Ġ▁]/g, '␣'));
    } catch { /* the words stay */ }
    draw();
  }
  let asked = false;
  draw();
  return {
    update() {
      const m = state.model;
      if (!m) return;
      const context = Math.min(m.max_model_len, 4096);
      setText(cost, `${m.name} keeps ${format.bytes(m.kv_bytes_per_token)} for each token. An answer that ends at token ${format.count(context)} computes ${format.count(context)} pairs of K and V in each layer with the cache, `
        + `and ${format.count(computations(context, false))} without.`);
      if (!asked) tokenize();
      asked = true;
    },
    leave: pause,
  };
}
