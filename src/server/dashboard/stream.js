// Server-sent events by fetch, which, unlike EventSource, can send an API key and a body.

let key = sessionStorage.getItem('quire.key') ?? '';

export function setKey(value) {
  key = value;
  sessionStorage.setItem('quire.key', value);
}

export const headers = () => (key ? {Authorization: `Bearer ${key}`} : {});

/** The data of each event of a response's body. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf('\n\n')) >= 0) {
      const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6));
      text = text.slice(end + 2);
      if (data.length > 0) yield data.join('\n');
    }
  }
}

/** Posts JSON; throws an Error with the server's message. */
export async function post(path, body, signal) {
  const response = await fetch(path, {method: 'POST', signal, headers: {'Content-Type': 'application/json', ...headers()}, body: JSON.stringify(body)});
  if (!response.ok) throw new Error(await messageOf(response));
  return response;
}

export async function messageOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

/** GETs JSON; throws an Error with the server's message. */
export async function get(path) {
  const response = await fetch(path, {headers: headers()});
  if (!response.ok) throw new Error(await messageOf(response));
  return response.json();
}

/**
 * Follows /dashboard/events of a model for as long as the page is visible, until `ended` is aborted. Calls take(snapshot) for each
 * event, say(text, lost) when the connection changes, and needKey() if the server wants another key; follow() then returns.
 */
export async function follow(model, ended, take, say, needKey) {
  const path = model === '' ? '/dashboard/events' : `/dashboard/events?model=${encodeURIComponent(model)}`;
  let pause = 500;
  for (;;) {
    await visible();
    if (ended.aborted) return;
    const stop = new AbortController();
    const end = () => stop.abort();
    ended.addEventListener('abort', end);
    const hide = () => document.hidden && stop.abort();
    document.addEventListener('visibilitychange', hide);
    try {
      const response = await fetch(path, {headers: headers(), signal: stop.signal});
      if (response.status === 401) return needKey();
      if (!response.ok) throw new Error(await messageOf(response));
      say('Live', false);
      pause = 500;
      for await (const data of eventsOf(response)) take(JSON.parse(data));
      throw new Error('the server ended the stream');
    } catch (error) {
      if (ended.aborted) return;
      if (!document.hidden) {
        say(`Not connected: ${error.message}. Trying again …`, true);
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(pause * 2, 10_000);
      } else {
        say('Paused while hidden', false);
      }
    } finally {
      ended.removeEventListener('abort', end);
      document.removeEventListener('visibilitychange', hide);
    }
  }
}

const visible = () => new Promise((resolve) => {
  if (!document.hidden) return resolve();
  const look = () => {
    if (document.hidden) return;
    document.removeEventListener('visibilitychange', look);
    resolve();
  };
  document.addEventListener('visibilitychange', look);
});
