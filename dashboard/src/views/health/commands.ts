// What a message says to do.

/** The commands that a message names, each once. */
export function commands(text: string): string[] {
  return [...new Set([...text.matchAll(/`(icecore [^`]+)`/g)].map((found) => found[1] ?? ''))];
}
