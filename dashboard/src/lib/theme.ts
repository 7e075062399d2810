// Light or dark theme: the system's, unless the user chose one; the choice is stored in this browser.
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

/** The current theme. */
export const theme = new Store<Theme>(current());

function show(): void {
  document.documentElement.dataset['theme'] = current();
  theme.set(current());
}

system.addEventListener('change', show);

/** Switches to the other theme and stores the choice. */
export function switchTheme(): void {
  const other: Theme = theme.get() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEPT, other);
  } catch {
    // Without storage, the choice lasts until the page is reloaded.
  }
  document.documentElement.dataset['theme'] = other;
  theme.set(other);
}

/** The value of a design token, for drawing on a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
