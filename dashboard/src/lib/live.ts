// Live updates: the server sends which resources changed, and the views reload them.
import { useEffect, useRef } from 'preact/hooks';
import { Store } from './store.ts';
import { get, loginRequired } from './api.ts';

/** A resource that can change. */
export type Resource = 'ledger' | 'conversation' | 'summaries' | 'runs' | 'reviews' | 'knowledge' | 'messages' | 'logs' | 'config';

/** A change; `everything` after the connection was lost, because it is unknown what was missed. */
export interface ChangeEvent {
  what: Resource | 'everything';
  /** The conversation, page or day, where there are several. */
  name: string | null;
}

/** Whether the event stream is connected. */
export const liveConnected = new Store(false);

const PATH = '/api/live';
const RECONNECT_MS = 5_000;
const watchers = new Set<(changed: ChangeEvent) => void>();
let source: EventSource | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let missed = false;

function onChanged(event: MessageEvent<string>): void {
  let changed: ChangeEvent;
  try {
    changed = JSON.parse(event.data) as ChangeEvent;
  } catch {
    changed = { what: 'everything', name: null };
  }
  // Every stream begins with `everything`. After a fresh load nothing was missed.
  if (changed.what === 'everything' && !missed) return;
  missed = false;
  for (const watcher of [...watchers]) watcher(changed);
}

function open(): void {
  if (source || watchers.size === 0 || loginRequired.get() || document.hidden) return;
  source = new EventSource(PATH);
  source.onopen = () => liveConnected.set(true);
  source.addEventListener('changed', onChanged);
  source.onerror = () => {
    liveConnected.set(false);
    missed = true;
    // The stream does not say why it ended. A request finds out whether the server is down or requires a login, and shows it.
    get('/api/session', {}).catch(() => undefined);
    // EventSource reconnects by itself; once it has given up, open a new one after a delay.
    if (source?.readyState !== EventSource.CLOSED) return;
    close();
    timer = setTimeout(open, RECONNECT_MS);
  };
}

function close(): void {
  clearTimeout(timer);
  source?.close();
  source = undefined;
  liveConnected.set(false);
}

loginRequired.watch((is) => (is ? close() : open()));
// A hidden page holds no connection; it reloads what it missed when it becomes visible.
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return open();
  missed = source !== undefined || missed;
  close();
});

/** Calls `does` whenever one of these resources changed; a burst of changes becomes one call. */
export function useLive(resources: readonly Resource[], callback: (changed: ChangeEvent) => void, ms = 250): void {
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => {
    let timeout: ReturnType<typeof setTimeout> | undefined;
    const watcher = (changed: ChangeEvent): void => {
      if (changed.what !== 'everything' && !resources.includes(changed.what)) return;
      clearTimeout(timeout);
      timeout = setTimeout(() => latest.current(changed), ms);
    };
    watchers.add(watcher);
    open();
    return () => {
      clearTimeout(timeout);
      watchers.delete(watcher);
      if (watchers.size > 0) return;
      close();
      missed = false;
    };
  }, [resources.join(' '), ms]);
}
