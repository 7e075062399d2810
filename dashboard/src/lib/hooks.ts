// Hooks that several views use.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';

/** A value, debounced: it follows once the original has not changed for `ms`, so that typing sends no request per letter. */
export function useDebounced<T>(value: T, ms: number): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(() => value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return debounced;
}

/** The current size of an element. */
export function useSize<T extends Element>(): [RefObject<T>, { width: number; height: number }] {
  const element = useRef<T>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const watched = element.current;
    if (!watched) return;
    const observer = new ResizeObserver(([entry]) => {
      if (entry) setSize({ width: entry.contentRect.width, height: entry.contentRect.height });
    });
    observer.observe(watched);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

/** Sets the title of the window, which screen readers announce. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === '' ? 'icecore' : `${title} · icecore`;
  }, [title]);
}
