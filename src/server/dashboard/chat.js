// A chat with the served model.
import {loadChats, newChat, saveChats} from './chat_store.js';
import {bodyOf, complete} from './completion.js';
import {el, setText} from './dom.js';
import * as format from './format.js';
import {markdown} from './markdown.js';
import {headers} from './stream.js';
import {tokenList} from './tokens.js';

const MOST_FILE = 256 * 1024;  // bytes of an attached text
// [field of the request, label, attributes of its input]
const SAMPLING = [
  ['temperature', 'Temperature', {min: 0, max: 100, step: 0.05}], ['top_p', 'Top p', {min: 0, max: 1, step: 0.01}],
  ['top_k', 'Top k', {min: -1, step: 1}], ['min_p', 'Min p', {min: 0, max: 1, step: 0.01}],
  ['repetition_penalty', 'Repetition penalty', {min: 0.01, max: 100, step: 0.01}], ['max_tokens', 'Most tokens', {min: 1, step: 1}],
  ['seed', 'Seed', {min: 0, step: 1}],
];

// Made once: an answer goes on while another view is shown, so that one can watch it there.
let made = null;

export function chatView(root, state) {
  made ??= makeChat(state);
  root.append(made.node);
  return made;
}

function makeChat(state) {
  const chats = loadChats();
  let chat = chats[0] ?? newChat();
  let running = null;    // the AbortController of the answer under way
  let attached = [];     // files of the next message
  const shown = new WeakMap();  // a message's tokens, which are not stored

  const history = el('ul', {'aria-label': 'Conversations'});
  const model = el('select', {});
  const system = el('textarea', {rows: 3});
  const sampling = new Map(SAMPLING.map(([name, , attributes]) => [name, el('input', {type: 'number', placeholder: 'default', ...attributes})]));
  const withTokens = el('input', {type: 'checkbox'});
  const log = el('div', {role: 'log', 'aria-label': 'Messages', tabindex: 0});
  const text = el('textarea', {'aria-label': 'Message', placeholder: 'Message (Enter sends, Shift+Enter begins a line)'});
  const send = el('button', {type: 'button', class: 'main'}, 'Send'), stop = el('button', {type: 'button', disabled: true}, 'Stop');
  const again = el('button', {type: 'button'}, 'Regenerate');
  const files = el('input', {type: 'file', multiple: true, 'aria-label': 'Attach text files'});
  const attachments = el('p', {class: 'quiet'}), note = el('p', {class: 'quiet', role: 'status'});

  const node = el('div', {class: 'chat'},
    el('aside', {class: 'panel', 'aria-label': 'Conversations and settings'},
      el('button', {type: 'button', on: {click: () => open(newChat())}}, 'New chat'), history,
      el('details', {}, el('summary', {}, 'Settings'),
        el('label', {}, 'Model', model), el('label', {}, 'System prompt', system),
        el('div', {class: 'settings'}, SAMPLING.map(([name, label]) => el('label', {}, label, sampling.get(name)))),
        el('label', {}, withTokens, ' Token probabilities'))),
    el('section', {'aria-label': 'Chat'}, log, note, attachments,
      el('div', {class: 'composer'}, text, send, stop, again, files)));

  // ---- messages ----

  function content(message) {
    const tokens = shown.get(message);
    const parts = [];
    if (message.thoughts) parts.push(el('details', {}, el('summary', {}, 'Thoughts'), el('p', {class: 'plain'}, message.thoughts)));
    if (tokens?.length > 0 && withTokens.checked) parts.push(...tokenList(tokens));
    else if (message.role === 'assistant') parts.push(...markdown(message.text));
    else parts.push(el('p', {class: 'plain'}, message.text));
    for (const file of message.files ?? []) parts.push(el('details', {}, el('summary', {}, `${file.name} (${format.bytes(file.text.length)})`), el('pre', {tabindex: 0}, file.text)));
    return parts;
  }
  const box = (message) => el('article', {class: `message ${message.role}`}, el('h3', {}, message.role === 'user' ? 'You' : 'Model'), content(message));

  function draw() {
    log.replaceChildren(...chat.messages.map(box));
    if (chat.messages.length === 0) log.append(el('p', {class: 'quiet'}, 'Ask something. Conversations stay in this browser.'));
    again.disabled = running !== null || !chat.messages.some((m) => m.role === 'user');
    send.disabled = running !== null;
    stop.disabled = running === null;
    drawHistory();
  }
  function drawHistory() {
    history.replaceChildren(...chats.map((c) => el('li', {},
      el('button', {type: 'button', 'aria-current': c === chat ? 'true' : null, on: {click: () => open(c)}}, c.title),
      el('button', {type: 'button', 'aria-label': `Delete ${c.title}`, on: {click: () => remove(c)}}, '×'))));
  }
  function save() {
    if (!chats.includes(chat) && chat.messages.length > 0) chats.unshift(chat);
    if (!saveChats(chats)) setText(note, 'The browser has no more room for conversations; the oldest were dropped.');
  }

  // ---- conversations ----

  function open(other) {
    running?.abort();
    readSettings();
    chat = other;
    system.value = chat.system;
    for (const [name, input] of sampling) input.value = chat.sampling[name] ?? '';
    setText(note, '');
    draw();
  }
  function remove(gone) {
    chats.splice(chats.indexOf(gone), 1);
    saveChats(chats);
    if (gone === chat) open(chats[0] ?? newChat());
    else drawHistory();
  }
  function readSettings() {
    chat.system = system.value;
    for (const [name, input] of sampling) chat.sampling[name] = input.value;
  }

  // ---- answers ----

  async function answer() {
    readSettings();
    const asked = chat, body = bodyOf(chat, model.value, withTokens.checked);
    const message = {role: 'assistant', text: ''};
    asked.messages.push(message);
    shown.set(message, []);
    running = new AbortController();
    draw();
    const place = log.lastElementChild, began = performance.now();
    log.setAttribute('aria-busy', 'true');
    let late = false;  // a drawing is due
    const redraw = () => {
      late = false;
      if (chat !== asked) return;
      const follows = log.getBoundingClientRect().bottom - window.innerHeight < 200;
      place.replaceChildren(place.firstChild, ...content(message));
      if (follows && !document.activeElement?.closest?.('.tokens')) place.scrollIntoView({block: 'end'});
    };
    setText(note, 'The model answers …');
    try {
      const {finish, usage} = await complete(body, running.signal, (piece) => {
        message.text += piece.text;
        if (piece.thoughts) message.thoughts = (message.thoughts ?? '') + piece.thoughts;
        shown.get(message).push(...piece.tokens);
        if (!late) setTimeout(redraw, 80);
        late = true;
      });
      const took = (performance.now() - began) / 1000;
      setText(note, `${finish === 'length' ? 'Cut at the most tokens. ' : ''}${usage ? `${format.plural(usage.completion_tokens, 'token')} in ${format.seconds(took)}; ` : ''}`
        + `${usage ? `${format.count(usage.prompt_tokens_details?.cached_tokens ?? 0)} of ${format.count(usage.prompt_tokens)} prompt tokens came from the cache.` : ''}`);
    } catch (error) {
      setText(note, running.signal.aborted ? 'Stopped.' : `The answer failed: ${error.message}`);
      if (message.text === '' && !message.thoughts) asked.messages.pop();
    }
    running = null;
    log.removeAttribute('aria-busy');
    if (asked.title === 'New chat') asked.title = asked.messages[0]?.text.trim().slice(0, 40) || 'Chat';
    if (chat === asked) draw();
    save();
    drawHistory();
  }

  function submit() {
    if (running || (text.value.trim() === '' && attached.length === 0)) return;
    const message = {role: 'user', text: text.value};
    if (attached.length > 0) message.files = attached;
    chat.messages.push(message);
    attached = [];
    text.value = '';
    setText(attachments, '');
    save();
    answer();
  }
  function regenerate() {
    if (running) return;
    while (chat.messages.at(-1)?.role === 'assistant') chat.messages.pop();
    if (chat.messages.length > 0) answer();
  }

  async function attach() {
    for (const file of files.files) {
      const bytes = new Uint8Array(await file.arrayBuffer());
      let content = null;
      try {
        content = new TextDecoder('utf-8', {fatal: true}).decode(bytes);
      } catch { /* not text */ }
      if (bytes.length > MOST_FILE || content === null || content.includes('\0')) {
        setText(note, `${file.name} is not attached: ${bytes.length > MOST_FILE ? `it has more than ${format.bytes(MOST_FILE)}` : 'it is not a text in UTF-8'}.`);
      } else {
        attached.push({name: file.name, text: content});
      }
    }
    files.value = '';
    setText(attachments, attached.length > 0 ? `Attached: ${attached.map((f) => f.name).join(', ')}` : '');
  }

  send.addEventListener('click', submit);
  stop.addEventListener('click', () => running?.abort());
  again.addEventListener('click', regenerate);
  files.addEventListener('change', attach);
  withTokens.addEventListener('change', draw);
  text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });

  async function listModels() {
    try {
      const response = await fetch('/v1/models', {headers: headers()});
      const names = (await response.json()).data.map((entry) => entry.id);
      model.replaceChildren(...names.map((name) => el('option', {value: name}, name)));
      if (names.includes(state.chosen)) model.value = state.chosen;
    } catch { /* without a name, the server takes its first model */ }
  }
  let listed = false, followed = state.chosen;
  open(chat);
  return {
    node,
    update() {  // called once the page is connected, with a key if one is needed
      if (!listed) listModels();
      listed = true;
      if (followed === state.chosen) return;
      followed = state.chosen;  // the page's choice is the chat's, until another is made here
      if (followed !== '') model.value = followed;
    },
    leave() {
      readSettings();
      save();
    },
  };
}
