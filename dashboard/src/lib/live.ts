// Live updates: the server sends which resources changed, and the views reload them.
import { useEffect, useRef } from 'preact/hooks';
import { Store } from './store.ts';
import { get, locked } from './api.ts';

/** A resource that can change. */
export type What = 'ledger' | 'conversation' | 'summaries' | 'runs' | 'reviews' | 'knowledge' | 'messages' | 'logs' | 'config';

/** A change; `everything` after the connection was lost, because it is unknown what was missed. */
export interface Changed {
  what: What | 'everything';
  /** The conversation, page or day, where there are several. */
  name: string | null;
}

/** Whether the event stream is connected. */
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
  // Every stream begins with `everything`. After a fresh load nothing was missed.
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
    // The stream does not say why it ended. A request finds out whether the server is down or requires a login, and shows it.
    get('/api/session', {}).catch(() => undefined);
    // EventSource reconnects by itself; once it has given up, open a new one after a delay.
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
// A hidden page holds no connection; it reloads what it missed when it becomes visible.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return open();
  missed = source !== undefined || missed;
  close();
});

/** Calls `does` whenever one of these resources changed; a burst of changes becomes one call. */
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
