// What happens while one looks: the server tells that something has changed, and the view asks again.
import { useEffect, useRef } from 'preact/hooks';
import { Store } from './store.ts';
import { locked } from './api.ts';

/** Something that happened. `kind` is the event's name, the rest is what the server told with it. */
export interface Happened {
  kind: string;
  told: unknown;
}

/** Whether changes are being heard of. */
export const listening = new Store(false);

const PATH = '/api/live';
const AGAIN_MS = 5_000;
const watchers = new Map<string, Set<(happened: Happened) => void>>();
let source: EventSource | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

function heard(event: MessageEvent<string>): void {
  let told: unknown;
  try {
    told = JSON.parse(event.data);
  } catch {
    // Something was told that cannot be read; that something happened can still be passed on.
    told = undefined;
  }
  const happened = { kind: event.type, told };
  for (const watcher of [...(watchers.get(event.type) ?? []), ...(watchers.get('*') ?? [])]) watcher(happened);
}

function open(): void {
  if (source || watchers.size === 0 || locked.get() || document.hidden) return;
  source = new EventSource(PATH);
  source.onopen = () => listening.set(true);
  source.onmessage = heard;
  for (const kind of watchers.keys()) source.addEventListener(kind, heard as (event: Event) => void);
  source.onerror = () => {
    listening.set(false);
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
// A page that nobody looks at holds no connection.
document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));

/** Calls `does` whenever something of these kinds happens; `*` is everything. Bursts become one call. */
export function useLive(kinds: readonly string[], does: (happened: Happened) => void, ms = 250): void {
  const latest = useRef(does);
  latest.current = does;
  useEffect(() => {
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const watcher = (happened: Happened): void => {
      clearTimeout(waiting);
      waiting = setTimeout(() => latest.current(happened), ms);
    };
    for (const kind of kinds) {
      const known = watchers.get(kind);
      if (known) known.add(watcher);
      else {
        watchers.set(kind, new Set([watcher]));
        source?.addEventListener(kind, heard as (event: Event) => void);
      }
    }
    open();
    return () => {
      clearTimeout(waiting);
      for (const kind of kinds) watchers.get(kind)?.delete(watcher);
      if ([...watchers.values()].every((set) => set.size === 0)) {
        watchers.clear();
        close();
      }
    };
  }, [kinds.join(' '), ms]);
}
