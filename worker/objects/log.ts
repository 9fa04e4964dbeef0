/** One JSON line per event; never arguments, output, tokens or keys. */
type Fields = Record<string, string | number | boolean | null | undefined>;

export function logInfo(event: string, fields: Fields = {}): void {
  console.log(JSON.stringify({ level: 'info', event, ...fields }));
}

/** Something refused that a correct peer does not send, or a step that has to be tried again. */
export function logWarning(event: string, fields: Fields = {}): void {
  console.warn(JSON.stringify({ level: 'warn', event, ...fields }));
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
