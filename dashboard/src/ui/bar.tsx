// A usage bar.
import type { JSX } from 'preact';

/** `part` of `whole`; the excess is in the warm colour. The text beside it says the same, so screen readers skip it. */
export function Bar({ part, whole, warm = false }: { part: number; whole: number; warm?: boolean }): JSX.Element {
  const most = Math.max(part, whole, 1);
  const within = Math.min(part, whole) / most * 100;
  return (
    <svg class="usage" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="room" width="100" height="6" />
      <rect class={warm ? 'over' : 'used'} width={within} height="6" />
      {part > whole && <rect class="over" x={within} width={100 - within} height="6" />}
    </svg>
  );
}
