// Terms of a refused draft that no source contains, located in its text.

/** The terms that the complaint names. */
export function unsupportedTerms(complaint: string): string[] {
  const named = /no source says: ([^;]*)/.exec(complaint)?.[1];
  return named === undefined ? [] : named.split(',').map((one) => one.trim()).filter((one) => one !== '');
}

/** Splits a text at these terms; every second piece is one of them. */
export function splitAtTerms(text: string, words: readonly string[]): string[] {
  const pieces: string[] = [];
  let rest = text;
  for (;;) {
    // The earliest match; of those at the same position, the longest.
    const found = words.filter((word) => word !== '').map((word) => [rest.indexOf(word), word] as const).filter(([at]) => at >= 0)
      .sort(([one, word], [other, another]) => one - other || another.length - word.length)[0];
    if (!found) return [...pieces, rest];
    pieces.push(rest.slice(0, found[0]), found[1]);
    rest = rest.slice(found[0] + found[1].length);
  }
}
