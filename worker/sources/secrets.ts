/** The secrets of a source, of all its kinds under one seal. */
export const SECRET_PREFIXES = { header: 'header.', environment: 'env.', inject: 'inject.' } as const;
export const CLIENT_SECRET = 'oauth.client_secret';
export const WEBHOOK_SECRET = 'webhook';

type Secrets = Readonly<Record<string, string>>;

/** Those of one kind, under their own names. */
export function secretsOf(secrets: Secrets, kind: keyof typeof SECRET_PREFIXES): Record<string, string> {
  const prefix = SECRET_PREFIXES[kind];
  return Object.fromEntries(
    Object.entries(secrets).flatMap(([name, value]) =>
      name.startsWith(prefix) ? [[name.slice(prefix.length), value]] : [],
    ),
  );
}

export function named(kind: keyof typeof SECRET_PREFIXES, values: Secrets): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`${SECRET_PREFIXES[kind]}${name}`, value]),
  );
}

/** What their seal is bound to: no tool has a name with a line break in it. */
export function secretsHolder(source: string): string {
  return `tool_source\n${source}`;
}
