// Commands in messages.

/** The commands that a message contains in backticks, each once. */
export function commandsIn(text: string): string[] {
  return [...new Set([...text.matchAll(/`(icecore [^`]+)`/g)].map((found) => found[1] ?? ''))];
}
