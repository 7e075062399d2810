// Light or dark: the system's choice unless a person has made one, which is kept in this browser.
import { Store } from './store.ts';

export type Theme = 'light' | 'dark';
const KEPT = 'icecore.theme';

function kept(): Theme | undefined {
  try {
    const chosen = localStorage.getItem(KEPT);
    return chosen === 'light' || chosen === 'dark' ? chosen : undefined;
  } catch {
    return undefined;
  }
}

const system = matchMedia('(prefers-color-scheme: dark)');
const current = (): Theme => kept() ?? (system.matches ? 'dark' : 'light');

/** The theme that is shown. */
export const theme = new Store<Theme>(current());

function show(): void {
  document.documentElement.dataset['theme'] = current();
  theme.set(current());
}

system.addEventListener('change', show);

/** Shows the other theme, and keeps to it. */
export function switchTheme(): void {
  const other: Theme = theme.get() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEPT, other);
  } catch {
    // It then holds until the page is loaded again.
  }
  document.documentElement.dataset['theme'] = other;
  theme.set(other);
}

/** A token's value, for what is drawn on a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
