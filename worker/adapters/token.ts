/**
 * Where the clients of other servers put what they authenticate with. It is always the same access token; only the header
 * differs, so that a client moves by its URL and its key. Queries and cookies carry no tokens.
 */

/** `https://any:<token>@host/…`: HTTP libraries send the user part of a URL as Basic credentials. */
export function basicAuthorization(headers: Headers): string | undefined {
  const [, credentials] = /^basic +(\S+)$/i.exec(headers.get('Authorization') ?? '') ?? [];
  if (credentials === undefined) return undefined;
  const text = decoded(credentials);
  const colon = text.indexOf(':');
  return colon < 0 ? undefined : `Bearer ${text.slice(colon + 1)}`;
}

/** `X-API-Key: <token>`, unless the request is authorised in the usual way. */
export function apiKeyAuthorization(headers: Headers): string | undefined {
  const key = headers.get('X-API-Key');
  return key === null || headers.has('Authorization') ? undefined : `Bearer ${key}`;
}

function decoded(base64: string): string {
  try {
    return atob(base64);
  } catch {
    return '';
  }
}
