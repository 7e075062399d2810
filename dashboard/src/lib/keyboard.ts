// Keyboard shortcuts: global ones, and moving through lists.
import { useEffect, useRef } from 'preact/hooks';
import type { RefObject } from 'preact';

/** Whether a text field has the focus, so that letters are text. */
export function isTextField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

const CHORD_MS = 1_200;

/** Global shortcuts: `g` and a letter open a view, single keys run an action. */
export function useKeys(chords: ReadonlyMap<string, () => void>, single: ReadonlyMap<string, () => void>): void {
  const chordStart = useRef(0);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTextField(event.target)) return;
      // While a dialog is open, no shortcut works.
      if (document.querySelector('dialog[open]')) return;
      const chorded = event.timeStamp - chordStart.current < CHORD_MS ? chords.get(event.key) : undefined;
      chordStart.current = 0;
      if (chorded) {
        event.preventDefault();
        chorded();
      } else if (event.key === 'g') {
        chordStart.current = event.timeStamp;
      } else {
        const action = single.get(event.key);
        if (!action) return;
        event.preventDefault();
        action();
      }
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [chords, single]);
}

/**
 * Arrows, Home and End move the focus through the `[data-row]` elements within; the row itself handles Enter.
 * Only one row is a tab stop. The list may appear later than the view: it is looked up after every render.
 */
export function useRows<T extends HTMLElement>(): RefObject<T> {
  const list = useRef<T>(null);
  useEffect(() => {
    const container = list.current;
    if (!container) return;
    const rows = (): HTMLElement[] => [...container.querySelectorAll<HTMLElement>('[data-row]')];
    const updateTabStop = (): void => {
      const all = rows();
      const now = all.find((row) => row === document.activeElement) ?? all.find((row) => row.getAttribute('aria-current') === 'true') ?? all[0];
      all.forEach((row) => (row.tabIndex = row === now ? 0 : -1));
    };
    const onKeyDown = (event: KeyboardEvent): void => {
      if (isTextField(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      const all = rows();
      const at = all.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
      const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
      if (next === undefined || all.length === 0) return;
      event.preventDefault();
      const row = all[Math.min(Math.max(next, 0), all.length - 1)];
      all.forEach((one) => (one.tabIndex = one === row ? 0 : -1));
      row?.focus();
    };
    updateTabStop();
    const changes = new MutationObserver(updateTabStop);
    changes.observe(container, { childList: true, subtree: true });
    container.addEventListener('keydown', onKeyDown);
    return () => {
      changes.disconnect();
      container.removeEventListener('keydown', onKeyDown);
    };
  });
  return list;
}
