// One answer of /v1/chat/completions, streamed.
import {eventsOf, post} from './stream.js';
import {tokensOf} from './tokens.js';

/** The text of a message as the model gets it: attachments follow in fences that they cannot close. */
export function contentOf(message) {
  const attached = (message.files ?? []).map(({name, text}) => {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((run) => run[0].length));
    const fence = '`'.repeat(longest + 1);
    return `\n\n${name}:\n${fence}\n${text}\n${fence}`;
  });
  return message.text + attached.join('');
}

/** The body of the request. Sampling settings are texts; empty ones are left to the server. */
export function bodyOf(chat, model, withTokens) {
  const messages = chat.messages.map((m) => ({role: m.role, content: contentOf(m)}));
  if (chat.system.trim() !== '') messages.unshift({role: 'system', content: chat.system});
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  if (model) body.model = model;
  if (withTokens) Object.assign(body, {logprobs: true, top_logprobs: 5});
  for (const [name, text] of Object.entries(chat.sampling)) {
    if (text.trim() !== '') body[name] = Number(text);
  }
  return body;
}

/** Calls add({text, thoughts, tokens}) for each piece; returns {finish, usage}. Throws an Error if the answer fails. */
export async function complete(body, signal, add) {
  const response = await post('/v1/chat/completions', body, signal);
  let finish = null, usage = null;
  for await (const data of eventsOf(response)) {
    if (data === '[DONE]') break;
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    usage = event.usage ?? usage;
    const choice = event.choices?.[0];
    if (!choice) continue;
    finish = choice.finish_reason ?? finish;
    add({text: choice.delta.content ?? '', thoughts: choice.delta.reasoning_content ?? choice.delta.reasoning ?? '', tokens: tokensOf(choice.logprobs?.content ?? [])});
  }
  return {finish, usage};
}
