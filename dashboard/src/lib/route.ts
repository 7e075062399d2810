// The route in the address: `#/view/rest?query`. Everything the user can return to is in the address, and nothing else is.
import { Store, useStore } from './store.ts';

export interface Route {
  /** The view; empty for the first one. */
  view: string;
  /** The path segments after the view, decoded. */
  rest: string[];
  query: URLSearchParams;
}

export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Parses the fragment of the address. */
export function parseRoute(hash: string): Route {
  // A fragment that does not begin with `#/`, such as a login code, is no route: show the first view.
  const text = hash.startsWith('#/') ? hash.slice(1) : '';
  const mark = text.indexOf('?');
  const path = mark < 0 ? text : text.slice(0, mark);
  const [view = '', ...rest] = path.split('/').filter((part) => part !== '').map(decode);
  return { view, rest, query: new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1)) };
}

/** The address of a route: `href(['ledger', id], { type: ['decision'] })`. */
export function href(path: readonly string[], query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((one: string) => search.append(name, one));
    else if (value !== undefined && value !== '' && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text === '' ? '' : `?${text}`}`;
}

const currentRoute = new Store<Route>(parseRoute(location.hash));
addEventListener('hashchange', () => currentRoute.set(parseRoute(location.hash)));

/** The current route; renders again when it changes. */
export function useRoute(): Route {
  return useStore(currentRoute);
}

/** Navigates; `replace` adds no history entry. */
export function go(path: readonly string[], query: Query = {}, replace = false): void {
  const target = href(path, query);
  if (replace) {
    history.replaceState(null, '', target);
    currentRoute.set(parseRoute(target));
  } else if (location.hash !== target) {
    location.hash = target;
  }
}
