// One token's way through the model, with the numbers of the loaded model.
import {el, setText} from './dom.js';
import * as format from './format.js';
import {post} from './stream.js';

const EXAMPLE = 'The sea was calm that morning, and';

const visible = (text) => text.replace(/[Ġ▁ ]/g, '␣').replace(/[Ċ\n]/g, '↵') || '(nothing)';
const number = (value) => (value === null ? 'not finite' : value === 0 ? '0' : Math.abs(value) < 0.001 || Math.abs(value) >= 10_000 ? value.toExponential(2) : String(Number(value.toPrecision(4))));

// What the last token goes through: a title, a sentence, and the vectors, by the names that the server gives them. A step of
// which the model has no vector is left out; those without names show something else.
const STEPS = {
  embeddings: ['Embedding', 'Each token is a row of the embedding matrix.'],
  layer_input: ['Into the layer', 'The residual stream of the last token, to which each layer adds.', {layer_input: 'residual stream'}],
  mixer_input: ['Norm', 'The stream, normalised: what the layer’s first matrices read.', {mixer_input: 'normalised'}],
  projections: ['Q, K, V', 'Three matrices make the query, the key and the value of the head.', {query: 'query', key: 'key', value: 'value'}],
  positions: ['Position', 'Norms and the rotation by the position (RoPE), where the model has them, change query and key.', {query_positioned: 'query', key_positioned: 'key'}],
  cache: ['Cache append', 'The last token’s key and value go to the cache. Those of the tokens before it are there already.'],
  attention: ['Attention', 'The query times each key gives scores; their softmax gives weights. Attention does not store this row, so it is computed here by the definition, in float32, from the keys before the cache rounds them.'],
  attended: ['What the head takes', 'The sum of the values, each times its weight.', {attended: 'result of the head'}],
  after_mixer: ['After attention', 'All heads’ results, through the output matrix, are added to the stream.', {after_mixer: 'residual stream'}],
  ffn_input: ['Norm', 'The stream, normalised: what the feed-forward network reads.', {ffn_input: 'normalised', router: 'router’s scores of the experts'}],
  ffn: ['Feed-forward network', 'The activation is f(gate) × up; the down matrix takes it back to the stream.', {gate: 'gate', up: 'up', activation: 'activation'}],
  layer_output: ['Out of the layer', 'The stream with what the layer has added.', {layer_output: 'residual stream'}],
  residual: ['All layers', 'The length of the last token’s stream before each layer, and after the last.'],
  final_hidden: ['Final norm', 'What the output matrix reads.', {final_hidden: 'normalised'}],
  logits: ['Logits', 'The most probable next tokens, without a sampler.'],
};

export function explainView(root, state) {
  const text = el('input', {id: 'explain-text', value: EXAMPLE, maxlength: 200, autocomplete: 'off'});
  const layer = el('input', {id: 'explain-layer', type: 'number', min: 0, value: 0, required: true});
  const head = el('input', {id: 'explain-head', type: 'number', min: 0, value: 0, required: true});
  const status = el('p', {role: 'status'}, 'Up to 16 tokens. Choose a bar to read its number.');
  const details = el('p', {class: 'details', 'aria-live': 'polite'}), steps = el('ol', {class: 'steps'});
  const form = el('form', {class: 'choices'},
    el('label', {}, 'Text ', text), el('label', {}, 'Layer ', layer), el('label', {}, 'Head ', head), el('button', {class: 'main'}, 'Explain'));
  root.append(el('section', {class: 'panel'}, el('h2', {}, 'One token through the model'), form, status, steps, details));
  let stop = null;

  /** Bars up and down from a line, for signed numbers; one is in the tab order, and the arrow keys reach the others. */
  function strip(name, values, labels = values.map((_, i) => `number ${i}`)) {
    const largest = Math.max(...values.map(Math.abs)) || 1;
    const bars = values.map((value, i) => {
      const bar = el('span', {class: value < 0 ? 'below' : 'above'});
      bar.style.height = `${(50 * Math.abs(value)) / largest}%`;
      return el('button', {type: 'button', tabindex: i === 0 ? 0 : -1, 'aria-label': `${name}, ${labels[i]}: ${number(value)}`}, bar);
    });
    const group = el('div', {class: 'strip', role: 'group', 'aria-label': name}, bars);
    const indexOf = (event) => bars.indexOf(event.target.closest('button'));
    for (const event of ['pointerover', 'focusin', 'click']) {
      group.addEventListener(event, (e) => {
        if (indexOf(e) >= 0) setText(details, bars[indexOf(e)].getAttribute('aria-label'));
      });
    }
    group.addEventListener('keydown', (event) => {
      const by = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key], from = indexOf(event);
      if (by === undefined || from < 0) return;
      event.preventDefault();
      const to = Math.min(bars.length - 1, Math.max(0, from + by));
      bars[from].tabIndex = -1;
      bars[to].tabIndex = 0;
      bars[to].focus();
    });
    return group;
  }

  const vector = (name, v) => el('div', {class: 'vector'},
    el('p', {class: 'quiet'}, `${name}: ${v.values.length < v.size ? `the first ${v.values.length} of ` : ''}${format.plural(v.size, 'number')}, length ${number(v.norm)}`),
    strip(name, v.values));

  /** Rows of [label, part of the whole, text]. */
  const shares = (rows) => el('ul', {class: 'shares'}, rows.map(([label, part, words]) => {
    const bar = el('span', {class: 'share', 'aria-hidden': 'true'});
    bar.style.width = `${(100 * part).toFixed(1)}%`;
    return el('li', {}, el('span', {class: 'label'}, label), el('span', {class: 'track'}, bar), el('span', {class: 'words'}, words));
  }));

  const OTHERS = {
    embeddings: (a) => a.embeddings.map((v, i) => vector(`${i + 1} “${visible(a.tokens[i].text)}”`, v)),
    cache: ({attention, tokens}) => attention && [el('div', {class: 'scroll'}, el('table', {},
      el('thead', {}, el('tr', {}, ['token', 'length of K', 'length of V', ''].map((name) => el('th', {scope: 'col'}, name)))),
      el('tbody', {}, tokens.map((token, i) => el('tr', {}, [visible(token.text), number(attention.key_norms[i]), number(attention.value_norms[i]),
        i + 1 < tokens.length ? 'cached' : 'appended'].map((cell) => el('td', {}, cell))))))),
    el('p', {}, el('a', {href: '#cache'}, 'What the cache saves'))],
    attention: ({attention, tokens}) => attention && [shares([
      ...tokens.map((token, i) => [visible(token.text), attention.weights[i], `${format.percent(attention.weights[i])}, score ${number(attention.scores[i])}`]),
      ...(attention.sink > 0 ? [['(no token: the sink)', attention.sink, format.percent(attention.sink)]] : [])])],
    residual: (a) => [strip('length of the stream', a.residual_norms, a.residual_norms.map((_, i) => (i < a.layers ? `before layer ${i}` : `after layer ${i - 1}`)))],
    logits: (a) => a.top_tokens.length > 0 && [shares(a.top_tokens.map((t) => [visible(t.text), t.probability, `${format.percent(t.probability)}, logit ${number(t.logit)}`]))],
  };

  function show(answer) {
    const byPlace = new Map(answer.path.map((v) => [v.place, v]));
    steps.replaceChildren(...Object.entries(STEPS).flatMap(([step, [title, sentence, vectors]]) => {
      const content = vectors ? Object.entries(vectors).filter(([place]) => byPlace.has(place)).map(([place, name]) => vector(name, byPlace.get(place))) : OTHERS[step](answer);
      return content && content.length > 0 ? [el('li', {id: `step-${step}`}, el('h3', {}, title), el('p', {}, sentence), content)] : [];
    }));
    layer.max = String(answer.layers - 1);
    head.max = String(Math.max(0, answer.heads - 1));
    const where = answer.heads > 0 ? `head ${answer.head} of ${answer.heads}, which reads KV head ${answer.kv_head}` : 'which has no attention';
    setText(status, `${format.plural(answer.tokens.length, 'token')}, layer ${answer.layer} of ${answer.layers}, ${where}. The last token is “${visible(answer.tokens.at(-1).text)}”.`);
    setText(details, '');
  }

  async function explain() {
    stop?.abort();
    const asked = stop = new AbortController();
    setText(status, 'Computing …');
    try {
      const response = await post('/dashboard/explain', {...(state.chosen && {model: state.chosen}), text: text.value, layer: Number(layer.value), head: Number(head.value)}, asked.signal);
      const answer = await response.json();
      if (stop === asked) show(answer);
    } catch (error) {
      if (stop !== asked) return;
      steps.replaceChildren();
      setText(details, '');
      setText(status, `Not explained: ${error.message}`);
    }
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    explain();
  });
  return {
    update() {
      if (state.model && !layer.max) layer.max = String(state.model.layers - 1);
    },
    leave() {
      stop?.abort();
      stop = null;
    },
  };
}
