// Builds elements. Text becomes text nodes, always: no module of this page parses HTML, so text of models and of people
// can only be shown.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** el('p', {class: 'quiet', on: {click: f}}, 'text', otherNode): children are nodes or strings. */
export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

export const swatch = (kind) => el('span', {class: `swatch ${kind}`, 'aria-hidden': 'true'});

/** A legend of [kind, text] pairs; the kinds are classes of style.css. */
export const legend = (entries) => el('ul', {class: 'legend'}, entries.map(([kind, text]) => el('li', {}, swatch(kind), text)));

/** Sets the text only if it differs, so that screen readers are not told the same again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The value of a custom property of style.css, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Fits a canvas to its width on the screen and returns a context in CSS pixels. */
export function contextOf(canvas, height) {
  const width = Math.max(canvas.clientWidth, 50), ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  return {context, width, height};
}
