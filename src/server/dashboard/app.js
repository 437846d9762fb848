// The frame around the views: tabs, connection, key.
import {el, setText} from './dom.js';
import {EngineState} from './state.js';
import {follow, get, setKey} from './stream.js';
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
  // "#life/17?model=a": the view, what it shows, and the model. Links have no model: the one that was chosen stays.
  const [place, query] = location.hash.slice(1).split('?');
  const [asked, argument] = place.split('/');
  if (asked === 'main') return;  // the link that skips to the content
  const model = new URLSearchParams(query ?? '').get('model');
  if (model === null && state.chosen !== '') history.replaceState(null, '', fragment(place, state.chosen));
  if (model !== null && model !== state.chosen) choose(model);
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

const models = document.getElementById('models');

const fragment = (place, model) => `#${place}${model === '' ? '' : `?${new URLSearchParams({model})}`}`;

function choose(name) {
  state.choose(name);
  setText(document.getElementById('model'), '');
  listModels();
  connect();
}

let several = false;

/** Shows the choice if there are several models. */
async function listModels() {
  let listed;
  try {
    listed = (await get('/dashboard/models')).models;
  } catch {
    return;  // the stream says what is wrong
  }
  several = listed.length > 1;
  document.getElementById('choice').hidden = !several;
  const options = [['', 'the first that is loaded'], ...listed.map(({name, status}) => [name, status === 'loaded' ? name : `${name} (${status})`])];
  if (models.options.length === options.length) {  // an open list stays open
    options.forEach(([, text], i) => setText(models.options[i], text));
  } else {
    models.replaceChildren(...options.map(([value, text]) => el('option', {value}, text)));
  }
  models.value = state.chosen;
  const own = listed.find(({name}) => name === state.chosen);
  if (own && own.status !== 'loaded') setText(document.getElementById('model'), `${own.name} is not loaded; a request for it loads it`);
}

models.addEventListener('change', () => {
  const [place] = location.hash.slice(1).split('?');
  history.replaceState(null, '', fragment(place || 'overview', models.value));
  choose(models.value);
  show();
});
setInterval(() => {
  if (several && !document.hidden) listModels();  // they are loaded and unloaded meanwhile
}, 5000);

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

let ended = new AbortController();

function connect() {
  ended.abort();
  ended = new AbortController();
  const {signal} = ended;
  follow(state.chosen, signal, (snapshot) => signal.aborted || take(snapshot), say, () => {
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
  listModels();
  connect();
});

window.addEventListener('hashchange', () => {
  show();
  main.focus({preventScroll: true});
});
window.addEventListener('resize', () => update());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => update());
show();
listModels();
if (state.chosen === '') connect();
