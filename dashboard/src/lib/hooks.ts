// Small hooks that several views need.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';

/** A value that follows another one after it has been still for a moment: typing does not ask at every letter. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(() => value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** The size of an element, kept up to date. */
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

/** Names the page, for the window's title and for those who hear it. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === '' ? 'icecore' : `${title} · icecore`;
  }, [title]);
}
