// What happens while one looks: the server tells which things changed, and the view asks for them again.
import { useEffect, useRef } from 'preact/hooks';
import { Store } from './store.ts';
import { get, locked } from './api.ts';

/** A thing that can change. */
export type What = 'ledger' | 'conversation' | 'summaries' | 'runs' | 'reviews' | 'knowledge' | 'messages' | 'logs' | 'config';

/** That something changed; `everything` after the line was cut, because nobody knows what was missed. */
export interface Changed {
  what: What | 'everything';
  /** Which conversation, page or day, where there are several. */
  name: string | null;
}

/** Whether changes are being heard of. */
export const listening = new Store(false);

const PATH = '/api/live';
const AGAIN_MS = 5_000;
const watchers = new Set<(changed: Changed) => void>();
let source: EventSource | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let missed = false;

function heard(event: MessageEvent<string>): void {
  let changed: Changed;
  try {
    changed = JSON.parse(event.data) as Changed;
  } catch {
    changed = { what: 'everything', name: null };
  }
  // A new line begins with `everything`. Whoever has only just asked has missed nothing.
  if (changed.what === 'everything' && !missed) return;
  missed = false;
  for (const watcher of [...watchers]) watcher(changed);
}

function open(): void {
  if (source || watchers.size === 0 || locked.get() || document.hidden) return;
  source = new EventSource(PATH);
  source.onopen = () => listening.set(true);
  source.addEventListener('changed', heard);
  source.onerror = () => {
    listening.set(false);
    missed = true;
    // The line does not say why it was cut. Whoever asks finds out, and then everybody is told that the server is gone or wants a login.
    get('/api/session', {}).catch(() => undefined);
    // While it is still trying by itself there is nothing to do; once it has given up, begin anew after a while.
    if (source?.readyState !== EventSource.CLOSED) return;
    close();
    timer = setTimeout(open, AGAIN_MS);
  };
}

function close(): void {
  clearTimeout(timer);
  source?.close();
  source = undefined;
  listening.set(false);
}

locked.watch((is) => (is ? close() : open()));
// A page that nobody looks at holds no connection; what happens meanwhile is asked for when it is looked at again.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return open();
  missed = source !== undefined || missed;
  close();
});

/** Calls `does` whenever one of these things changed; bursts become one call. */
export function useLive(whats: readonly What[], does: (changed: Changed) => void, ms = 250): void {
  const latest = useRef(does);
  latest.current = does;
  useEffect(() => {
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const watcher = (changed: Changed): void => {
      if (changed.what !== 'everything' && !whats.includes(changed.what)) return;
      clearTimeout(waiting);
      waiting = setTimeout(() => latest.current(changed), ms);
    };
    watchers.add(watcher);
    open();
    return () => {
      clearTimeout(waiting);
      watchers.delete(watcher);
      if (watchers.size > 0) return;
      close();
      missed = false;
    };
  }, [whats.join(' '), ms]);
}
