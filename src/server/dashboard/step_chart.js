// The last steps as bars: milliseconds against the target, and below them the rows of each sequence.
import {colour, contextOf, el, setText} from './dom.js';
import * as format from './format.js';

const TIME_HEIGHT = 90, ROWS_HEIGHT = 110, GAP = 16, LEFT = 52;

const name = (state, id) => {
  const life = state.lives.get(id);
  return life?.request == null ? `sequence ${id}` : `request ${life.request}${life.choice > 0 ? ` (choice ${life.choice + 1})` : ''}`;
};

/** The step in words. */
export function describeStep(step, state) {
  const parts = step.parts.slice(0, 8).map((part) => {
    const what = part.decodes ? (part.drafts > 0 ? `decodes, ${part.tokens} of ${part.drafts + 1} rows became tokens` : 'decodes')
                              : `${format.plural(part.rows, 'prompt row')} from ${part.first}`;
    return `${name(state, part.sequence)}: ${what}`;
  });
  const more = step.parts.length > 8 ? `; ${step.parts.length - 8} more` : '';
  return `Step ${format.count(step.n)}: ${format.seconds(step.s)}, ${format.plural(step.decode, 'decode row')}, ${format.plural(step.prompt, 'prompt row')}. ${parts.join('; ')}${more}.`;
}

export function stepChart() {
  const canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-label': 'The last steps. The arrow keys choose one.', 'aria-describedby': 'step-details'});
  const details = el('p', {class: 'details quiet', id: 'step-details', 'aria-live': 'polite'}, 'Point at a step, or use the arrow keys, to see what it did.');
  let state = null, shown = [], chosen = null, bar = 6;  // chosen: a step's number

  function draw() {
    const height = TIME_HEIGHT + GAP + ROWS_HEIGHT + 14;
    const {context, width} = contextOf(canvas, height);
    bar = width < 500 ? 5 : 7;
    shown = state.steps.slice(-Math.floor((width - LEFT) / bar));
    const target = state.now.step_target;
    const mostTime = Math.max(target * 1.25, 0.001, ...shown.map((step) => step.s));
    const mostRows = Math.max(4, ...shown.map((step) => step.decode + step.prompt));
    const text = colour('text'), decode = colour('decode'), prefill = colour('prefill'), panel = colour('panel');
    const bottom = TIME_HEIGHT + GAP + ROWS_HEIGHT;
    context.font = '11px system-ui, sans-serif';
    context.fillStyle = text;
    context.textBaseline = 'top';
    context.fillText(format.seconds(mostTime), 0, 0);
    context.fillText(`${mostRows} rows`, 0, TIME_HEIGHT + GAP);
    shown.forEach((step, i) => {
      const x = LEFT + i * bar, h = (step.s / mostTime) * TIME_HEIGHT;
      context.fillStyle = step.s > target ? prefill : colour('waiting');
      context.fillRect(x, TIME_HEIGHT - h, bar - 1, h);
      let y = bottom;
      const unit = ROWS_HEIGHT / mostRows;
      const piece = (rows, decodes) => {
        context.fillStyle = decodes ? decode : prefill;
        context.fillRect(x, y - rows * unit, bar - 1, rows * unit);
        y -= rows * unit;
        context.fillStyle = panel;  // a line between sequences
        if (rows * unit > 2.5) context.fillRect(x, y, bar - 1, 0.75);
      };
      if (step.parts.length > 0) for (const part of step.parts) piece(part.rows + part.drafts, part.decodes);
      else for (const [rows, decodes] of [[step.decode, true], [step.prompt, false]]) piece(rows, decodes);
      if (step.n === chosen) {
        context.strokeStyle = text;
        context.strokeRect(x - 1, 0.5, bar + 1, bottom);
      }
    });
    const line = TIME_HEIGHT - (target / mostTime) * TIME_HEIGHT;
    context.fillStyle = colour('alarm');
    context.fillRect(LEFT, line, width - LEFT, 1);
    context.fillText(`target ${format.seconds(target)}`, LEFT + 2, Math.max(0, line - 13));
  }

  function choose(step) {
    if (!step) return;
    chosen = step.n;
    setText(details, describeStep(step, state));
    draw();
  }
  canvas.addEventListener('pointermove', (event) => {
    if (!state) return;
    choose(shown[Math.floor((event.clientX - canvas.getBoundingClientRect().left - LEFT) / bar)]);
  });
  canvas.addEventListener('keydown', (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    if (by === undefined || shown.length === 0) return;
    event.preventDefault();
    const at = shown.findIndex((step) => step.n === chosen);
    const next = at < 0 ? shown.length - 1 : Math.min(shown.length - 1, Math.max(0, at + by));
    choose(shown[next]);
  });
  return {
    node: el('div', {}, canvas, details),
    update(newState) {
      state = newState;
      if (state.now) draw();
    },
  };
}
