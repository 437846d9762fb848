// An answer token by token: how probable each was, and what else could have come.
import {el, setText} from './dom.js';
import * as format from './format.js';

const visible = (text) => text.replace(/\n/g, '↵').replace(/\t/g, '⇥') || '(nothing)';

/** logprobs.content of the API as {text, logprob, others: [[text, logprob]]}. */
export const tokensOf = (content) => content.map((t) => ({text: t.token, logprob: t.logprob, others: (t.top_logprobs ?? []).map((o) => [o.token, o.logprob])}));

export function describeToken(token, index) {
  const others = token.others.filter(([text]) => text !== token.text).map(([text, logprob]) => `“${visible(text)}” ${format.percent(Math.exp(logprob))}`);
  return `Token ${index + 1}, “${visible(token.text)}”: ${format.percent(Math.exp(token.logprob))}. ${others.length > 0 ? `Instead: ${others.join(', ')}.` : ''}`;
}

/** Elements: the tokens, of which one is in the tab order and the arrow keys reach the others, and a line about the chosen one. */
export function tokenList(tokens) {
  const details = el('p', {class: 'details quiet', 'aria-live': 'polite'}, 'Point at a token, or use the arrow keys, to see its alternatives.');
  const kind = (p) => (p > 0.8 ? 'likely' : p > 0.4 ? 'open' : p > 0.1 ? 'unsure' : 'unlikely');
  const buttons = tokens.map((token, i) => {
    const pieces = token.text.split('\n').flatMap((part, n) => (n > 0 ? ['↵', el('br'), part] : [part]));
    return el('button', {type: 'button', class: kind(Math.exp(token.logprob)), tabindex: i === 0 ? 0 : -1}, pieces);
  });
  const choose = (i) => setText(details, describeToken(tokens[i], i));
  const list = el('div', {class: 'tokens', role: 'group', 'aria-label': 'Tokens of the answer'}, buttons);
  const indexOf = (event) => buttons.indexOf(event.target.closest('button'));
  for (const name of ['pointerover', 'focusin', 'click']) {
    list.addEventListener(name, (event) => {
      if (indexOf(event) >= 0) choose(indexOf(event));
    });
  }
  list.addEventListener('keydown', (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
    const from = indexOf(event);
    if (by === undefined || from < 0) return;
    event.preventDefault();
    const to = Math.min(buttons.length - 1, Math.max(0, from + by));
    buttons[from].tabIndex = -1;
    buttons[to].tabIndex = 0;
    buttons[to].focus();
  });
  return [list, details];
}
