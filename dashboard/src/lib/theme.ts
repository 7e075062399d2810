// Light or dark theme: the system's, unless the user chose one; the choice is stored in this browser.
import { Store } from './store.ts';

export type Theme = 'light' | 'dark';
const STORAGE_KEY = 'icecore.theme';

function storedTheme(): Theme | undefined {
  try {
    const chosen = localStorage.getItem(STORAGE_KEY);
    return chosen === 'light' || chosen === 'dark' ? chosen : undefined;
  } catch {
    return undefined;
  }
}

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const effectiveTheme = (): Theme => storedTheme() ?? (systemDark.matches ? 'dark' : 'light');

/** The current theme. */
export const theme = new Store<Theme>(effectiveTheme());

function applyTheme(): void {
  document.documentElement.dataset['theme'] = effectiveTheme();
  theme.set(effectiveTheme());
}

systemDark.addEventListener('change', applyTheme);

/** Switches to the other theme and stores the choice. */
export function switchTheme(): void {
  const other: Theme = theme.get() === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(STORAGE_KEY, other);
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
