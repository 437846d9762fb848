// Markdown as elements, for the answers of models: the part of CommonMark that they write, tables, and nothing that loads or
// runs. Text becomes text nodes; a link keeps its address only if that is http, https or mailto.
import {el} from './dom.js';

const MOST_DEPTH = 8;  // of lists and quotes

function safeLink(address) {
  try {
    const url = new URL(address, 'https://invalid.invalid/');
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) && url.hostname !== 'invalid.invalid' ? url.href : null;
  } catch {
    return null;
  }
}

// The earliest of these begins the next piece. Each matches within a line or two and cannot run long.
const INLINE = /(`+)([^`]{1,2000}?)\1(?!`)|\*\*([^*\n]{1,2000}?)\*\*|__([^_\n]{1,2000}?)__|\*([^*\s][^*\n]{0,2000}?)\*|(?<!\w)_([^_\s][^_\n]{0,2000}?)_(?!\w)|~~([^~\n]{1,2000}?)~~|\[([^\]\n]{1,500})\]\(([^()\s]{1,2000})\)|\\([!-/:-@[-`{-~])/;

/** Nodes of a line of text. */
export function inline(text, depth = 0) {
  const nodes = [];
  while (text !== '') {
    const found = depth < MOST_DEPTH ? INLINE.exec(text) : null;
    if (!found) {
      nodes.push(text);
      break;
    }
    if (found.index > 0) nodes.push(text.slice(0, found.index));
    const [whole, , code, strong, strong2, em, em2, struck, label, address, escaped] = found;
    const more = (part) => inline(part, depth + 1);
    if (code !== undefined) nodes.push(el('code', {}, code.trim() || code));
    else if (strong ?? strong2) nodes.push(el('strong', {}, more(strong ?? strong2)));
    else if (em ?? em2) nodes.push(el('em', {}, more(em ?? em2)));
    else if (struck) nodes.push(el('del', {}, more(struck)));
    else if (escaped) nodes.push(escaped);
    else {
      const href = safeLink(address);
      nodes.push(href ? el('a', {href, rel: 'noopener noreferrer nofollow', target: '_blank'}, more(label)) : whole);
    }
    text = text.slice(found.index + whole.length);
  }
  return nodes;
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
const isRule = (line) => /^ {0,3}([-*_])( *\1){2,} *$/.test(line);
const itemOf = (line) => /^( {0,12})(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/.exec(line);
const startsBlock = (line) => /^ {0,3}(#{1,6} |```|~~~|>)/.test(line) || isRule(line) || itemOf(line) !== null;

function table(lines, at) {
  const head = cellsOf(lines[at]);
  const rows = [];
  for (at += 2; at < lines.length && lines[at].includes('|'); ++at) rows.push(cellsOf(lines[at]));
  const row = (cells, kind) => el('tr', {}, head.map((_, i) => el(kind, {}, inline(cells[i] ?? ''))));
  return [el('div', {class: 'scroll'}, el('table', {}, el('thead', {}, row(head, 'th')), el('tbody', {}, rows.map((cells) => row(cells, 'td'))))), at];
}

function list(lines, at, depth) {
  const first = itemOf(lines[at]), ordered = first[3] !== undefined, indent = first[1].length;
  const items = [];
  while (at < lines.length) {
    const item = itemOf(lines[at]);
    if (!item || item[1].length !== indent || (item[3] !== undefined) !== ordered) break;
    const own = [item[4]];
    for (++at; at < lines.length; ++at) {
      const line = lines[at], next = itemOf(line);
      if (next && next[1].length <= indent) break;
      if (line.trim() === '' && !/^\s+\S/.test(lines[at + 1] ?? '')) break;
      if (!next && line.trim() !== '' && !/^\s/.test(line) && startsBlock(line)) break;
      own.push(line.slice(Math.min(line.length - line.trimStart().length, indent + 2)));
    }
    const inner = blocks(own, depth + 1);
    // A single paragraph needs no space around it.
    items.push(el('li', {}, inner.length > 0 && inner[0].nodeName === 'P' ? [...inner[0].childNodes, ...inner.slice(1)] : inner));
    while (at < lines.length && lines[at].trim() === '' && itemOf(lines[at + 1] ?? '')?.[1].length === indent) ++at;
  }
  return [ordered ? el('ol', {start: first[3]}, items) : el('ul', {}, items), at];
}

function blocks(lines, depth) {
  const nodes = [];
  if (depth > MOST_DEPTH) return [el('p', {class: 'plain'}, lines.join('\n'))];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line), heading = /^ {0,3}(#{1,6}) +(.*?)#* *$/.exec(line);
    if (line.trim() === '') {
      ++at;
    } else if (fence) {
      const code = [];
      for (++at; at < lines.length && !lines[at].trimStart().startsWith(fence[1]); ++at) code.push(lines[at]);
      ++at;
      nodes.push(el('pre', {tabindex: 0}, el('code', {}, code.join('\n'))));
    } else if (heading) {
      // The page's own headings end at level 3.
      nodes.push(el(`h${Math.min(6, heading[1].length + 3)}`, {}, inline(heading[2])));
      ++at;
    } else if (isRule(line)) {
      nodes.push(el('hr'));
      ++at;
    } else if (/^ {0,3}>/.test(line)) {
      const quoted = [];
      for (; at < lines.length && /^ {0,3}>/.test(lines[at]); ++at) quoted.push(lines[at].replace(/^ {0,3}> ?/, ''));
      nodes.push(el('blockquote', {}, blocks(quoted, depth + 1)));
    } else if (itemOf(line)) {
      const [node, next] = list(lines, at, depth);
      nodes.push(node);
      at = next;
    } else if (line.includes('|') && /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? '') && lines[at + 1].includes('|')) {
      const [node, next] = table(lines, at);
      nodes.push(node);
      at = next;
    } else {
      const text = [];
      do text.push(lines[at++]);
      while (at < lines.length && lines[at].trim() !== '' && !startsBlock(lines[at]));
      nodes.push(el('p', {}, text.flatMap((part, i) => (i > 0 ? [el('br'), ...inline(part)] : inline(part)))));
    }
  }
  return nodes;
}

/** Elements that show the text. */
export const markdown = (text) => blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
