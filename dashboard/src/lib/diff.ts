// Differences between two texts: by lines, and within a changed line by words.

export type Change<T> = { kind: 'same' | 'added' | 'removed'; value: T };

/** Beyond this many edit steps the difference is one block: finer steps would cost too much and help nobody. */
const MAX_STEPS = 4_000;

/** The removals and additions between two lists, in order (Myers). */
export function diff<T>(old: readonly T[], now: readonly T[]): Change<T>[] {
  let begin = 0;
  while (begin < old.length && begin < now.length && old[begin] === now[begin]) begin += 1;
  let end = 0;
  while (end < old.length - begin && end < now.length - begin && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const same = (list: readonly T[]): Change<T>[] => list.map((value) => ({ kind: 'same', value }));
  return [
    ...same(old.slice(0, begin)),
    ...compareMiddle(old.slice(begin, old.length - end), now.slice(begin, now.length - end)),
    ...same(old.slice(old.length - end)),
  ];
}

function compareMiddle<T>(old: readonly T[], now: readonly T[]): Change<T>[] {
  const asReplacement = (): Change<T>[] => [
    ...old.map((value): Change<T> => ({ kind: 'removed', value })),
    ...now.map((value): Change<T> => ({ kind: 'added', value })),
  ];
  if (old.length === 0 || now.length === 0) return asReplacement();
  const most = Math.min(old.length + now.length, MAX_STEPS);
  const offset = most + 1;
  const reach = new Int32Array(2 * most + 3);
  const trail: Int32Array[] = [];
  for (let steps = 0; steps <= most; steps += 1) {
    trail.push(reach.slice());
    for (let k = -steps; k <= steps; k += 2) {
      const down = k === -steps || (k !== steps && (reach[offset + k - 1] ?? 0) < (reach[offset + k + 1] ?? 0));
      let x = down ? reach[offset + k + 1] ?? 0 : (reach[offset + k - 1] ?? 0) + 1;
      while (x < old.length && x - k < now.length && old[x] === now[x - k]) x += 1;
      reach[offset + k] = x;
      if (x >= old.length && x - k >= now.length) return backtrack(old, now, trail, steps, offset);
    }
  }
  return asReplacement();
}

function backtrack<T>(old: readonly T[], now: readonly T[], trail: Int32Array[], steps: number, offset: number): Change<T>[] {
  const changes: Change<T>[] = [];
  let x = old.length;
  let y = now.length;
  for (let step = steps; step > 0; step -= 1) {
    const reach = trail[step] ?? new Int32Array();
    const k = x - y;
    const down = k === -step || (k !== step && (reach[offset + k - 1] ?? 0) < (reach[offset + k + 1] ?? 0));
    const from = down ? k + 1 : k - 1;
    const fromX = reach[offset + from] ?? 0;
    const fromY = fromX - from;
    while (x > fromX && y > fromY) {
      x -= 1;
      y -= 1;
      changes.push({ kind: 'same', value: old[x] as T });
    }
    if (down) {
      y -= 1;
      changes.push({ kind: 'added', value: now[y] as T });
    } else {
      x -= 1;
      changes.push({ kind: 'removed', value: old[x] as T });
    }
  }
  while (x > 0) {
    x -= 1;
    changes.push({ kind: 'same', value: old[x] as T });
  }
  return changes.reverse();
}

/** The words of a line, with the spaces and punctuation between them. */
export function words(line: string): string[] {
  return line.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

export interface DiffLine {
  kind: 'same' | 'added' | 'removed';
  parts: Change<string>[];
  /** The line number in the old and in the new text. */
  old: number | undefined;
  now: number | undefined;
}

/** The lines of two texts, each with the changes within it. */
export function diffLines(old: string, now: string): DiffLine[] {
  const changes = diff(old.split('\n'), now.split('\n'));
  const result: DiffLine[] = [];
  let oldAt = 0;
  let nowAt = 0;
  for (let at = 0; at < changes.length;) {
    const change = changes[at];
    if (!change) break;
    if (change.kind === 'same') {
      oldAt += 1;
      nowAt += 1;
      result.push({ kind: 'same', parts: [change], old: oldAt, now: nowAt });
      at += 1;
      continue;
    }
    const block = [];
    for (let next = changes[at]; next && next.kind !== 'same'; next = changes[at]) {
      block.push(next);
      at += 1;
    }
    const removed = block.filter((one) => one.kind === 'removed').map((one) => one.value);
    const added = block.filter((one) => one.kind === 'added').map((one) => one.value);
    // A line that replaced another one is compared with it word by word.
    const paired = removed.length === added.length ? removed.map((line, index) => diff(words(line), words(added[index] ?? ''))) : undefined;
    removed.forEach((what, index) => {
      oldAt += 1;
      const parts = paired?.[index]?.filter((part) => part.kind !== 'added') ?? [{ kind: 'removed' as const, value: what }];
      result.push({ kind: 'removed', parts, old: oldAt, now: undefined });
    });
    added.forEach((what, index) => {
      nowAt += 1;
      const parts = paired?.[index]?.filter((part) => part.kind !== 'removed') ?? [{ kind: 'added' as const, value: what }];
      result.push({ kind: 'added', parts, old: undefined, now: nowAt });
    });
  }
  return result;
}
