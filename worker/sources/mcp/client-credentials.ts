/** Access tokens for an MCP server by the client credentials of a tenant (RFC 6749 section 4.4), kept until shortly before their end. */
import type { AuthProvider } from '@modelcontextprotocol/client';
import * as z from 'zod';
import { toBase64, utf8 } from '../../../shared/encoding.ts';
import type { OAuthSchema } from '../../../shared/tool-source.ts';
import { readBounded } from '../../identity/read-bounded.ts';
import type { Fetch } from '../../tools/http/bounded-fetch.ts';

const MAX_ANSWER_BYTES = 64 * 1024;
const TOKEN_TIMEOUT_MS = 10_000;
/** Before its end a token is not used any more. */
const MARGIN_MS = 30_000;
const DEFAULT_LIFETIME_S = 300;

const TokenSchema = z.looseObject({
  access_token: z.string().min(1).max(16_384),
  token_type: z.string().refine((type) => type.toLowerCase() === 'bearer'),
  expires_in: z.number().positive().optional(),
});

export class TokenRefused extends Error {
  override name = 'TokenRefused';
}

export interface ClientCredentials extends z.infer<typeof OAuthSchema> {
  /** The server that the token is for. */
  server: string;
}

export class ClientCredentialsTokens implements AuthProvider {
  readonly #credentials: ClientCredentials;
  readonly #fetch: Fetch;
  #held: { token: string; untilMs: number } | undefined;
  #asking: Promise<string> | undefined;

  constructor(credentials: ClientCredentials, fetch: Fetch) {
    this.#credentials = credentials;
    this.#fetch = fetch;
  }

  readonly token = async (): Promise<string> => {
    if (this.#held !== undefined && Date.now() < this.#held.untilMs) return this.#held.token;
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  };

  readonly onUnauthorized = async (): Promise<void> => {
    this.#held = undefined;
    await this.token();
  };

  async #ask(): Promise<string> {
    const { token_url, client_id, client_secret, scope, resource, server } = this.#credentials;
    const form = new URLSearchParams({ grant_type: 'client_credentials', resource: resource ?? server });
    if (scope !== undefined) form.set('scope', scope);
    const headers = new Headers({
      accept: 'application/json',
      'content-type': 'application/x-www-form-urlencoded',
    });
    if (client_secret === undefined) form.set('client_id', client_id);
    else headers.set('authorization', `Basic ${basic(client_id, client_secret)}`);
    const response = await this.#fetch(token_url, {
      method: 'POST',
      headers,
      body: form.toString(),
      signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS),
    });
    const bytes = await readBounded(response.body, MAX_ANSWER_BYTES);
    if (!response.ok) throw new TokenRefused(`the token endpoint answered ${response.status}`);
    const token = TokenSchema.safeParse(jsonOf(bytes));
    if (!token.success) throw new TokenRefused('the token endpoint gave no bearer token');
    const lifetimeMs = (token.data.expires_in ?? DEFAULT_LIFETIME_S) * 1_000;
    this.#held = { token: token.data.access_token, untilMs: Date.now() + lifetimeMs - MARGIN_MS };
    return token.data.access_token;
  }
}

/** RFC 6749 section 2.3.1: both parts as a form encodes them. */
function basic(id: string, secret: string): string {
  const encoded = (text: string) => new URLSearchParams({ x: text }).toString().slice(2);
  return toBase64(utf8(`${encoded(id)}:${encoded(secret)}`));
}

function jsonOf(bytes: Uint8Array | undefined): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return undefined;
  }
}
