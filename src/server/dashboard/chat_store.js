// Conversations in the browser's localStorage, bounded; nothing of them is kept on the server.

const KEY = 'quire.chats', MOST_CHATS = 50;

/** Newest first: {id, title, system, sampling: {name: text}, messages: [{role, text, files?: [{name, text}], thoughts?}]}. */
export function loadChats() {
  try {
    const chats = JSON.parse(localStorage.getItem(KEY) ?? '[]');
    return Array.isArray(chats) ? chats.filter((chat) => typeof chat?.id === 'string' && Array.isArray(chat.messages)) : [];
  } catch {
    return [];  // another version's, or damaged
  }
}

/** Returns whether all fit; if the browser's room is used up, the oldest conversations go. */
export function saveChats(chats) {
  let kept = chats.slice(0, MOST_CHATS);
  for (;;) {
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
      return kept.length === Math.min(chats.length, MOST_CHATS);
    } catch {
      if (kept.length === 0) return false;
      kept = kept.slice(0, -1);
    }
  }
}

export const newChat = () => ({id: crypto.getRandomValues(new Uint32Array(3)).join('-'), title: 'New chat', system: '', sampling: {}, messages: []});
