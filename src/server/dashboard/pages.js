// The pool of the KV cache as a map, a square a page.
import {colour, contextOf, el, legend, setText} from './dom.js';
import * as format from './format.js';

const MOST_STORED = 2000;  // squares of the pages below the pool
const USES = ['free', 'cached', 'owned', 'shared'];  // in the order of the snapshot's numbers

/** Cells {use, owner, users} of a snapshot's pool; owner: a sequence of the snapshot, or null. */
export function cellsOf(snapshot) {
  const cells = [], {runs} = snapshot.pool;
  for (let i = 0; i < runs.length; i += 4) {
    const cell = {use: USES[runs[i + 1]], owner: runs[i + 2] >= 0 ? snapshot.sequences[runs[i + 2]] : null, users: runs[i + 3]};
    for (let n = runs[i]; n > 0; --n) cells.push(cell);
  }
  return cells;
}

const nameOf = (owner) => `request ${owner.request}${owner.choice > 0 ? ` (choice ${owner.choice + 1})` : ''}`;

/** What a cell holds, in words. */
export function describeCell(cell, index, pool) {
  const first = index * pool.units_per_cell, last = Math.min(pool.units, first + pool.units_per_cell) - 1;
  const where = first === last ? `Page ${format.count(first)}` : `Pages ${format.count(first)} to ${format.count(last)}`;
  const owner = cell.owner ? nameOf(cell.owner) : 'a request that is not listed';
  if (cell.use === 'free') return `${where}: free.`;
  if (cell.use === 'cached') return `${where}: cached for future prompts; nobody uses it.`;
  if (cell.use === 'owned') return `${where}: belongs to ${owner}.`;
  return `${where}: shared by ${cell.users} sequences, ${owner} among them.`;
}

export function pagesView(root, state) {
  const canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-label': 'Map of the pages of the KV cache. The arrow keys move through it.', 'aria-describedby': 'page-details'});
  const details = el('p', {class: 'details', id: 'page-details', 'aria-live': 'polite'}, 'Point at a page, or use the arrow keys, to see who uses it.');
  const storeCanvas = el('canvas', {role: 'img', 'aria-label': 'Pages in host memory and on disk'});
  const summary = el('p', {}), store = el('p', {class: 'quiet'});
  root.append(el('section', {class: 'panel'}, el('h2', {}, 'Pages of the KV cache'), summary,
    legend([['decode', 'used by one sequence'], ['shared', 'shared by several'], ['cached', 'cached: kept for future prompts'], ['free', 'free']]),
    canvas, details,
    el('h3', {}, 'Below the pool'), store, legend([['host', 'in host memory'], ['disk', 'on disk']]), storeCanvas));
  let cells = [], columns = 1, size = 8, at = null;

  function draw() {
    const width = Math.max(canvas.clientWidth, 50);
    // As large as fits into about 420 pixels of height.
    size = 26;
    while (size > 3 && Math.ceil(cells.length / Math.floor(width / size)) * size > 420) --size;
    columns = Math.max(1, Math.floor(width / size));
    const {context} = contextOf(canvas, Math.max(size, Math.ceil(cells.length / columns) * size));
    const colours = {free: colour('free'), cached: colour('cached'), owned: colour('decode'), shared: colour('shared')};
    const gap = size > 5 ? 2 : 0.5, chosen = at !== null && at < cells.length ? cells[at] : null;
    const highlight = chosen?.owner?.id;
    cells.forEach((cell, i) => {
      // Pages of the chosen page's owner stay as they are; those of others fade.
      context.globalAlpha = highlight !== undefined && cell.owner && cell.owner.id !== highlight ? 0.35 : 1;
      context.fillStyle = colours[cell.use];
      context.fillRect((i % columns) * size, Math.floor(i / columns) * size, size - gap, size - gap);
    });
    context.globalAlpha = 1;
    if (!chosen) return;
    context.lineWidth = 2;
    context.strokeStyle = colour('text');
    context.strokeRect((at % columns) * size, Math.floor(at / columns) * size, size - gap, size - gap);
  }

  // Whose they are is not known: a square for each page, or for several if there are many.
  function drawStore({host_pages: host, disk_pages: disk}) {
    storeCanvas.hidden = host + disk === 0;
    if (storeCanvas.hidden) return;
    const each = Math.ceil((host + disk) / MOST_STORED), side = 9;
    const across = Math.max(1, Math.floor(Math.max(storeCanvas.clientWidth, 50) / side));
    const squares = [...Array(Math.ceil(host / each)).fill('host'), ...Array(Math.ceil(disk / each)).fill('disk')];
    const {context} = contextOf(storeCanvas, Math.ceil(squares.length / across) * side);
    squares.forEach((tier, i) => {
      context.fillStyle = colour(tier);
      context.fillRect((i % across) * side, Math.floor(i / across) * side, side - 2, side - 2);
    });
  }

  function choose(index) {
    if (cells.length === 0) return;
    at = Math.min(cells.length - 1, Math.max(0, index));
    setText(details, describeCell(cells[at], at, state.now.pool));
    draw();
  }
  canvas.addEventListener('pointermove', (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / size), row = Math.floor((event.clientY - box.top) / size);
    if (column < columns && row * columns + column < cells.length) choose(row * columns + column);
  });
  canvas.addEventListener('keydown', (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -Infinity, End: Infinity}[event.key];
    if (by === undefined) return;
    event.preventDefault();
    choose(at === null ? 0 : at + by);
  });

  function update() {
    const {now, model} = state;
    if (!now) return;
    cells = cellsOf(now);
    const numbers = {free: 0, cached: 0, owned: 0, shared: 0};
    for (const cell of cells) ++numbers[cell.use];
    const each = now.pool.units_per_cell > 1 ? `; a square stands for ${now.pool.units_per_cell} pages and shows the one with the most users` : '';
    setText(summary, `${format.plural(now.pool.units, 'page')} of ${model.page_tokens} tokens: ${format.count(numbers.owned)} owned, ${format.count(numbers.shared)} shared, `
      + `${format.count(numbers.cached)} cached, ${format.count(numbers.free)} free${each}.`);
    setText(store, now.pool.host_pages + now.pool.disk_pages > 0
      ? `${format.plural(now.pool.host_pages, 'page')} on host, ${format.plural(now.pool.disk_pages, 'page')} on disk; ${format.count(now.counters.pages_loaded)} were read back so far.`
      : 'No page is on host or on disk. --host-cache-size and --cache-dir keep pages that the pool evicts.');
    draw();
    drawStore(now.pool);
    if (at !== null && at < cells.length) setText(details, describeCell(cells[at], at, now.pool));
  }
  return {update};
}
