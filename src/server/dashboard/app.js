// The frame around the views: tabs, connection, key.
import {el, setText} from './dom.js';
import {EngineState} from './state.js';
import {follow, setKey} from './stream.js';
import {cacheView} from './caching.js';
import {chatView} from './chat.js';
import {explainView} from './explain.js';
import {lifeView} from './life.js';
import {overviewView} from './overview.js';
import {pagesView} from './pages.js';
import {prefixesView} from './prefixes.js';

// Each makes its elements in `root` and returns update(), which shows the state as it is now.
const VIEWS = {
  overview: ['Overview', overviewView],
  pages: ['Pages', pagesView],
  prefixes: ['Prefix tree', prefixesView],
  life: ['A request', lifeView],
  chat: ['Chat', chatView],
  cache: ['Why a cache', cacheView],
  explain: ['Explain', explainView],
};

const state = new EngineState();
const main = document.getElementById('main');
const links = new Map();
let update = () => {};
let leave = () => {};

for (const [name, [title]] of Object.entries(VIEWS)) {
  const link = el('a', {href: `#${name}`}, title);
  links.set(name, link);
  document.getElementById('tabs').append(el('li', {}, link));
}

function show() {
  // "#life/17": the view, and what it shows.
  const [asked, argument] = location.hash.slice(1).split('/');
  if (asked === 'main') return;  // the link that skips to the content
  const name = Object.hasOwn(VIEWS, asked) ? asked : 'overview';
  for (const [other, link] of links) {
    if (other === name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  leave();
  main.replaceChildren();
  document.title = `Quire: ${VIEWS[name][0]}`;
  const view = VIEWS[name][1](main, state, argument);
  update = view.update;
  leave = view.leave ?? (() => {});
  update();
}

function take(snapshot) {
  state.take(snapshot);
  const {name, architecture, quantization, activations, threads} = state.model ?? {};
  if (name) setText(document.getElementById('model'), `${name} · ${architecture}, ${quantization}, ${activations}, ${threads} threads`);
  update();
}

function say(text, lost) {
  const status = document.getElementById('status');
  setText(status, text);
  status.classList.toggle('lost', lost);
}

const form = document.getElementById('key-form');

function connect() {
  follow(take, say, () => {
    say('A key is needed', true);
    form.hidden = false;
    document.getElementById('key').focus();
  });
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  setKey(document.getElementById('key').value.trim());
  form.hidden = true;
  main.focus();
  connect();
});

window.addEventListener('hashchange', () => {
  show();
  main.focus({preventScroll: true});
});
window.addEventListener('resize', () => update());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => update());
show();
connect();
