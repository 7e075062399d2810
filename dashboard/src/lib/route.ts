// Where one is: `#/view/rest?query`. Everything a person can come back to stands in the address, and nothing else does.
import { Store, useStore } from './store.ts';

export interface Route {
  /** The view; empty for the first one. */
  view: string;
  /** What follows, decoded. */
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

/** Reads what stands behind the `#`. */
export function parse(hash: string): Route {
  // What does not begin with `#/` is no place, such as the code of a login: it is the first page.
  const text = hash.startsWith('#/') ? hash.slice(1) : '';
  const mark = text.indexOf('?');
  const path = mark < 0 ? text : text.slice(0, mark);
  const [view = '', ...rest] = path.split('/').filter((part) => part !== '').map(decode);
  return { view, rest, query: new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1)) };
}

/** The address of a place: `href(['ledger', id], { type: ['decision'] })`. */
export function href(path: readonly string[], query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((one: string) => search.append(name, one));
    else if (value !== undefined && value !== '' && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text === '' ? '' : `?${text}`}`;
}

const here = new Store<Route>(parse(location.hash));
addEventListener('hashchange', () => here.set(parse(location.hash)));

/** Where one is now. */
export function useRoute(): Route {
  return useStore(here);
}

/** Goes somewhere; `replace` leaves no step to go back to. */
export function go(path: readonly string[], query: Query = {}, replace = false): void {
  const target = href(path, query);
  if (replace) {
    history.replaceState(null, '', target);
    here.set(parse(target));
  } else if (location.hash !== target) {
    location.hash = target;
  }
}
