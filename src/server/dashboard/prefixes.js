// The prefix tree: which prompts begin alike.
import {el, legend, setText} from './dom.js';
import * as format from './format.js';

const MOST_ROWS = 300;

/** Rows of the tree, each branch after the one that it follows: {pages, users, depth, forks}. */
export function rowsOf(branches) {
  const depths = [], forks = new Array(branches.length).fill(0);
  branches.forEach(([parent], i) => {
    depths[i] = parent < 0 ? 0 : depths[parent] + 1;
    if (parent >= 0) ++forks[parent];
  });
  return branches.map(([, pages, users], i) => ({pages, users, depth: depths[i], forks: forks[i]}));
}

export function prefixesView(root, state) {
  const summary = el('p', {}), list = el('ol', {class: 'branches'});
  root.append(el('section', {class: 'panel'}, el('h2', {}, 'Prefix tree'),
    el('p', {class: 'quiet'}, 'Prompts that begin alike share a path from the left edge. A bar is a run of pages without a fork; what is further right continues the nearest bar above it that is further left. Texts are not shown.'),
    summary, legend([['decode', 'used by one sequence'], ['shared', 'used by several'], ['cached', 'kept for future prompts']]), list));
  let drawn = '';

  function row({pages, users, depth, forks}, tokens) {
    const use = users > 1 ? 'many' : users === 1 ? 'used' : 'idle';
    const bar = el('span', {class: 'bar', 'aria-hidden': 'true'});
    bar.style.width = `${Math.max(4, 12 * Math.sqrt(pages))}px`;
    const item = el('li', {class: use}, bar, el('span', {},
      `${format.plural(pages, 'page')} (${format.count(pages * tokens)} tokens), ${users > 0 ? `used by ${format.plural(users, 'sequence')}` : 'not in use'}${forks > 0 ? `, then ${forks} ways` : ''}`));
    item.style.paddingLeft = `${Math.min(depth, 20) * 1.2}rem`;
    return item;
  }

  function update() {
    const {now, model} = state;
    if (!now) return;
    const {pages, complete, branches} = now.prefixes;
    const rows = rowsOf(branches);
    const left = complete && rows.length <= MOST_ROWS ? '' : ' Only a part of the tree is shown.';
    setText(summary, pages === 0 ? 'The tree is empty: no full page has been computed yet, or the prefix cache is off.'
      : `${format.plural(pages, 'page')} in ${format.plural(rows.length, 'branch').replace('branchs', 'branches')}.${left}`);
    const key = JSON.stringify(branches);
    if (key === drawn) return;
    drawn = key;
    list.replaceChildren(...rows.slice(0, MOST_ROWS).map((r) => row(r, model.page_tokens)));
  }
  return {update};
}
